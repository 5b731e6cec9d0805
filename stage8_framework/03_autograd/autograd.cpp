// Differentiates a deep perceptron by every version, and times what a small graph costs the host.
#include "stage8_framework/03_autograd/autograd.h"

#include "common/program.h"
#include "common/sizes.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage8_framework/03_autograd/ladders.h"

int main(int argc, char** argv) {
  const ProgramInfo program{"8.3", "autograd", "gradients of all that was run, by a tape",
                            autograd::sizes(), version_infos(autograd::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const autograd::Case c{options.sizes[0], options.sizes[1], options.sizes[2]};
    sizes::require_product({c.batch, c.width, c.layers});
    sizes::require_product({c.width, c.width, c.layers});
    const double numbers = static_cast<double>(c.batch * c.width * c.layers + c.parameters());
    require_device_memory(4 * sizeof(float) * numbers);
    sizes::require_host_memory(64 * numbers);  // in double, with their errors
    report.limits(timing::measure_limits(options));
    report.headline(autograd::four_operations_name());
    // The build that looks for races has no plug-ins, and here is nothing that runs beside another.
    if (!kTimes) return;
    autograd::run_perceptron(c, options, report);
    autograd::run_small(options, report);
  });
}
