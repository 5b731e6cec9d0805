// composed: the block as a chain of the steps before, a kernel per operation.
#include "common/gpu_runtime.h"
#include "stage1_vector/01_vector_add/vector_add.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage5_training/02_activation_backward/activation_backward.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/06_transformer_block/parts.h"
#include "stage7_transformer/06_transformer_block/rows.h"

namespace transformer_block {

using activations::GeluTanh;  // GPT-2's

static void attend(SavedActivations& kept, const Shape& shape, const Mode& mode,
                   hipStream_t stream) {
  if (mode.flash) return attend_flash(kept, shape, stream);
  const auto from = heads_of_qkv(static_cast<const float*>(kept.qkv.data()), shape);
  attention::launch_composed(heads_of(kept.attended.data(), shape), kept.lse.data(), from.q, from.k,
                             from.v, attention_problem(shape), kept.attention.data(), stream);
}

void attend_backward(decltype(&attention_backward::launch_flash) launch, SavedActivations& kept,
                     Workspace& w, const Shape& shape, hipStream_t stream) {
  const auto from = heads_of_qkv(static_cast<const float*>(kept.qkv.data()), shape);
  const auto to = heads_of_qkv(w.grad_qkv.data(), shape);
  launch(to.q, to.k, to.v, heads_of(w.grad_attended.data(), shape),
         heads_of(kept.attended.data(), shape), kept.lse.data(), from.q, from.k, from.v,
         attention_problem(shape), kept.attention.data(), stream);
}

// y = x w^T + bias, by step 4.1: with the bias in the epilogue, or in a launch of its own.
static void linear(float* y, const float* x, size_t rows, const dense::Layer& layer,
                   const Mode& mode, hipStream_t stream) {
  if (mode.fuse)
    dense::forward<dense::Linear>(y, x, rows, layer, stream);
  else
    dense::launch_separate<dense::Linear>(y, x, rows, layer, {}, stream);
}

void linear_beside(float* y, const float* residual, const float* x, size_t rows,
                   const dense::Layer& layer, const Mode& mode, hipStream_t stream) {
  if (mode.fuse) return linear_beside_fused(y, residual, x, rows, layer, stream);
  linear(y, x, rows, layer, mode, stream);
  vector_add::launch_vectorized_add(y, residual, y, rows * layer.out, stream);
}

// sums = x w^T + bias, hidden = gelu(sums).
static void expand(float* hidden, float* sums, const float* x, size_t rows,
                   const dense::Layer& layer, const Mode& mode, hipStream_t stream) {
  if (mode.fuse) return expand_fused(hidden, sums, x, rows, layer, stream);
  linear(sums, x, rows, layer, mode, stream);
  matrix_activations::launch_activation<GeluTanh>(hidden, sums, rows, layer.out, stream);
}

// y (B, T, C) from x, queued on `stream`.
void forward(float* y, const float* x, const Parameters& p, const Shape& shape,
             SavedActivations& kept, const Mode& mode, hipStream_t stream) {
  if (mode.rows && is_in_rows(shape)) return forward_in_rows(y, x, p, shape, kept, stream);
  const size_t rows = shape.rows(), C = shape.C;
  const Layers to = layers(shape, p);
  float *mean1 = kept.statistics.data(), *rstd1 = mean1 + rows, *mean2 = rstd1 + rows,
        *rstd2 = mean2 + rows;
  // exercise: the block's first line (about 5 lines)
  layernorm::forward(kept.norm1.data(), mean1, rstd1, x, p.norm1_gain, p.norm1_bias, rows, C,
                     kEpsilon, stream);
  linear(kept.qkv.data(), kept.norm1.data(), rows, to.qkv, mode, stream);
  attend(kept, shape, mode, stream);
  linear_beside(kept.h.data(), x, kept.attended.data(), rows, to.proj, mode, stream);
  // end exercise
  layernorm::forward(kept.norm2.data(), mean2, rstd2, kept.h.data(), p.norm2_gain, p.norm2_bias,
                     rows, C, kEpsilon, stream);
  expand(kept.hidden.data(), kept.sums.data(), kept.norm2.data(), rows, to.fc, mode, stream);
  linear_beside(y, kept.h.data(), kept.hidden.data(), rows, to.out, mode, stream);
}

// What lies on the way from grad_y to grad_x, and the gradients of the normalizations' parameters.
// Where the weights' gradients are not left to weights_backward, it also has each layer make its
// own, as step 5.1 does.
void chain_backward(const Gradients& grad, float* grad_x, const float* grad_y, const float* x,
                    const Parameters& p, const Shape& shape, SavedActivations& kept, Workspace& w,
                    const Mode& mode, const Streams& streams) {
  const hipStream_t stream = streams.caller;
  if (mode.rows && is_in_rows(shape))
    return backward_in_rows(grad, grad_x, grad_y, x, p, shape, kept, w, stream);
  const size_t rows = shape.rows(), C = shape.C;
  const Layers to = layers(shape, p);
  const float *mean1 = kept.statistics.data(), *rstd1 = mean1 + rows, *mean2 = rstd1 + rows,
              *rstd2 = mean2 + rows;
  const bool later = mode.group && is_grouped(shape);
  const auto backward_of = [&](float* grad_in, float* grad_w, float* grad_bias,
                               const float* grad_out, const float* in, const dense::Layer& layer,
                               dense_backward::Workspace& workspace) {
    if (later)
      dense_backward::launch_grad_x({nullptr, nullptr, grad_in}, grad_out, rows, layer, 0, stream);
    else
      dense_backward::backward({grad_w, grad_bias, grad_in}, grad_out, in, rows, layer, 0,
                               workspace, streams);
  };

  float *grad_hidden = w.grad_hidden.data(), *grad_h = w.grad_h.data();
  if (mode.fuse) {
    grad_sums_fused(grad_hidden, grad_y, kept.sums.data(), rows, to.out, stream);
    if (!later)
      dense_backward::backward({grad.out_w, grad.out_bias, nullptr}, grad_y, kept.hidden.data(),
                               rows, to.out, 0, w.out, streams);
  } else {
    backward_of(grad_hidden, grad.out_w, grad.out_bias, grad_y, kept.hidden.data(), to.out, w.out);
    activation_backward::launch_without_bias<GeluTanh>(grad_hidden, grad_hidden, kept.sums.data(),
                                                       rows, to.out.in, stream);
  }
  backward_of(w.grad_norm.data(), grad.fc_w, grad.fc_bias, grad_hidden, kept.norm2.data(), to.fc,
              w.fc);
  // exercise: from the gradient of norm2's result to that of h, which y has by two ways (about 3
  // lines)
  layernorm_backward::backward(grad_h, grad.norm2_gain, grad.norm2_bias, w.grad_norm.data(),
                               kept.h.data(), p.norm2_gain, mean2, rstd2, grad_y, rows, C, w.norm,
                               stream);
  // end exercise
  backward_of(w.grad_attended.data(), grad.proj_w, grad.proj_bias, grad_h, kept.attended.data(),
              to.proj, w.proj);
  if (mode.flash)
    attend_backward_flash(kept, w, shape, stream);
  else
    attend_backward(attention_backward::launch_composed, kept, w, shape, stream);
  backward_of(w.grad_norm.data(), grad.qkv_w, grad.qkv_bias, w.grad_qkv.data(), kept.norm1.data(),
              to.qkv, w.qkv);
  layernorm_backward::backward(grad_x, grad.norm1_gain, grad.norm1_bias, w.grad_norm.data(), x,
                               p.norm1_gain, mean1, rstd1, grad_h, rows, C, w.norm, stream);
}

void backward(const Gradients& grad, float* grad_x, const float* grad_y, const float* x,
              const Parameters& p, const Shape& shape, SavedActivations& kept, Workspace& w,
              const Mode& mode, const Streams& streams) {
  chain_backward(grad, grad_x, grad_y, x, p, shape, kept, w, mode, streams);
  weights_backward(grad, grad_y, shape, kept, w, mode, streams.caller);
}

}  // namespace transformer_block
