// weight_slices: the weights' gradient in slices of the batch, too. Known as split-K.
#include <algorithm>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage5_training/01_dense_backward/slices.h"

namespace dense_backward {

constexpr int kSumColumns = 32;  // of the slices' sums, which neighbouring threads add up

// grad[i] = sum over slices of sums[slice, i] + beta grad[i]    weights, then biases.
// Fixes : grad_w has few elements for the length of its sums. 128 x 784 of them are seven tiles of
//         step 2.3, which leave most multiprocessors idle however long the batch is.
// Idea  : each slice of the batch is a product of its own, all of them one launch. This second
//         launch adds the slices' sums in a fixed order, so that every run gives the same bits.
// Thread: (x, y) adds slices y, y + kGroups, ... of one column; y = 0 adds up the groups' sums.
// Costs : 4 bytes per slice and column, which the caches still hold; 1 barrier.
//
//   grad_y^T x  =  grad_y[0:r]^T x[0:r]  +  grad_y[r:2r]^T x[r:2r]  +  ...
template <int kGroups>
static __global__ void __launch_bounds__(kSumColumns* kGroups)
    add_slices_of_gradients(float* grad_w, float* grad_bias, const float* sums, size_t stride,
                            int slices, size_t weights, size_t columns, float beta) {
  __shared__ float groups[kGroups][kSumColumns];
  const size_t i = size_t{blockIdx.x} * kSumColumns + threadIdx.x;
  float sum = 0;
  // exercise: the sum of this group's slices, then of all groups (about 7 lines)
  if (i < columns)
    for (int slice = static_cast<int>(threadIdx.y); slice < slices; slice += kGroups)
      sum += sums[size_t(slice) * stride + i];
  groups[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();  // every group's sum is in shared memory
  if (threadIdx.y > 0 || i >= columns) return;
  for (int group = 1; group < kGroups; ++group) sum += groups[group][threadIdx.x];
  // end exercise
  float* const to = i < weights ? grad_w + i : grad_bias + (i - weights);
  *to = gemm::AlphaBeta{1, beta}(sum, 0, 0, to);
}

template <int kGroups>
void launch_add_slices(float* grad_w, float* grad_bias, const float* sums, size_t stride,
                       size_t slices, size_t weights, size_t columns, float beta,
                       hipStream_t stream) {
  if (columns > 0)
    LAUNCH_ON(stream, add_slices_of_gradients<kGroups>,
              static_cast<unsigned>(gpu::ceil_div(columns, kSumColumns)),
              dim3(kSumColumns, kGroups), 0, grad_w, grad_bias, sums, stride,
              static_cast<int>(slices), weights, columns, beta);
}
template void launch_add_slices<1>(float*, float*, const float*, size_t, size_t, size_t, size_t,
                                   float, hipStream_t);
template void launch_add_slices<16>(float*, float*, const float*, size_t, size_t, size_t, size_t,
                                    float, hipStream_t);

constexpr size_t kSliceRows = 256;             // the least samples of a slice of the batch
constexpr size_t kTilesPerMultiprocessor = 2;  // that run there at the same time

// So many that all multiprocessors have tiles of step 2.3 to work on, but none of fewer than
// kSliceRows samples.
size_t count_slices(size_t batch, size_t in, size_t out) {
  if (in == 0 || out == 0) return 1;
  const size_t tiles =
      gpu::ceil_div(in, gemm::Large::kTileN) * gpu::ceil_div(out, gemm::Large::kTileM);
  const size_t wanted = size_t{gpu::multiprocessors()} * kTilesPerMultiprocessor / tiles;
  return std::max(std::min(wanted, batch / kSliceRows), size_t{1});
}

size_t Workspace::slices(size_t batch, const Layer& layer) const {
  const size_t row = slice_row(layer.in, layer.out);
  const size_t room = row == 0 ? 0 : slices_of_gradients.size() / row;
  return std::min(count_slices(batch, layer.in, layer.out), room);
}

void launch_slices(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                   const Layer& layer, float beta, Workspace& workspace, hipStream_t stream,
                   LaunchProduct launch) {
  const size_t slices = workspace.slices(batch, layer), stride = slice_row(layer.in, layer.out);
  const size_t rows = batch / slices, rest = batch % slices, weights = layer.in * layer.out;
  float *const sums = workspace.slices_of_gradients.data(), *const of_bias = sums + weights;
  // exercise: a batch of products, one per slice, from product_of_w (about 4 lines)
  gemm::Product p = product_of_w(sums, grad_y, x, rows, layer, 0);
  p.batch = slices;
  p.stride_a = rows * layer.out, p.stride_b = rows * layer.in, p.stride_c = stride;
  launch(p, of_bias, stream);
  // end exercise
  if (rest > 0) {  // the last few samples go to the first slice's sums
    const size_t done = batch - rest;
    launch(product_of_w(sums, grad_y + done * layer.out, x + done * layer.in, rest, layer, 1),
           of_bias, stream);
  }
  const size_t columns = weights + (to.bias == nullptr ? 0 : layer.out);
  launch_add_slices<kSumGroups>(to.w, to.bias, sums, stride, slices, weights, columns, beta,
                                stream);
}

void launch_grad_w_in_slices(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                             const Layer& layer, float beta, Workspace& workspace,
                             hipStream_t stream) {
  if (to.w == nullptr || workspace.slices(batch, layer) < 2)
    return launch_grad_w(to, grad_y, x, batch, layer, beta, stream);
  launch_slices({to.w, nullptr, nullptr}, grad_y, x, batch, layer, beta, workspace, stream,
                [](const gemm::Product& p, float*, hipStream_t on) { gemm::best(p, on); });
}

void launch_weight_slices(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                          const Layer& layer, float beta, Workspace& workspace,
                          const Streams& streams) {
  launch_grad_w_in_slices(to, grad_y, x, batch, layer, beta, workspace, streams.caller);
  launch_grad_bias(to, grad_y, batch, layer, beta, workspace, streams.caller,
                   gemv::launch_split_columns);
  launch_grad_x(to, grad_y, batch, layer, beta, streams.caller);
}

}  // namespace dense_backward
