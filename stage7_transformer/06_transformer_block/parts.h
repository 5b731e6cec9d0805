// The parts of a block that versions do in different ways, and the views of its heads. Plain C++.
#pragma once

#include "stage4_forward/01_dense/layer.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/05_attention_backward/attention_backward.h"
#include "stage7_transformer/06_transformer_block/memory.h"
#include "stage7_transformer/06_transformer_block/transformer_block.h"

namespace transformer_block {

// The heads of packed rows (B, T, 3, H, D) of q, k and v, and of rows (B, T, H, D).
template <class View>
struct Heads {
  View q, k, v;
};
template <class Pointer>
auto heads_of_qkv(Pointer qkv, const Shape& shape) {
  const auto part = [&](size_t i) {
    return attention::rows_first(qkv, shape.T, shape.H, shape.D(), 3, i);
  };
  return Heads<decltype(part(0))>{part(0), part(1), part(2)};
}
template <class Pointer>
auto heads_of(Pointer rows, const Shape& shape) {
  return attention::rows_first(rows, shape.T, shape.H, shape.D());
}

// kept.attended and kept.lse from kept.qkv; w.grad_qkv from w.grad_attended.
void attend_flash(SavedActivations& kept, const Shape& shape, hipStream_t stream);
void attend_backward_flash(SavedActivations& kept, Workspace& w, const Shape& shape,
                           hipStream_t stream);
// The latter with a launcher of step 7.5.
void attend_backward(decltype(&attention_backward::launch_flash) launch, SavedActivations& kept,
                     Workspace& w, const Shape& shape, hipStream_t stream);

// versions/fused.hip. y = residual + x w^T + bias.
void linear_beside_fused(float* y, const float* residual, const float* x, size_t rows,
                         const dense::Layer& layer, hipStream_t stream);
// sums = x w^T + bias, hidden = gelu(sums).
void expand_fused(float* hidden, float* sums, const float* x, size_t rows,
                  const dense::Layer& layer, hipStream_t stream);
// grad_sums = grad_y w * slope of gelu at sums.
void grad_sums_fused(float* grad_sums, const float* grad_y, const float* sums, size_t rows,
                     const dense::Layer& layer, hipStream_t stream);

}  // namespace transformer_block
