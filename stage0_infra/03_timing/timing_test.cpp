#include "stage0_infra/03_timing/timing.h"

#include <numeric>
#include <thread>

#include "common/random.h"
#include "common/testing.h"

namespace {

constexpr size_t kSmall = size_t{1} << 20;

std::vector<uint4> random_vectors(size_t n, std::uint32_t stream) {
  std::vector<uint4> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = make_uint4(
        random_numbers::word(1, stream, 4 * i), random_numbers::word(1, stream, 4 * i + 1),
        random_numbers::word(1, stream, 4 * i + 2), random_numbers::word(1, stream, 4 * i + 3));
  return values;
}

bool equal(const uint4& a, const uint4& b) {
  return a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
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
  timing::Arena arena(kSmall);
  GpuTimer events;
  const auto copies = [&](int count) {
    events.start();
    for (int i = 0; i < count; ++i) timing::launch_copy<4, 0>(arena);
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
    REQUIRE(arena.half() % timing::kWholeTiles == 0);
    REQUIRE(arena.half() > 0);
    REQUIRE(arena.half_bytes() >= bytes);
    REQUIRE(arena.half_bytes() < bytes + timing::kWholeTiles * sizeof(uint4) + 1);
  }
}

TEST_CASE("every probe does the work that it reports") {
  timing::Arena arena(3 * kSmall + 5);  // an odd number of tiles
  const size_t n = arena.half();
  const std::vector<uint4> host = random_vectors(2 * n, 7);
  for (const auto& version : timing::kVersions) {
    CAPTURE(version.name);
    arena.memory().to_device(host.data(), host.size());
    const Work work = version.launch.work(version.launch.queue(arena));
    HIP_CHECK(hipDeviceSynchronize());

    if (work.limit == Work::Limit::copy) {
      REQUIRE(work.bytes == 2.0 * static_cast<double>(arena.half_bytes()));
      const std::vector<uint4> copied = arena.memory().to_host();
      size_t wrong = 0;
      for (size_t i = 0; i < n; ++i)
        wrong += !equal(copied[i], host[i]) || !equal(copied[n + i], host[i]);
      REQUIRE(wrong == 0);
    } else if (work.limit == Work::Limit::read) {
      REQUIRE(work.bytes == 2.0 * static_cast<double>(arena.half_bytes()));
      unsigned want = 0, got = 0;
      for (const uint4& v : host) want += v.x + v.y + v.z + v.w;
      for (const unsigned sum : arena.sums().to_host()) got += sum;
      REQUIRE(got == want);
    } else if (work.limit == Work::Limit::fma) {
      // Each thread's chains c = 0, 1, ... have all gone the same number of steps.
      const std::vector<float> ends = arena.chain_ends().to_host();
      REQUIRE(work.operations == 2.0 * timing::kMultiplyAdds * static_cast<double>(ends.size()));
      const float chains = std::string(version.name) == "fma_32_chains" ? 32 : 128;
      const float want = timing::kMultiplyAdds + chains * (chains - 1) / 2;
      REQUIRE(std::count(ends.begin(), ends.end(), want) ==
              static_cast<std::ptrdiff_t>(ends.size()));
    } else {
      REQUIRE(work.bytes == static_cast<double>(arena.host_bytes()));
    }
  }
}

TEST_CASE("transfers carry the bytes, both ways and from both kinds of host memory") {
  timing::Arena arena(kSmall);
  const std::vector<uint4> host = random_vectors(arena.half(), 8);
  std::memcpy(arena.pageable(), host.data(), arena.host_bytes());
  timing::upload_pageable(arena);
  timing::download_pinned(arena);
  HIP_CHECK(hipDeviceSynchronize());
  REQUIRE(std::memcmp(arena.pinned(), host.data(), arena.host_bytes()) == 0);

  HIP_CHECK(hipMemset(arena.to(), 0, arena.half_bytes()));
  timing::upload_pinned(arena);
  std::memset(arena.pageable(), 0, arena.host_bytes());
  timing::download_pageable(arena);
  HIP_CHECK(hipDeviceSynchronize());
  REQUIRE(std::memcmp(arena.pageable(), host.data(), arena.host_bytes()) == 0);
}

TEST_CASE("the limits are rates that a machine can have") {
  const Limits limits = timing::measure_limits(true);
  for (const double bytes_per_s : {limits.copy, limits.read}) {
    REQUIRE(bytes_per_s > 1e8);
    REQUIRE(bytes_per_s < 1e14);
  }
  REQUIRE(limits.fma > 1e8);
  REQUIRE(limits.fma < 1e16);
}

TEST_CASE("waiting costs more than queueing") {
  const timing::LaunchCost cost = timing::measure_launch_cost(true);
  REQUIRE(cost.first > 0);
  REQUIRE(cost.queue > 0);
  REQUIRE(cost.device > 0);
  REQUIRE(cost.wait > 0);
}
