// Runs, checks and times every version of the transpose.
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage2_matrix/01_transpose/transpose.h"

using device_matrix::Matrix;

namespace {

constexpr size_t kComparedRows = 256;  // of out, where it has more

// What a transpose reads and writes.
double bytes(size_t rows, size_t cols) {
  return 2.0 * sizeof(float) * static_cast<double>(rows) * static_cast<double>(cols);
}

// One table: the transpose of a random matrix.
void run(size_t rows, size_t cols, const Options& options, Report& report) {
  Matrix<float> a(rows, cols), out(cols, rows);
  random_numbers::launch_fill_uniform(a.data(), a.size(), options.seed, 0);

  // Row r of out is column r of a: numbers r, r + cols, ... of the sequence that fills a. Two
  // elements are equal by chance once in 2^24.
  const RowSample sample = choose_rows(cols, rows, kComparedRows, options.seed);
  std::vector<double> want;
  HostTimer timer;
  for (const size_t out_row : sample.rows)
    for (size_t row = 0; row < rows; ++row)
      want.push_back(
          static_cast<double>(random_numbers::uniform(options.seed, 0, row * cols + out_row)));
  report.table(size_text(rows) + "x" + size_text(cols) + " float32", 0, sample.text);

  const Work work{bytes(rows, cols), 0, Work::Limit::copy};
  const auto measure_row = [&](const char* name, const char* lesson, Needs needs, auto&& launch) {
    Row row = measure(name, lesson, needs, work, {{out.data(), out.size() * sizeof(float)}},
                      options.repeat, launch,
                      [&] { return sample.compare(out.data(), want, [](size_t) { return 0.0; }); });
    row.shape = {cols, rows};
    return row;
  };
  if (blas::available()) {
    Row row = measure_row(blas::name(), "", Needs::Any,
                          [&] { blas::transpose(rows, cols, a.data(), out.data()); });
    row.peer = true;
    report.add(row);
  }
  for (const auto& version : transpose::kVersions) {
    if (!options.wants(version.name)) continue;
    report.add(measure_row(version.name, version.lesson, version.needs,
                           [&] { version.launch(out.data(), a.data(), rows, cols, nullptr); }));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"2.1",
                            "transpose",
                            "out[col, row] = a[row, col]",
                            {{"rows", 16384, 256, 131}, {"cols", 16384, 512, 67}},
                            version_infos(transpose::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const size_t rows = options.sizes[0], cols = options.sizes[1];
    require_device_memory(bytes(rows, cols));
    report.limits(timing::measure_limits(options));
    run(rows, cols, options, report);
    // A shape whose rows begin at any multiple of 4 bytes, and whose last tiles are cut off.
    if (!options.sizes_given) run(rows - 1, cols - 3, options, report);
  });
}
