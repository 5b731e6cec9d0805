// The clocks, the probes and their check, and what is measured with them.
#include "stage0_infra/03_timing/timing.h"

#include <cstddef>
#include <string>
#include <vector>

#include "common/testing.h"
#include "common/tests/emulator.h"
#include "common/timer.h"
#include "stage0_infra/03_timing/arena.h"
#include "stage0_infra/03_timing/launch_cost.h"
#include "stage0_infra/03_timing/reference.h"

using timing::Does;
using timing::Memory;

namespace {

constexpr size_t kSmall = size_t{1} << 20;

// `memory` without the last tile of each half.
Memory shorter(Memory memory) {
  memory.n -= timing::kWholeTiles;
  return memory;
}

}  // namespace

TEST_CASE("summarize reads percentiles off unsorted times") {
  const Timing timing = summarize({5, 1, 4, 2, 3, 9, 8, 7, 6, 10, 11});
  REQUIRE(timing.median == 6);
  REQUIRE(timing.p10 == 2);
  REQUIRE(timing.p90 == 10);
  REQUIRE(timing.runs == 11);
  REQUIRE(summarize({}).median == 0);
  REQUIRE(summarize({}).runs == 0);
  REQUIRE(summarize({7}).median == 7);
}

TEST_CASE("one outlier does not move the median") {
  REQUIRE(summarize({1, 1, 1, 1, 1000}).median == 1);
}

TEST_CASE("time_gpu repeats the work as often as asked") {
  int runs = 0;
  REQUIRE(time_gpu([&] { ++runs; }, 3).runs == 3);
  REQUIRE(runs >= 5);  // two more before the first that counts
}

TEST_CASE("a clock that waits sees the work, and twice the work takes longer") {
  const timing::Arena arena(kSmall);
  GpuTimer events;
  const auto copies = [&](int count) {
    events.start();
    for (int i = 0; i < count; ++i) timing::launch_copy_4_vectors(arena.memory());
    return events.stop();
  };
  copies(1);
  const double few = copies(2), many = copies(100);
  REQUIRE(few > 0);
  REQUIRE(many > few);
}

TEST_CASE("an arena is rounded up to whole tiles") {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{65536}, size_t{65537}, size_t{1000003}}) {
    const timing::Arena arena(bytes);
    const Memory& memory = arena.memory();
    REQUIRE(memory.n % timing::kWholeTiles == 0);
    REQUIRE(memory.n > 0);
    REQUIRE(memory.bytes() >= bytes);
    REQUIRE(memory.bytes() < bytes + timing::kWholeTiles * sizeof(uint4) + 1);
    REQUIRE(memory.host_bytes == memory.bytes());
  }
  const timing::Arena device_only(kSmall, false);
  REQUIRE(device_only.memory().pageable == nullptr);
  REQUIRE(device_only.memory().host_bytes == 0);
}

TEST_CASE("every probe does the work that it reports") {
  const timing::Arena arena(3 * kSmall + 5);  // an odd number of tiles
  const Memory& memory = arena.memory();
  const timing::ProbeCheck check(memory, 7);
  for (const auto& version : timing::kVersions) {
    CAPTURE(version.name);
    REQUIRE_OK(check(version.launch));
    const Work work = timing::work_of(version.launch.does, memory);
    const double both_halves = 2.0 * static_cast<double>(memory.bytes());
    if (work.limit == Work::Limit::copy || work.limit == Work::Limit::read) {
      REQUIRE(work.bytes == both_halves);
    } else if (work.limit == Work::Limit::fma) {
      REQUIRE(work.operations ==
              2.0 * timing::kMultiplyAdds * static_cast<double>(timing::fma_threads()));
    } else {
      REQUIRE(work.bytes == static_cast<double>(memory.host_bytes));
    }
  }
}

TEST_CASE("the kernels' work can be queued on any stream") {
  const timing::Arena arena(kSmall);
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  for (const auto& version : timing::kVersions) version.launch.launch(arena.memory(), stream);
  timing::launch_empty(stream);
  HIP_CHECK(hipStreamSynchronize(stream));
  HIP_CHECK(hipStreamDestroy(stream));
}

TEST_CASE("the check refuses a probe that does less, twice or something else") {
  using Probe = void (*)(const Memory& memory, hipStream_t stream);
  constexpr Probe kNothing = [](const Memory&, hipStream_t) {};
  constexpr Probe kCopyWithoutLastTile = [](const Memory& memory, hipStream_t stream) {
    timing::launch_copy_1_vector(shorter(memory), stream);
  };
  constexpr Probe kCopyOneVectorOn = [](const Memory& memory, hipStream_t stream) {
    Memory moved = shorter(memory);
    moved.from += 1;
    timing::launch_copy_1_vector(memory, stream);
    timing::launch_copy_1_vector(moved, stream);
  };
  constexpr Probe kCopyZeros = [](const Memory& memory, hipStream_t stream) {
    HIP_CHECK(hipMemsetAsync(memory.to, 0, memory.bytes(), stream));
  };
  constexpr Probe kReadWithoutLastTiles = [](const Memory& memory, hipStream_t stream) {
    timing::launch_read_4_vectors(shorter(memory), stream);
  };
  constexpr Probe kReadOthers = [](const Memory& memory, hipStream_t stream) {
    // Leaves out the first tile and the last: as many vectors as the probe above, but others.
    Memory moved = shorter(memory);
    moved.from += timing::kWholeTiles;
    timing::launch_read_4_vectors(moved, stream);
  };
  const timing::Arena arena(kSmall);
  const timing::ProbeCheck check(arena.memory(), 7);
  for (const Does does : {Does::Copy, Does::Read, Does::Fma, Does::UploadPageable,
                          Does::UploadPinned, Does::DownloadPageable, Does::DownloadPinned}) {
    CAPTURE(static_cast<int>(does));
    REQUIRE_FALSE(check({does, kNothing, 32}).ok);
  }
  for (const Probe wrong : {kCopyWithoutLastTile, kCopyOneVectorOn, kCopyZeros})
    REQUIRE_FALSE(check({Does::Copy, wrong}).ok);
  for (const Probe wrong : {kReadWithoutLastTiles, kReadOthers, kCopyZeros})
    REQUIRE_FALSE(check({Does::Read, wrong}).ok);
  REQUIRE_FALSE(check({Does::Fma, timing::launch_fma_128_chains, 32}).ok);
  REQUIRE_FALSE(check({Does::UploadPinned, timing::launch_upload_pageable}).ok);
  REQUIRE_FALSE(check({Does::UploadPageable, timing::launch_download_pageable}).ok);
  REQUIRE_FALSE(check({Does::DownloadPinned, timing::launch_download_pageable}).ok);
  REQUIRE_FALSE(check({Does::DownloadPageable, timing::launch_upload_pageable}).ok);
}

TEST_CASE("the limits are rates that a machine can have") {
  const Limits limits = timing::measure_limits(true);
  for (const double bytes_per_s : {limits.copy, limits.read}) {
    REQUIRE(bytes_per_s > 1e8);
    REQUIRE(bytes_per_s < 1e14);
  }
  // An emulator computes each float by integers.
  REQUIRE(limits.fma > (emulator::is_here() ? 1e6 : 1e8));
  REQUIRE(limits.fma < 1e16);
}

TEST_CASE("waiting costs more than queueing") {
  const timing::LaunchCost cost = timing::measure_launch_cost(true);
  REQUIRE(cost.first > 0);
  REQUIRE(cost.queue > 0);
  REQUIRE(cost.device > 0);
  REQUIRE(cost.wait > 0);
}
