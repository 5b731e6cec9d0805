// A launch: checked as a device would check it, then its blocks are spread over the host's threads.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "common/cpu/block.h"
#include "common/cpu/cluster.h"
#include "common/cpu/fault.h"
#include "common/cpu/grid_barrier.h"
#include "common/cpu/internal.h"
#include "common/cpu/pool.h"
#include "common/cpu/sanitizers.h"
#include "common/cpu/unseen_counter.h"

namespace cpu {

namespace {

bool within(const dim3& extent, const int (&limit)[3]) {
  return extent.x >= 1 && extent.y >= 1 && extent.z >= 1 &&
         extent.x <= static_cast<unsigned>(limit[0]) &&
         extent.y <= static_cast<unsigned>(limit[1]) && extent.z <= static_cast<unsigned>(limit[2]);
}

std::string text_of(const dim3& extent) {
  return "(" + std::to_string(extent.x) + "," + std::to_string(extent.y) + "," +
         std::to_string(extent.z) + ")";
}

// What is left to do of one launch, shared by the host threads that work on it.
struct Grid {
  Grid(const Launch& what, const void* kernel_body) : launch(what), body(kernel_body) {}

  const Launch& launch;
  const void* body;
  const size_t blocks = size_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  size_t chunk = 1;  // blocks that a host thread takes at a time
  const size_t together =
      launch.manner.together == kWholeGrid ? 1 : launch.manner.together;  // in a cluster
  // In random order the i-th cluster to run is number (offset + i * stride) mod clusters.
  size_t offset = 0, stride = 1;
  GridBarrier* barrier = nullptr;  // of a cooperative launch
  std::deque<Cluster> clusters;    // of a launch in clusters
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  std::atomic<bool> has_waited{false};  // for the launch before it, in a launch that begins early
  const int device = current_device();  // what the host threads work for, whoever they belong to

