// What programs that train share beyond their options: where the data is, Ctrl-C, what is no longer
// finite, and how far they have come. Implemented in training.cpp.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/exit_code.h"
#include "common/options.h"

namespace training {

// The folder of the data sets: --data, else $COURSE_DATA, else "data". Nobody says that it is
// there.
//   mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte[.gz], tiny_shakespeare.txt, sales.tsv
std::string data_folder(const Options& options);

// While it lives, the first Ctrl-C (SIGINT) or SIGTERM does not end the program but is asked for
// with asked(), so that the program can save its work. A second one ends it at once. What the
// signals did before is put back at the end. One object at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool asked() const;
  // Ends the training as the signal asked; `text` says what is saved and how to go on.
  [[noreturn]] void stop(const std::string& text) const;

 private:
  struct sigaction before_interrupt_, before_terminate_;
};

// What is wrong with a file is wrong with the command line that names it: a std::runtime_error or
// std::invalid_argument of load() becomes a UsageError with the same text.
template <class Load>
auto load_or_refuse(Load&& load) {
  try {
    return load();
  } catch (const std::runtime_error& error) {
    throw UsageError(error.what());
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

// A training's loss or parameters are no longer finite. Nothing good can come of further steps.
struct Diverged : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What a training that diverges leaves behind: --checkpoint's file (empty: none was asked for) and
// the steps that were behind the training when it was saved last (0: not yet).
struct Kept {
  std::string path;
  std::uint64_t steps = 0;
};

// Throws Diverged: `what` ("the loss of step 7 (epoch 1)") is not finite. The text says what is
// kept.
[[noreturn]] void stop_diverged(const std::string& what, const Kept& kept);

// Throws Diverged where one of losses[begin, end) is NaN or infinite. losses[i] is that of the step
// that has `first` + i steps before it, in a training with so many steps per epoch (0: it counts no
// epochs).
void require_finite(const std::vector<float>& losses, std::size_t begin, std::size_t end,
                    std::uint64_t first, std::uint64_t steps_per_epoch, const Kept& kept);

// The mean of losses[begin, end); NaN where one of them is, or where there is none.
double mean_of(const std::vector<float>& losses, std::size_t begin, std::size_t end);

// The line that says that a version whose first steps are wrong was not trained, so that
// --checkpoint's file is as it was.
std::string not_trained_text(const std::string& checkpoint);

// How far a training of `epochs` epochs has come, or of other parts, which `unit` names. On a
// terminal a bar, redrawn in its place:
//   epoch  3/10 [#########-----------]  45%  12 s left  loss 0.123
// Into a file or a pipe, or where the environment says NO_COLOR or TERM=dumb, only the plain lines
// of finish_epoch. Epochs count from 1.
class Progress {
 public:
  explicit Progress(std::size_t epochs, std::FILE* out = stdout, const char* unit = "epoch");
  ~Progress();  // leaves no bar behind
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Whether update() would draw now: on a terminal, 20 times a second. Whoever must wait for the
  // device to know what to say asks first.
  bool due() const;
  // `done` of the `total` parts of this epoch are behind us. Does nothing unless due().
  void update(std::size_t epoch, std::size_t done, std::size_t total, const std::string& text);
  // One line, always: "epoch  3/10  loss 0.123".
  void finish_epoch(std::size_t epoch, const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;

  std::string heading(std::size_t epoch) const;
  void clear();

  std::size_t epochs_;
  std::FILE* out_;
  const char* unit_;
  bool terminal_;
  bool drawn_ = false;              // a bar stands on the terminal's last line
  double first_done_ = -1;          // epochs behind us when the first bar was drawn; -1: not yet
  Clock::time_point first_, last_;  // when the first and the last bar were drawn
};

}  // namespace training
