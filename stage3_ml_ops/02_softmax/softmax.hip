// Runs, checks and times every version of the softmax by rows.
#include <string>
#include <vector>

#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage3_ml_ops/02_softmax/softmax.h"

using device_matrix::DeviceBuffer;

namespace {

constexpr size_t kSampledRows = 64;

struct Shape {
  size_t rows, cols;
  double bytes() const {  // of X and Y together
    return 2.0 * sizeof(float) * static_cast<double>(rows) * static_cast<double>(cols);
  }
};

// What is run where no --size is given: rows that fill a block's registers in part, short rows, and
// the logits of a language model with a vocabulary of 50257, no row of which is aligned as the
// last.
std::vector<Shape> shapes(const Options& options) {
  const Shape first{options.sizes[0], options.sizes[1]};
  if (options.sizes_given || options.quick) return {first};
#if defined(GPU_BACKEND_CPU)
  return {first, {8, 50257}};
#else
  return {first, {65536, 4096}, {4096, 50257}};
#endif
}

void run(const Shape& shape, const Options& options, Report& report) {
  const size_t rows = shape.rows, cols = shape.cols, n = rows * cols;
  DeviceBuffer<float> d_x(n), d_y(n);
  // x in [-8, 8): probabilities from 1e-7 of the largest to the largest.
  random_numbers::launch_fill_uniform(d_x.data(), n, options.seed, 0);
  axpy::launch_vectorized_scale(d_x.data(), 8.0f, d_x.data(), n);

  const RowSample sample = choose_rows(rows, cols, kSampledRows, options.seed);
  const std::vector<float> x = sample.to_host(d_x.data());
  HostTimer timer;
  const std::vector<double> want = softmax::softmax_cpu(x, cols);
  const double reference_ms = sample.rows.size() == rows ? timer.ms() : 0;
  report.table(std::to_string(rows) + "x" + std::to_string(cols) + " float32", reference_ms,
               sample.text);
  const Work work{shape.bytes(), 0, Work::Limit::copy};
  for (const auto& version : softmax::kVersions) {
    if (!options.wants(version.name)) continue;
    const std::vector<double> bounds =
        softmax::bounds(x, want, cols, version.launch.roundings(cols));
    Row row = measure(
        version.name, version.lesson, version.needs, work, {{d_y.data(), d_y.bytes()}},
        options.repeat, [&] { version.launch.run(d_y.data(), d_x.data(), rows, cols, nullptr); },
        [&] { return sample.compare(d_y.data(), want, [&](size_t i) { return bounds[i]; }); });
    row.shape = {rows, cols};
    report.add(row);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"3.2",
                            "softmax",
                            "exp(x) / sum of exp(x) over each row",
                            {{"rows", 8192, 64, 67}, {"cols", 8192, 4096, 1003}},
                            version_infos(softmax::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    for (const Shape& shape : shapes(options)) require_device_memory(shape.bytes());
    report.limits(timing::measure_limits(options));
    for (const Shape& shape : shapes(options)) run(shape, options, report);
  });
}
