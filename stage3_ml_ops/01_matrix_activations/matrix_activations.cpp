// Runs, checks and times bias + activation over a matrix, forward and backward.
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"

#include <string>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage3_ml_ops/01_matrix_activations/reference.h"

using device_matrix::Matrix;
using gpu::DeviceBuffer;

namespace {

constexpr int kRepeat = 10;  // timed launches of each of the many rows, unless --repeat says other
constexpr size_t kWhole = size_t{1} << 22;  // elements up to which all rows are compared
constexpr size_t kRows = 256;               // rows that are compared of a larger matrix

struct Problem {
  // x and bias in [-4, 4), so that their sums lie where the functions bend; grad_y in [-1, 1).
  Problem(size_t row_count, size_t column_count, std::uint64_t seed)
      : rows(row_count),
        cols(column_count),
        d_x(rows, cols),
        d_grad_y(rows, cols),
        d_output(rows, cols),
        d_bias(cols),
        sample(choose_rows(rows, cols, rows * cols <= kWhole ? rows + 2 : kRows, seed)) {
    random_numbers::launch_fill_uniform(d_x.data(), d_x.size(), seed, 0);
    random_numbers::launch_fill_uniform(d_bias.data(), cols, seed, 1);
    random_numbers::launch_fill_uniform(d_grad_y.data(), d_grad_y.size(), seed, 2);
    axpy::launch_vectorized_scale(d_x.data(), 4.0f, d_x.data(), d_x.size());
    axpy::launch_vectorized_scale(d_bias.data(), 4.0f, d_bias.data(), cols);
    sums = matrix_activations::biased_cpu(sample.to_host(d_x.data()), d_bias.to_host());
    grad_y = sample.to_host(d_grad_y.data());
  }
  size_t rows, cols;
  Matrix<float> d_x, d_grad_y, d_output;
  DeviceBuffer<float> d_bias;
  RowSample sample;
  std::vector<float> sums, grad_y;  // x + bias and grad_y of the sampled rows
};

// One table: a pass by every version that was asked for.
//   launch(version, stream)   queues the pass, which writes d_output
//   want, bounds              of the sampled rows
template <class Activation, class Launch>
void measure_pass(Problem& p, const char* pass, double matrices, double reference_ms,
                  const std::vector<double>& want, const std::vector<double>& bounds,
                  const Options& options, Report& report, Launch&& launch) {
  report.table(std::string(Activation::kName) + pass + "   " + std::to_string(p.rows) + "x" +
                   std::to_string(p.cols) + " float32",
               p.sample.text.empty() ? reference_ms : 0, p.sample.text);
  const double rows = static_cast<double>(p.rows), cols = static_cast<double>(p.cols);
  const double rows_of_bias = p.rows > 0 ? 1 : 0;
  const Work work{sizeof(float) * (matrices * rows + rows_of_bias) * cols, 0, Work::Limit::copy};
  Measurement table(options);
  for (const auto& version : matrix_activations::kVersions<Activation>) {
    Measured measured{work,
                      [&](hipStream_t stream) { launch(version.launch, stream); },
                      [&] {
                        return p.sample.compare(p.d_output.data(), want,
                                                [&](size_t i) { return bounds[i]; });
                      },
                      {{p.d_output.data(), p.d_output.bytes()}}};
    measured.shape = std::vector<size_t>{p.rows, p.cols};
    table.version(version, std::move(measured));
  }
  table.run(report);
}

// Two tables: f forward and f backward.
template <class Activation>
void run(Problem& p, Options options, Report& report) {
  if (options.repeat == 0) options.repeat = kRepeat;
  std::vector<double> bounds(p.sums.size());
  HostTimer forward_timer;
  const std::vector<double> y = activations::forward_cpu<Activation>(p.sums);
  const double forward_ms = forward_timer.ms();
  for (size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = Activation::bound(static_cast<double>(p.sums[i]));
  measure_pass<Activation>(p, "(X + bias)", 2, forward_ms, y, bounds, options, report,
                           [&](const matrix_activations::Launch& version, hipStream_t stream) {
                             version.forward(p.d_output.data(), p.d_x.data(), p.d_bias.data(),
                                             p.rows, p.cols, stream);
                           });

  HostTimer backward_timer;
  const std::vector<double> grad_x = activations::backward_cpu<Activation>(p.sums, p.grad_y);
  const double backward_ms = backward_timer.ms();
  for (size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = activations::backward_bound<Activation>(static_cast<double>(p.sums[i]),
                                                        static_cast<double>(p.grad_y[i]));
  measure_pass<Activation>(p, "(X + bias) backward", 3, backward_ms, grad_x, bounds, options,
                           report,
                           [&](const matrix_activations::Launch& version, hipStream_t stream) {
                             version.backward(p.d_output.data(), p.d_grad_y.data(), p.d_x.data(),
                                              p.d_bias.data(), p.rows, p.cols, stream);
                           });
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"3.1",
                            "matrix_activations",
                            "bias and activation over a matrix, fused",
                            {{"rows", 16384, 512, 65}, {"cols", 4096, 384, 255}},
                            version_infos(matrix_activations::kVersions<activations::Relu>)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const size_t rows = options.sizes[0], cols = options.sizes[1];
    require_device_memory(sizeof(float) * (3.0 * static_cast<double>(rows) + 1) *
                          static_cast<double>(cols));
    report.limits(timing::measure_limits(options));
    Problem problem(rows, cols, options.seed);
    activations::for_each_activation(
        [&](auto activation) { run<decltype(activation)>(problem, options, report); });
  });
}
