// Runs, checks and times every version of the squared error and of cross-entropy, with gradients.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage3_ml_ops/03_losses/losses.h"

using device_matrix::DeviceBuffer;
using device_matrix::Matrix;

namespace {

constexpr size_t kSampledRows = 64;  // whose losses and gradients are compared
constexpr int kRepeat = 20;          // timed launches of each row, unless --repeat says other

struct Shape {
  size_t rows, classes;
  double elements() const { return static_cast<double>(rows) * static_cast<double>(classes); }
  std::string text() const { return std::to_string(rows) + "x" + std::to_string(classes); }
};

// What cross-entropy is run on where no --size is given: a square, and the logits of a language
// model with a vocabulary of 50257, no row of which is aligned as the last.
std::vector<Shape> shapes(const Options& options) {
  const Shape first{options.sizes[0], options.sizes[1]};
  if (options.sizes_given || options.quick) return {first};
#if defined(GPU_BACKEND_CPU)
  return {first, {8, 50257}};
#else
  return {first, {4096, 50257}};
#endif
}

int repeat(const Options& options) { return options.repeat > 0 ? options.repeat : kRepeat; }

std::string mean_text(float loss) {
  char text[32];
  std::snprintf(text, sizeof text, "mean %.6g", static_cast<double>(loss));
  return text;
}

Comparison compare_value(float got, double want, double bound) {
  return compare(
      1, [&](size_t) { return got; }, [&](size_t) { return want; }, [&](size_t) { return bound; });
}

// ---- Squared error ----------------------------------------------------------------------------

void run_squared_error(size_t n, const Options& options, Report& report) {
  DeviceBuffer<float> d_p(n), d_t(n), d_grad(n), d_loss(1);
  losses::Buffers buffers(0);
  random_numbers::launch_fill_uniform(d_p.data(), n, options.seed, 0);
  random_numbers::launch_fill_uniform(d_t.data(), n, options.seed, 1);
  HostTimer timer;
  const double want = losses::squared_error_cpu(d_p.to_host(), d_t.to_host());
  const double reference_ms = timer.ms();
  const Sample sample = choose_sample(n, options.seed);
  const std::vector<double> want_grad =
      losses::squared_error_gradient_cpu(sample.to_host(d_p.data()), sample.to_host(d_t.data()), n);

  report.table("squared error and gradient   n=" + size_text(n) + " float32", reference_ms,
               sample.text);
  const Work work{3.0 * sizeof(float) * static_cast<double>(n), 0, Work::Limit::copy};
  const losses::Split split = losses::split_vectors(n, {d_p.data(), d_t.data(), d_grad.data()});
  for (const auto& version : losses::kSquaredErrorVersions) {
    if (!options.wants(version.name)) continue;
    Row row = measure(
        version.name, version.lesson, version.needs, work,
        {{d_grad.data(), d_grad.bytes()}, {d_loss.data(), d_loss.bytes()}}, repeat(options),
        [&] {
          version.launch.run(d_loss.data(), d_grad.data(), d_p.data(), d_t.data(), n,
                             buffers.workspace(), nullptr);
        },
        [&] {
          const Comparison loss =
              compare_value(d_loss.to_host()[0], want, version.launch.bound(want, split));
          const Comparison grad = sample.compare(d_grad.data(), want_grad, [&](size_t i) {
            return losses::squared_error_gradient_bound(want_grad[i]);
          });
          return loss.ok ? grad : loss;
        });
    if (row.ms > 0) row.note = mean_text(d_loss.to_host()[0]);
    report.add(row);
  }
}

// ---- Cross-entropy ----------------------------------------------------------------------------

struct Problem {
  // Logits in [-8, 8); labels drawn from all classes.
  Problem(Shape matrix, std::uint64_t seed)
      : shape(matrix),
        d_logits(shape.rows, shape.classes),
        d_grad(shape.rows, shape.classes),
        d_loss(1),
        buffers(shape.rows),
        sample(choose_rows(shape.rows, shape.classes, kSampledRows, seed)) {
    random_numbers::launch_fill_uniform(d_logits.data(), d_logits.size(), seed, 0);
    axpy::launch_vectorized_scale(d_logits.data(), 8.0f, d_logits.data(), d_logits.size());
    std::vector<int> all_labels(shape.rows);
    const size_t labelled = std::min(shape.classes, size_t{1} << 31);  // a label is an int
    for (size_t row = 0; row < shape.rows; ++row)
      all_labels[row] = static_cast<int>(random_numbers::word(seed, 1, row) % labelled);
    d_labels = DeviceBuffer<int>(all_labels);
    for (const size_t row : sample.rows) rows.labels.push_back(all_labels[row]);
    rows.classes = shape.classes, rows.count = static_cast<double>(shape.rows);
    rows.logits = sample.to_host(d_logits.data());
    HostTimer timer;
    want = losses::cross_entropy_cpu(rows);
    reference_ms = sample.rows.size() == shape.rows ? timer.ms() : 0;
  }

