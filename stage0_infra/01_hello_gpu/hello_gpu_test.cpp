// Every version writes the records of those who speak, and no others.
#include "stage0_infra/01_hello_gpu/hello_gpu.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/guarded.h"
#include "common/testing.h"
#include "stage0_infra/01_hello_gpu/reference.h"

using hello_gpu::Greeting;

TEST_CASE("every version writes exactly the records of those who speak") {
  const unsigned wave_size = gpu::device_wave_size();
  const auto most =
      static_cast<unsigned>(gpu::device_attribute(hipDeviceAttributeMaxThreadsPerBlock));
  const unsigned shapes[][2] = {{1, 1},  {1, wave_size}, {2, wave_size + 1}, {3, wave_size - 1},
                                {2, 80}, {1000, 7},      {2, most}};
  for (const auto& version : hello_gpu::kVersions)
    for (const auto& [blocks, threads] : shapes) {
      CAPTURE(version.name, blocks, threads);
      Guarded<Greeting> out(size_t{blocks} * threads, 1);
      version.launch(out.data(), blocks, threads, nullptr);
      HIP_CHECK(hipDeviceSynchronize());
      REQUIRE_OK(hello_gpu::compare_greetings(
          out.to_host(), hello_gpu::greetings_cpu(version.name, blocks, threads, wave_size)));
      REQUIRE(out.intact());
    }
}

TEST_CASE(
    "the check refuses a silent block, a wrong lane, a wrong speaker and two swapped records") {
  const auto want = hello_gpu::greetings_cpu("waves", 2, 80, 32);
  REQUIRE(hello_gpu::compare_greetings(want, want).ok);
  auto silent = want;
  silent[80] = {hello_gpu::kSilent, hello_gpu::kSilent, hello_gpu::kSilent, hello_gpu::kSilent};
  REQUIRE_FALSE(hello_gpu::compare_greetings(silent, want).ok);
  auto wrong_lane = want;
  wrong_lane[32].lane = 1;
  REQUIRE_FALSE(hello_gpu::compare_greetings(wrong_lane, want).ok);
  auto wrong_speaker = want;
  wrong_speaker[33] = {0, 33, 1, 1};
  REQUIRE_FALSE(hello_gpu::compare_greetings(wrong_speaker, want).ok);
  auto swapped = want;
  std::swap(swapped[0], swapped[80]);
  REQUIRE_FALSE(hello_gpu::compare_greetings(swapped, want).ok);
  const std::vector<Greeting> zeros(want.size(), Greeting{0, 0, 0, 0});
  REQUIRE_FALSE(hello_gpu::compare_greetings(zeros, want).ok);
}

TEST_CASE("as many speakers as there are blocks, waves and threads") {
  const auto speakers = [](const char* name, unsigned wave_size) {
    const auto greetings = hello_gpu::greetings_cpu(name, 2, 80, wave_size);
    return std::count_if(greetings.begin(), greetings.end(),
                         [](const Greeting& g) { return g.block != hello_gpu::kSilent; });
  };
  REQUIRE(speakers("blocks", 32) == 2);
  REQUIRE(speakers("waves", 32) == 6);
  REQUIRE(speakers("waves", 64) == 4);
  REQUIRE(speakers("threads", 64) == 160);
}

TEST_CASE("a greeting reads as a sentence") {
  REQUIRE(hello_gpu::to_string({1, 64, 2, 0}) == "block 1, wave 2, lane 0: thread 64");
}
