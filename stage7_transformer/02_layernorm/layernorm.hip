// Runs, checks and times every version of layernorm: forward, with a residual, and backward.
#include <string>
#include <vector>

#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage7_transformer/02_layernorm/layernorm.h"

using device_matrix::DeviceBuffer;
using device_matrix::Matrix;

namespace {

constexpr size_t kSampledRows = 64;  // that are compared element by element
constexpr float kEps = 1e-5f;

struct Shape {
  size_t rows, cols;
  double elements() const { return static_cast<double>(rows) * static_cast<double>(cols); }
  std::string text() const { return std::to_string(rows) + "x" + std::to_string(cols); }
};

// What is run where no --size is given: long rows, a matrix hardly larger than the caches, and what
// a small transformer trains with.
std::vector<Shape> shapes(const Options& options) {
  const Shape first{options.sizes[0], options.sizes[1]};
  if (options.sizes_given || options.quick) return {first};
#if defined(GPU_BACKEND_CPU)
  return {first, {4096, 64}};
#else
  return {first, {8192, 1024}, {16384, 384}, {4096, 64}};
#endif
}

struct Problem {
  Problem(Shape matrix, std::uint64_t seed)
      : shape(matrix),
        d_x(shape.rows, shape.cols),
        d_other(shape.rows, shape.cols),
        d_result(shape.rows, shape.cols),
        d_mean(shape.rows),
        d_rstd(shape.rows),
        d_gain(shape.cols),
        d_bias(shape.cols),
        sample(choose_rows(shape.rows, shape.cols, kSampledRows, seed)),
        row_sample(sample) {
    row_sample.cols = 1;
    // x in [-2.5, 5.5), so that no mean is 0; what else there is in [-1, 1).
    random_numbers::launch_fill_uniform(d_x.data(), d_x.size(), seed, 0);
    axpy::launch_vectorized_scale(d_x.data(), 4.0f, d_x.data(), d_x.size());
    d_other.fill(1.5f);
    vector_add::launch_vectorized_add(d_x.data(), d_x.data(), d_other.data(), d_x.size());
    random_numbers::launch_fill_uniform(d_other.data(), d_other.size(), seed, 1);
    random_numbers::launch_fill_uniform(d_gain.data(), d_gain.size(), seed, 2);
    random_numbers::launch_fill_uniform(d_bias.data(), d_bias.size(), seed, 3);
    gain = d_gain.to_host(), bias = d_bias.to_host();
  }
  layernorm::Pass pass() {
    return {d_result.data(), d_mean.data(), d_rstd.data(), d_gain.data(),
            d_bias.data(),   shape.rows,    shape.cols,    kEps};
  }
  // mean, rstd and y of the sampled rows: the first that is wrong, or y.
  Comparison check(const layernorm::Forward& want) const {
    const Comparison mean =
        row_sample.compare(d_mean.data(), want.mean, [&](size_t i) { return want.bound_mean[i]; });
    const Comparison rstd =
        row_sample.compare(d_rstd.data(), want.rstd, [&](size_t i) { return want.bound_rstd[i]; });
    const Comparison y =
        sample.compare(d_result.data(), want.y, [&](size_t i) { return want.bound_y[i]; });
    return !mean.ok ? mean : !rstd.ok ? rstd : y;
  }
  std::vector<std::pair<void*, size_t>> outputs() {
    return {{d_result.data(), d_result.bytes()},
            {d_mean.data(), d_mean.bytes()},
            {d_rstd.data(), d_rstd.bytes()}};
  }
  // The fewest bytes of a pass over `matrices` matrices: gain, bias and what a row leaves come
  // along.
  Work work(double matrices) const {
    const double vectors = static_cast<double>(shape.rows) + static_cast<double>(shape.cols);
    return {sizeof(float) * (matrices * shape.elements() + 2 * vectors), 0, Work::Limit::copy};
  }

