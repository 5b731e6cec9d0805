// 1.3  dot: result = sum over i of x[i] * y[i], for n floats.
//
// The first kernel whose threads must work together. It reads 8 bytes per element and writes one
// number: the device's read bandwidth sets the time. The ladder first removes the contention for
// that number, then keeps enough loads in flight, then fixes the order of the additions.
//
// Every launcher takes device arrays of n floats: any n (0 gives 0), aligned to 4 bytes; a device
// pointer to the result; and `workspace`: workspace_bytes(n) bytes of device memory, aligned to 4
// bytes, that are 0 before the first launch and that no other stream uses at the same time. Every
// launch leaves it ready for the next one, of any n that it is large enough for. The work is queued
// on `stream`. Errors: gpu::Error where the launch is refused.
#pragma once

#include <cstddef>

#include "common/version.h"

namespace dot {

size_t workspace_bytes(size_t n);

// versions/atomic.hip: one atomic per element.
void launch_atomic(float* result, const float* x, const float* y, size_t n, void* workspace,
                   hipStream_t stream = nullptr);

// versions/shared_tree.hip: a tree in shared memory, one atomic per block.
void launch_shared_tree(float* result, const float* x, const float* y, size_t n, void* workspace,
                        hipStream_t stream = nullptr);

// versions/wave_shuffle.hip: the lanes of a wave add without memory or barrier.
void launch_wave_shuffle(float* result, const float* x, const float* y, size_t n, void* workspace,
                         hipStream_t stream = nullptr);

// versions/loads_in_flight.hip: many independent 16-byte loads per thread.
void launch_loads_in_flight(float* result, const float* x, const float* y, size_t n,
                            void* workspace, hipStream_t stream = nullptr);

// versions/single_pass.hip: the last block to finish adds the blocks' sums.
void launch_single_pass(float* result, const float* x, const float* y, size_t n, void* workspace,
                        hipStream_t stream = nullptr);

// versions/two_pass.hip: fixed grid, fixed order: the same bits on every device.
void launch_two_pass(float* result, const float* x, const float* y, size_t n, void* workspace,
                     hipStream_t stream = nullptr);

// How many roundings a product x[i] * y[i] goes through on its way into the result, at most: its
// own, and one per addition. What a bound is made of. The arguments are those of the launch.
double depth_atomic(const float* x, const float* y, size_t n);
double depth_block_atomics(const float* x, const float* y, size_t n);
double depth_loads_in_flight(const float* x, const float* y, size_t n);
double depth_single_pass(const float* x, const float* y, size_t n);
double depth_two_pass(const float* x, const float* y, size_t n);

struct Launch {
  void (*run)(float* result, const float* x, const float* y, size_t n, void* workspace,
              hipStream_t stream);
  double (*depth)(const float* x, const float* y, size_t n);
  bool deterministic;  // the same bits on every run
};

inline constexpr Version<Launch> kVersions[] = {
    {"atomic", {launch_atomic, depth_atomic, false}, "one atomic per element"},
    {"shared_tree",
     {launch_shared_tree, depth_block_atomics, false},
     "a tree in shared memory, one atomic per block"},
    {"wave_shuffle",
     {launch_wave_shuffle, depth_block_atomics, false},
     "the lanes of a wave add without memory or barrier"},
    {"loads_in_flight",
     {launch_loads_in_flight, depth_loads_in_flight, false},
     "many independent 16-byte loads per thread"},
    {"single_pass",
     {launch_single_pass, depth_single_pass, true},
     "the last block to finish adds the blocks' sums"},
    {"two_pass",
     {launch_two_pass, depth_two_pass, true},
     "fixed grid, fixed order: the same bits on every device"},
};

}  // namespace dot
