// weight_slices: the weights' gradient in slices of the batch, too. Known as split-K.
#include <algorithm>

#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage5_training/01_dense_backward/dense_backward.h"

namespace dense_backward {

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

// Fixes : grad_w has few elements for the length of its sums. 128 x 784 of them are seven tiles of
//         step 2.3, which leave most multiprocessors idle however long the batch is.
// Idea  : each slice of the batch is a product of its own, all of them one launch; its result is a
//         row of slices_of_w, and the sum of the rows is what the bias takes of grad_y.
//
//   grad_y^T x  =  grad_y[0:r]^T x[0:r]  +  grad_y[r:2r]^T x[r:2r]  +  ...
void launch_grad_w_in_slices(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                             const Layer& layer, float beta, Workspace& workspace,
                             hipStream_t stream) {
  const size_t weights = layer.in * layer.out;
  const size_t room = weights == 0 ? 0 : workspace.slices_of_w.size() / weights;
  const size_t slices = std::min(count_slices(batch, layer.in, layer.out), room);
  if (to.w == nullptr || slices < 2)
    return launch_grad_w(to, grad_y, x, batch, layer, beta, stream);
  const size_t rows = batch / slices, rest = batch % slices;
  float* const sums = workspace.slices_of_w.data();
  // exercise: a batch of products, one per slice, from product_of_w (about 4 lines)
  gemm::Product p = product_of_w(sums, grad_y, x, rows, layer, 0);
  p.batch = slices;
  p.stride_a = rows * layer.out, p.stride_b = rows * layer.in, p.stride_c = weights;
  gemm::best(p, stream);
  // end exercise
  if (rest > 0) {  // the last few samples go to the first slice's sums
    const size_t done = batch - rest;
    gemm::best(product_of_w(sums, grad_y + done * layer.out, x + done * layer.in, rest, layer, 1),
               stream);
  }
  gemv::best(true, product_of_bias(to.w, sums, workspace.ones.data(), slices, weights, beta),
             gemv::Workspace{workspace.partials_of_w.data()}, stream);
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
