// Runs, checks and times maximum pooling, forward and backward.
#include <string>
#include <vector>

#include "common/sample.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage6_cnn/02_maxpool/maxpool.h"

using device_matrix::DeviceBuffer;
using maxpool::Arriving;
using maxpool::Extent;
using maxpool::Index;

namespace {

constexpr size_t kWhole = size_t{1} << 22;  // cells up to which all planes are compared
constexpr size_t kPlanes = 64;              // planes that are compared of a larger problem

// What is pooled: the windows of most networks, and those of ResNet's first layers.
struct Window {
  size_t size, stride, padding;
};
constexpr Window kWindows[] = {{2, 2, 0}, {3, 2, 1}};

struct Run {
  Run(const std::vector<size_t>& sizes, const Window& window, std::uint64_t seed)
      : problem{sizes[0],    sizes[1],      sizes[2],      sizes[3],       window.size,
                window.size, window.stride, window.stride, window.padding, window.padding},
        out(maxpool::output_of(problem)),
        planes(problem.N * problem.C),
        cells(problem.H * problem.W),
        outputs(out.height * out.width),
        d_x(planes * cells),
        d_y(planes * outputs),
        d_argmax(planes * outputs) {
    random_numbers::launch_fill_uniform(d_x.data(), d_x.size(), seed, 0);
    of_x = choose_rows(planes, cells, d_x.size() <= kWhole ? planes + 2 : kPlanes, seed);
    if (!of_x.text.empty())
      of_x.text.replace(of_x.text.size() - 4, 4, "planes");  // choose_rows says "rows"
    of_y = of_x;
    of_y.cols = outputs;
    sampled = problem;
    sampled.N = 1, sampled.C = of_x.rows.size();
  }
  std::string text(const char* pass) const {
    return std::to_string(problem.R) + "x" + std::to_string(problem.S) + " every " +
           std::to_string(problem.stride_h) + ", padding " + std::to_string(problem.pad_h) + ", " +
           pass + "   " + std::to_string(problem.N) + "x" + std::to_string(problem.C) + "x" +
           std::to_string(problem.H) + "x" + std::to_string(problem.W) + " float32";
  }
  // What must be moved: x or grad_x (of x the rows and columns that some window covers), y or
  // grad_y, and the places.
  Work work(size_t rows, size_t columns) const {
    const double values = static_cast<double>(planes) * static_cast<double>(rows * columns);
    const double windows = static_cast<double>(planes) * static_cast<double>(outputs);
    return {sizeof(float) * values + (sizeof(float) + sizeof(Index)) * windows, 0,
            Work::Limit::copy};
  }
  // Of so many rows or columns the windows reach up to here. No window leaves a gap.
  static size_t covered(size_t extent, size_t count, size_t stride, size_t size, size_t padding) {
    return std::min(extent, (count - 1) * stride + size - padding);
  }

