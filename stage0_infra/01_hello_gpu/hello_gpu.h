// 0.1  Blocks, waves and threads of a grid introduce themselves.
//
// A launch runs one function, the kernel, in many threads at once. A thread knows three numbers:
// its place in its block (threadIdx), its block's place in the grid (blockIdx), and, from its place
// in the block, which wave of the block it belongs to. The threads run in any order and can't print
// in turn. So each thread that speaks writes one record to its own place in device memory, and the
// host prints the records.
#pragma once

#include <cstddef>
#include <limits>

#include "common/version.h"

namespace hello_gpu {

// What a thread knows about itself.
struct Greeting {
  unsigned block, thread;  // blockIdx.x, threadIdx.x
  unsigned wave, lane;     // which wave of the block, and which thread of that wave
};
// Every field of a record that nobody wrote: how poisoned memory reads.
inline constexpr unsigned kSilent = std::numeric_limits<unsigned>::max();

// Each launches `blocks` blocks of `threads` threads on `stream`. out holds a record for each
// thread of the grid, blocks * threads in all, and those who speak write theirs. Errors: gpu::Error
// where the launch is refused.
using Launch = void (*)(Greeting* out, unsigned blocks, unsigned threads, hipStream_t stream);

// versions/blocks.hip: thread 0 of each block speaks.
void launch_blocks(Greeting* out, unsigned blocks, unsigned threads, hipStream_t stream = nullptr);
// versions/waves.hip: lane 0 of each wave speaks.
void launch_waves(Greeting* out, unsigned blocks, unsigned threads, hipStream_t stream = nullptr);
// versions/threads.hip: every thread speaks.
void launch_threads(Greeting* out, unsigned blocks, unsigned threads, hipStream_t stream = nullptr);

inline constexpr Version<Launch> kVersions[] = {
    {"blocks", launch_blocks, "thread 0 speaks for its block"},
    {"waves", launch_waves, "lane 0 speaks for its wave"},
    {"threads", launch_threads, "each thread speaks for itself"},
};

}  // namespace hello_gpu