  void launch(const losses::Launch& version) {
    version.run(d_loss.data(), d_grad.data(), d_logits.data(),
                {d_labels.data(), shape.rows, shape.classes}, buffers.workspace(), nullptr);
  }

  // The sampled rows' gradients and losses, and the mean of the losses that the rows have left.
  Comparison check(const losses::Launch& version) {
    buffers.check_labels(shape.classes);
    const losses::CrossEntropy bounds = losses::cross_entropy_bounds(
        rows, want, version.roundings(shape.classes), version.from_probabilities);
    const std::vector<float> row_losses = buffers.row_losses();
    const Comparison loss_of_rows = compare(
        rows.labels.size(), [&](size_t i) { return row_losses[sample.rows[i]]; },
        [&](size_t i) { return want.row_losses[i]; },
        [&](size_t i) { return bounds.row_losses[i]; });
    double mean = 0;
    for (const float loss : row_losses) mean += static_cast<double>(loss) / rows.count;
    const Comparison loss =
        compare_value(d_loss.to_host()[0], mean, losses::mean_bound(row_losses, rows.count));
    const Comparison grad =
        sample.compare(d_grad.data(), want.grad, [&](size_t i) { return bounds.grad[i]; });
    return !loss_of_rows.ok ? loss_of_rows : !loss.ok ? loss : grad;
  }

  Shape shape;
  Matrix<float> d_logits, d_grad;
  DeviceBuffer<float> d_loss;
  DeviceBuffer<int> d_labels;
  losses::Buffers buffers;
  RowSample sample;
  losses::HostRows rows;  // those of the sample
  losses::CrossEntropy want;
  double reference_ms = 0;
};

void run_cross_entropy(const Shape& shape, const Options& options, Report& report) {
  Problem problem(shape, options.seed);
  report.table("cross-entropy and gradient   " + shape.text() + " float32", problem.reference_ms,
               problem.sample.text);
  const Work work{2 * sizeof(float) * shape.elements(), 0, Work::Limit::copy};
  for (const auto& version : losses::kVersions) {
    if (!options.wants(version.name)) continue;
    Row row = measure(
        version.name, version.lesson, version.needs, work,
        {{problem.d_grad.data(), problem.d_grad.bytes()},
         {problem.d_loss.data(), problem.d_loss.bytes()}},
        repeat(options), [&] { problem.launch(version.launch); },
        [&] { return problem.check(version.launch); });
    if (row.ms > 0) row.note = mean_text(problem.d_loss.to_host()[0]);
    row.shape = {shape.rows, shape.classes};
    report.add(row);
  }
}

std::vector<VersionInfo> all_versions() {
  std::vector<VersionInfo> infos = version_infos(losses::kSquaredErrorVersions);
  for (const VersionInfo& info : version_infos(losses::kVersions)) infos.push_back(info);
  return infos;
}

template <class Versions>
bool wants_any(const Options& options, const Versions& versions) {
  for (const auto& version : versions)
    if (options.wants(version.name)) return true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"3.3",
                            "losses",
                            "squared error and cross-entropy, each with its gradient",
                            {{"rows", 8192, 64, 67}, {"classes", 8192, 1024, 1003}},
                            all_versions()};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    for (const Shape& shape : shapes(options))
      require_device_memory(3.0 * sizeof(float) * shape.elements());
    report.limits(timing::measure_limits(options));
    if (wants_any(options, losses::kSquaredErrorVersions))
      run_squared_error(options.sizes[0] * options.sizes[1], options, report);
    if (!wants_any(options, losses::kVersions)) return;
    for (const Shape& shape : shapes(options)) run_cross_entropy(shape, options, report);
  });
}
