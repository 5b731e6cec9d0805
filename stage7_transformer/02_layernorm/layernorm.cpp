// Runs, checks and times every version of layernorm, of a matrix and of the sum of two.
#include "stage7_transformer/02_layernorm/layernorm.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage7_transformer/02_layernorm/problem.h"
#include "stage7_transformer/02_layernorm/reference.h"

using gpu::DeviceBuffer;
using layernorm::Shape;

namespace {

// x, a residual, and what a pass over x or over their sum writes; and what is expected of both.
struct Matrices {
  Matrices(const Shape& matrix, std::uint64_t random_seed)
      : shape(matrix),
        seed(random_seed),
        d_x(shape.rows * shape.cols),
        d_residual(d_x.size()),
        d_y(d_x.size()),
        d_sum(d_x.size()),
        d_mean(shape.rows),
        d_rstd(shape.rows),
        d_gain(shape.cols),
        d_bias(shape.cols),
        sample(layernorm::choose_matrix_rows(shape, seed)),
        one_per_row{sample.rows, 1, sample.text} {}

  // x in [-2.5, 5.5), so that no mean is 0; all else in [-1, 1).
  void fill_uniform() {
    using random_numbers::launch_fill_uniform;
    launch_fill_uniform(d_sum.data(), d_sum.size(), seed, 0);
    d_x.to_device(std::vector<float>(d_x.size(), 1.5f).data(), d_x.size());
    axpy::launch_vectorized_axpy(d_x.data(), 4.0f, d_sum.data(), d_x.size());
    launch_fill_uniform(d_residual.data(), d_residual.size(), seed, 1);
    launch_fill_uniform(d_gain.data(), d_gain.size(), seed, 2);
    launch_fill_uniform(d_bias.data(), d_bias.size(), seed, 3);
    eps = 1e-5f, is_exact = false;
    expect();
  }
  // Rows whose mean and variance are exact, and integers: nothing rounds.
  void fill_integers() {
    const size_t chunk = std::min(shape.rows, layernorm::kDistinctRows) * shape.cols;
    d_x.to_device(layernorm::exact_rows(chunk / shape.cols, shape.cols).data(), chunk);
    for (size_t done = chunk; done < d_x.size(); done += chunk)
      HIP_CHECK(hipMemcpy(d_x.data() + done, d_x.data(),
                          std::min(chunk, d_x.size() - done) * sizeof(float),
                          hipMemcpyDeviceToDevice));
    HIP_CHECK(hipMemcpy(d_residual.data(), d_x.data(), d_x.bytes(), hipMemcpyDeviceToDevice));
    axpy::launch_vectorized_scale(d_x.data(), 0.5f, d_x.data(), d_x.size());
    axpy::launch_vectorized_scale(d_residual.data(), 0.5f, d_residual.data(), d_residual.size());
    random_numbers::launch_fill_integers(d_gain.data(), d_gain.size(), seed, 2);
    random_numbers::launch_fill_integers(d_bias.data(), d_bias.size(), seed, 3);
    eps = 0, is_exact = true;
    expect();
  }

  layernorm::Pass pass() {
    return {d_y.data(),    d_mean.data(), d_rstd.data(), d_gain.data(),
            d_bias.data(), shape.rows,    shape.cols,    eps};
  }
  // mean, rstd and y of the sampled rows.
  Comparison compare(const layernorm::Normalized& expected) const {
    const auto check = [&](const RowSample& rows, const DeviceBuffer<float>& got,
                           const std::vector<double>& values, const std::vector<double>& bound) {
      return rows.compare(got.data(), values, [&](size_t i) { return is_exact ? 0 : bound[i]; });
    };
    return together({check(one_per_row, d_mean, expected.mean, expected.bound_mean),
                     check(one_per_row, d_rstd, expected.rstd, expected.bound_rstd),
                     check(sample, d_y, expected.y, expected.bound_y)});
  }
  Comparison compare_of_sum() const {  // one addition rounds alike everywhere
    return together(
        {sample.compare(d_sum.data(), sum, [](size_t) { return 0.0; }), compare(want_of_sum)});
  }

