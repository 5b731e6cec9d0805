// What programs that train share: the data's folder, Ctrl-C, and the lines of progress.
#include "common/training.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/gpu.h"
#include "common/testing.h"
#include "common/tests/child.h"
#include "common/tests/environment.h"

namespace {

using training::Interrupt;
using training::Progress;

// Stands for what the signals did before, and leaves something to see.
volatile sig_atomic_t g_counted_signals = 0;
void count_signal(int) { g_counted_signals = g_counted_signals + 1; }

void (*handler_of(int signal))(int) {
  struct sigaction now;
  sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

// The two signals with other handlers while it lives.
class KeptHandlers {
 public:
  explicit KeptHandlers(void (*handler)(int))
      : interrupt_(signal(SIGINT, handler)), terminate_(signal(SIGTERM, handler)) {}
  ~KeptHandlers() {
    signal(SIGINT, interrupt_);
    signal(SIGTERM, terminate_);
  }
  KeptHandlers(const KeptHandlers&) = delete;
  KeptHandlers& operator=(const KeptHandlers&) = delete;

 private:
  void (*interrupt_)(int);
  void (*terminate_)(int);
};

static __global__ void square_roots(float* values, unsigned rounds) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float value = values[i];
  for (unsigned r = 0; r < rounds; ++r) value = sqrtf(value) + 1.0f;
  __syncthreads();
  values[i] = value;
}

// The end of a terminal that programs write to. text() is what has arrived at the other end, where
// the terminal has put \r before each \n.
class Terminal {
 public:
  explicit Terminal(unsigned short columns = 80) : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    // Not with REQUIRE: nvcc 13 never ends where a class has one, with g++ 13 and Catch2 3.4.
    if (master_ >= 0 && grantpt(master_) == 0 && unlockpt(master_) == 0)
      file_ = std::fopen(ptsname(master_), "r+");
    if (file_ == nullptr) throw std::runtime_error("this machine lends no pseudo-terminal");
    winsize size = {};
    size.ws_row = 24, size.ws_col = columns;
    ioctl(master_, TIOCSWINSZ, &size);
  }
  ~Terminal() {
    std::fclose(file_);
    close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  std::FILE* file() { return file_; }
  std::string text() {
    std::string text;
    char part[4096];
    fcntl(master_, F_SETFL, O_NONBLOCK);
    for (ssize_t n = 0; (n = read(master_, part, sizeof part)) > 0;)
      text.append(part, static_cast<size_t>(n));
    return text;
  }

 private:
  int master_;
  std::FILE* file_ = nullptr;
};

// A file that is no terminal.
struct Plain {
  ~Plain() { std::fclose(file); }
  std::string text() {
    std::string text;
    std::rewind(file);
    for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
    return text;
  }
  std::FILE* file = std::tmpfile();
};

// Longer than the time between two bars.
void wait_for_bar() { std::this_thread::sleep_for(std::chrono::milliseconds(60)); }

}  // namespace

TEST_CASE("training: the data's folder is --data, then $COURSE_DATA, then data") {
  KeptVariable variable("COURSE_DATA");
  Options options;
  CHECK(training::data_folder(options) == "data");
  variable.set("");
  CHECK(training::data_folder(options) == "data");
  variable.set("/elsewhere");
  CHECK(training::data_folder(options) == "/elsewhere");
  options.training.data = "here";
  CHECK(training::data_folder(options) == "here");
}

TEST_CASE("interrupt: the first signal only asks") {
  const KeptHandlers kept(count_signal);
  g_counted_signals = 0;
  for (const int signal : {SIGINT, SIGTERM}) {
    const Interrupt interrupt;
    CHECK_FALSE(interrupt.asked());
    raise(signal);
    CHECK(interrupt.asked());
    // From now on both signals do what they usually do, and that is to end the program.
    CHECK(handler_of(SIGINT) == SIG_DFL);
    CHECK(handler_of(SIGTERM) == SIG_DFL);
  }
  CHECK(g_counted_signals == 0);
}

