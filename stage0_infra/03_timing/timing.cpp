// What a launch costs, what three clocks say, and the limits that every later program divides by.
#include "stage0_infra/03_timing/timing.h"

#include <cstdio>
#include <string>

#include "common/measure.h"
#include "common/program.h"
#include "stage0_infra/03_timing/arena.h"
#include "stage0_infra/03_timing/launch_cost.h"
#include "stage0_infra/03_timing/reference.h"

int main(int argc, char** argv) {
  const ProgramInfo program{"0.3",
                            "timing",
                            "what the machine can do, and what a launch costs",
                            {},
                            version_infos(timing::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    // First of all, while no kernel has run: the first launch is one of the things to see.
    const timing::LaunchCost cost = timing::measure_launch_cost(options.quick);
    report.limits(timing::measure_limits(options));

    const timing::Arena arena(timing::arena_bytes(options.quick));
    const timing::Memory& memory = arena.memory();
    const timing::ProbeCheck check(memory, options.seed);
    char problem[96];
    std::snprintf(problem, sizeof problem, "probes on 2 x %.0f MiB",
                  static_cast<double>(memory.bytes()) / (1 << 20));
    report.table(problem, 0, check.sampled());
    // On a processor, where each of the probes takes long, 5 runs have to do.
    Options timed = options;
    if (options.repeat == 0)
      timed.repeat = options.quick ? 2 : gpu::kBackend == std::string("cpu") ? 5 : 0;
    Measurement table(timed);
    for (const auto& version : timing::kVersions) {
      const timing::Launch& probe = version.launch;
      const auto launch = [&](hipStream_t stream) { probe.launch(memory, stream); };
      table.version(version,
                    {timing::work_of(probe.does, memory), launch, [&] { return check(probe); }});
    }
    table.run(report);

    report.fact("copy limit", report.limits().copy / 1e9, "GB/s");
    report.fact("read limit", report.limits().read / 1e9, "GB/s");
    report.fact("fma limit", report.limits().fma / 1e9, "GFLOP/s");
    report.fact("first launch", cost.first, "us");
    report.fact("launch, queued", cost.queue, "us");
    report.fact("launch, on the device", cost.device, "us");
    report.fact("launch and wait", cost.wait, "us");
    const timing::Clocks clocks = timing::compare_clocks(memory);
    report.fact("copy by events", clocks.events, "ms");
    report.fact("copy by the host's clock", clocks.host, "ms");
    report.fact("copy by the host's clock, not waiting", clocks.host_no_wait, "ms");
  });
}
