// What the rows of kOps are made of: shape rules, costs and error bounds that several operations
// share. A rule throws std::invalid_argument in one line that names the operation, its tensors and
// the reason.
#pragma once

#include <string>

#include "stage8_framework/02_backends/ops.h"

namespace framework {

// "add of f32 (2,3) and f32 (4): extents 3 and 4 do not broadcast", thrown.
[[noreturn]] void refuse(const Call& call, const std::string& reason);

// ---- Shape rules --------------------------------------------------------------------------------

// The shape that all inputs broadcast to; the type of the inputs, f32 or f64, which is one.
void infer_elementwise(const Call& call, OutputSpec* outputs);
void infer_compare(const Call& call, OutputSpec* outputs);  // the same, and bool
void infer_select(const Call& call, OutputSpec* outputs);   // (c bool, a, b)

void infer_copy(const Call& call, OutputSpec* outputs);
void infer_cast(const Call& call, OutputSpec* outputs);
void infer_fill(const Call& call, OutputSpec* outputs);  // what outputs[0] is: it must be given
void infer_gather(const Call& call, OutputSpec* outputs);

void infer_reduction(const Call& call, OutputSpec* outputs);  // attributes axes, keepdims
void infer_argmax(const Call& call, OutputSpec* outputs);

// Of two factors of bf16 or f16, f32.
void infer_matmul(const Call& call, OutputSpec* outputs);
void infer_linear(const Call& call, OutputSpec* outputs);
void infer_linear_grad_w(const Call& call, OutputSpec* outputs);
void infer_gelu_linear_backward(const Call& call, OutputSpec* outputs);

void infer_rows(const Call& call, OutputSpec* outputs);           // (x): as x, which has a row
void infer_rows_backward(const Call& call, OutputSpec* outputs);  // (grad_y, y), of one shape
void infer_squared_error(const Call& call, OutputSpec* outputs);
void infer_squared_error_backward(const Call& call, OutputSpec* outputs);
void infer_cross_entropy(const Call& call, OutputSpec* outputs);
void infer_cross_entropy_backward(const Call& call, OutputSpec* outputs);

void infer_conv2d(const Call& call, OutputSpec* outputs);
void infer_conv2d_grad_x(const Call& call, OutputSpec* outputs);
void infer_conv2d_grad_w(const Call& call, OutputSpec* outputs);
void infer_maxpool2d(const Call& call, OutputSpec* outputs);
void infer_maxpool2d_backward(const Call& call, OutputSpec* outputs);

void infer_embedding(const Call& call, OutputSpec* outputs);
void infer_embedding_backward(const Call& call, OutputSpec* outputs);
void infer_layernorm(const Call& call, OutputSpec* outputs);
void infer_layernorm_backward(const Call& call, OutputSpec* outputs);
// Of rows in bf16, bf16; lse is f32 then.
void infer_attention(const Call& call, OutputSpec* outputs);
void infer_attention_backward(const Call& call, OutputSpec* outputs);

// All outputs must be given.
void infer_optimizer_step(const Call& call, OutputSpec* outputs);
void infer_dropout_mask(const Call& call, OutputSpec* outputs);
void infer_count_up(const Call& call, OutputSpec* outputs);

// ---- Costs: of a call whose outputs are there ---------------------------------------------------

Cost cost_of_elements(const Call& call);  // one operation for each element of the first output
Cost cost_of_rows(const Call& call);      // four for each element of the first input
Cost cost_of_moves(const Call& call);     // none
Cost cost_of_gather(const Call& call);    // none; of the first input, what becomes the output
Cost cost_of_matmul(const Call& call);
Cost cost_of_linear(const Call& call);
Cost cost_of_linear_grad_w(const Call& call);
Cost cost_of_gelu_linear_backward(const Call& call);
Cost cost_of_conv2d(const Call& call);              // forward
Cost cost_of_conv2d_backward(const Call& call);     // of either gradient
Cost cost_of_attention(const Call& call);           // 4 Tq Tk D for each head
Cost cost_of_attention_backward(const Call& call);  // 10 Tq Tk D
Cost cost_of_optimizer_step(const Call& call);      // w and its states are read and written

// ---- Error bounds, in roundings -----------------------------------------------------------------

// Of a sum of `terms` terms in any order: at most terms, and no more than 8 sqrt(terms) but with a
// chance of 2.5e-14 (common/rounding.h).
double roundings_of_sum(double terms);

double no_rounding(const Call& call);
template <int kCount>
double a_few(const Call&) {
  return kCount;
}
double roundings_of_reduction(const Call& call);
double roundings_of_matmul(const Call& call);
double roundings_of_linear(const Call& call);
double roundings_of_linear_grad_w(const Call& call);
double roundings_of_gelu_linear_backward(const Call& call);
double roundings_of_row(const Call& call);  // two sums along the rows of the first input
double roundings_of_squared_error(const Call& call);
double roundings_of_cross_entropy(const Call& call);
double roundings_of_conv2d(const Call& call);
double roundings_of_conv2d_grad_x(const Call& call);
double roundings_of_conv2d_grad_w(const Call& call);
double roundings_of_maxpool2d_backward(const Call& call);
double roundings_of_embedding_backward(const Call& call);
double roundings_of_layernorm_backward(const Call& call);
double roundings_of_attention(const Call& call);
double roundings_of_optimizer_step(const Call& call);

}  // namespace framework
