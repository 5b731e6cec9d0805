// Runs, checks and times every version of the squared error and of cross-entropy, with gradients.
#include "stage3_ml_ops/03_losses/losses.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/program.h"
#include "common/random.h"
#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage3_ml_ops/03_losses/problem.h"
#include "stage3_ml_ops/03_losses/reference.h"

using gpu::DeviceBuffer;
using losses::CrossEntropy;
using losses::Expected;
using losses::Shape;
using losses::Values;

namespace {

Comparison compare_value(float got, double want, double bound) {
  return compare(
      1, [&](size_t) { return got; }, [&](size_t) { return want; }, [&](size_t) { return bound; });
}

// Of a row: the mean that its version left when it was checked. All versions leave theirs in the
// same place, and are timed in turn.
struct MeanNote {
  std::shared_ptr<float> mean = std::make_shared<float>();
  void operator()(Row& row) const {
    char text[32];
    std::snprintf(text, sizeof text, "mean %.6g", static_cast<double>(*mean));
    row.note += (row.note.empty() ? "" : "   ") + std::string(text);
  }
};

// ---- Squared error ----------------------------------------------------------------------------

void run_squared_error(const Shape& shape, const Options& options, Report& report) {
  const size_t n = shape.elements();
  DeviceBuffer<float> d_p(n), d_t(n), d_grad(n), d_loss(1);
  losses::Buffers buffers(0);
  const losses::Split split = losses::split_vectors(n, {d_p.data(), d_t.data(), d_grad.data()});
  const losses::ExactSquares exact = losses::exact_squares(n, options.seed);
  const Sample sample = choose_sample(n, options.seed);
  double want = 0;
  std::vector<double> want_grad;

  const Work work{3.0 * sizeof(float) * static_cast<double>(n), 0, Work::Limit::copy};
  Measurement table(options);
  for (const auto& version : losses::kSquaredErrorVersions) {
    const losses::SquaredErrorLaunch& launch = version.launch;
    const MeanNote note;
    Measured measured{
        work,
        [&](hipStream_t stream) {
          launch.run(d_loss.data(), d_grad.data(), d_p.data(), d_t.data(), n, buffers.workspace(),
                     stream);
        },
        [&, note] {
          *note.mean = d_loss.to_host()[0];
          const Comparison loss = compare_value(*note.mean, want, launch.bound(want, split));
          const Comparison grad = sample.compare(d_grad.data(), want_grad, [&](size_t i) {
            return losses::squared_error_gradient_bound(want_grad[i]);
          });
          return loss.ok ? grad : loss;
        },
        {{d_grad.data(), d_grad.bytes()}, {d_loss.data(), d_loss.bytes()}}};
    measured.verify_exactly = [&] {
      return together({compare_value(d_loss.to_host()[0], exact.loss, 0),
                       exact.sample.compare(d_grad.data(), exact.grad, [](size_t) { return 0; })});
    };
    measured.finish = note;
    table.version(version, measured);
  }

  random_numbers::launch_fill_integers(d_p.data(), n, options.seed, 1);
  random_numbers::launch_fill_integers(d_t.data(), n, options.seed, 1);
  const float* chunk = exact.p.data();
  for (const auto& [begin, count] : exact.sample.chunks) {
    HIP_CHECK(hipMemcpy(d_p.data() + begin, chunk, count * sizeof(float), hipMemcpyHostToDevice));
    chunk += count;
  }
  table.check_exactly();

  random_numbers::launch_fill_uniform(d_p.data(), n, options.seed, 0);
  random_numbers::launch_fill_uniform(d_t.data(), n, options.seed, 1);
  HostTimer timer;
  want = losses::squared_error_cpu(d_p.to_host(), d_t.to_host());
  const double reference_ms = timer.ms();
  want_grad =
      losses::squared_error_gradient_cpu(sample.to_host(d_p.data()), sample.to_host(d_t.data()), n);
  report.table(shape.squared_error_name(), reference_ms, sample.text);
  table.run(report);
}

// ---- Cross-entropy ----------------------------------------------------------------------------

// A batch of logits and labels on the device, and what the versions leave.
struct Problem {
  Problem(const Shape& matrix, std::uint64_t random_seed)
      : shape(matrix),
        seed(random_seed),
        d_logits(shape.elements()),
        d_grad(shape.elements()),
        d_loss(1),
        d_labels(losses::random_labels(shape, seed)),
        buffers(shape.rows) {}

