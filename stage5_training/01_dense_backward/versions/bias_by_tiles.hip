// bias_by_tiles: the blocks that multiply grad_y add up its rows, too.
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage5_training/01_dense_backward/slices.h"

namespace dense_backward {

// An epilogue of step 2.3: grad_w, and the sums of grad_y^T's rows, which are grad_bias. Slice z of
// the batch has its own, `stride` elements behind the one before.
struct WeightsAndBias {
  gemm::AlphaBeta stored;
  float* bias;
  size_t stride;

  __device__ float operator()(float sum, size_t row, size_t col, const float* c) const {
    return stored(sum, row, col, c);
  }
  __device__ void row_sum(size_t unit, float sum) const {
    // exercise: where the sum of this unit goes, in the block's slice (about 2 lines)
    float* const to = bias + (blockIdx.z * stride + unit);
    *to = stored(sum, unit, 0, to);
    // end exercise
  }
};

static void launch_product(const gemm::Product& p, float* bias, hipStream_t stream) {
  gemm::best<gemm::Layouts<gemm::Layout::TN>>(
      p, WeightsAndBias{gemm::alpha_beta(p), bias, p.stride_c}, stream);
}

// Fixes : weight_slices reads grad_y once more to add up its rows, in two launches, which take
//         longer than the product where the layer is small.
// Idea  : the tiles of grad_y are in shared memory for the product. The blocks of the first column
//         of tiles add up their rows there. A slice's sums lie behind its weights, so one launch
//         adds the slices of both.
// Costs : an addition for each element of their tiles of grad_y; one sum of a slice and unit more.
void launch_grad_parameters(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                            const Layer& layer, float beta, Workspace& workspace,
                            hipStream_t stream) {
  const size_t weights = layer.in * layer.out;
  if (to.w == nullptr || to.bias == nullptr || weights == 0) {
    launch_grad_w_in_slices(to, grad_y, x, batch, layer, beta, workspace, stream);
    return launch_grad_bias(to, grad_y, batch, layer, beta, workspace, stream,
                            gemv::launch_split_columns);
  }
  if (workspace.slices(batch, layer) < 2)
    return launch_product(product_of_w(to.w, grad_y, x, batch, layer, beta), to.bias, stream);
  launch_slices({to.w, to.bias, nullptr}, grad_y, x, batch, layer, beta, workspace, stream,
                launch_product);
}

void launch_bias_by_tiles(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                          const Layer& layer, float beta, Workspace& workspace,
                          const Streams& streams) {
  if (to.bias != nullptr) workspace.require(batch);
  launch_grad_parameters(to, grad_y, x, batch, layer, beta, workspace, streams.caller);
  launch_grad_x(to, grad_y, batch, layer, beta, streams.caller);
}

}  // namespace dense_backward
