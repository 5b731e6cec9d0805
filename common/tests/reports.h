// Reports of made-up rows, printed into a file.
#pragma once

#include <cstddef>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "common/report.h"

namespace tests {

inline const ProgramInfo kProgram = {
    "2.3", "gemm", "C = A*B", {{"n", 4096, 256, 17}}, {{"naive", "one each"}, {"tiled", "t"}}};
inline const DeviceInfo kGpu = {"NVIDIA H200", "cuda", "13.0", 32, 132};
inline const Limits kLimits = {4.2e12, 4.4e12, 60.3e12};

inline std::string read_all(std::FILE* file) {
  std::string text;
  std::rewind(file);
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  return text;
}

// A report that prints into a file of its own.
struct Printed {
  explicit Printed(Options options = {}, const DeviceInfo& device = kGpu,
                   const Limits& limits = kLimits)
      : file(std::tmpfile()), report(kProgram, std::move(options), device, file) {
    report.limits(limits);
  }
  ~Printed() { std::fclose(file); }
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;
  std::string text() { return read_all(file); }

  std::FILE* file;
  Report report;
};

inline Row timed(const std::string& name, double ms, const Work& work) {
  Row row;
  row.name = name, row.ms = ms, row.work = work;
  row.ms_p10 = 0.9 * ms, row.ms_p90 = 1.1 * ms;
  return row;
}

inline Row checked(Row row, double error, double bound, std::size_t index) {
  row.check.compared = 4096, row.check.max_error = error, row.check.bound = bound;
  row.check.of_bound = error == 0 ? 0 : error / bound;
  row.check.index = index;
  return row;
}

inline Row peer(Row row) {
  row.peer = true;
  return row;
}

inline Row failed(const std::string& name) {
  Row row;
  row.name = name;
  row.check.ok = false, row.check.compared = 4096, row.check.failed = 12, row.check.unwritten = 3;
  row.check.max_error = std::numeric_limits<double>::quiet_NaN();
  row.check.of_bound = std::numeric_limits<double>::infinity();
  row.check.got = row.check.max_error, row.check.want = 2.5, row.check.bound = 0.00049;
  row.check.index = 7;
  return row;
}

inline Row skipped(const std::string& name, const std::string& reason) {
  Row row;
  row.name = name, row.skipped = reason;
  return row;
}

inline constexpr Work kGemmWork = {201e6, 137.4e9, Work::Limit::fma};

inline Options with_json(const std::string& path) {
  Options options;
  options.json = path;
  return options;
}

}  // namespace tests
