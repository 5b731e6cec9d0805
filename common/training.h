// What programs that train share beyond their options: where the data is, Ctrl-C, and how far they
// have come. Implemented in training.cpp.
#pragma once

#include <signal.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

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

 private:
  struct sigaction before_interrupt_, before_terminate_;
};

// How far a training of `epochs` epochs has come. On a terminal a bar, redrawn in its place:
//   epoch  3/10 [#########-----------]  45%  12 s left  loss 0.123
// Into a file or a pipe, or where the environment says NO_COLOR or TERM=dumb, only the plain lines
// of finish_epoch. Epochs count from 1.
class Progress {
 public:
  explicit Progress(std::size_t epochs, std::FILE* out = stdout);
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
  bool terminal_;
  bool drawn_ = false;              // a bar stands on the terminal's last line
  double first_done_ = -1;          // epochs behind us when the first bar was drawn; -1: not yet
  Clock::time_point first_, last_;  // when the first and the last bar were drawn
};

}  // namespace training