TEST_CASE("interrupt: the program ends with the code of the signal that came") {
  const KeptHandlers kept(count_signal);
  for (const int signal : {SIGINT, SIGTERM}) {
    const Interrupt interrupt;
    raise(signal);
    try {
      interrupt.stop("stopped");
    } catch (const training::Interrupted& error) {
      CHECK(error.code == 128 + signal);
      CHECK(std::string(error.what()) == "stopped");
    }
  }
}

TEST_CASE("training: a loss that is not finite ends it, and its line says what is kept") {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto complaint = [](const std::vector<float>& losses, size_t begin, size_t end,
                            const training::Kept& kept, std::uint64_t per_epoch) -> std::string {
    try {
      training::require_finite(losses, begin, end, 20, per_epoch, kept);
    } catch (const training::Diverged& error) {
      return error.what();
    }
    return "";
  };
  CHECK(complaint({1, 2}, 0, 2, {}, 10).empty());
  CHECK(complaint({nan, 1, 2, inf}, 1, 3, {}, 10).empty());  // only what is asked for
  const std::string advice = " is not finite: the training has diverged, try a smaller --lr";
  CHECK(complaint({1, nan}, 0, 2, {}, 10) == "the loss of step 22 (epoch 3)" + advice);
  CHECK(complaint({1, -inf}, 0, 2, {}, 0) == "the loss of step 22" + advice);
  CHECK(complaint({inf}, 0, 1, {"F", 0}, 0) ==
        "the loss of step 21" + advice + "; F was not written");
  CHECK(complaint({inf}, 0, 1, {"F", 20}, 0) ==
        "the loss of step 21" + advice + "; F holds the training after step 20");
  CHECK(training::mean_of({9, 1, 2, 9}, 1, 3) == 1.5);
  CHECK(std::isnan(training::mean_of({1, nan}, 0, 2)));
}

TEST_CASE("interrupt: what the signals did before is put back") {
  const KeptHandlers kept(count_signal);
  g_counted_signals = 0;
  {
    const Interrupt interrupt;
    CHECK(handler_of(SIGINT) != count_signal);
  }
  CHECK(handler_of(SIGINT) == count_signal);
  CHECK(handler_of(SIGTERM) == count_signal);
  {
    const Interrupt interrupt;
    raise(SIGINT);
  }
  raise(SIGINT);
  raise(SIGTERM);
  CHECK(g_counted_signals == 2);
}

TEST_CASE("interrupt: a signal that comes while kernels run") {
  const KeptHandlers kept(count_signal);
  constexpr unsigned kBlocks = 64, kThreads = 64;
  const std::vector<float> ones(kBlocks * kThreads, 1.0f);
  float* values = nullptr;
  HIP_CHECK(hipMalloc(&values, ones.size() * sizeof(float)));
  const auto run = [&] {
    std::vector<float> result(ones.size());
    HIP_CHECK(hipMemcpy(values, ones.data(), ones.size() * sizeof(float), hipMemcpyHostToDevice));
    LAUNCH(square_roots, kBlocks, kThreads, 0, values, 100u);
    HIP_CHECK(hipMemcpy(result.data(), values, ones.size() * sizeof(float), hipMemcpyDeviceToHost));
    return result;
  };
  const std::vector<float> undisturbed = run();

  // Whichever thread the system chooses, in a kernel or not, nothing but the flag changes.
  for (int i = 0; i < 20; ++i) {
    const Interrupt interrupt;
    std::thread user([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      kill(getpid(), SIGINT);
    });
    bool same = true;
    while (!interrupt.asked()) same = same && run() == undisturbed;
    user.join();
    CHECK(same);
    CHECK(run() == undisturbed);
  }
  HIP_CHECK(hipFree(values));
}

TEST_CASE("interrupted twice (child)", "[.child]") {
  const Interrupt interrupt;
  raise(SIGINT);
  std::puts("saving");
  std::fflush(stdout);
  raise(std::getenv("SECOND") != nullptr ? SIGTERM : SIGINT);
  std::puts("saved");
  std::fflush(stdout);
}

TEST_CASE("interrupt: a second signal ends the program at once") {
  for (const char* environment : {"", "SECOND=1"}) {
    const Outcome outcome = run_child("interrupted twice (child)", environment);
    CHECK(outcome.exit_code == -1);
    CHECK(outcome.says("saving\n"));
    CHECK_FALSE(outcome.says("saved\n"));
  }
}

