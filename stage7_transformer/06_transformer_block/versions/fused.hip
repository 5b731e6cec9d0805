// fused: what stands between the products is done by their epilogues.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage7_transformer/06_transformer_block/detail/epilogues.h"
#include "stage7_transformer/06_transformer_block/parts.h"

namespace transformer_block {

// What step 2.3's kernels do to a sum while it is in a register.

// sums = sum + bias, kept for the backward pass; GELU of it is what is stored.
struct KeepAndActivate {
  const float* bias;
  float* sums;
  size_t cols;
  __device__ float operator()(float sum, size_t row, size_t col, const float*) const {
    // exercise: add the bias, keep the sum, return its GELU (about 3 lines)
    const float kept = sum + bias[col];
    sums[row * cols + col] = kept;
    return GeluTanh{}(kept);
    // end exercise
  }
};

void linear_beside_fused(float* y, const float* residual, const float* x, size_t rows,
                         const dense::Layer& layer, hipStream_t stream) {
  gemm::best<gemm::Layouts<gemm::Layout::NT>>(dense::product(y, x, rows, layer),
                                              AddResidual{layer.bias, residual, layer.out}, stream);
}

void expand_fused(float* hidden, float* sums, const float* x, size_t rows,
                  const dense::Layer& layer, hipStream_t stream) {
  gemm::best<gemm::Layouts<gemm::Layout::NT>>(dense::product(hidden, x, rows, layer),
                                              KeepAndActivate{layer.bias, sums, layer.out}, stream);
}

void grad_sums_fused(float* grad_sums, const float* grad_y, const float* sums, size_t rows,
                     const dense::Layer& layer, hipStream_t stream) {
  gemm::best<gemm::Layouts<gemm::Layout::NN>>(
      dense_backward::product_of_x(grad_sums, grad_y, rows, layer, 0),
      TimesGeluSlope<float>{sums, layer.in}, stream);
}

}  // namespace transformer_block
