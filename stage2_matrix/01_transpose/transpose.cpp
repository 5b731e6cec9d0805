// Runs, checks and times every version of the transpose.
#include "stage2_matrix/01_transpose/transpose.h"

#include <string>
#include <utility>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/program.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage2_matrix/01_transpose/problem.h"

namespace {

using transpose::Shape;

// What a transpose reads and writes.
double bytes(const Shape& a) {
  return 2.0 * sizeof(float) * static_cast<double>(a.rows) * static_cast<double>(a.cols);
}

std::string name(const Shape& a) {
  return size_text(a.rows) + "x" + size_text(a.cols) + " float32";
}

// One table: the transpose of a random matrix.
void run(const Shape& shape, const Options& options, Report& report) {
  const auto [rows, cols] = shape;
  gpu::DeviceBuffer<float> a(rows * cols), out(rows * cols);
  random_numbers::launch_fill_uniform(a.data(), a.size(), options.seed, 0);
  const transpose::Expected expected = transpose::expect(shape, options.seed);

  const auto measured = [&](auto launch) {
    Measured result{{bytes(shape), 0, Work::Limit::copy},
                    launch,
                    [&] {
                      return expected.sample.compare(out.data(), expected.want,
                                                     [](size_t) { return 0.0; });
                    },
                    {{out.data(), out.bytes()}}};
    result.shape = {cols, rows};
    return result;
  };
  Measurement table(options);
  if (blas::available())
    table.peer(blas::name(), measured([&, rows = rows, cols = cols](hipStream_t stream) {
                 blas::transpose(rows, cols, a.data(), out.data(), stream);
               }));
  for (const auto& version : transpose::kVersions)
    table.version(version, measured([&, rows = rows, cols = cols,
                                     launch = version.launch](hipStream_t stream) {
                    launch(out.data(), a.data(), rows, cols, stream);
                  }));
  report.table(name(shape), 0, expected.sample.text);
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"2.1", "transpose", "out[col, row] = a[row, col]", transpose::sizes(),
                            version_infos(transpose::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const auto shapes = transpose::printed(options.sizes[0], options.sizes[1], options.sizes_given);
    require_device_memory(bytes(shapes[0]));
    report.limits(timing::measure_limits(options));
    report.headline(name(shapes[0]));
    for (const Shape& shape : shapes) run(shape, options, report);
  });
}
