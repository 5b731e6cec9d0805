// 0.6  first_kernels: eight kernels of a few lines, one new idea in each.
//
// All of them read x (rows, cols), row-major, of which most see only the n = rows * cols elements
// behind one another, and write out. Their elements are integers, so every result is exact.
//
// Every launcher takes device arrays: x of n elements, n below 2^31, and out of as many, or of
// kValues for `atomic`. out must not overlap x. With n = 0 nothing is written (`atomic`: zeros).
// The work is queued on `stream`. Errors: gpu::Error where the launch is refused.
#pragma once

#include <cstddef>
#include <vector>

#include "common/version.h"
#include "stage0_infra/06_first_kernels/reference.h"

namespace first_kernels {

// versions/index.hip: out[i] = 2 * x[i]. As many threads as elements.
void launch_index(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream = nullptr);

// versions/guard.hip: out[i] = x[i] + 1. Whole blocks, so perhaps more threads than elements.
void launch_guard(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream = nullptr);

// versions/two_d.hip: out[row][col] = x[row][cols - 1 - col]. Threads with a row and a column.
void launch_two_d(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream = nullptr);

// versions/grid_stride.hip: out[i] = x[i] * x[i]. At most kStrideBlocks blocks.
void launch_grid_stride(int* out, const int* x, size_t rows, size_t cols,
                        hipStream_t stream = nullptr);
inline constexpr unsigned kStrideBlocks = 8;

// versions/shared_memory.hip: each kBlock elements of x, the last of them first.
void launch_shared_memory(int* out, const int* x, size_t rows, size_t cols,
                          hipStream_t stream = nullptr);

// versions/barrier.hip: out[i] is the sum of the elements up to i, of the kBlock that i is among.
void launch_barrier(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream = nullptr);

// versions/atomic.hip: out[v] is how many elements are v. The elements are from 0 to kValues - 1.
void launch_atomic(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream = nullptr);

// versions/shuffle.hip: out[i] is the sum of the kGroup elements that i is among; the last group
// may have fewer.
void launch_shuffle(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream = nullptr);

// `want` is what run() must leave in out, which has want's size.
struct Launch {
  void (*run)(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream);
  std::vector<double> (*want)(const std::vector<int>& x, size_t rows, size_t cols);
};

inline constexpr Version<Launch> kVersions[] = {
    {"index", {launch_index, doubled}, "which thread am I?"},
    {"guard", {launch_guard, one_more}, "threads that have no element"},
    {"two_d", {launch_two_d, mirrored}, "a thread has a row and a column"},
    {"grid_stride", {launch_grid_stride, squared}, "fewer threads than elements"},
    {"shared_memory", {launch_shared_memory, reversed}, "a value that another thread has read"},
    {"barrier", {launch_barrier, summed_up}, "nobody writes before all have read"},
    {"atomic", {launch_atomic, counted}, "many threads add to one place"},
    {"shuffle", {launch_shuffle, summed_in_groups}, "a value from another lane's register"},
};

}  // namespace first_kernels