  Shape shape;
  Matrix<float> d_x, d_other, d_result;  // d_other: a residual, or grad_y
  DeviceBuffer<float> d_mean, d_rstd, d_gain, d_bias;
  RowSample sample, row_sample;  // of a matrix, and of what has one element per row
  std::vector<float> gain, bias;
};

// ---- Forward ----------------------------------------------------------------------------------

void run_forward(Problem& p, const Options& options, Report& report) {
  const std::vector<float> x = p.sample.to_host(p.d_x.data());
  HostTimer timer;
  layernorm::forward_cpu(x, p.gain, p.bias, p.shape.cols, kEps, {0});
  report.table("layernorm   " + p.shape.text() + " float32", p.sample.text.empty() ? timer.ms() : 0,
               p.sample.text);
  for (const auto& version : layernorm::kVersions) {
    if (!options.wants(version.name)) continue;
    const layernorm::Forward want = layernorm::forward_cpu(x, p.gain, p.bias, p.shape.cols, kEps,
                                                           version.launch.roundings(p.shape.cols));
    Row row = measure(
        version.name, version.lesson, version.needs, p.work(2), p.outputs(), options.repeat,
        [&] { version.launch.run(p.pass(), p.d_x.data(), nullptr); },
        [&] { return p.check(want); });
    row.shape = {p.shape.rows, p.shape.cols};
    report.add(row);
  }
}

// ---- With a residual --------------------------------------------------------------------------

void run_residual(Problem& p, const Options& options, Report& report) {
  Matrix<float> d_sum(p.shape.rows, p.shape.cols);
  std::vector<float> sum = p.sample.to_host(p.d_x.data());
  const std::vector<float> residual = p.sample.to_host(p.d_other.data());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += residual[i];
  const layernorm::Forward want = layernorm::forward_cpu(
      sum, p.gain, p.bias, p.shape.cols, kEps, layernorm::roundings_row_cached(p.shape.cols));
  const std::vector<double> want_sum(sum.begin(), sum.end());
  report.table("layernorm of a sum   " + p.shape.text() + " float32", 0, p.sample.text);
  for (const auto& version : layernorm::kResidualVersions) {
    if (!options.wants(version.name)) continue;
    auto outputs = p.outputs();
    outputs.push_back({d_sum.data(), d_sum.bytes()});
    Row row = measure(
        version.name, version.lesson, version.needs, p.work(4), outputs, options.repeat,
        [&] {
          version.launch.run(d_sum.data(), p.pass(), p.d_x.data(), p.d_other.data(), nullptr);
        },
        [&] {  // one addition rounds alike everywhere
          const Comparison of_sum =
              p.sample.compare(d_sum.data(), want_sum, [](size_t) { return 0.0; });
          return of_sum.ok ? p.check(want) : of_sum;
        });
    row.shape = {p.shape.rows, p.shape.cols};
    report.add(row);
  }
}

// ---- Backward ---------------------------------------------------------------------------------

// The sampled rows of grad_x; of gain and bias all columns, which takes all rows.
struct Backward {
  explicit Backward(Problem& p) : d_grad_gain(p.shape.cols), d_grad_bias(p.shape.cols) {
    layernorm::run_row_cached(p.pass(), p.d_x.data(), nullptr);
    mean = p.row_sample.to_host(p.d_mean.data()), rstd = p.row_sample.to_host(p.d_rstd.data());
    grad_y = p.sample.to_host(p.d_other.data()), x = p.sample.to_host(p.d_x.data());
    sums = layernorm::column_sums_cpu(p.d_other.to_host(), p.d_x.to_host(), p.d_mean.to_host(),
                                      p.d_rstd.to_host(), p.shape.cols);
  }
  Comparison check(const Problem& p, const layernorm::BackwardLaunch& version) const {
    const size_t rows = p.shape.rows, cols = p.shape.cols;
    const layernorm::Expected want =
        layernorm::grad_x_cpu(grad_y, x, p.gain, mean, rstd, {}, version.row_additions(cols));
    const double additions = version.column_additions(rows, cols);
    const Comparison of_x =
        p.sample.compare(p.d_result.data(), want.value, [&](size_t i) { return want.bound[i]; });
    const std::vector<float> got_gain = d_grad_gain.to_host(), got_bias = d_grad_bias.to_host();
    const Comparison of_gain = compare(
        cols, [&](size_t c) { return got_gain[c]; }, [&](size_t c) { return sums.gain[c]; },
        [&](size_t c) { return sums.gain_bound(c, rows, additions); });
    const Comparison of_bias = compare(
        cols, [&](size_t c) { return got_bias[c]; }, [&](size_t c) { return sums.bias[c]; },
        [&](size_t c) { return sums.bias_bound(c, rows, additions); });
    return !of_gain.ok ? of_gain : !of_bias.ok ? of_bias : of_x;
  }

  DeviceBuffer<float> d_grad_gain, d_grad_bias;
  std::vector<float> mean, rstd, grad_y, x;  // of the sampled rows
  layernorm::ColumnSums sums;
};

void run_backward(Problem& p, const Options& options, Report& report) {
  Backward backward(p);
  layernorm::Workspace workspace(p.shape.rows, p.shape.cols);
  report.table("layernorm backward   " + p.shape.text() + " float32", 0, p.sample.text);
  for (const auto& version : layernorm::kBackwardVersions) {
    if (!options.wants(version.name)) continue;
    const layernorm::BackwardPass pass{p.d_result.data(), p.d_other.data(), p.d_x.data(),
                                       p.d_gain.data(),   p.d_mean.data(),  p.d_rstd.data(),
                                       nullptr,           p.shape.rows,     p.shape.cols};
    Row row = measure(
        version.name, version.lesson, version.needs, p.work(3),
        {{p.d_result.data(), p.d_result.bytes()},
         {backward.d_grad_gain.data(), backward.d_grad_gain.bytes()},
         {backward.d_grad_bias.data(), backward.d_grad_bias.bytes()}},
        options.repeat,
        [&] {
          version.launch.run(backward.d_grad_gain.data(), backward.d_grad_bias.data(), pass,
                             workspace, nullptr);
        },
        [&] { return backward.check(p, version.launch); });
    row.shape = {p.shape.rows, p.shape.cols};
    report.add(row);
  }
}

std::vector<VersionInfo> all_versions() {
  std::vector<VersionInfo> infos = version_infos(layernorm::kVersions);
  for (const VersionInfo& info : version_infos(layernorm::kResidualVersions)) infos.push_back(info);
  for (const VersionInfo& info : version_infos(layernorm::kBackwardVersions)) infos.push_back(info);
  return infos;
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"7.2",
                            "layernorm",
                            "rows of mean 0 and variance 1, with gain and bias; and its gradients",
                            {{"rows", 65536, 512, 67}, {"cols", 4096, 1024, 131}},
                            all_versions()};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    for (const Shape& shape : shapes(options))
      require_device_memory(sizeof(float) * (4.0 * shape.elements() + 4e6));
    report.limits(timing::measure_limits(options));
    for (const Shape& shape : shapes(options)) {
      Problem problem(shape, options.seed);
      if (wants_any(options, layernorm::kVersions)) run_forward(problem, options, report);
      if (wants_any(options, layernorm::kResidualVersions)) run_residual(problem, options, report);
      if (wants_any(options, layernorm::kBackwardVersions)) run_backward(problem, options, report);
    }
  });
}
