// Shows which backends there are and what they can run, and measures three ladders: how a Call gets
// to a launcher, where its operands lie, and who computes it.
#include "stage8_framework/02_backends/backends.h"

#include "common/program.h"
#include "common/sizes.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage8_framework/02_backends/ladders.h"
#include "stage8_framework/02_backends/listing.h"

int main(int argc, char** argv) {
  ProgramInfo program{
      "8.2", "backends", "one list of operations, and several who can run them", backends::sizes(),
      version_infos(backends::kVersions, backends::kMemoryVersions, backends::kKernelVersions)};
  program.extra = {{"--operations", "FILE", "write the table of operations as Markdown, and end"}};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    const auto file = options.extra.find("--operations");
    if (file != options.extra.end()) return backends::write_operations(file->second);
    require_work(options);
    const std::vector<backends::Case> cases = backends::printed(options.sizes);
    require_device_memory(backends::most_bytes(cases));
    sizes::require_host_memory(3 * backends::most_bytes(cases));  // inputs, and reference's own
    if (options.versions.empty()) backends::show_backends(report);
    report.limits(timing::measure_limits(options));
    report.headline(cases[0].name());
    if (wants_any(options, backends::kVersions)) backends::run_dispatch(options, report);
    if (wants_any(options, backends::kMemoryVersions)) backends::run_memory(options, report);
    if (wants_any(options, backends::kKernelVersions))
      for (const backends::Case& c : cases) backends::run_kernels(c, options, report);
    if (options.versions.empty() && !options.no_times && kTimes)
      backends::run_eager(options, report);
  });
}
