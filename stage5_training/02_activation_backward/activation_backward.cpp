// Runs, checks and times the way back through activations, softmax and softmax + cross-entropy.
#include "stage5_training/02_activation_backward/activation_backward.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/measure.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage3_ml_ops/03_losses/buffers.h"
#include "stage5_training/02_activation_backward/reference.h"

using activation_backward::Workspace;
using device_matrix::DeviceBuffer;
using device_matrix::Matrix;

namespace {

constexpr int kRepeat = 10;  // timed launches of each of the many rows, unless --repeat says other
constexpr size_t kWhole = size_t{1} << 20;  // elements up to which all rows are compared
constexpr size_t kRows = 256;               // rows that are compared of a larger matrix
constexpr size_t kExactSums = 100000;       // products of integers in [-3, 3], three at a time

struct Problem {
  Problem(size_t row_count, size_t column_count, std::uint64_t random_seed)
      : rows(row_count),
        cols(column_count),
        seed(random_seed),
        d_grad(rows, cols),
        d_x(rows, cols),
        d_y(rows, cols),
        d_output(rows, cols),
        d_grad_bias(cols),
        workspace(rows),
        sample(choose_rows(rows, cols, rows * cols <= kWhole ? rows + 2 : kRows, seed)) {}

  // grad_y and x are integers in [-3, 3], x times `scale`.
  void fill_integers(float scale) {
    random_numbers::launch_fill_integers(d_grad.data(), d_grad.size(), seed, 0);
    random_numbers::launch_fill_integers(d_x.data(), d_x.size(), seed, 1);
    scale_x(scale);
  }
  // grad_y in [-1, 1), and x in [-4, 4), where the functions bend.
  void fill_uniform() {
    random_numbers::launch_fill_uniform(d_grad.data(), d_grad.size(), seed, 0);
    random_numbers::launch_fill_uniform(d_x.data(), d_x.size(), seed, 1);
    scale_x(4);
  }
  void scale_x(float scale) {
    axpy::launch_vectorized_scale(d_x.data(), scale, d_x.data(), d_x.size());
    grad = sample.to_host(d_grad.data());
  }
  bool is_whole() const { return sample.text.empty(); }
  std::string shape() const { return std::to_string(rows) + "x" + std::to_string(cols); }
  double elements() const { return static_cast<double>(rows) * static_cast<double>(cols); }

