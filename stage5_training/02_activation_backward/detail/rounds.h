// The kernel of vectorized, for slopes from x and, in from_output, for slopes from y.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/vectors.h"
#include "stage5_training/02_activation_backward/detail/with_bias.h"

namespace activation_backward {

using activations::chain_rule;

// grad_x = grad_y * f', and partials[s, c] = the sum of slice s of column c, or the bias's gradient
// where there is one slice only. All (rows, cols); Value divides a row and lies aligned in it.
// Fixes : a thread of fused asks for 4 bytes of each matrix at a time, and waits for them.
// Idea  : float4s, and kRows rows of them on their way before the first is used.
// Thread: (x, y) of block (b, s) owns the Value b * blockDim.x + x of the rows y, y + blockDim.y,
//         ... of slice s, which are `slice` neighbours. Blocks begin, and read, in order.
// Costs : 12 rows cols bytes; 1 barrier; a float of workspace per slice and column.
template <class Value, unsigned kRows, class Slope>
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    backward_with_bias(float* grad_x, const float* grad_y, const float* kept, size_t rows,
                       size_t slice, gemv::Product sums_of, float* partials) {
  __shared__ Value sums[kBlock];
  const size_t values = sums_of.cols / (sizeof(Value) / sizeof(float)),
               value = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t begin = blockIdx.y * slice, end = min(begin + slice, rows), next = blockDim.y;
  Value sum = {};
  if (value < values) {
    const Value* from_grad = reinterpret_cast<const Value*>(grad_y) + value;
    const Value* from_kept = reinterpret_cast<const Value*>(kept) + value;
    Value* to = reinterpret_cast<Value*>(grad_x) + value;
    for (size_t row = begin + threadIdx.y; row < end; row += kRows * next) {
      Value held_grad[kRows] = {}, held_kept[kRows] = {};
      GPU_UNROLL
      for (unsigned k = 0; k < kRows; ++k)
        if (row + k * next < end) {
          held_grad[k] = from_grad[(row + k * next) * values];
          held_kept[k] = from_kept[(row + k * next) * values];
        }
      GPU_UNROLL
      for (unsigned k = 0; k < kRows; ++k)
        if (row + k * next < end) {
          const Value result = chain_rule<Slope>(held_grad[k], held_kept[k]);
          to[(row + k * next) * values] = result;
          gemv::scale_add(sum, result, 1.0f);
        }
    }
  }
  add_block(sums, sum, value, values, sums_of, partials);
}

template <class Value, unsigned kRows, class Slope>
void launch_with_bias(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                      size_t rows, size_t cols, float beta, Workspace& workspace,
                      hipStream_t stream) {
  constexpr unsigned kWidth = sizeof(Value) / sizeof(float);
  check(grad_bias, rows, cols, workspace);
  if (cols == 0) return;
  const Shares shares = share_out(rows, cols / kWidth, cols, kRows);
  const gemv::Product sums = sums_of(shares, grad_bias, cols, beta, workspace);
  LAUNCH_ON(stream, (backward_with_bias<Value, kRows, Slope>), shares.blocks, shares.threads, 0,
            grad_x, grad_y, kept, rows, shares.slice, sums, workspace.partials.data());
  launch_second_pass(sums, workspace, kWidth, stream);
}

template <class Slope>
void launch_vectorized(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                       size_t rows, size_t cols, float beta, Workspace& workspace,
                       hipStream_t stream) {
  const auto launch = gemv::rows_are_aligned(cols, {grad_x, grad_y, kept})
                          ? launch_with_bias<float4, kRowsInFlight, Slope>
                          : launch_with_bias<float, kRowsInFlight, Slope>;
  launch(grad_x, grad_bias, grad_y, kept, rows, cols, beta, workspace, stream);
}

}  // namespace activation_backward
