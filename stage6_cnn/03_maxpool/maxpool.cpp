// Runs, checks and times maximum pooling, forward and backward.
#include "stage6_cnn/03_maxpool/maxpool.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/program.h"
#include "common/random.h"
#include "common/timer.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage6_cnn/03_maxpool/problem.h"
#include "stage6_cnn/03_maxpool/reference.h"

namespace {

using maxpool::Index;
using maxpool::Problem;

// x or grad_x, y or grad_y, and the places, of all planes; and what of them is compared.
struct Arrays {
  Arrays(const Problem& problem, std::uint64_t seed)
      : out(maxpool::output_of(problem)),
        planes(problem.N * problem.C),
        x(planes * problem.H * problem.W),
        y(planes * out.height * out.width),
        argmax(y.size()),
        chosen(maxpool::choose_planes(problem, seed)) {}

  maxpool::Extent out;
  size_t planes;
  gpu::DeviceBuffer<float> x, y;
  gpu::DeviceBuffer<Index> argmax;
  maxpool::Planes chosen;
};

// What must be moved: of x or grad_x so many rows and columns, y or grad_y, and the places.
Work work_of(const Arrays& arrays, size_t rows, size_t columns) {
  const double cells = static_cast<double>(arrays.planes) * static_cast<double>(rows * columns);
  const double outputs = static_cast<double>(arrays.y.size());
  return {sizeof(float) * cells + (sizeof(float) + sizeof(Index)) * outputs, 0, Work::Limit::copy};
}

// Of so many rows or columns the windows reach up to here. No window leaves a gap.
size_t covered(size_t extent, size_t count, size_t stride, size_t size, size_t padding) {
  return std::min(extent, (count - 1) * stride + size - padding);
}

// Adds a version to the table; or says that it would leave the problem to the one before it.
template <class Version>
void add(Measurement& table, const Version& version, const Problem& p, const Options& options,
         std::vector<Row>& left_out, Measured measured) {
  if (!version.launch.row_pairs_only || maxpool::is_row_pairs(p))
    return table.version(version, std::move(measured));
  if (!options.wants(version.name)) return;
  Row row;
  row.name = version.name, row.lesson = version.lesson;
  row.skipped = "needs 2x2 windows every 2 cells";
  left_out.push_back(row);
}

// The verdict on places and values together: that of the places if they are wrong.
Comparison compare_forward(const Arrays& arrays, const maxpool::Pooled& want) {
  const auto exactly = [](size_t) { return 0.0; };
  const std::vector<double> places(want.argmax.begin(), want.argmax.end());
  const Comparison argmax = arrays.chosen.of_y.compare(arrays.argmax.data(), places, exactly);
  return argmax.ok ? arrays.chosen.of_y.compare(arrays.y.data(), want.y, exactly) : argmax;
}

void run_forward(const Problem& p, const Options& options, Report& report) {
  Arrays arrays(p, options.seed);
  const maxpool::Planes& chosen = arrays.chosen;
  maxpool::Pooled want;
  const auto fill = [&](auto launch_fill) {
    launch_fill(arrays.x.data(), arrays.x.size(), options.seed, 0, nullptr);
    const std::vector<float> x = chosen.of_x.to_host(arrays.x.data());
    HostTimer timer;
    want = maxpool::forward_cpu(x, chosen.sampled);
    return timer.ms();
  };
  const Work work = work_of(arrays, covered(p.H, arrays.out.height, p.stride_h, p.R, p.pad_h),
                            covered(p.W, arrays.out.width, p.stride_w, p.S, p.pad_w));
  Measurement table(options);
  std::vector<Row> left_out;
  for (const auto& version : maxpool::kVersions) {
    Measured measured{
        work,
        [&](hipStream_t stream) {
          version.launch.run(arrays.y.data(), arrays.argmax.data(), arrays.x.data(), p, stream);
        },
        [&] { return compare_forward(arrays, want); },
        {{arrays.y.data(), arrays.y.bytes()}, {arrays.argmax.data(), arrays.argmax.bytes()}}};
    measured.shape = {arrays.planes, arrays.out.height, arrays.out.width};
    add(table, version, p, options, left_out, std::move(measured));
  }
  fill(random_numbers::launch_fill_integers);  // most windows have several largest cells
  table.check_exactly();
  const double reference_ms = fill(random_numbers::launch_fill_uniform);
  report.table(name(p, "forward"), chosen.of_x.text.empty() ? reference_ms : 0, chosen.of_x.text);
  table.run(report);
  for (const Row& row : left_out) report.add(row);
}

void run_backward(const Problem& p, const Options& options, Report& report) {
  Arrays arrays(p, options.seed);
  const maxpool::Planes& chosen = arrays.chosen;
  random_numbers::launch_fill_uniform(arrays.x.data(), arrays.x.size(), options.seed, 0, nullptr);
  maxpool::forward(arrays.y.data(), arrays.argmax.data(), arrays.x.data(), p);
  const std::vector<Index> argmax = chosen.of_y.to_host(arrays.argmax.data());
  maxpool::Expected want;
  const auto fill = [&](auto launch_fill) {
    launch_fill(arrays.y.data(), arrays.y.size(), options.seed, 1, nullptr);
    const std::vector<float> grad_y = chosen.of_y.to_host(arrays.y.data());
    HostTimer timer;
    want = maxpool::backward_cpu(grad_y, argmax, chosen.sampled);
    return timer.ms();
  };
  Measurement table(options);
  std::vector<Row> left_out;
  for (const auto& version : maxpool::kBackwardVersions) {
    Measured measured{work_of(arrays, p.H, p.W),
                      [&](hipStream_t stream) {
                        version.launch.run(arrays.x.data(), {arrays.y.data()}, arrays.argmax.data(),
                                           p, stream);
                      },
                      [&] {
                        return chosen.of_x.compare(arrays.x.data(), want.value,
                                                   [&](size_t i) { return want.bound[i]; });
                      },
                      {{arrays.x.data(), arrays.x.bytes()}}};
    measured.shape = {arrays.planes, p.H, p.W};
    add(table, version, p, options, left_out, std::move(measured));
  }
  fill(random_numbers::launch_fill_integers);
  table.check_exactly();
  const double reference_ms = fill(random_numbers::launch_fill_uniform);
  report.table(name(p, "backward"), chosen.of_x.text.empty() ? reference_ms : 0, chosen.of_x.text);
  table.run(report);
  for (const Row& row : left_out) report.add(row);
}

std::vector<Problem> printed_or_refused(const std::vector<size_t>& sizes) {
  try {
    return maxpool::printed(sizes);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{
      "6.3", "maxpool", "the largest value of each window, and the gradient back to it",
      maxpool::sizes(), version_infos(maxpool::kVersions, maxpool::kBackwardVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    double planes = static_cast<double>(options.sizes[0]) * static_cast<double>(options.sizes[1]);
    double cells = static_cast<double>(options.sizes[2]) * static_cast<double>(options.sizes[3]);
    require_device_memory(7 * planes * cells);  // x, and a quarter as many values and places
    const std::vector<Problem> problems = printed_or_refused(options.sizes);
    report.limits(timing::measure_limits(options));
    report.headline(name(problems[0], "forward"));
    for (const Problem& p : problems) {
      if (wants_any(options, maxpool::kVersions)) run_forward(p, options, report);
      if (wants_any(options, maxpool::kBackwardVersions)) run_backward(p, options, report);
    }
  });
}
