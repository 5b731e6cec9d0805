#include "common/training.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace training {
namespace {

// ---- Signals ----------------------------------------------------------------------------------

// Any thread may be the one that the signal interrupts, so this is an atomic; a handler may touch
// one only where it needs no lock.
std::atomic<int> signal_asked{0};
static_assert(std::atomic<int>::is_always_lock_free);

struct sigaction action_of(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  // Reads and writes that the signal finds at work go on. Where a thread has a stack for signals,
  // the handler runs there: the stack of a fiber may be nearly full.
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  return action;
}

// The next signal ends the program.
void on_interrupt(int signal) {
  const struct sigaction usual = action_of(SIG_DFL);
  sigaction(SIGINT, &usual, nullptr);
  sigaction(SIGTERM, &usual, nullptr);
  signal_asked = signal;
}

// ---- Text -------------------------------------------------------------------------------------

// Whether lines on `out` can be redrawn, and the user has nothing against it.
bool can_redraw(std::FILE* out) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(fileno(out)) != 0 && (no_color == nullptr || *no_color == '\0') &&
         terminal != nullptr && *terminal != '\0' && std::strcmp(terminal, "dumb") != 0;
}

std::size_t terminal_columns(std::FILE* out) {
  winsize size = {};
  return ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// The first `columns` characters of a UTF-8 text: bytes 10xxxxxx continue the character before.
std::string cut(const std::string& text, std::size_t columns) {
  std::size_t end = 0;
  for (std::size_t characters = 0; end < text.size(); ++end)
    if ((text[end] & 0xC0) != 0x80 && characters++ == columns) break;
  return text.substr(0, end);
}

// "7 s", "3:05 min" or "2:07 h"
std::string duration_text(double seconds) {
  const long long total = std::llround(std::min(seconds, 1e9));
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{}:{:02} min", total / 60, total % 60);
  return fmt::format("{}:{:02} h", total / 3600, total / 60 % 60);
}

constexpr std::chrono::milliseconds kRedrawEvery{50};

}  // namespace

std::string data_folder(const Options& options) {
  if (!options.training.data.empty()) return options.training.data;
  const char* folder = std::getenv("COURSE_DATA");
  return folder != nullptr && *folder != '\0' ? folder : "data";
}

Interrupt::Interrupt() {
  signal_asked = 0;
  const struct sigaction ours = action_of(on_interrupt);
  sigaction(SIGINT, &ours, &before_interrupt_);
  sigaction(SIGTERM, &ours, &before_terminate_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &before_interrupt_, nullptr);
  sigaction(SIGTERM, &before_terminate_, nullptr);
}

bool Interrupt::asked() const { return signal_asked != 0; }

void Interrupt::stop(const std::string& text) const {
  throw Interrupted(text, signal_asked == SIGTERM ? kExitTerminated : kExitInterrupted);
}

std::string not_trained_text(const std::string& checkpoint) {
  return checkpoint + " was not written: a version whose first steps are wrong is not trained";
}

void stop_diverged(const std::string& what, const Kept& kept) {
  std::string text = what + " is not finite: the training has diverged, try a smaller --lr";
  if (!kept.path.empty())
    text += kept.steps > 0
                ? fmt::format("; {} holds the training after step {}", kept.path, kept.steps)
                : fmt::format("; {} was not written", kept.path);
  throw Diverged(text);
}

void require_finite(const std::vector<float>& losses, std::size_t begin, std::size_t end,
                    std::uint64_t first, std::uint64_t steps_per_epoch, const Kept& kept) {
  for (std::size_t i = begin; i < end; ++i) {
    if (std::isfinite(losses[i])) continue;
    const std::uint64_t before = first + i;
    const std::string epoch =
        steps_per_epoch > 0 ? fmt::format(" (epoch {})", before / steps_per_epoch + 1) : "";
    stop_diverged(fmt::format("the loss of step {}{}", before + 1, epoch), kept);
  }
}

double mean_of(const std::vector<float>& losses, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += static_cast<double>(losses[i]);
  return sum / static_cast<double>(end - begin);
}

Progress::Progress(std::size_t epochs, std::FILE* out, const char* unit)
    : epochs_(epochs), out_(out), unit_(unit), terminal_(can_redraw(out)) {}

Progress::~Progress() { clear(); }

bool Progress::due() const { return terminal_ && Clock::now() - last_ >= kRedrawEvery; }

void Progress::update(std::size_t epoch, std::size_t done, std::size_t total,
                      const std::string& text) {
  if (!due()) return;
  last_ = Clock::now();
  const double share =
      total > 0 ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1;
  const double all_done = static_cast<double>(epoch) - 1 + share;
  if (first_done_ < 0) first_done_ = all_done, first_ = last_;

  constexpr std::size_t kWidth = 20;
  const std::size_t filled = static_cast<std::size_t>(share * kWidth);
  std::string bar = fmt::format("{} [{}{}] {:3}%", heading(epoch), std::string(filled, '#'),
                                std::string(kWidth - filled, '-'), static_cast<int>(100 * share));
  // The time left, as far as the time since the first bar tells.
  const double seconds = std::chrono::duration<double>(last_ - first_).count();
  if (all_done > first_done_) {
    const double left = static_cast<double>(epochs_) - all_done;
    bar += "  " + duration_text(std::max(0.0, seconds * left / (all_done - first_done_))) + " left";
  }
  if (!text.empty()) bar += "  " + text;
  // A line that is full would move on to the next one, and could not be redrawn.
  fmt::print(out_, "\r{}\x1b[K", cut(bar, terminal_columns(out_) - 1));
  std::fflush(out_);
  drawn_ = true;
}

void Progress::finish_epoch(std::size_t epoch, const std::string& text) {
  clear();
  fmt::print(out_, "{}{}{}\n", heading(epoch), text.empty() ? "" : "  ", text);
  std::fflush(out_);
}

// "epoch  3/10"
std::string Progress::heading(std::size_t epoch) const {
  const std::string last = std::to_string(epochs_);
  return fmt::format("{} {:>{}}/{}", unit_, epoch, last.size(), last);
}

// Takes the bar away.
void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
  drawn_ = false;
}

}  // namespace training
