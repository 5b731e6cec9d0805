// Runs, checks and times every version of the gradients of layernorm.
#include "stage7_transformer/03_layernorm_backward/layernorm_backward.h"

#include <string>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/02_layernorm/problem.h"
#include "stage7_transformer/03_layernorm_backward/reference.h"

using gpu::DeviceBuffer;
using layernorm::Shape;
using layernorm_backward::Expected;

namespace {

// The inputs of a pass, its gradients, and what is expected: the sampled rows of grad_x, and of
// gain and bias all columns, which takes all rows.
struct Matrices {
  Matrices(const Shape& matrix, std::uint64_t random_seed)
      : shape(matrix),
        seed(random_seed),
        d_x(shape.rows * shape.cols),
        d_grad_y(d_x.size()),
        d_grad_x(d_x.size()),
        d_mean(shape.rows),
        d_rstd(shape.rows),
        d_gain(shape.cols),
        d_grad_gain(shape.cols),
        d_grad_bias(shape.cols),
        workspace(shape.rows, shape.cols),
        sample(layernorm::choose_matrix_rows(shape, seed)),
        one_per_row{sample.rows, 1, sample.text},
        columns(choose_rows(1, shape.cols, 2, seed)) {}

  // x in [-4, 4), the rest in [-1, 1); mean and rstd as layernorm leaves them.
  void fill_uniform() {
    fill(random_numbers::launch_fill_uniform);
    axpy::launch_vectorized_scale(d_x.data(), 4.0f, d_x.data(), d_x.size());
    const DeviceBuffer<float> bias(std::vector<float>(shape.cols, 0.0f));
    layernorm::forward(d_grad_x.data(), d_mean.data(), d_rstd.data(), d_x.data(), d_gain.data(),
                       bias.data(), shape.rows, shape.cols, 1e-5f);
    is_exact = false;
    expect();
  }
  // Integers, mean and rstd too, with an odd divisor of the number of columns in every gain: all
  // three gradients are exact.
  void fill_integers() {
    fill(random_numbers::launch_fill_integers);
    random_numbers::launch_fill_integers(d_mean.data(), d_mean.size(), seed, 3, nullptr);
    std::vector<float> rstd(shape.rows);
    for (size_t row = 0; row < shape.rows; ++row) rstd[row] = row % 3 == 1 ? 2.0f : 1.0f;
    d_rstd.to_device(rstd.data(), rstd.size());
    const float odd = static_cast<float>(layernorm_backward::odd_divisor(shape.cols));
    axpy::launch_vectorized_scale(d_gain.data(), odd, d_gain.data(), d_gain.size());
    is_exact = true;
    expect();
  }

  Comparison compare() const {
    const auto check = [&](const RowSample& rows, const DeviceBuffer<float>& got,
                           const Expected& values) {
      return rows.compare(got.data(), values.value,
                          [&](size_t i) { return is_exact ? 0 : values.bound[i]; });
    };
    std::vector<Comparison> parts = {check(columns, d_grad_gain, want.gain),
                                     check(columns, d_grad_bias, want.bias)};
    if (!is_exact || layernorm_backward::sums_are_exact(shape.cols))
      parts.push_back(check(sample, d_grad_x, grad_x));
    return together(parts);
  }

  Shape shape;
  std::uint64_t seed;
  DeviceBuffer<float> d_x, d_grad_y, d_grad_x, d_mean, d_rstd, d_gain, d_grad_gain, d_grad_bias;
  layernorm_backward::Workspace workspace;
  RowSample sample, one_per_row, columns;
  bool is_exact = false;
  Expected grad_x;
  layernorm_backward::ColumnGradients want;
  double reference_ms = 0;

 private:
  template <class Fill>
  void fill(Fill&& launch_fill) {
    launch_fill(d_x.data(), d_x.size(), seed, 0, nullptr);
    launch_fill(d_grad_y.data(), d_grad_y.size(), seed, 1, nullptr);
    launch_fill(d_gain.data(), d_gain.size(), seed, 2, nullptr);
  }
  void expect() {
    const std::vector<float> x = d_x.to_host(), grad_y = d_grad_y.to_host();
    const std::vector<float> mean = d_mean.to_host(), rstd = d_rstd.to_host();
    const auto terms = layernorm_backward::Terms::mean_zero;
    HostTimer timer;
    want = layernorm_backward::columns_cpu(grad_y, x, mean, rstd, shape.cols, terms);
    grad_x = layernorm_backward::grad_x_cpu(
        sample.to_host(d_grad_y.data()), sample.to_host(d_x.data()), d_gain.to_host(),
        one_per_row.to_host(d_mean.data()), one_per_row.to_host(d_rstd.data()), {}, terms);
    reference_ms = timer.ms();
  }
};

void run(const Shape& shape, const Options& options, Report& report) {
  Matrices m(shape, options.seed);
  const double vectors = static_cast<double>(shape.rows) + static_cast<double>(shape.cols);
  const Work work{sizeof(float) * (3 * shape.elements() + 2 * vectors), 0, Work::Limit::copy};
  const layernorm_backward::Pass pass{m.d_grad_x.data(), m.d_grad_y.data(), m.d_x.data(),
                                      m.d_gain.data(),   m.d_mean.data(),   m.d_rstd.data(),
                                      nullptr,           shape.rows,        shape.cols};
  Measurement table(options);
  for (const auto& version : layernorm_backward::kVersions) {
    Measured measured{work,
                      [&](hipStream_t stream) {
                        version.launch(m.d_grad_gain.data(), m.d_grad_bias.data(), pass,
                                       m.workspace, stream);
                      },
                      [&] { return m.compare(); },
                      {{m.d_grad_x.data(), m.d_grad_x.bytes()},
                       {m.d_grad_gain.data(), m.d_grad_gain.bytes()},
                       {m.d_grad_bias.data(), m.d_grad_bias.bytes()}}};
    table.version(version, std::move(measured));
  }
  // Rounding must not hide a row that is missed or added twice: exact sums come first.
  m.fill_integers();
  table.check_exactly();
  m.fill_uniform();
  report.table("layernorm backward   " + text(shape) + " float32",
               m.sample.text.empty() ? m.reference_ms : 0, m.sample.text);
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"7.3", "layernorm_backward",
                            "the gradients of layernorm: x, gain and bias", layernorm::sizes(),
                            version_infos(layernorm_backward::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Shape usual{options.sizes[0], options.sizes[1]};
    require_device_memory(sizeof(float) * (3 * usual.elements() + 4e6));
    report.limits(timing::measure_limits(options));
    report.headline("layernorm backward   " + text(usual) + " float32");
    for (const Shape& shape : layernorm::printed(usual, options.sizes_given, options.quick))
      run(shape, options, report);
  });
}