  size_t rows, cols;
  std::uint64_t seed;
  Matrix<float> d_grad, d_x, d_y, d_output;  // grad_y; x; y or p; grad_x
  DeviceBuffer<float> d_grad_bias;
  Workspace workspace;
  RowSample sample;
  std::vector<float> grad;  // the sampled rows of grad_y
};

Measurement measurement(Options options) {
  if (options.repeat <= 0) options.repeat = kRepeat;
  return Measurement(options);
}

// ---- Activations ------------------------------------------------------------------------------

// grad_bias against the sum in double of the grad_x that was written: what its terms are off does
// not count then, but that a thread may add a product before it is rounded does. The terms have
// the signs of grad_y, which are random. Integers add up exactly.
Comparison compare_sums(const Problem& p, double roundings, bool is_exact) {
  const std::vector<float> grad_x = p.d_output.to_host(), got = p.d_grad_bias.to_host();
  rounding::Sums sums(p.cols);
  for (size_t i = 0; i < grad_x.size(); ++i) sums.add(i % p.cols, static_cast<double>(grad_x[i]));
  return compare(
      p.cols, [&](size_t i) { return got[i]; }, [&](size_t i) { return sums[i].value; },
      [&](size_t i) { return is_exact ? 0 : sums[i].mean_zero_bound(roundings + 3); });
}

// The sampled rows of grad_x, and what is expected there with this slope.
template <class Slope>
Comparison compare_slopes(const Problem& p, const float* d_kept, bool is_exact) {
  const std::vector<float> kept = p.sample.to_host(d_kept);
  const std::vector<double> want = activations::backward_cpu<Slope>(kept, p.grad);
  return p.sample.compare(p.d_output.data(), want, [&](size_t i) {
    return is_exact ? 0
                    : activations::backward_bound<Slope>(static_cast<double>(kept[i]),
                                                         static_cast<double>(p.grad[i]));
  });
}

template <class Activation>
Comparison check(const Problem& p, const activation_backward::Launch& version, bool is_exact) {
  const Comparison sums = compare_sums(p, version.roundings(p.rows, p.cols), is_exact);
  if constexpr (activation_backward::kHasOfOutput<Activation>)
    if (version.from_output)
      return together({compare_slopes<activation_backward::SlopeOfOutput<Activation>>(
                           p, p.d_y.data(), is_exact),
                       sums});
  return together({compare_slopes<Activation>(p, p.d_x.data(), is_exact), sums});
}

template <class Activation>
void run_activation(Problem& p, const Options& options, Report& report) {
  const Work work{sizeof(float) * (3 * p.elements() + static_cast<double>(p.cols)), 0,
                  Work::Limit::copy};
  Measurement table = measurement(options);
  for (const auto& version : activation_backward::kVersions<Activation>) {
    const activation_backward::Launch& launch = version.launch;
    if (launch.run == nullptr) continue;
    Measured measured{
        work,
        [&](hipStream_t stream) {
          const float* kept = launch.from_output ? p.d_y.data() : p.d_x.data();
          launch.run(p.d_output.data(), p.d_grad_bias.data(), p.d_grad.data(), kept, p.rows, p.cols,
                     0, p.workspace, stream);
        },
        [&] { return check<Activation>(p, launch, false); },
        {{p.d_output.data(), p.d_output.bytes()}, {p.d_grad_bias.data(), p.d_grad_bias.bytes()}}};
    measured.verify_exactly = [&] { return check<Activation>(p, launch, true); };
    measured.shape = {p.rows, p.cols};
    table.version(version, std::move(measured));
  }
  // At 0 and thousands away from it all slopes are 0, 1/4, 1/2 or 1. Softplus's output is then
  // ReLU's: that of 0, log 2, is no float, and would be the one with another slope.
  p.fill_integers(1000);
  using OfLarge = std::conditional_t<std::is_same_v<Activation, activations::Softplus>,
                                     activations::Relu, Activation>;
  matrix_activations::launch_activation<OfLarge>(p.d_y.data(), p.d_x.data(), p.rows, p.cols);
  table.check_exactly();

  p.fill_uniform();
  matrix_activations::launch_activation<Activation>(p.d_y.data(), p.d_x.data(), p.rows, p.cols);
  const std::vector<float> x = p.sample.to_host(p.d_x.data());
  HostTimer timer;
  activations::backward_cpu<Activation>(x, p.grad);
  report.table(std::string(Activation::kName) + " backward, with bias   " + p.shape() + " float32",
               p.is_whole() ? timer.ms() : 0, p.sample.text);
  table.run(report);
  for (const auto& version : activation_backward::kVersions<Activation>) {
    if (version.launch.run != nullptr || !options.wants(version.name)) continue;
    Row row;
    row.name = version.name, row.lesson = version.lesson;
    row.skipped = "needs an f whose slope follows from y";
    report.add(row);
  }
}

// ---- Softmax, and softmax + cross-entropy -----------------------------------------------------

// What the sampled rows of the gradient must be.
Comparison compare_rows(const Problem& p, const std::vector<double>& want,
                        const std::vector<double>& bound) {
  return p.sample.compare(p.d_output.data(), want, [&](size_t i) { return bound[i]; });
}

void run_softmax(Problem& p, const Options& options, Report& report) {
  const Work work{3 * sizeof(float) * p.elements(), 0, Work::Limit::copy};
  std::vector<float> probabilities;
  const auto expect = [&](double roundings, std::vector<double>& bound) {
    std::vector<double> want;
    activation_backward::softmax_backward_cpu(p.grad, probabilities, p.cols, roundings, want,
                                              bound);
    return want;
  };
  Measurement table = measurement(options);
  for (const auto& version : activation_backward::kSoftmaxVersions) {
    const activation_backward::SoftmaxLaunch& launch = version.launch;
    Measured measured{work,
                      [&](hipStream_t stream) {
                        launch.run(p.d_output.data(), p.d_grad.data(), p.d_y.data(), p.rows, p.cols,
                                   stream);
                      },
                      [&] {
                        std::vector<double> bound;
                        const std::vector<double> want = expect(launch.roundings(p.cols), bound);
                        return compare_rows(p, want, bound);
                      },
                      {{p.d_output.data(), p.d_output.bytes()}}};
    measured.verify_exactly = [&] {
      std::vector<double> bound;
      const std::vector<double> want = expect(0, bound);
      return compare_rows(p, want, std::vector<double>(want.size()));
    };
    measured.shape = {p.rows, p.cols};
    table.version(version, std::move(measured));
  }
  // The formula holds of any p: of integers its sums and products are exact.
  if (p.cols <= kExactSums) {
    p.fill_integers(1);
    random_numbers::launch_fill_integers(p.d_y.data(), p.d_y.size(), p.seed, 2);
    probabilities = p.sample.to_host(p.d_y.data());
    table.check_exactly();
  }
  p.fill_uniform();
  softmax::best(p.d_y.data(), p.d_x.data(), p.rows, p.cols);
  probabilities = p.sample.to_host(p.d_y.data());
  std::vector<double> bound;
  HostTimer timer;
  expect(0, bound);
  report.table("softmax backward   " + p.shape() + " float32", p.is_whole() ? timer.ms() : 0,
               p.sample.text);
  table.run(report);
}

// The logits take grad_y's place, in [-1, 1), and their probabilities y's.
void run_loss(Problem& p, const Options& options, Report& report) {
  p.fill_uniform();
  softmax::best(p.d_y.data(), p.d_grad.data(), p.rows, p.cols);
  const std::vector<float> probabilities = p.sample.to_host(p.d_y.data());
  std::vector<int> labels(p.rows);
  const size_t labelled = std::min(p.cols, size_t{1} << 31);  // a label is an int
  for (size_t row = 0; row < p.rows; ++row)
    labels[row] = static_cast<int>(random_numbers::word(p.seed, 2, row) % labelled);
  losses::HostRows rows{p.cols, p.grad, {}, static_cast<double>(p.rows)};
  for (const size_t row : p.sample.rows) rows.labels.push_back(labels[row]);
  const DeviceBuffer<int> d_labels(labels);
  const losses::Targets targets{d_labels.data(), p.rows, p.cols};
  losses::Buffers buffers(p.rows);
  HostTimer timer;
  activation_backward::cross_entropy_backward_cpu(rows, probabilities, true);
  report.table("softmax + cross-entropy backward   " + p.shape() + " float32",
               p.is_whole() ? timer.ms() : 0, p.sample.text);
  const Work work{2 * sizeof(float) * p.elements(), 0, Work::Limit::copy};
  Measurement table = measurement(options);
  for (const auto& version : activation_backward::kLossVersions) {
    const activation_backward::LossLaunch& launch = version.launch;
    Measured measured{work,
                      [&](hipStream_t stream) {
                        launch.run(p.d_output.data(), p.d_grad.data(), p.d_y.data(), targets,
                                   buffers.workspace(), stream);
                      },
                      [&] {
                        const activation_backward::LossGradient want =
                            activation_backward::cross_entropy_backward_cpu(rows, probabilities,
                                                                            launch.from_logits);
                        return compare_rows(p, want.grad, want.bound);
                      },
                      {{p.d_output.data(), p.d_output.bytes()}}};
    measured.shape = {p.rows, p.cols};
    table.version(version, std::move(measured));
  }
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "5.2",
      "activation_backward",
      "back through activations, with the bias's gradient, and softmax",
      {{"rows", 65536, 1024, 129}, {"cols", 784, 128, 65}},
      version_infos(activation_backward::kVersions<activations::Sigmoid>,
                    activation_backward::kSoftmaxVersions, activation_backward::kLossVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const size_t rows = options.sizes[0], cols = options.sizes[1];
    require_device_memory(sizeof(float) *
                          (4.0 * static_cast<double>(rows) * static_cast<double>(cols) +
                           8.0 * static_cast<double>(rows) + 1e6));
    report.limits(timing::measure_limits(options));
    Problem problem(rows, cols, options.seed);
    if (wants_any(options, activation_backward::kVersions<activations::Sigmoid>))
      activations::for_each_activation(
          [&](auto activation) { run_activation<decltype(activation)>(problem, options, report); });
    if (wants_any(options, activation_backward::kSoftmaxVersions))
      run_softmax(problem, options, report);
    if (wants_any(options, activation_backward::kLossVersions)) run_loss(problem, options, report);
  });
}