TEST_CASE("progress: plain lines where there is no terminal") {
  const KeptVariable no_color("NO_COLOR");
  KeptVariable term("TERM");
  term.set("xterm");
  Plain plain;
  {
    Progress progress(10, plain.file);
    CHECK_FALSE(progress.due());
    progress.update(1, 5, 10, "loss 0.5");
    progress.finish_epoch(1, "loss 0.25");
    progress.finish_epoch(10, "");
    progress.update(10, 5, 10, "loss 0.5");
  }
  CHECK(plain.text() == "epoch  1/10  loss 0.25\nepoch 10/10\n");
}

TEST_CASE("progress: a bar on a terminal, gone when the epoch's line comes") {
  const KeptVariable no_color("NO_COLOR");
  KeptVariable term("TERM");
  term.set("xterm");
  Terminal terminal;
  {
    Progress progress(10, terminal.file());
    REQUIRE(progress.due());
    progress.update(3, 45, 100, "loss 0.5");
    CHECK(terminal.text() == "\repoch  3/10 [#########-----------]  45%  loss 0.5\x1b[K");
    progress.finish_epoch(3, "loss 0.25");
    CHECK(terminal.text() == "\r\x1b[Kepoch  3/10  loss 0.25\r\n");
    progress.finish_epoch(4, "loss 0.125");
    CHECK(terminal.text() == "epoch  4/10  loss 0.125\r\n");
    wait_for_bar();
    progress.update(5, 100, 100, "");
    CHECK(contains_text(terminal.text(), "\repoch  5/10 [####################] 100%"));
  }
  CHECK(terminal.text() == "\r\x1b[K");  // whatever ended the training, no bar is left behind
}

TEST_CASE("progress: a bar tells the time left from the second on, and is not redrawn too often") {
  const KeptVariable no_color("NO_COLOR");
  KeptVariable term("TERM");
  term.set("xterm");
  Terminal terminal;
  Progress progress(2, terminal.file());
  progress.update(1, 0, 1000, "");
  CHECK_FALSE(contains_text(terminal.text(), "left"));
  CHECK_FALSE(progress.due());
  progress.update(1, 1, 1000, "");
  CHECK(terminal.text().empty());
  wait_for_bar();
  CHECK(progress.due());
  progress.update(1, 1, 1000, "");  // 0.06 s or more for one part in 2000: two minutes or more
  CHECK(contains_text(terminal.text(), " min left"));
  wait_for_bar();
  progress.update(2, 1000, 1000, "");
  CHECK(contains_text(terminal.text(), "100%  0 s left"));
}

TEST_CASE("progress: a bar never fills the terminal's line") {
  const KeptVariable no_color("NO_COLOR");
  KeptVariable term("TERM");
  term.set("xterm");
  Terminal terminal(20);
  Progress progress(10, terminal.file());
  progress.update(3, 45, 100, "loss 0.5");
  CHECK(terminal.text() == "\repoch  3/10 [######\x1b[K");  // 19 characters
  Terminal other(41);
  Progress letters(1, other.file());
  letters.update(1, 0, 1, "\xC3\xA4\xC3\xB6\xC3\xBC");  // two bytes a letter
  CHECK(other.text() == "\repoch 1/1 [--------------------]   0%  \xC3\xA4\x1b[K");
}

TEST_CASE("progress: NO_COLOR and TERM=dumb mean plain lines, and so does no TERM") {
  KeptVariable no_color("NO_COLOR"), term("TERM");
  const auto drawn = [] {
    Terminal terminal;
    Progress progress(10, terminal.file());
    const bool due = progress.due();
    progress.update(1, 1, 2, "loss");
    const std::string text = terminal.text();
    CHECK(due == !text.empty());
    return !text.empty();
  };
  CHECK_FALSE(drawn());
  term.set("dumb");
  CHECK_FALSE(drawn());
  term.set("xterm");
  CHECK(drawn());
  no_color.set("1");
  CHECK_FALSE(drawn());
  no_color.set("");
  CHECK(drawn());
}