  maxpool::Problem problem;
  Extent out;
  size_t planes, cells, outputs;  // cells and outputs of a plane
  DeviceBuffer<float> d_x, d_y;
  DeviceBuffer<Index> d_argmax;
  RowSample of_x, of_y;      // planes as rows
  maxpool::Problem sampled;  // the sampled planes alone
};

// Says so, and returns true, where a version would leave the problem to the one before it.
bool is_left_out(const Run& run, const char* name, const char* lesson, bool row_pairs_only,
                 Report& report) {
  if (!row_pairs_only || maxpool::is_row_pairs(run.problem)) return false;
  Row row;
  row.name = name, row.lesson = lesson;
  row.skipped = "needs 2x2 windows every 2 cells";
  report.add(row);
  return true;
}

template <class Versions>
bool wants_any(const Options& options, const Versions& versions) {
  for (const auto& version : versions)
    if (options.wants(version.name)) return true;
  return false;
}

// The verdict on places and values together: that of the places if they are wrong.
Comparison compare_forward(const Run& run, const maxpool::Pooled& want) {
  const auto exactly = [](size_t) { return 0.0; };
  const std::vector<double> places(want.argmax.begin(), want.argmax.end());
  const Comparison argmax = run.of_y.compare(run.d_argmax.data(), places, exactly);
  return argmax.ok ? run.of_y.compare(run.d_y.data(), want.y, exactly) : argmax;
}

void run_forward(Run& run, const Options& options, Report& report) {
  const std::vector<float> x = run.of_x.to_host(run.d_x.data());
  HostTimer timer;
  const maxpool::Pooled want = maxpool::forward_cpu(x, run.sampled);
  report.table(run.text("forward"), run.of_x.text.empty() ? timer.ms() : 0, run.of_x.text);
  const maxpool::Problem& p = run.problem;
  const Work work = run.work(Run::covered(p.H, run.out.height, p.stride_h, p.R, p.pad_h),
                             Run::covered(p.W, run.out.width, p.stride_w, p.S, p.pad_w));
  for (const auto& version : maxpool::kVersions) {
    if (!options.wants(version.name) ||
        is_left_out(run, version.name, version.lesson, version.launch.row_pairs_only, report))
      continue;
    Row row = measure(
        version.name, version.lesson, version.needs, work,
        {{run.d_y.data(), run.d_y.bytes()}, {run.d_argmax.data(), run.d_argmax.bytes()}},
        options.repeat,
        [&] {
          version.launch.run(run.d_y.data(), run.d_argmax.data(), run.d_x.data(), p, nullptr);
        },
        [&] { return compare_forward(run, want); });
    row.shape = {run.planes, run.out.height, run.out.width};
    report.add(row);
  }
}

// The output takes the place of x, which only the forward pass needs.
void run_backward(Run& run, std::uint64_t seed, const Options& options, Report& report) {
  const maxpool::Problem& p = run.problem;
  maxpool::forward(run.d_y.data(), run.d_argmax.data(), run.d_x.data(), p);
  random_numbers::launch_fill_uniform(run.d_y.data(), run.d_y.size(), seed, 1);
  const std::vector<float> grad_y = run.of_y.to_host(run.d_y.data());
  const std::vector<Index> argmax = run.of_y.to_host(run.d_argmax.data());
  HostTimer timer;
  const maxpool::Expected want = maxpool::backward_cpu(grad_y, argmax, run.sampled);
  report.table(run.text("backward"), run.of_x.text.empty() ? timer.ms() : 0, run.of_x.text);
  for (const auto& version : maxpool::kBackwardVersions<Arriving>) {
    if (!options.wants(version.name) ||
        is_left_out(run, version.name, version.lesson, version.launch.row_pairs_only, report))
      continue;
    Row row = measure(
        version.name, version.lesson, version.needs, run.work(p.H, p.W),
        {{run.d_x.data(), run.d_x.bytes()}}, options.repeat,
        [&] {
          version.launch.run(run.d_x.data(), Arriving{run.d_y.data()}, run.d_argmax.data(), p,
                             nullptr);
        },
        [&] {
          return run.of_x.compare(run.d_x.data(), want.value,
                                  [&](size_t i) { return want.bound[i]; });
        });
    row.shape = {run.planes, p.H, p.W};
    report.add(row);
  }
}

std::vector<VersionInfo> all_versions() {
  std::vector<VersionInfo> infos = version_infos(maxpool::kVersions);
  for (const VersionInfo& info : version_infos(maxpool::kBackwardVersions<Arriving>))
    infos.push_back(info);
  return infos;
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"6.2",
                            "maxpool",
                            "the largest value of each window, and the gradient back to it",
                            {{"images", 256, 8, 2},
                             {"channels", 64, 16, 3},
                             {"height", 112, 56, 21},
                             {"width", 112, 56, 30}},
                            all_versions()};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    double planes = static_cast<double>(options.sizes[0]) * static_cast<double>(options.sizes[1]);
    double cells = static_cast<double>(options.sizes[2]) * static_cast<double>(options.sizes[3]);
    require_device_memory(7 * planes * cells);  // x, and a quarter as many values and places
    for (const Window& window : kWindows) try {
        maxpool::output_of({1, 1, options.sizes[2], options.sizes[3], window.size, window.size,
                            window.stride, window.stride, window.padding, window.padding});
      } catch (const std::invalid_argument& error) {
        throw UsageError(error.what());
      }
    report.limits(timing::measure_limits(options));
    for (const Window& window : kWindows) {
      Run run(options.sizes, window, options.seed);
      if (wants_any(options, maxpool::kVersions)) run_forward(run, options, report);
      if (wants_any(options, maxpool::kBackwardVersions<Arriving>))
        run_backward(run, options.seed, options, report);
    }
  });
}