  Shape shape;
  std::uint64_t seed;
  DeviceBuffer<float> d_x, d_residual, d_y, d_sum, d_mean, d_rstd, d_gain, d_bias;
  RowSample sample, one_per_row;
  float eps = 0;
  bool is_exact = false;
  layernorm::Normalized want, want_of_sum;
  std::vector<double> sum;
  double reference_ms = 0;

 private:
  void expect() {
    const std::vector<float> gain = d_gain.to_host(), bias = d_bias.to_host();
    std::vector<float> x = sample.to_host(d_x.data());
    const std::vector<float> residual = sample.to_host(d_residual.data());
    HostTimer timer;
    want = layernorm::forward_cpu(x, gain, bias, shape.cols, eps);
    reference_ms = timer.ms();
    for (size_t i = 0; i < x.size(); ++i) x[i] += residual[i];
    sum.assign(x.begin(), x.end());
    want_of_sum = layernorm::forward_cpu(x, gain, bias, shape.cols, eps);
  }
};

// The fewest bytes of a pass over so many matrices: gain, bias and what a row leaves come along.
Work work_of(const Shape& shape, double matrices) {
  const double vectors = static_cast<double>(shape.rows) + static_cast<double>(shape.cols);
  return {sizeof(float) * (matrices * shape.elements() + 2 * vectors), 0, Work::Limit::copy};
}

void run(const Shape& shape, const Options& options, Report& report) {
  Matrices m(shape, options.seed);
  std::vector<std::pair<void*, size_t>> outputs = {{m.d_y.data(), m.d_y.bytes()},
                                                   {m.d_mean.data(), m.d_mean.bytes()},
                                                   {m.d_rstd.data(), m.d_rstd.bytes()}};
  Measurement of_matrix(options), of_sum(options);
  for (const auto& version : layernorm::kVersions) {
    Measured measured{work_of(shape, 2),
                      [&](hipStream_t stream) { version.launch(m.pass(), m.d_x.data(), stream); },
                      [&] { return m.compare(m.want); }, outputs};
    measured.shape = {shape.rows, shape.cols};
    of_matrix.version(version, std::move(measured));
  }
  outputs.push_back({m.d_sum.data(), m.d_sum.bytes()});
  for (const auto& version : layernorm::kResidualVersions) {
    Measured measured{work_of(shape, 4),
                      [&](hipStream_t stream) {
                        version.launch(m.d_sum.data(), m.pass(), m.d_x.data(), m.d_residual.data(),
                                       stream);
                      },
                      [&] { return m.compare_of_sum(); }, outputs};
    measured.shape = {shape.rows, shape.cols};
    of_sum.version(version, std::move(measured));
  }
  if (shape.cols % 2 == 0) {  // else no mean is exact
    m.fill_integers();
    of_matrix.check_exactly(), of_sum.check_exactly();
  }
  m.fill_uniform();
  if (wants_any(options, layernorm::kVersions)) {
    report.table("layernorm   " + text(shape) + " float32",
                 m.sample.text.empty() ? m.reference_ms : 0, m.sample.text);
    of_matrix.run(report);
  }
  if (wants_any(options, layernorm::kResidualVersions)) {
    report.table("layernorm of a sum   " + text(shape) + " float32", 0, m.sample.text);
    of_sum.run(report);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "7.2", "layernorm", "rows of mean 0 and variance 1, with a gain and a bias",
      layernorm::sizes(), version_infos(layernorm::kVersions, layernorm::kResidualVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Shape usual{options.sizes[0], options.sizes[1]};
    require_device_memory(sizeof(float) * (4 * usual.elements() + 4e6));
    report.limits(timing::measure_limits(options));
    const std::vector<Shape> shapes = layernorm::printed(usual, options.sizes_given, options.quick);
    report.headline("layernorm   " + text(usual) + " float32");
    for (const Shape& shape : shapes) run(shape, options, report);
  });
}
