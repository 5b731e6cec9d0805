// The command line that every program shares. Parsed in options.cpp (CLI11 stays in there) and
// option_values.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// What the user asked for can't be done: one clear line, exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A step's version as --list shows it and --version accepts it.
struct VersionInfo {
  std::string name, lesson;
};

// One dimension of the problem: its name, and the usual value on a GPU, on the CPU backend, and
// with --quick (awkward on purpose: no multiple of a block).
struct Size {
  std::string name;
  std::size_t gpu, cpu, quick;
};
// What a program takes of each without --size, on `backend` ("hip", "cuda" or "cpu").
std::vector<std::size_t> usual_sizes(const std::vector<Size>& sizes, bool quick,
                                     const std::string& backend);

// What a program that trains does unless it is told otherwise. Where a program has them, the
// command line takes the options of TrainingOptions too.
struct TrainingDefaults {
  std::size_t epochs, epochs_cpu, epochs_quick;  // on a GPU, on the CPU backend, with --quick
  std::size_t batch;  // 0: a step takes all there is, and there is no --batch
  double learning_rate;
  std::string optimizer;        // sgd, momentum, adam or adamw
  bool data;                    // it reads a data set, and takes --data
  bool show = false;            // it draws what its model has learnt, and takes --show
  std::string unit = "epochs";  // what it counts: the option is called --epochs, or --steps
};

// An option that one program alone has. Its value is a text, which that program reads.
struct ExtraOption {
  std::string name, type, help;  // "--prompt", "TEXT", "what the text begins with"
};

// What a program is: the roadmap's number, its name, one line on what it computes.
struct ProgramInfo {
  std::string step;     // "1.1"
  std::string name;     // "vector_add"
  std::string summary;  // "c = a + b"
  std::vector<Size> sizes;
  std::vector<VersionInfo> versions;
  std::optional<TrainingDefaults> training = {};
  std::vector<ExtraOption> extra = {};
};

// What the command line of a program that trains says beyond that.
//   --epochs N (or --steps N) --batch N --lr X --optimizer NAME --checkpoint FILE --resume
//   --evaluate FILE --data DIR --show FILE
struct TrainingOptions {
  std::size_t epochs = 0, batch = 0;  // at least 1 where the program trains; or steps, see unit
  double learning_rate = 0;           // above 0 and finite, as a float too
  bool epochs_given = false, learning_rate_given = false;  // on the command line: no defaults
  std::string optimizer;                                   // sgd, momentum, adam or adamw
  std::string data;        // a folder; empty: not given, see training::data_folder
  std::string checkpoint;  // written after every epoch; empty: nowhere
  std::string evaluate;    // a checkpoint to test instead of training; empty: train
  bool resume = false;     // go on from `checkpoint`, which is there
  std::string show;        // a PNG file to draw the model in; empty: draw nothing

  // Whether there is one model to train or to test, so that only one version can run.
  bool one_version() const { return !checkpoint.empty() || !evaluate.empty(); }
};

// What the command line said.
//   --help --list --version NAME (repeatable) --size N[xN...] --seed N --repeat N --rounds N
//   --quick --no-limits --no-times --json FILE, and on the CPU backend --wave 32|64,
//   --devices 1..8, --order forward|reverse|waves|random:SEED and --guard end|exact|begin.
// A size is digits with an optional factor (k, M, G: powers of 1024) or a power such as 2^28.
struct Options {
  std::vector<std::string> versions;  // empty: all
  std::vector<std::size_t> sizes;     // one per ProgramInfo::sizes
  bool sizes_given = false;           // by --size: not the defaults
  std::uint64_t seed = 1;
  int repeat = 0;  // timed launches; 0: as many as the timer thinks right
  int rounds = 3;  // in which versions take turns; at least 1
  bool quick = false;
  bool no_limits = false;  // leave them out: for many small runs one after the other
  bool no_times = false;   // check alone: time nothing, and train no further
  std::string json;        // where to write the results; empty: nowhere
  TrainingOptions training = {};
  std::map<std::string, std::string> extra = {};  // of ProgramInfo::extra, those that were given

  bool wants(const std::string& version) const;
};

// The command line of `program` on `backend` ("hip", "cuda" or "cpu"), which can be parsed any
// number of times.
class CommandLine {
 public:
  CommandLine(const ProgramInfo& program, const std::string& backend);
  ~CommandLine();

  // Throws UsageError on anything it does not understand, naming what would be right. Returns false
  // where the program should end at once with exit code 0, because --help or --list was answered on
  // stdout.
  bool parse(int argc, char** argv, Options* options);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

// The same for a command line that is parsed once.
bool parse_options(int argc, char** argv, const ProgramInfo& program, const std::string& backend,
                   Options* options);
