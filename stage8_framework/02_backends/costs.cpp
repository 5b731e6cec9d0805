// What a call costs, and how exact its result is: numbers that follow from shapes.
#include <algorithm>
#include <cmath>

#include "common/rounding.h"
#include "stage8_framework/02_backends/detail/rules.h"

namespace framework {

namespace {

double elements(const Tensor& t) { return static_cast<double>(t.elements()); }
double extent(const Tensor& t, size_t axis) { return static_cast<double>(t.shape()[axis]); }
double last(const Tensor& t) { return t.rank() == 0 ? 1 : extent(t, t.rank() - 1); }
double bytes(const Tensor& t) { return elements(t) * static_cast<double>(size_of(t.dtype())); }

Cost cost(const Call& call, double flops) {
  Cost cost{0, flops};
  for (int i = 0; i < call.input_count; ++i)
    if (call.inputs[i].is_defined()) cost.bytes += bytes(call.inputs[i]);
  for (int i = 0; i < call.output_count; ++i) cost.bytes += bytes(call.outputs[i]);
  return cost;
}

double pairs(const Tensor& q, const Tensor& k) { return elements(q) * extent(k, 2); }

}  // namespace

Cost cost_of_elements(const Call& call) { return cost(call, elements(call.outputs[0])); }
Cost cost_of_rows(const Call& call) { return cost(call, 4 * elements(call.inputs[0])); }
Cost cost_of_moves(const Call& call) { return cost(call, 0); }
Cost cost_of_gather(const Call& call) {
  return {bytes(call.inputs[1]) + 2 * bytes(call.outputs[0]), 0};
}
Cost cost_of_matmul(const Call& call) {
  return cost(call, 2 * elements(call.outputs[0]) * last(call.inputs[0]));
}
Cost cost_of_linear(const Call& call) { return cost_of_matmul(call); }
Cost cost_of_linear_grad_w(const Call& call) {
  return cost(call, 2 * elements(call.inputs[0]) * last(call.inputs[1]));
}
Cost cost_of_gelu_linear_backward(const Call& call) {
  return cost(call, 2 * elements(call.outputs[0]) * last(call.inputs[1]));
}
Cost cost_of_conv2d(const Call& call) {
  const Tensor& w = call.inputs[1];
  return cost(call, 2 * elements(call.outputs[0]) * extent(w, 1) * extent(w, 2) * extent(w, 3));
}
Cost cost_of_conv2d_backward(const Call& call) {
  // Each element of grad_y meets a window of every channel of x.
  const bool is_of_x = call.op->infer == infer_conv2d_grad_x;
  const Tensor& w = is_of_x ? call.inputs[1] : call.outputs[0];
  return cost(call, 2 * elements(call.inputs[0]) * extent(w, 1) * extent(w, 2) * extent(w, 3));
}
Cost cost_of_attention(const Call& call) {
  return cost(call, 4 * pairs(call.inputs[0], call.inputs[1]));
}
Cost cost_of_attention_backward(const Call& call) {
  return cost(call, 10 * pairs(call.inputs[1], call.inputs[2]));
}

Cost cost_of_optimizer_step(const Call& call) {
  constexpr double kFlops[] = {2, 4, 12, 13};  // of a parameter, by kind
  Cost once =
      cost(call, kFlops[static_cast<size_t>(call.attributes[0])] * elements(call.outputs[0]));
  for (int i = 0; i < call.output_count; ++i) once.bytes += bytes(call.outputs[i]);
  return once;
}

double roundings_of_sum(double terms) {
  return std::min(terms, rounding::kLambda * std::sqrt(terms)) + 1;
}

double no_rounding(const Call&) { return 0; }
double roundings_of_reduction(const Call& call) {
  const Tensor& a = call.inputs[0];
  const auto axes = static_cast<std::int64_t>(call.attributes[0]);
  double terms = 1;
  for (size_t d = 0; d < a.rank(); ++d)
    if (axes >> d & 1) terms *= extent(a, d);
  return roundings_of_sum(terms) + 1;
}
// A matrix unit, which multiplies numbers of 16 bits, cuts off where a float is rounded: 2.4's
// reference counts three roundings for each term.
double roundings_of_matmul(const Call& call) {
  const double terms = last(call.inputs[0]);
  return size_of(call.inputs[0].dtype()) == 2 ? 3 * terms + 1 : roundings_of_sum(terms);
}
double roundings_of_linear(const Call& call) {
  constexpr double kActivation = 16;  // and its slope, which is 1.13 at most
  return 1.13 * (roundings_of_matmul(call) + 1) + kActivation;
}
double roundings_of_linear_grad_w(const Call& call) {
  const Tensor& y = call.inputs[0];
  return roundings_of_sum(last(y) > 0 ? elements(y) / last(y) : 0);
}
// Those of gelu_backward, and the sum's, which the slope passes on.
double roundings_of_gelu_linear_backward(const Call& call) {
  constexpr double kSlope = 40;
  return kSlope + roundings_of_sum(last(call.inputs[1])) + 1;
}
double roundings_of_row(const Call& call) {
  return 16 + 2 * roundings_of_sum(last(call.inputs[0]));
}
double roundings_of_squared_error(const Call& call) {
  return 4 + roundings_of_sum(elements(call.inputs[0]));
}
double roundings_of_cross_entropy(const Call& call) {
  const Tensor& logits = call.inputs[call.input_count - 2];
  const double rows = last(logits) > 0 ? elements(logits) / last(logits) : 0;
  return 20 + 2 * roundings_of_sum(last(logits)) + roundings_of_sum(rows);
}

namespace {
// A Winograd transform, which 6.1 prefers for windows of 3 x 3, adds and scales with numbers up to
// 8 before and after the products: 6.1's reference counts 21 roundings, each of a larger term.
constexpr double kTransforms = 128;
double roundings_of_windows(double terms, double window_y, double window_x) {
  return roundings_of_sum(terms) + (window_y == 3 && window_x == 3 ? kTransforms : 1);
}
}  // namespace

double roundings_of_conv2d(const Call& call) {
  const Tensor& w = call.inputs[1];
  return roundings_of_windows(extent(w, 1) * extent(w, 2) * extent(w, 3), extent(w, 2),
                              extent(w, 3));
}
double roundings_of_conv2d_grad_x(const Call& call) {
  const Tensor& w = call.inputs[1];
  return roundings_of_windows(extent(w, 0) * extent(w, 2) * extent(w, 3), extent(w, 2),
                              extent(w, 3));
}
double roundings_of_conv2d_grad_w(const Call& call) {
  const Tensor& y = call.inputs[0];
  return roundings_of_windows(extent(y, 0) * extent(y, 2) * extent(y, 3), call.attributes[4],
                              call.attributes[5]);
}
double roundings_of_maxpool2d_backward(const Call& call) {
  return roundings_of_sum(call.attributes[0] * call.attributes[1]);
}
double roundings_of_embedding_backward(const Call& call) {
  return roundings_of_sum(elements(call.inputs[1]));
}
double roundings_of_layernorm_backward(const Call& call) {
  const Tensor& x = call.inputs[1];
  const double rows = last(x) > 0 ? elements(x) / last(x) : 0;
  return 16 + 2 * roundings_of_sum(last(x)) + roundings_of_sum(rows);
}
double roundings_of_attention(const Call& call) {
  const bool is_backward = call.input_count > 3;
  const Tensor &q = call.inputs[is_backward ? 1 : 0], &k = call.inputs[is_backward ? 2 : 1];
  const double sums = roundings_of_sum(extent(q, 3)) + 2 * roundings_of_sum(extent(k, 2));
  const double of_floats = 24 + (is_backward ? 2 : 1) * (sums + roundings_of_sum(extent(q, 2)));
  if (q.dtype() != Dtype::bf16) return of_floats;
  // A weight, or its gradient, is rounded to bf16 where it is multiplied, which is 2^16 roundings
  // of a term, and so is the result. A matrix unit's sum counts three times.
  return 0x1.1p16 + 3 * of_floats;
}
// 5.4's reference counts them. Each is of w, of the step by which w changes, or of a term of m or
// v, and so of a term of the magnitude. By Adam: the quotient 5, the root 6, v 4 (half of which a
// root lets through), m 4, four factors and sums of one each, and w with its decay 3.
double roundings_of_optimizer_step(const Call& call) {
  constexpr double kRoundings[] = {2, 4, 24, 24};  // by kind
  return kRoundings[static_cast<size_t>(call.attributes[0])];
}

}  // namespace framework
