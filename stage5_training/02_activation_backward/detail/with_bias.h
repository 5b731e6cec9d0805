// What fused, vectorized and from_output share: how a matrix is cut, and the sums of its columns
// once each thread has its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "common/gpu.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage2_matrix/02_gemv/detail/sums.h"
#include "stage2_matrix/02_gemv/gemv.h"
#include "stage5_training/02_activation_backward/activation_backward.h"

namespace activation_backward {

inline constexpr unsigned kBlock = 256;         // threads per block, at most
inline constexpr unsigned kResidentBlocks = 4;  // of them that shall fit a multiprocessor
inline constexpr unsigned kMaxWidth = 32;       // threads beside each other in a block
inline constexpr unsigned kRowsInFlight = 4;    // of both matrices, per thread of `vectorized`
inline constexpr unsigned kRounds = 4;          // of so many rows per thread, or more
inline constexpr unsigned kSumWidth = 4;        // threads beside each other in the second pass

inline void check(const float* grad_bias, size_t rows, size_t cols, const Workspace& workspace) {
  if (grad_bias == nullptr && cols > 0)
    throw std::invalid_argument("activation_backward: grad_bias is null");
  if (rows > workspace.ones.size())
    throw std::invalid_argument("activation_backward: a batch of " + std::to_string(rows) +
                                " in a workspace for " + std::to_string(workspace.ones.size()));
}

// How a matrix is shared out whose rows are `values` Values.
struct Shares {
  dim3 blocks, threads;
  size_t slice;  // rows

  // Through how many additions an element goes: its thread's, its block's and the second pass's.
  double roundings() const {
    const double height = threads.y, slices = blocks.y, second_height = gemv::kBlock / kSumWidth;
    return std::ceil(static_cast<double>(slice) / height) + height +
           (slices > 1 ? slices / second_height + second_height + 2 : 0);
  }
};

// Blocks as wide as a row, or as an equal part of it, so that hardly a thread is idle, and so many
// that the device hands them out as others end; but no more slices than there is workspace for.
inline Shares share_out(size_t rows, size_t values, size_t cols, unsigned rows_in_flight) {
  const size_t tiles = gpu::ceil_div(values, size_t{kMaxWidth});
  const size_t width = gpu::ceil_div(values, tiles), height = kBlock / width;
  const size_t round = height * rows_in_flight,
               most = std::min(gemv::kMaxPartials / cols, gpu::kMaxGridY);
  const size_t rounds = gpu::ceil_div(gpu::ceil_div(rows, std::max(most, size_t{1})), round);
  const size_t slice = round * std::max(rounds, size_t{kRounds});
  const size_t slices = std::max(gpu::ceil_div(rows, slice), size_t{1});
  return {dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(slices)),
          dim3(static_cast<unsigned>(width), static_cast<unsigned>(height)), slice};
}

// The second half of a kernel: adds up the block's threads, and leaves the sum of each column of
// its slice, or the bias's gradient where there is one slice only. `sums` (kBlock) is shared
// memory; `value` is the thread's column of Values, of which a row has `values`.
template <class Value>
__device__ inline void add_block(Value* sums, Value sum, size_t value, size_t values,
                                 const gemv::Product& sums_of, float* partials) {
  constexpr size_t kWidth = sizeof(Value) / sizeof(float);
  sums[threadIdx.y * blockDim.x + threadIdx.x] = sum;
  __syncthreads();  // the sums of all the block's threads are in shared memory
  if (threadIdx.y == 0 && value < values) {
    for (unsigned y = 1; y < blockDim.y; ++y)
      gemv::scale_add(sum, sums[y * blockDim.x + threadIdx.x], 1.0f);
    const float* elements = reinterpret_cast<const float*>(&sum);
    for (size_t k = 0; k < kWidth; ++k)
      gemv::deliver(sums_of, partials, sums_of.cols, value * kWidth + k, elements[k]);
  }
}

// The slices' sums of a launch by these shares, and where they go.
inline gemv::Product sums_of(const Shares& shares, float* grad_bias, size_t cols, float beta,
                             Workspace& workspace) {
  return {shares.blocks.y,       cols, 1,        workspace.partials.data(), cols,
          workspace.ones.data(), beta, grad_bias};
}

// The second pass adds the slices' sums, which the L2 cache still holds, in a fixed order: they are
// a matrix whose rows step 2.2 adds up, by blocks that need no further slices.
inline void launch_second_pass(const gemv::Product& sums, Workspace& workspace, unsigned width,
                               hipStream_t stream) {
  if (sums.rows > 1)
    gemv::launch_columns(sums, {workspace.partials.data()}, {width, kSumWidth, 1}, stream);
}

}  // namespace activation_backward
