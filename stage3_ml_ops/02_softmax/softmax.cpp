// Runs, checks and times every version of the softmax by rows.
#include "stage3_ml_ops/02_softmax/softmax.h"

#include <string>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/02_axpy/axpy.h"

using gpu::DeviceBuffer;

namespace {

constexpr size_t kSampledRows = 64;

struct Shape {
  size_t rows, cols;
  double bytes() const {  // of X and Y together
    return 2.0 * sizeof(float) * static_cast<double>(rows) * static_cast<double>(cols);
  }
  std::string name() const {
    return std::to_string(rows) + "x" + std::to_string(cols) + " float32";
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

// X and the place for Y, with what the sampled rows of Y must be.
struct Problem {
  Problem(const Shape& matrix, std::uint64_t seed)
      : shape(matrix),
        d_x(shape.rows * shape.cols),
        d_y(shape.rows * shape.cols),
        sample(choose_rows(shape.rows, shape.cols, kSampledRows, seed)) {}

  // x is a multiple of softmax::kFarApart: the largest elements of a row have one over their number
  // as their probability, rounded once, and all others 0.
  void fill_integers(std::uint64_t seed) {
    random_numbers::launch_fill_integers(d_x.data(), d_x.size(), seed, 0);
    expect(softmax::kFarApart);
    for (double& value : want) value = static_cast<double>(static_cast<float>(value));
  }
  // x in [-8, 8): probabilities from 1e-7 of the largest to the largest.
  void fill_uniform(std::uint64_t seed) {
    random_numbers::launch_fill_uniform(d_x.data(), d_x.size(), seed, 0);
    HostTimer timer;
    expect(8);
    reference_ms = sample.rows.size() == shape.rows ? timer.ms() : 0;
  }
  void expect(float scale) {
    axpy::launch_vectorized_scale(d_x.data(), scale, d_x.data(), d_x.size());
    x = sample.to_host(d_x.data());
    want = softmax::softmax_cpu(x, shape.cols);
  }

  Shape shape;
  DeviceBuffer<float> d_x, d_y;
  RowSample sample;
  std::vector<float> x;      // the sampled rows
  std::vector<double> want;  // of Y
  double reference_ms = 0;
};

void run(const Shape& shape, const Options& options, Report& report) {
  Problem p(shape, options.seed);
  const Work work{shape.bytes(), 0, Work::Limit::copy};
  Measurement table(options);
  for (const auto& version : softmax::kVersions) {
    const softmax::Launch& launch = version.launch;
    Measured measured{work,
                      [&](hipStream_t stream) {
                        launch.run(p.d_y.data(), p.d_x.data(), shape.rows, shape.cols, stream);
                      },
                      [&] {
                        const std::vector<double> bounds =
                            softmax::bounds(p.x, p.want, shape.cols, launch.roundings(shape.cols));
                        return p.sample.compare(p.d_y.data(), p.want,
                                                [&](size_t i) { return bounds[i]; });
                      },
                      {{p.d_y.data(), p.d_y.bytes()}}};
    measured.verify_exactly = [&] {
      return p.sample.compare(p.d_y.data(), p.want, [](size_t) { return 0.0; });
    };
    measured.shape = {shape.rows, shape.cols};
    table.version(version, std::move(measured));
  }
  // Rounding must not hide a term that is missed or added twice: exact sums come first.
  if (shape.cols <= softmax::kExactSums) {
    p.fill_integers(options.seed);
    table.check_exactly();
  }
  p.fill_uniform(options.seed);
  report.table(shape.name(), p.reference_ms, p.sample.text);
  table.run(report);
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
    const std::vector<Shape> tables = shapes(options);
    for (const Shape& shape : tables) require_device_memory(shape.bytes());
    report.limits(timing::measure_limits(options));
    report.headline(tables.front().name());
    for (const Shape& shape : tables) run(shape, options, report);
  });
}