  uint3 block(size_t i) const {
    if (order().kind == Order::reverse) i = blocks - 1 - i;
    if (order().kind == Order::random)
      i = (offset + i / together * stride) % (blocks / together) * together + i % together;
    const size_t x = launch.grid.x, y = launch.grid.y;
    return {static_cast<unsigned>(i % x), static_cast<unsigned>(i / x % y),
            static_cast<unsigned>(i / x / y)};
  }
  // Those of the i-th block to run.
  Cluster* cluster(size_t i) { return clusters.empty() ? nullptr : &clusters[i / together]; }
  unsigned rank(size_t i) const { return static_cast<unsigned>(block(i).x % together); }
};

// Runs a block once more, each thread on a fiber of its own. True if it is interrupted again.
bool is_interrupted_again(Grid& grid, BlockRunner& runner, uint3 block) {
  if (sigsetjmp(runner.fault_jump, 0) != 0) return true;
  runner.run(grid.launch, grid.body, block, nullptr, nullptr, true);
  return false;
}

// A kernel was interrupted. Which of the threads that shared its loop it was shows when the block
// is run again; the device is lost anyway.
void report_fault(Grid& grid, BlockRunner& runner) {
  grid.failed = true;
  std::string line = describe_fault(runner, runner.fault);
  const uint3 block = runner.block();
  const bool again = !runner.precise() && grid.barrier == nullptr;
  runner.abandon_fibers();
  if (again && is_interrupted_again(grid, runner, block)) {
    line = describe_fault(runner, runner.fault);
    runner.abandon_fibers();
  }
  raise_fault(is_timeout(runner.fault) ? hipErrorLaunchTimeOut : hipErrorIllegalAddress, line);
}

// Takes blocks until none is left, or `most` times. The whole loop is one try: the fault handler
// jumps back to its beginning.
void run_blocks(Grid& grid, std::atomic<size_t>& next, size_t most) {
  const OnDevice scope(grid.device);
  BlockRunner& runner = block_runner();
  use_signal_stack();
  if (sigsetjmp(runner.fault_jump, 0) != 0) return report_fault(grid, runner);
  for (size_t taken = 0; taken < most && !grid.failed.load(std::memory_order_relaxed); ++taken) {
    const size_t first = next.fetch_add(grid.chunk, std::memory_order_relaxed);
    if (first >= grid.blocks) return;
    const size_t last = std::min(first + grid.chunk, grid.blocks);
    for (size_t i = first; i < last; ++i) {
      const bool ok =
          runner.run(grid.launch, grid.body, grid.block(i), grid.barrier, grid.cluster(i), false);
      if (runner.has_waited_for_launch()) grid.has_waited = true;
      if (ok) continue;
      grid.failed = true;
      if (!runner.diagnosis().empty()) raise_fault(hipErrorLaunchFailure, runner.diagnosis());
      return;
    }
  }
}

// Every block on a host thread of its own, `most` of them at a time: all for a cooperative launch,
// whose blocks wait for one another; some clusters; one for ThreadSanitizer, to which a fresh
// thread's __shared__ variables are fresh memory. Nothing that it knows of may order one block
// behind another, so the threads are not joined but counted, where it does not look.
void run_on_own_threads(Grid& grid, size_t most) {
  ++launch_number;
  UnseenCounter ended;
  for (size_t i = 0; i < grid.blocks; ++i) {
    if (i >= most) ended.wait_for(i + 1 - most);
    std::thread([&, i] {
      std::atomic<size_t> own{i};
      run_blocks(grid, own, 1);
      if (grid.barrier != nullptr) grid.barrier->leave();
      if (Cluster* const cluster = grid.cluster(i); cluster != nullptr) cluster->end(grid.rank(i));
      sanitizer::release(&launch_sync);
      ended.add_one();
    }).detach();
  }
  ended.wait_for(grid.blocks);
  sanitizer::acquire(&launch_sync);
}

// All host threads take chunks of blocks until none is left.
void run_on_team(Grid& grid) {
  const size_t team = std::min(static_cast<size_t>(device().threads), grid.blocks);
  if (team == 1) return run_blocks(grid, grid.next, grid.blocks);
  grid.chunk = std::clamp<size_t>(grid.blocks / (team * 16), 1, 1024);
  pool().run(
      [](void* argument) {
        Grid& shared = *static_cast<Grid*>(argument);
        run_blocks(shared, shared.next, shared.blocks);
      },
      &grid);
}

void run_grid(const Launch& launch, const void* body) {
  Grid grid(launch, body);
  if (order().kind == Order::random) {
    Random random(order().seed);
    const size_t clusters = grid.blocks / grid.together;
    grid.offset = random.below(clusters);
    grid.stride = random.below(std::min(clusters, SIZE_MAX / 2 / clusters)) | 1;
    while (std::gcd(grid.stride, clusters) != 1) ++grid.stride;
  }
  if (launch.manner.together == kWholeGrid) {
    GridBarrier barrier(grid.blocks);
    grid.barrier = &barrier;
    run_on_own_threads(grid, grid.blocks);
  } else if (launch.manner.together > 1) {
    for (size_t i = 0; i < grid.blocks; i += grid.together)
      grid.clusters.emplace_back(launch.manner.together, grid.rank(i), grid.failed);
    const int clusters = sanitizer::kThreads ? 1 : device().threads;
    run_on_own_threads(grid, grid.together * static_cast<size_t>(clusters));
  } else if (sanitizer::kThreads) {
    run_on_own_threads(grid, 1);
  } else {
    run_on_team(grid);
  }
  if (launch.manner.early && !grid.failed && !grid.has_waited)
    raise_fault(hipErrorLaunchFailure,
                std::string("kernel ") + launch.kernel +
                    ": it begins early, and none of its threads calls wait_for_launch_before()");
}

// Everything that a device refuses before the kernel starts, or hipSuccess.
hipError_t refusal(const Launch& launch, std::string* why) {
  const auto refuse = [&](hipError_t error, const std::string& text) {
    *why = std::string("kernel ") + launch.kernel + ": " + text;
    return error;
  };
  const size_t threads = size_t{launch.block.x} * launch.block.y * launch.block.z;
  if (!within(launch.grid, Device::kMaxGridDim))
    return refuse(hipErrorInvalidConfiguration,
                  "a grid of " + text_of(launch.grid) +
                      " blocks; a device takes (1,1,1) to (2147483647,65535,65535)");
  if (!within(launch.block, Device::kMaxBlockDim) || threads > kMaxThreads)
    return refuse(hipErrorInvalidConfiguration,
                  "a block of " + text_of(launch.block) +
                      " threads; a device takes (1,1,1) to (1024,1024,64), and 1024 in all");
  if (launch.shared_bytes > allowed_shared_bytes())
    return refuse(hipErrorInvalidValue, std::to_string(launch.shared_bytes) +
                                            " bytes of shared memory; a block has " +
                                            std::to_string(allowed_shared_bytes()));
  if (launch.manner.together > Cluster::kMost ||
      (launch.manner.together > 1 && launch.grid.x % launch.manner.together != 0))
    return refuse(hipErrorInvalidConfiguration,
                  "a grid of " + text_of(launch.grid) + " blocks in clusters of " +
                      std::to_string(launch.manner.together) + "; a cluster has at most " +
                      std::to_string(Cluster::kMost) +
                      " blocks, and a row of the grid whole clusters");
  if (launch.manner.together == kWholeGrid) {
    int per_multiprocessor = 0;
    static_cast<void>(
        occupancy(&per_multiprocessor, nullptr, static_cast<int>(threads), launch.shared_bytes));
    const size_t resident =
        static_cast<size_t>(per_multiprocessor) * static_cast<size_t>(device().multiprocessors);
    if (size_t{launch.grid.x} * launch.grid.y * launch.grid.z > resident)
      return refuse(hipErrorCooperativeLaunchTooLarge,
                    "a cooperative grid of " + text_of(launch.grid) + " blocks; " +
                        std::to_string(resident) + " fit at a time");
  }
  return hipSuccess;
}

hipError_t stream_refusal(const Launch& launch, std::string* why) {
  const int device = device_of(launch.stream);
  if (device == current_device()) return hipSuccess;
  *why = std::string("kernel ") + launch.kernel + ": the stream belongs to device " +
         std::to_string(device) + ", the current device is " + std::to_string(current_device());
  return hipErrorInvalidHandle;
}

// False, and the device is lost, if the kernel is given what it may not use.
bool check_arguments(const Launch& launch, const void* body) {
  std::string why;
  if (are_reachable(body, launch.body_bytes, &why)) return true;
  raise_fault(hipErrorIllegalAddress, std::string("kernel ") + launch.kernel + " on device " +
                                          std::to_string(current_device()) +
                                          " is given a pointer that is " + why);
  return false;
}

}  // namespace

bool check_launch(const Launch& launch, const void* const* pointers, int count) {
  hipError_t error = device_state();
  if (error == hipSuccess) error = check_stream(launch.stream);
  std::string why;
  if (error == hipSuccess) error = refusal(launch, &why);
  if (error == hipSuccess && device_count > 1) error = stream_refusal(launch, &why);
  for (int i = 0; i < count && error == hipSuccess; ++i) {
    const PointerKind kind = pointer_kind(pointers[i]);
    if (kind != PointerKind::host && kind != PointerKind::freed) continue;
    why = std::string("kernel ") + launch.kernel + ": pointer argument " + std::to_string(i + 1) +
          (kind == PointerKind::host ? " points to host memory, not to the device's"
                                     : " points into a freed buffer");
    error = hipErrorInvalidValue;
  }
  if (error != hipSuccess) launch_failed(error, why);
  return error == hipSuccess;
}

void execute(const Launch& launch, const void* body) {
  if (device_lost()) return;  // as on a GPU, queued work is dropped
  if (device_count > 1 && !check_arguments(launch, body)) return;
  watch_for_faults();
  start_watchdog();
  const DeviceSet reachable = reachable_from(current_device());
  const OpenMemory open(reachable);
  run_grid(launch, body);
  std::string damage;
  if (!check_redzones(reachable, &damage))
    raise_fault(hipErrorIllegalAddress, std::string("kernel ") + launch.kernel + ": " + damage);
}

void execute_later(const Launch& launch, const void* body) {
  const auto* first = static_cast<const std::byte*>(body);
  record(launch.stream, [launch, copy = std::vector<std::byte>(first, first + launch.body_bytes)] {
    execute(launch, copy.data());
  });
}

const Order& order() {
  static const Order parsed = [] {
    const char* text = std::getenv("HIP_CPU_ORDER");
    const std::string value = text != nullptr ? text : "forward";
    if (value == "forward") return Order{};
    if (value == "reverse") return Order{Order::reverse, 0};
    if (value == "waves") return Order{Order::waves, 0};
    const std::string random = "random:";
    if (value.rfind(random, 0) == 0) {  // a seed that is negative or too large is none
      std::uint64_t seed = 0;
      const char* const end = value.data() + value.size();
      const auto [stop, error] = std::from_chars(value.data() + random.size(), end, seed);
      if (error == std::errc() && stop == end) return Order{Order::random, seed};
    }
    refuse("HIP_CPU_ORDER", text, "forward, reverse, waves or random:SEED");
  }();
  return parsed;
}

Pool& pool() {
  static Pool& started = *new Pool(device().threads - 1);
  return started;
}

}  // namespace cpu