  void fill(Values values) {
    const auto launch_fill = values == Values::integers ? random_numbers::launch_fill_integers
                                                        : random_numbers::launch_fill_uniform;
    launch_fill(d_logits.data(), d_logits.size(), seed, 0, nullptr);
    axpy::launch_vectorized_scale(d_logits.data(), losses::scale_of(values), d_logits.data(),
                                  d_logits.size());
  }

  // The sampled rows' gradients and losses, and the mean of the losses that the rows have left. Of
  // integers the gradients are exact.
  Comparison check(const losses::Launch& version, const Expected& expected) {
    buffers.check_labels(shape.classes);
    const bool is_exact = expected.values == Values::integers;
    const CrossEntropy bounds = losses::cross_entropy_bounds(
        expected.rows, expected.want, version.roundings(shape.classes), version.from_probabilities);
    const std::vector<float> row_losses = buffers.row_losses();
    const Comparison loss_of_rows = compare(
        expected.sample.rows.size(), [&](size_t i) { return row_losses[expected.sample.rows[i]]; },
        [&](size_t i) { return expected.row_loss(i, version.from_probabilities); },
        [&](size_t i) { return bounds.row_losses[i]; });
    double mean = 0;
    for (const float loss : row_losses) mean += static_cast<double>(loss) / expected.rows.count;
    const Comparison loss = compare_value(d_loss.to_host()[0], mean,
                                          losses::mean_bound(row_losses, expected.rows.count));
    const Comparison grad = expected.sample.compare(
        d_grad.data(), expected.want.grad, [&](size_t i) { return is_exact ? 0 : bounds.grad[i]; });
    return !loss_of_rows.ok ? loss_of_rows : !loss.ok ? loss : grad;
  }

  Shape shape;
  std::uint64_t seed;
  DeviceBuffer<float> d_logits, d_grad, d_loss;
  DeviceBuffer<int> d_labels;
  losses::Buffers buffers;
};

void run_cross_entropy(const Shape& shape, const Options& options, Report& report) {
  Problem p(shape, options.seed);
  const Expected exact = losses::expect(shape, Values::integers, options.seed);
  const Expected expected = losses::expect(shape, Values::uniform, options.seed);

  const Work work{2.0 * sizeof(float) * static_cast<double>(shape.elements()), 0,
                  Work::Limit::copy};
  Measurement table(options);
  for (const auto& version : losses::kVersions) {
    const losses::Launch& launch = version.launch;
    const MeanNote note;
    Measured measured{work,
                      [&](hipStream_t stream) {
                        launch.run(p.d_loss.data(), p.d_grad.data(), p.d_logits.data(),
                                   {p.d_labels.data(), shape.rows, shape.classes},
                                   p.buffers.workspace(), stream);
                      },
                      [&, note] {
                        *note.mean = p.d_loss.to_host()[0];
                        return p.check(launch, expected);
                      },
                      {{p.d_grad.data(), p.d_grad.bytes()}, {p.d_loss.data(), p.d_loss.bytes()}}};
    measured.verify_exactly = [&] { return p.check(launch, exact); };
    measured.finish = note;
    measured.shape = {shape.rows, shape.classes};
    table.version(version, measured);
  }
  p.fill(Values::integers);
  table.check_exactly();
  p.fill(Values::uniform);
  const bool is_whole = expected.sample.text.empty();
  report.table(shape.cross_entropy_name(), is_whole ? expected.reference_ms : 0,
               expected.sample.text);
  table.run(report);
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "3.3", "losses", "squared error and cross-entropy, each with its gradient", losses::sizes(),
      version_infos(losses::kSquaredErrorVersions, losses::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const Shape first{options.sizes[0], options.sizes[1]};
    const std::vector<Shape> shapes = losses::printed(first, options.sizes_given || options.quick);
    for (const Shape& shape : shapes)
      require_device_memory(3.0 * sizeof(float) * static_cast<double>(shape.rows) *
                            static_cast<double>(shape.classes));
    report.limits(timing::measure_limits(options));
    if (wants_any(options, losses::kSquaredErrorVersions))
      run_squared_error(first, options, report);
    if (!wants_any(options, losses::kVersions)) return;
    for (const Shape& shape : shapes) run_cross_entropy(shape, options, report);
  });
}
