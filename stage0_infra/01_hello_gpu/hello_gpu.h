// Stage 0.1: who is there? Blocks, waves and threads of a grid introduce themselves.
//
// A launch runs one function, the kernel, in many threads at once. Each thread knows three numbers:
// its place in its block (threadIdx), its block's place in the grid (blockIdx), and the wave of
// wave_size() threads that runs in step with it. Threads run in any order and can't print in turn,
// so each speaker writes one record to its own place in device memory and the host reads them out.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"

namespace hello_gpu {

// What a thread knows about itself. A record that nobody wrote holds kSilent in every field.
struct Greeting {
  unsigned block, thread, wave, lane;
};
constexpr unsigned kSilent = std::numeric_limits<unsigned>::max();  // how poisoned memory reads

// A greeting as the calling thread would write it.
__device__ inline Greeting introduce() {
  return {blockIdx.x, threadIdx.x, static_cast<unsigned>(gpu::wave_id()),
          static_cast<unsigned>(gpu::lane_id())};
}

// out[thread of the grid] = greeting    out: one record per thread of the grid.
// Fixes : -
// Idea  : one thread speaks for its block: all of them share blockIdx.
// Thread: 0 of each block writes its record.
// Costs : the others do nothing.
static __global__ void blocks_greet(Greeting* out) {
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x == 0) out[me] = introduce();
}

// out[thread of the grid] = greeting    out: one record per thread of the grid.
// Fixes : blocks_greet hides how a block runs: not as one, but in waves.
// Idea  : lane 0 speaks for its wave. How many waves a block has depends on the device.
// Thread: lane 0 of each wave writes its record.
// Costs : the others do nothing.
static __global__ void waves_greet(Greeting* out) {
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
  if (gpu::lane_id() == 0) out[me] = introduce();
}

// out[thread of the grid] = greeting    out: one record per thread of the grid.
// Fixes : waves_greet leaves all but one thread of a wave silent.
// Idea  : the usual shape of a kernel: each thread does its own small part.
// Thread: each writes its own record.
// Costs : nothing is idle.
static __global__ void threads_greet(Greeting* out) {
  // exercise: find this thread's number in the grid and write its greeting there (about 2 lines)
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
  out[me] = introduce();
  // end exercise
}

// Launches `blocks` blocks of `threads` threads; out holds blocks * threads records.
inline void launch_blocks(Greeting* out, unsigned blocks, unsigned threads) {
  LAUNCH(blocks_greet, blocks, threads, 0, out);
}
inline void launch_waves(Greeting* out, unsigned blocks, unsigned threads) {
  LAUNCH(waves_greet, blocks, threads, 0, out);
}
inline void launch_threads(Greeting* out, unsigned blocks, unsigned threads) {
  LAUNCH(threads_greet, blocks, threads, 0, out);
}

using Launch = void (*)(Greeting* out, unsigned blocks, unsigned threads);

inline constexpr Version<Launch> kVersions[] = {
    {"blocks", launch_blocks, "thread 0 speaks for its block"},
    {"waves", launch_waves, "lane 0 speaks for its wave"},
    {"threads", launch_threads, "each thread speaks for itself"},
};

// The same records by counting on the host. Version `name` decides who speaks.
inline std::vector<Greeting> greetings_cpu(const std::string& name, unsigned blocks,
                                           unsigned threads, unsigned wave_size) {
  std::vector<Greeting> greetings;
  for (unsigned block = 0; block < blocks; ++block)
    for (unsigned thread = 0; thread < threads; ++thread) {
      const unsigned lane = thread % wave_size;
      const bool speaks = name == "blocks" ? thread == 0 : name == "waves" ? lane == 0 : true;
      if (speaks)
        greetings.push_back({block, thread, thread / wave_size, lane});
      else
        greetings.push_back({kSilent, kSilent, kSilent, kSilent});
    }
  return greetings;
}

// Holds every field of every record against the reference: each is an integer, so exactly.
inline Comparison compare_greetings(const std::vector<Greeting>& got,
                                    const std::vector<Greeting>& want) {
  const auto field = [](const Greeting& greeting, size_t i) {
    const unsigned fields[] = {greeting.block, greeting.thread, greeting.wave, greeting.lane};
    return fields[i];
  };
  return compare(
      4 * want.size(), [&](size_t i) { return field(got[i / 4], i % 4); },
      [&](size_t i) { return static_cast<double>(field(want[i / 4], i % 4)); },
      [](size_t) { return 0.0; });
}

// "block 1, wave 2, lane 0: thread 64"
inline std::string to_string(const Greeting& greeting) {
  return "block " + std::to_string(greeting.block) + ", wave " + std::to_string(greeting.wave) +
         ", lane " + std::to_string(greeting.lane) + ": thread " + std::to_string(greeting.thread);
}

}  // namespace hello_gpu
