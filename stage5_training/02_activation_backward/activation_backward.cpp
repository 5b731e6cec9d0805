// Runs, checks and times the way back through activations, softmax and softmax + cross-entropy.
#include "stage5_training/02_activation_backward/activation_backward.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/program.h"
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

struct Problem {
  Problem(size_t row_count, size_t column_count, std::uint64_t seed)
      : rows(row_count),
        cols(column_count),
        d_grad(rows, cols),
        d_kept(rows, cols),
        d_output(rows, cols),
        d_grad_bias(cols),
        workspace(rows),
        sample(choose_rows(rows, cols, rows * cols <= kWhole ? rows + 2 : kRows, seed)) {
    random_numbers::launch_fill_uniform(d_grad.data(), d_grad.size(), seed, 0);
    grad = sample.to_host(d_grad.data());
  }
  // d_kept = x, in [-4, 4), where the functions bend.
  void make_x(std::uint64_t seed) {
    random_numbers::launch_fill_uniform(d_kept.data(), d_kept.size(), seed, 1);
    axpy::launch_vectorized_scale(d_kept.data(), 4.0f, d_kept.data(), d_kept.size());
  }
  std::string shape() const { return std::to_string(rows) + "x" + std::to_string(cols); }
  double elements() const { return static_cast<double>(rows) * static_cast<double>(cols); }

  size_t rows, cols;
  Matrix<float> d_grad, d_kept, d_output;  // grad_y; x, y or p; grad_x
  DeviceBuffer<float> d_grad_bias;
  Workspace workspace;
  RowSample sample;
  std::vector<float> grad;  // the sampled rows of grad_y
};

int repeat(const Options& options) { return options.repeat > 0 ? options.repeat : kRepeat; }

// ---- Activations ------------------------------------------------------------------------------

// grad_bias against the sum in double of the grad_x that was written: what its terms are off does
// not count then, but that a thread may add a product before it is rounded does.
Comparison compare_sums(const Problem& p, double roundings) {
  const std::vector<float> grad_x = p.d_output.to_host(), got = p.d_grad_bias.to_host();
  std::vector<double> sums(p.cols), absolute(p.cols);
  for (size_t row = 0; row < p.rows; ++row)
    for (size_t col = 0; col < p.cols; ++col) {
      const double element = static_cast<double>(grad_x[row * p.cols + col]);
      sums[col] += element, absolute[col] += std::fabs(element);
    }
  const double n = static_cast<double>(p.rows) + 1;
  return compare(
      p.cols, [&](size_t i) { return got[i]; }, [&](size_t i) { return sums[i]; },
      [&](size_t i) { return rounding::worst_case(roundings + 3, n + 2, absolute[i]); });
}

// The sampled rows of grad_x, and what is expected there with this slope.
template <class Slope>
Comparison compare_slopes(const Problem& p) {
  const std::vector<float> kept = p.sample.to_host(p.d_kept.data());
  const std::vector<double> want = activations::backward_cpu<Slope>(kept, p.grad);
  return p.sample.compare(p.d_output.data(), want, [&](size_t i) {
    return activations::backward_bound<Slope>(static_cast<double>(kept[i]),
                                              static_cast<double>(p.grad[i]));
  });
}

template <class Activation>
Comparison compare_rows(const Problem& p, bool from_output) {
  if constexpr (activation_backward::kHasOfOutput<Activation>)
    if (from_output) return compare_slopes<activation_backward::SlopeOfOutput<Activation>>(p);
  return compare_slopes<Activation>(p);
}

template <class Activation>
void run_activation(Problem& p, const Options& options, Report& report) {
  p.make_x(options.seed);
  const std::vector<float> x = p.sample.to_host(p.d_kept.data());
  HostTimer timer;
  activations::backward_cpu<Activation>(x, p.grad);
  const double reference_ms = timer.ms();
  report.table(std::string(Activation::kName) + " backward, with bias   " + p.shape() + " float32",
               p.sample.text.empty() ? reference_ms : 0, p.sample.text);
  const Work work{sizeof(float) * (3 * p.elements() + static_cast<double>(p.cols)), 0,
                  Work::Limit::copy};
  for (const auto& version : activation_backward::kVersions<Activation>) {
    if (!options.wants(version.name)) continue;
    if (version.launch.run == nullptr) {
      Row row;
      row.name = version.name, row.lesson = version.lesson;
      row.skipped = "needs an f whose slope follows from y";
      report.add(row);
      continue;
    }
    if (version.launch.from_output)  // the last version: x becomes y
      matrix_activations::launch_activation<Activation>(p.d_kept.data(), p.d_kept.data(), p.rows,
                                                        p.cols);
    std::vector<size_t> shape;
    Row row = measure(
        version.name, version.lesson, version.needs, work,
        {{p.d_output.data(), p.d_output.bytes()}, {p.d_grad_bias.data(), p.d_grad_bias.bytes()}},
        repeat(options),
        [&] {
          version.launch.run(p.d_output.data(), p.d_grad_bias.data(), p.d_grad.data(),
                             p.d_kept.data(), p.rows, p.cols, 0, p.workspace, nullptr);
        },
        [&] {
          const Comparison slopes = compare_rows<Activation>(p, version.launch.from_output);
          const Comparison sums = compare_sums(p, version.launch.roundings(p.rows, p.cols));
          shape = sums.ok ? std::vector<size_t>{p.rows, p.cols} : std::vector<size_t>{p.cols};
          return sums.ok ? slopes : sums;
        });
    row.shape = shape;
    report.add(row);
  }
}

