// What a program prints and writes: one table per problem size, and the same facts as JSON.
// Printed by report.cpp, written as JSON by report_json.cpp (nlohmann-json stays in there).
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "common/compare.h"
#include "common/options.h"

// Where a program ran.
struct DeviceInfo {
  std::string name;     // "NVIDIA H200"
  std::string backend;  // "cuda"
  std::string toolkit;  // "13.0"
  int wave_size = 0;
  int multiprocessors = 0;
};

// The machine's limits, measured in this run (stage 0.3). Bytes count each read and each write.
struct Limits {
  double copy = 0;  // bytes/s of a copy
  double read = 0;  // bytes/s of reading only
  double fma = 0;   // float operations/s, two per fused multiply-add
};

// What one launch has to do at least, and which limit it is held against.
struct Work {
  enum class Limit { copy, read, fma, none };
  double bytes = 0;       // the fewest bytes it must move through device memory
  double operations = 0;  // the floating-point operations it must do
  Limit limit = Limit::copy;
};

// One row: a version of the step, or a peer such as cuBLAS.
struct Row {
  std::string name;
  std::string lesson;  // empty for a peer
  bool peer = false;
  std::string skipped;                    // why it did not run, e.g. "needs sm_90"; empty: it ran
  double ms = 0, ms_p10 = 0, ms_p90 = 0;  // 0: not timed
  Work work;
  Comparison check;  // check.compared == 0: nothing was compared
  std::string note;  // printed behind the verdict, e.g. "bit-identical over 100 runs"
  // What the result was promised to reach and has not, for a row that FAILs for that alone:
  // "test 96.1%, promised 97.5%"; empty: nothing.
  std::string missed = {};
  std::vector<std::size_t> shape = {};  // of the output: the worst index prints as [row,column]
};

// The commit that this program was built from, for the JSON: what git said at the build, or CMake's
// COURSE_COMMIT, else the environment's, else "unknown". Implemented in commit.cpp.
std::string build_commit();

class Report {
 public:
  // Prints to `out`.
  Report(ProgramInfo program, Options options, DeviceInfo device, std::FILE* out = stdout);

  // The limits that the rows are held against; call it before the first table.
  void limits(const Limits& limits);
  // Which table the summary of all steps shows: its `problem`, word for word. Without it, or where
  // this run has no such table (--size, --quick), it is the first one.
  void headline(const std::string& problem);
  const Limits& limits() const { return limits_; }

  // Begins a table: what is computed at which size and type, e.g. "n=2^28 float32". reference_ms is
  // the host reference's time (0: none). `sampled` says what part was compared, e.g. "checked on
  // 256 of 65536 rows"; empty: all of it.
  void table(const std::string& problem, double reference_ms = 0, const std::string& sampled = "");
  // Adds a row and prints it at once. A peer must come before the versions held against it: peers
  // are printed with the first version, when it is known which columns there are.
  void add(const Row& row);
  // A free line between or under the tables; it is not part of the JSON.
  void line(const std::string& text);
  // A fact for the JSON's "facts" list, and a line: name, value, unit.
  void fact(const std::string& name, double value, const std::string& unit);
  // Numbers for a picture (a loss curve, a confusion matrix): rows of one value per column, for the
  // JSON only. Throws std::invalid_argument where a row has another length or the name is taken.
  void series(const std::string& name, const std::vector<std::string>& columns,
              const std::vector<std::vector<double>>& rows);

  // Writes the JSON where --json asked for it (through a temporary file, renamed). Throws
  // std::runtime_error where that fails. Returns the exit code: 1 if any row failed, else 0.
  int finish();

 private:
  struct Table {
    std::string problem, sampled;
    double reference_ms;
    std::vector<Row> rows;
  };
  struct Fact {
    std::string name, unit;
    double value;
  };
  struct Series {
    std::string name;
    std::vector<std::string> columns;
    std::vector<std::vector<double>> rows;
  };
  void print(const std::string& text);
  void print_header(const std::string& problem);
  void print_columns();
  void print_row(const Row& row);
  void print_pending();
  std::string json() const;

  ProgramInfo program_;
  Options options_;
  DeviceInfo device_;
  std::FILE* out_;
  Limits limits_;
  std::string headline_;
  std::vector<Table> tables_;
  std::vector<Fact> facts_;
  std::vector<Series> series_;
  std::size_t printed_rows_ = 0;  // of the last table
  std::size_t name_width_ = 0;    // of the last table's first column; 0: it has no heading yet
  bool header_printed_ = false;
};
