// fused: each thread adds up what it stores; a second pass adds the threads' sums.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/vectors.h"
#include "stage5_training/02_activation_backward/detail/with_bias.h"

namespace activation_backward {

using activations::chain_rule;
using activations::GeluErf;
using activations::GeluTanh;
using activations::Relu;
using activations::Sigmoid;
using activations::Softplus;
using activations::Tanh;

// grad_x = grad_y * f', and partials[s, c] = the sum of slice s of column c, or the bias's gradient
// where there is one slice only. All (rows, cols).
// Fixes : separate has grad_x come back from memory to be added up.
// Idea  : a thread stays in its column and adds up what it stores while that is in a register.
// Thread: (x, y) of block (b, s) owns column b * blockDim.x + x of the rows y, y + blockDim.y, ...
//         of slice s, which are `slice` neighbours. Blocks begin, and read, in order.
// Costs : 12 rows cols bytes; 1 barrier; a float of workspace per slice and column.
template <class Slope>
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    backward_fused(float* grad_x, const float* grad_y, const float* kept, size_t rows, size_t slice,
                   gemv::Product sums_of, float* partials) {
  __shared__ float sums[kBlock];
  const size_t cols = sums_of.cols, col = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t begin = blockIdx.y * slice, end = min(begin + slice, rows);
  float sum = 0;
  if (col < cols) {
    // exercise: this thread's rows of its slice: the chain rule, store, and add (about 6 lines)
    for (size_t row = begin + threadIdx.y; row < end; row += blockDim.y) {
      const size_t i = row * cols + col;
      const float result = chain_rule<Slope>(grad_y[i], kept[i]);
      grad_x[i] = result;
      sum += result;
    }
    // end exercise
  }
  add_block(sums, sum, col, cols, sums_of, partials);
}

template <class Slope>
void launch_fused(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                  size_t rows, size_t cols, float beta, Workspace& workspace, hipStream_t stream) {
  check(grad_bias, rows, cols, workspace);
  if (cols == 0) return;
  const Shares shares = share_out(rows, cols, cols, 1);
  const gemv::Product sums = sums_of(shares, grad_bias, cols, beta, workspace);
  LAUNCH_ON(stream, backward_fused<Slope>, shares.blocks, shares.threads, 0, grad_x, grad_y, kept,
            rows, shares.slice, sums, workspace.partials.data());
  launch_second_pass(sums, workspace, 1, stream);
}

double roundings_fused(size_t rows, size_t cols) {
  return share_out(rows, cols, cols, 1).roundings();
}

// The functions that this file is compiled for.
template void launch_fused<Relu>(float*, float*, const float*, const float*, size_t, size_t, float,
                                 Workspace&, hipStream_t);
template void launch_fused<Sigmoid>(float*, float*, const float*, const float*, size_t, size_t,
                                    float, Workspace&, hipStream_t);
template void launch_fused<Tanh>(float*, float*, const float*, const float*, size_t, size_t, float,
                                 Workspace&, hipStream_t);
template void launch_fused<GeluErf>(float*, float*, const float*, const float*, size_t, size_t,
                                    float, Workspace&, hipStream_t);
template void launch_fused<GeluTanh>(float*, float*, const float*, const float*, size_t, size_t,
                                     float, Workspace&, hipStream_t);
template void launch_fused<Softplus>(float*, float*, const float*, const float*, size_t, size_t,
                                     float, Workspace&, hipStream_t);

}  // namespace activation_backward
