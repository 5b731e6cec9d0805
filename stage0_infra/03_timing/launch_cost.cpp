#include "stage0_infra/03_timing/launch_cost.h"

#include "common/gpu_runtime.h"
#include "common/timer.h"

namespace timing {

LaunchCost measure_launch_cost(bool quick) {
  const int launches = quick ? 100 : 1000;
  const double us = 1e3 / launches;
  LaunchCost cost;
  HIP_CHECK(hipDeviceSynchronize());  // so that no start-up work of the runtime is counted
  HostTimer first;
  launch_empty();
  HIP_CHECK(hipDeviceSynchronize());
  cost.first = 1e3 * first.ms();

  GpuTimer events;
  HostTimer host;
  events.start();
  for (int i = 0; i < launches; ++i) launch_empty();
  cost.queue = host.ms() * us;
  cost.device = events.stop() * us;

  const auto round_trip = [] {
    launch_empty();
    HIP_CHECK(hipDeviceSynchronize());
  };
  cost.wait = 1e3 * time_host(round_trip, launches).median;
  return cost;
}

Clocks compare_clocks(const Memory& memory) {
  constexpr int kRepeat = 5;
  const auto queue = [&] { launch_copy_1_vector(memory); };
  const auto queue_and_wait = [&] {
    queue();
    HIP_CHECK(hipDeviceSynchronize());
  };
  Clocks clocks;
  clocks.events = time_gpu(queue, kRepeat).median;
  clocks.host = time_host(queue_and_wait, kRepeat).median;
  HostTimer timer;
  queue();
  clocks.host_no_wait = timer.ms();
  HIP_CHECK(hipDeviceSynchronize());
  return clocks;
}

}  // namespace timing