// ---- Softmax, and softmax + cross-entropy -----------------------------------------------------

void run_softmax(Problem& p, const Options& options, Report& report) {
  p.make_x(options.seed);
  softmax::best(p.d_kept.data(), p.d_kept.data(), p.rows, p.cols);
  const std::vector<float> probabilities = p.sample.to_host(p.d_kept.data());
  std::vector<double> want, bound;
  HostTimer timer;
  activation_backward::softmax_backward_cpu(p.grad, probabilities, p.cols, 0, want, bound);
  report.table("softmax backward   " + p.shape() + " float32",
               p.sample.text.empty() ? timer.ms() : 0, p.sample.text);
  const Work work{3 * sizeof(float) * p.elements(), 0, Work::Limit::copy};
  for (const auto& version : activation_backward::kSoftmaxVersions) {
    if (!options.wants(version.name)) continue;
    activation_backward::softmax_backward_cpu(p.grad, probabilities, p.cols,
                                              version.launch.roundings(p.cols), want, bound);
    Row row = measure(
        version.name, version.lesson, version.needs, work,
        {{p.d_output.data(), p.d_output.bytes()}}, repeat(options),
        [&] {
          version.launch.run(p.d_output.data(), p.d_grad.data(), p.d_kept.data(), p.rows, p.cols,
                             nullptr);
        },
        [&] {
          return p.sample.compare(p.d_output.data(), want, [&](size_t i) { return bound[i]; });
        });
    row.shape = {p.rows, p.cols};
    report.add(row);
  }
}

// The logits take grad_y's place, in [-1, 1), and their probabilities x's.
void run_loss(Problem& p, const Options& options, Report& report) {
  softmax::best(p.d_kept.data(), p.d_grad.data(), p.rows, p.cols);
  const std::vector<float> probabilities = p.sample.to_host(p.d_kept.data());
  std::vector<int> labels(p.rows);
  const size_t labelled = std::min(p.cols, size_t{1} << 31);  // a label is an int
  for (size_t row = 0; row < p.rows; ++row)
    labels[row] = static_cast<int>(random_numbers::word(options.seed, 2, row) % labelled);
  losses::HostRows rows{p.cols, p.grad, {}, static_cast<double>(p.rows)};
  for (const size_t row : p.sample.rows) rows.labels.push_back(labels[row]);
  const DeviceBuffer<int> d_labels(labels);
  const losses::Targets targets{d_labels.data(), p.rows, p.cols};
  losses::Buffers buffers(p.rows);
  HostTimer timer;
  activation_backward::cross_entropy_backward_cpu(rows, probabilities, true);
  report.table("softmax + cross-entropy backward   " + p.shape() + " float32",
               p.sample.text.empty() ? timer.ms() : 0, p.sample.text);
  const Work work{2 * sizeof(float) * p.elements(), 0, Work::Limit::copy};
  for (const auto& version : activation_backward::kLossVersions) {
    if (!options.wants(version.name)) continue;
    const activation_backward::LossGradient want = activation_backward::cross_entropy_backward_cpu(
        rows, probabilities, version.launch.from_logits);
    Row row = measure(
        version.name, version.lesson, version.needs, work,
        {{p.d_output.data(), p.d_output.bytes()}}, repeat(options),
        [&] {
          version.launch.run(p.d_output.data(), p.d_grad.data(), p.d_kept.data(), targets,
                             buffers.workspace(), nullptr);
        },
        [&] {
          return p.sample.compare(p.d_output.data(), want.grad,
                                  [&](size_t i) { return want.bound[i]; });
        });
    row.shape = {p.rows, p.cols};
    report.add(row);
  }
}

std::vector<VersionInfo> all_versions() {
  std::vector<VersionInfo> infos =
      version_infos(activation_backward::kVersions<activations::Sigmoid>);
  for (const VersionInfo& info : version_infos(activation_backward::kSoftmaxVersions))
    infos.push_back(info);
  for (const VersionInfo& info : version_infos(activation_backward::kLossVersions))
    infos.push_back(info);
  return infos;
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"5.2",
                            "activation_backward",
                            "back through activations, with the bias's gradient, and softmax",
                            {{"rows", 65536, 1024, 129}, {"cols", 784, 128, 65}},
                            all_versions()};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const size_t rows = options.sizes[0], cols = options.sizes[1];
    require_device_memory(sizeof(float) *
                          (3.0 * static_cast<double>(rows) * static_cast<double>(cols) +
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
