// Copies views with every version, replays a training's allocations, and times what a tensor costs
// the host.
#include "stage8_framework/01_tensor/tensor.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/program.h"
#include "common/random.h"
#include "common/sample.h"
#include "common/timer.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage0_infra/05_memory_pool/allocator_table.h"
#include "stage0_infra/05_memory_pool/pool.h"
#include "stage8_framework/01_tensor/gpu_device.h"
#include "stage8_framework/01_tensor/handle.h"
#include "stage8_framework/01_tensor/problem.h"
#include "stage8_framework/01_tensor/reference.h"

namespace {

using framework::Layout;
using framework::Tensor;
using tensor::Case;

// One table: a view of random numbers, copied.
void run_copies(const Case& c, const Options& options, Report& report) {
  const Layout view = view_of_a(c), rows = Layout::contiguous(view.shape);
  gpu::DeviceBuffer<float> a(static_cast<size_t>(Layout::contiguous(shape_of_a(c)).elements()));
  gpu::DeviceBuffer<float> out(static_cast<size_t>(rows.elements()));
  random_numbers::launch_fill_uniform(a.data(), a.size(), options.seed, 0);
  const Sample sample = choose_sample(out.size(), options.seed);
  std::vector<double> want(sample.size);
  for (size_t i = 0; i < want.size(); ++i)
    want[i] = random_numbers::uniform(options.seed, 0, source_of(c, sample.position(i)));

  const tensor::Problem problem = tensor::problem_of(rows, view);
  Measurement table(options);
  for (const auto& version : tensor::kVersions) {
    Measured measured{{bytes(c), 0, Work::Limit::copy},
                      [&, launch = version.launch](hipStream_t stream) {
                        launch(out.data(), a.data() + view.offset, sizeof(float), problem, stream);
                      },
                      [&] { return sample.compare(out.data(), want, [](size_t) { return 0.0; }); },
                      {{out.data(), out.bytes()}}};
    for (const std::int64_t extent : view.shape)
      measured.shape.push_back(static_cast<size_t>(extent));
    table.version(version, std::move(measured));
  }
  report.table(name(c), 0, sample.text);
  table.run(report);
}

// One table: the allocations of 0.5's training run. What an allocator has from the driver at most
// is held against what is live at most.
void run_memory(const Options& options, Report& report) {
  constexpr size_t kSteps = 100, kShortSteps = 10, kWidth = 1024;
  constexpr std::uint64_t kSeed = 1;  // the trace of 0.5's program
  constexpr double kPromised = 1.1;   // of what is live
  const bool is_short = options.quick || std::string(gpu::kBackend) == "cpu";
  const size_t steps = is_short ? kShortSteps : kSteps;
  const memory_pool::Trace trace = memory_pool::training_trace(steps, kWidth, kSeed);
  const memory_pool::Trace checked = memory_pool::training_trace(2, kWidth, kSeed);
  char text[120];
  std::snprintf(text, sizeof text, "%zu training steps: %zu blocks, at most %.1f MB at a time",
                steps, trace.blocks, static_cast<double>(trace.peak_bytes) / 1e6);
  report.table(text);
  std::vector<std::pair<std::string, double>> peaks;
  memory_pool::measure_allocators(
      {std::begin(tensor::kMemoryVersions), std::end(tensor::kMemoryVersions)}, trace, checked,
      options, report, [&](Row& row, memory_pool::Allocator& allocator) {
        double reserved = static_cast<double>(trace.peak_bytes);  // raw: what is live
        if (const auto* pool = dynamic_cast<const memory_pool::Pool*>(&allocator))
          reserved = static_cast<double>(pool->statistics().cached);  // it gives nothing back
        if (const auto* splitting = dynamic_cast<const tensor::Splitting*>(&allocator)) {
          reserved = static_cast<double>(splitting->statistics().peak_reserved);
          if (reserved > kPromised * static_cast<double>(trace.peak_bytes))
            row.missed = "takes more than 1.1 x what is live";
        }
        peaks.emplace_back(row.name, reserved / static_cast<double>(trace.peak_bytes));
      });
  for (const auto& [allocator, peak] : peaks) report.fact(allocator + ", peak of live", peak, "x");
}

// The median time of a call, in microseconds.
template <class Call>
double host_time(const Options& options, Call&& call) {
  constexpr int kCalls = 10000, kRounds = 21;
  std::vector<double> us;
  for (int round = 0; round < (options.quick ? 3 : kRounds); ++round) {
    HostTimer timer;
    for (int i = 0; i < kCalls; ++i) call();
    us.push_back(1e3 * timer.ms() / kCalls);
  }
  return summarize(us).median;
}

// What the host does where no element is touched.
void run_host(const Options& options, Report& report) {
  tensor::GpuDevice device;
  const Tensor x = Tensor::empty(device, {64, 3, 224, 224});
  std::int64_t used = 0;  // so that the compiler leaves no call out
  const auto view = [&](auto make) {
    return host_time(options, [&] { used += make().strides()[0]; });
  };
  report.fact("a view by transpose", view([&] { return x.transpose(1, 2); }), "us");
  report.fact("a view by slice", view([&] { return x.slice(2, 0, 112); }), "us");
  report.fact("a view by reshape", view([&] { return x.reshape({64, 3, -1}); }), "us");
  report.fact("a view by expand", view([&] { return x.expand({2, 64, 3, 224, 224}); }), "us");
  report.fact("an allocation, and its release", view([&] {
                return Tensor::empty(device, {256, 1024});
              }),
              "us");
  if (used == 0) report.line("no view was made");
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"8.1", "tensor", "views of a storage, their copies and its memory",
                            tensor::sizes(),
                            version_infos(tensor::kVersions, tensor::kMemoryVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    double elements = 1;
    for (const size_t size : options.sizes) elements *= static_cast<double>(size);
    require_device_memory(2 * sizeof(float) * elements);
    const std::vector<Case> cases = tensor::printed(options.sizes);
    report.limits(timing::measure_limits(options));
    report.headline(name(cases[1]));
    if (wants_any(options, tensor::kVersions))
      for (const Case& c : cases) run_copies(c, options, report);
    if (wants_any(options, tensor::kMemoryVersions)) run_memory(options, report);
    if (options.versions.empty() && !options.no_times) run_host(options, report);
  });
}
