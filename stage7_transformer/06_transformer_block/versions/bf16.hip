// bf16: the block's products and attention on matrix units.
#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/choose_product.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/04_attention/bf16.h"
#include "stage7_transformer/06_transformer_block/bf16.h"
#include "stage7_transformer/06_transformer_block/detail/epilogues.h"
#include "stage7_transformer/06_transformer_block/parts.h"

namespace transformer_block {

// Fixes : fused multiplies floats, on which no matrix unit of most devices works, and its kernels
//         wait for the bytes of what lies between the products.
// Idea  : bf16 between the products: half the bytes, and the products of step 2.4. Each epilogue
//         rounds what it stores, so that no launch only rounds.
// Costs : 8 binary digits in what lies between; copies of the weights, 2 bytes each.

// What step 2.4's kernels do to a sum while it is in a register.

// sum + bias.
struct AddBias {
  const float* bias;
  __device__ float operator()(float sum, size_t, size_t col, const float*) const {
    return sum + bias[col];
  }
  __device__ float2 two(float first, float second, size_t, size_t col) const {
    const float2 b = load_two(bias, col);
    return make_float2(first + b.x, second + b.y);
  }
  __device__ bool fits_two() const { return begins_evenly(bias); }
};

// GELU of sum + bias.
struct AddBiasAndActivate {
  AddBias add;
  __device__ float operator()(float sum, size_t row, size_t col, const float* c) const {
    return QuickGelu{}(add(sum, row, col, c));
  }
  __device__ float2 two(float first, float second, size_t row, size_t col) const {
    const float2 x = add.two(first, second, row, col);
    return make_float2(QuickGelu{}(x.x), QuickGelu{}(x.y));
  }
  __device__ bool fits_two() const { return add.fits_two(); }
};

// The same, and sums = sum + bias, rounded, for the backward pass.
struct RoundAndActivate {
  AddBias add;
  bfloat16* sums;
  size_t cols;
  __device__ float operator()(float sum, size_t row, size_t col, const float* c) const {
    const float kept = add(sum, row, col, c);
    sums[row * cols + col] = gpu::from_float<bfloat16>(kept);
    return QuickGelu{}(kept);
  }
  // Two neighbours are one store.
  __device__ float2 two(float first, float second, size_t row, size_t col) const {
    const float2 kept = add.two(first, second, row, col);
    *reinterpret_cast<gemm_mixed::TwoOf<bfloat16>*>(sums + row * cols + col) = {
        gpu::from_float<bfloat16>(kept.x), gpu::from_float<bfloat16>(kept.y)};
    return make_float2(QuickGelu{}(kept.x), QuickGelu{}(kept.y));
  }
  __device__ bool fits_two() const { return add.fits_two() && begins_evenly(sums); }
  __device__ AddBias first() const { return add; }
  __device__ AddBiasAndActivate second() const { return {add}; }
  bfloat16* stored_first() const { return sums; }
};

// y = epilogue(x w^T)    y (rows, out), x (rows, in), w (out, in).
template <class Y, class Epilogue>
static void multiply(Y* y, const bfloat16* x, const bfloat16* w, size_t rows, size_t out, size_t in,
                     const Epilogue& epilogue, hipStream_t stream) {
  constexpr gemm_mixed::Layout kLayout = gemm_mixed::Layout::NT;
  gemm_mixed::best<gemm::Layouts<kLayout>>(gemm_mixed::contiguous(kLayout, y, x, w, rows, out, in),
                                           epilogue, stream);
}

// grad_x = grad_y w    grad_x (rows, in), grad_y (rows, out), w (out, in).
static auto product_of_x(bfloat16* grad_x, const bfloat16* grad_y, const bfloat16* w, size_t rows,
                         size_t out, size_t in) {
  return gemm_mixed::contiguous(gemm_mixed::Layout::NN, grad_x, grad_y, w, rows, in, out);
}

void expand_bf16(bfloat16* hidden, bfloat16* sums, const bfloat16* x, const bfloat16* w,
                 const float* bias, size_t rows, size_t out, size_t in, hipStream_t stream) {
  multiply(hidden, x, w, rows, out, in, RoundAndActivate{{bias}, sums, out}, stream);
}

void forward_bf16(float* y, const float* x, const Parameters& p, const RoundedParameters& rounded,
                  const Shape& shape, SavedBf16& kept, hipStream_t stream) {
  const size_t rows = shape.rows(), C = shape.C, wide = kExpansion * C;
  float *mean1 = kept.statistics.data(), *rstd1 = mean1 + rows, *mean2 = rstd1 + rows,
        *rstd2 = mean2 + rows;
  layernorm::forward(kept.norm1.data(), mean1, rstd1, x, p.norm1_gain, p.norm1_bias, rows, C,
                     kEpsilon, stream);
  multiply(kept.qkv.data(), kept.norm1.data(), rounded.qkv_w, rows, 3 * C, C, AddBias{p.qkv_bias},
           stream);
  const auto from = heads_of_qkv(static_cast<const bfloat16*>(kept.qkv.data()), shape);
  attention::forward_bf16(heads_of(kept.attended.data(), shape), kept.lse.data(), from.q, from.k,
                          from.v, attention_problem(shape), kept.attention.data(), stream);
  multiply(kept.h.data(), kept.attended.data(), rounded.proj_w, rows, C, C,
           AddResidual{p.proj_bias, x, C}, stream);
  layernorm::forward(kept.norm2.data(), mean2, rstd2, kept.h.data(), p.norm2_gain, p.norm2_bias,
                     rows, C, kEpsilon, stream);
  expand_bf16(kept.hidden.data(), kept.sums.data(), kept.norm2.data(), rounded.fc_w, p.fc_bias,
              rows, wide, C, stream);
  multiply(y, kept.hidden.data(), rounded.out_w, rows, C, wide,
           AddResidual{p.out_bias, kept.h.data(), C}, stream);
}

void chain_backward_bf16(const Gradients& grad, const BranchOut& grad_x, const BranchIn& grad_y,
                         const float* x, const Parameters& p, const RoundedParameters& rounded,
                         const Shape& shape, SavedBf16& kept, WorkspaceBf16& w,
                         hipStream_t stream) {
  const size_t rows = shape.rows(), C = shape.C, wide = kExpansion * C;
  const float *mean1 = kept.statistics.data(), *rstd1 = mean1 + rows, *mean2 = rstd1 + rows,
              *rstd2 = mean2 + rows;
  bfloat16 *grad_sums = w.grad_sums.data(), *grad_norm = w.grad_norm.data();
  gemm_mixed::best<gemm::Layouts<gemm_mixed::Layout::NN>>(
      product_of_x(grad_sums, grad_y.rounded, rounded.out_w, rows, C, wide),
      TimesGeluSlope<bfloat16>{kept.sums.data(), wide}, stream);
  gemm_mixed::best(product_of_x(grad_norm, grad_sums, rounded.fc_w, rows, wide, C), stream);
  // exercise: to the gradient of h, which is kept twice: for norm1's branch, and for the products
  // (about 5 lines)
  layernorm_backward::backward(grad.norm2_gain, grad.norm2_bias,
                               {grad_x.exact, grad_norm, kept.h.data(), p.norm2_gain, mean2, rstd2,
                                grad_y.exact, rows, C, w.grad_h.data()},
                               w.norm, stream);
  // end exercise
  gemm_mixed::best(
      product_of_x(w.grad_attended.data(), w.grad_h.data(), rounded.proj_w, rows, C, C), stream);
  const auto from = heads_of_qkv(static_cast<const bfloat16*>(kept.qkv.data()), shape);
  const auto to = heads_of_qkv(w.grad_qkv.data(), shape);
  attention_backward::launch_flash_bf16(to.q, to.k, to.v, heads_of(w.grad_attended.data(), shape),
                                        heads_of(kept.attended.data(), shape), kept.lse.data(),
                                        from.q, from.k, from.v, attention_problem(shape),
                                        w.attention.data(), stream);
  gemm_mixed::best(product_of_x(grad_norm, w.grad_qkv.data(), rounded.qkv_w, rows, 3 * C, C),
                   stream);
  layernorm_backward::backward(grad.norm1_gain, grad.norm1_bias,
                               {grad_x.exact, grad_norm, x, p.norm1_gain, mean1, rstd1,
                                grad_x.exact, rows, C, grad_x.rounded},
                               w.norm, stream);
}

void weights_backward_bf16(const Gradients& grad, const bfloat16* grad_y, const Shape& shape,
                           const SavedBf16& kept, WorkspaceBf16& w, hipStream_t stream) {
  const size_t C = shape.C, wide = kExpansion * C;
  weight_gradients_bf16(
      {{w.grad_qkv.data(), 3 * C, kept.norm1.data(), 3 * C, C, grad.qkv_w, grad.qkv_bias},
       {w.grad_h.data(), C, kept.attended.data(), C, C, grad.proj_w, grad.proj_bias},
       {w.grad_sums.data(), wide, kept.norm2.data(), wide, C, grad.fc_w, grad.fc_bias},
       {grad_y, C, kept.hidden.data(), C, wide, grad.out_w, grad.out_bias}},
      shape.rows(), w.weights.data(), stream);
}

}  // namespace transformer_block
