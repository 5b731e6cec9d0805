// 7.6 in bf16: the block whose products and attention multiply numbers of 16 bits, on matrix units.
//
//   float   x, h, y and their gradients (the residual branch), the parameters and their gradients,
//           the normalizations' statistics, lse, every sum
//   bf16    what lies between: the results of the normalizations, qkv, attended, fc's sums, hidden,
//           their gradients, and a copy of each matrix of weights
//
// Numbers of 16 bits are half the bytes, and a matrix unit multiplies them many times as fast as
// floats are multiplied (step 2.4). But bf16 keeps 8 binary digits: a small update is lost in a
// weight, and a small residual in a sum. So what is added to for a long time stays float, as
// mixed-precision training has it (Micikevicius et al., arXiv:1710.03740).
//
// No launch only rounds: each kernel stores what the next one reads. The copies of the weights are
// made once in a step, by whoever changes them. Arrays of bf16 at multiples of 16 bytes, and
// channels in multiples of 8, are the fast case. Attention needs the matrix instructions of sm_80,
// and heads of at most 128 channels: check_bf16() says so. The same bits on every run of one
// device.
#pragma once

#include <cstddef>
#include <vector>

#include "common/device_buffer.h"
#include "common/half.h"
#include "common/version.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"
#include "stage7_transformer/03_layernorm_backward/layernorm_backward.h"
#include "stage7_transformer/06_transformer_block/problem.h"

namespace transformer_block {

using gpu::bfloat16;
using gpu::DeviceBuffer;

// The parameters, rounded. Only the matrices are read.
using RoundedParameters = Tensors<const bfloat16*>;

// A gradient of the residual branch, (B, T, C): what is added up, and what products read.
template <class Float, class Rounded>
struct BranchGradient {
  Float* exact;
  Rounded* rounded;
};
using BranchIn = BranchGradient<const float, const bfloat16>;
using BranchOut = BranchGradient<float, bfloat16>;

// Throws std::invalid_argument for a block that bf16 can't do.
void check_bf16(const Shape& shape);

// What the forward pass keeps for the backward pass.
struct SavedBf16 {
  explicit SavedBf16(const Shape& shape);
  size_t bytes() const;

  DeviceBuffer<bfloat16> norm1, qkv, attended, norm2;
  DeviceBuffer<bfloat16> sums, hidden;     // of fc, before and behind GELU
  DeviceBuffer<float> h, statistics, lse;  // as SavedActivations has them
  DeviceBuffer<float> attention;           // what step 7.4 works in
};

// What the backward pass works in.
struct WorkspaceBf16 {
  explicit WorkspaceBf16(const Shape& shape);

  DeviceBuffer<bfloat16> grad_sums, grad_norm, grad_h, grad_attended, grad_qkv;
  DeviceBuffer<float> attention;  // of step 7.5
  DeviceBuffer<float> weights;    // of weight_gradients_bf16
  layernorm_backward::Workspace norm;
};

// y (B, T, C) from x, queued on `stream`.
void forward_bf16(float* y, const float* x, const Parameters& p, const RoundedParameters& rounded,
                  const Shape& shape, SavedBf16& kept, hipStream_t stream = nullptr);

// From grad_y to grad_x, and the gradients of the normalizations' parameters. grad_x.exact may be
// grad_y.exact.
void chain_backward_bf16(const Gradients& grad, const BranchOut& grad_x, const BranchIn& grad_y,
                         const float* x, const Parameters& p, const RoundedParameters& rounded,
                         const Shape& shape, SavedBf16& kept, WorkspaceBf16& w,
                         hipStream_t stream = nullptr);
// The gradients of the other parameters, behind it; only the optimizer waits for them.
void weights_backward_bf16(const Gradients& grad, const bfloat16* grad_y, const Shape& shape,
                           const SavedBf16& kept, WorkspaceBf16& w, hipStream_t stream = nullptr);

// sums (rows, out) = x w^T + bias, hidden = gelu(sums), for x (rows, in) and w (out, in).
void expand_bf16(bfloat16* hidden, bfloat16* sums, const bfloat16* x, const bfloat16* w,
                 const float* bias, size_t rows, size_t out, size_t in,
                 hipStream_t stream = nullptr);

// ---- versions/bf16_weights.hip ------------------------------------------------------------------

// w (out, in) = grad_y^T x, bias (out) = the sum of grad_y's rows, for x (rows, in) and grad_y,
// whose rows of `out` numbers lie `pitch` apart, and hold zeros behind them.
struct WeightTaskBf16 {
  const bfloat16* grad_y;
  size_t pitch;
  const bfloat16* x;
  size_t out, in;
  float* w;
  float* bias;  // nullptr: there is none
};
// As weight_gradients and sums_of are for floats.
size_t sums_of_bf16(const std::vector<WeightTaskBf16>& tasks, size_t rows);
void weight_gradients_bf16(const std::vector<WeightTaskBf16>& tasks, size_t rows, float* sums,
                           hipStream_t stream = nullptr);

inline constexpr Version<int> kBf16Versions[] = {
    {"bf16", 0, "products and attention of bf16, on matrix units", gemm_mixed::kNeedsOfMmaSync},
};

}  // namespace transformer_block
