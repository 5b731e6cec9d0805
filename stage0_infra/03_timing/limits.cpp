// The limits, measured: each is the rate of its best probe.
#include <algorithm>
#include <string>
#include <vector>

#include "common/timer.h"
#include "stage0_infra/03_timing/arena.h"
#include "stage0_infra/03_timing/timing.h"

namespace timing {

Work work_of(Does does, const Memory& memory) {
  const double bytes = static_cast<double>(memory.bytes());
  switch (does) {
    case Does::Copy:
      return {2 * bytes, 0, Work::Limit::copy};
    case Does::Read:
      return {2 * bytes, 0, Work::Limit::read};
    case Does::Fma:
      return {0, 2.0 * kMultiplyAdds * static_cast<double>(fma_threads()), Work::Limit::fma};
    default:
      return {static_cast<double>(memory.host_bytes), 0, Work::Limit::none};
  }
}

Limits measure_limits(bool quick) {
  constexpr double kWarmUpMs = 20;  // until the clocks have left their idle state
  const int repeat = gpu::kBackend == std::string("cpu") ? (quick ? 3 : 5) : (quick ? 5 : 20);
  const Arena arena(arena_bytes(quick), false);
  const Memory& memory = arena.memory();
  for (HostTimer timer; timer.ms() < kWarmUpMs;) {
    launch_copy_1_vector(memory);
    HIP_CHECK(hipDeviceSynchronize());
  }
  Limits limits;
  GpuTimer timer;
  for (const auto& version : kVersions) {
    const Launch& probe = version.launch;
    const Work work = work_of(probe.does, memory);
    if (work.limit == Work::Limit::none) continue;
    double& limit = work.limit == Work::Limit::copy   ? limits.copy
                    : work.limit == Work::Limit::read ? limits.read
                                                      : limits.fma;
    const double amount = work.limit == Work::Limit::fma ? work.operations : work.bytes;
    probe.launch(memory, nullptr);  // untimed: loads the code
    std::vector<double> ms;
    for (int r = 0; r < repeat; ++r) {
      timer.start();
      probe.launch(memory, nullptr);
      ms.push_back(std::max(timer.stop(), 1e-6));
      const double best_ms = *std::min_element(ms.begin(), ms.end());
      if (r == 1 && amount / (best_ms / 1e3) < 0.5 * limit) break;  // far behind: no more runs
    }
    limit = std::max(limit, amount / (summarize(ms).median / 1e3));
  }
  return limits;
}

Limits measure_limits(const Options& options) {
  return options.no_limits ? Limits{} : measure_limits(options.quick);
}

}  // namespace timing
