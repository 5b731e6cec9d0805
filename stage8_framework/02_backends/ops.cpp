// kOps: the rows. What they are made of is in detail/rules.h.
#include "stage8_framework/02_backends/ops.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stage8_framework/02_backends/detail/rules.h"

namespace framework {

namespace {

constexpr Promise exact = Promise::exact, fixed = Promise::fixed;
constexpr Magnitude result = Magnitude::result, terms = Magnitude::terms;

struct Formula {
  std::string_view name;
  const char* expression;
};
constexpr Formula kFormulas[] = {
#define FORMULA(name, inputs, expression) {#name, #expression},
#include "stage8_framework/02_backends/formula_list.h"
};
constexpr const char* formula_of(std::string_view name) {
  for (const Formula& formula : kFormulas)
    if (formula.name == name) return formula.expression;
  return nullptr;
}

// An elementwise row. Roundings of 0: IEEE arithmetic rounds once.
constexpr Op elementwise(const char* name, const char* inputs, Promise promise,
                         double (*roundings)(const Call&), Magnitude scale = result) {
  return {name,    inputs, "",       1, infer_elementwise, cost_of_elements, formula_of(name),
          promise, scale,  roundings};
}
constexpr Op unary(const char* name, Promise promise, double (*roundings)(const Call&),
                   Magnitude scale = result) {
  return elementwise(name, "a", promise, roundings, scale);
}
constexpr Op binary(const char* name, Promise promise, double (*roundings)(const Call&),
                    const char* inputs = "a b", Magnitude scale = result) {
  return elementwise(name, inputs, promise, roundings, scale);
}
constexpr Op compare(const char* name) {
  Op row = elementwise(name, "a b", exact, no_rounding);
  row.infer = infer_compare;
  return row;
}
constexpr Op choice(const char* name) {
  Op row = elementwise(name, "c a b", exact, no_rounding);
  row.infer = infer_select;
  return row;
}

}  // namespace

// clang-format off
const Op kOps[] = {
    // ---- Of one element ----
    unary("neg", exact, no_rounding),
    unary("abs", exact, no_rounding),
    unary("square", exact, no_rounding),
    unary("sqrt", fixed, a_few<1>),
    unary("rsqrt", fixed, a_few<3>),
    unary("reciprocal", fixed, a_few<1>),
    unary("exp", fixed, a_few<4>),
    unary("log", fixed, a_few<4>),
    unary("tanh", fixed, a_few<10>),
    unary("sigmoid", fixed, a_few<7>, terms),
    unary("relu", exact, no_rounding),
    unary("gelu", fixed, a_few<16>, terms),

    // ---- Of two and three ----
    binary("add", exact, no_rounding),
    binary("sub", exact, no_rounding),
    binary("mul", exact, no_rounding),
    binary("div", fixed, a_few<1>),
    binary("maximum", exact, no_rounding),
    binary("minimum", exact, no_rounding),
    binary("pow", fixed, a_few<16>),
    compare("equal"),
    compare("less"),
    compare("less_equal"),
    choice("select"),

    // ---- Moves ----
    {"copy", "a", "", 1, infer_copy, cost_of_moves, nullptr, exact, result, no_rounding},
    {"cast", "a", "dtype", 1, infer_cast, cost_of_moves, nullptr, exact, result, no_rounding},
    {"fill", "", "value", 1, infer_fill, cost_of_moves, nullptr, exact, result, no_rounding},
    {"gather", "a ids", "", 1, infer_gather, cost_of_gather, nullptr, exact, result, no_rounding},

    // ---- Reductions: bit d of axes is axis d ----
    {"sum", "a", "axes keepdims", 1, infer_reduction, cost_of_rows, nullptr, fixed, terms, roundings_of_reduction},
    {"mean", "a", "axes keepdims", 1, infer_reduction, cost_of_rows, nullptr, fixed, terms, roundings_of_reduction},
    {"max", "a", "axes keepdims", 1, infer_reduction, cost_of_rows, nullptr, exact, result, no_rounding},
    {"argmax", "a", "", 1, infer_argmax, cost_of_rows, nullptr, exact, result, no_rounding},

    // ---- Products: x (...,in), w (out,in), bias (out), y (...,out). matmul and linear are also of
    //      bf16 and f16; their sums and results are f32 then, as a bias is.
    //      activation: 0 none, 1 relu, 2 sigmoid, 3 tanh, 4 gelu ----
    {"matmul", "a b", "", 1, infer_matmul, cost_of_matmul, nullptr, fixed, terms, roundings_of_matmul, false, Narrow::factors},
    {"linear", "x w bias?", "activation", 1, infer_linear, cost_of_linear, nullptr, fixed, terms, roundings_of_linear, false, Narrow::factors},
    {"linear_grad_w", "grad_y x", "", 2, infer_linear_grad_w, cost_of_linear_grad_w, nullptr, fixed, terms, roundings_of_linear_grad_w},
    {"gelu_linear_backward", "grad_y x w bias?", "", 1, infer_gelu_linear_backward, cost_of_gelu_linear_backward, nullptr, fixed, terms, roundings_of_gelu_linear_backward},

    // ---- Rows: of the last axis ----
    {"softmax", "x", "", 1, infer_rows, cost_of_rows, nullptr, fixed, terms, roundings_of_row},
    {"log_softmax", "x", "", 1, infer_rows, cost_of_rows, nullptr, fixed, terms, roundings_of_row},
    {"softmax_backward", "grad_y y", "", 1, infer_rows_backward, cost_of_rows, nullptr, fixed, terms, roundings_of_row},

    // ---- Losses: means over all elements, or over the rows whose label is not -1 ----
    {"squared_error", "p t", "", 1, infer_squared_error, cost_of_rows, nullptr, fixed, result, roundings_of_squared_error},
    {"squared_error_backward", "grad p t", "", 1, infer_squared_error_backward, cost_of_elements, nullptr, fixed, result, a_few<5>},
    {"cross_entropy", "logits labels", "", 1, infer_cross_entropy, cost_of_rows, nullptr, fixed, terms, roundings_of_cross_entropy},
    {"cross_entropy_backward", "grad logits labels", "", 1, infer_cross_entropy_backward, cost_of_elements, nullptr, fixed, terms, roundings_of_cross_entropy},

    // ---- Back through activations ----
    binary("relu_backward", exact, no_rounding, "grad_y x"),
    binary("gelu_backward", fixed, a_few<40>, "grad_y x", terms),
    binary("sigmoid_backward", fixed, a_few<4>, "grad_y y"),
    binary("tanh_backward", fixed, a_few<5>, "grad_y y", terms),

    // ---- Images: x (N,C,H,W), w (K,C,R,S), bias (K), y (N,K,P,Q) ----
    {"conv2d", "x w bias?", "stride_y stride_x pad_y pad_x", 1, infer_conv2d, cost_of_conv2d, nullptr, fixed, terms, roundings_of_conv2d},
    {"conv2d_grad_x", "grad_y w", "stride_y stride_x pad_y pad_x height width", 1, infer_conv2d_grad_x, cost_of_conv2d_backward, nullptr, fixed, terms, roundings_of_conv2d_grad_x},
    {"conv2d_grad_w", "grad_y x", "stride_y stride_x pad_y pad_x window_y window_x", 2, infer_conv2d_grad_w, cost_of_conv2d_backward, nullptr, fixed, terms, roundings_of_conv2d_grad_w},
    {"maxpool2d", "x", "window_y window_x stride_y stride_x pad_y pad_x", 2, infer_maxpool2d, cost_of_rows, nullptr, exact, result, no_rounding},
    {"maxpool2d_backward", "grad_y argmax", "window_y window_x stride_y stride_x pad_y pad_x height width", 1, infer_maxpool2d_backward, cost_of_rows, nullptr, fixed, terms, roundings_of_maxpool2d_backward},

    // ---- Transformers: table (V,C), ids (...); x (...,C), gain and bias (C); q (B,H,Tq,D), k and v (B,H,Tk,D).
    //      attention and its gradients are also of bf16, all but lse ----
    {"embedding", "table ids", "", 1, infer_embedding, cost_of_moves, nullptr, exact, result, no_rounding},
    {"embedding_backward", "grad_y ids", "rows", 1, infer_embedding_backward, cost_of_rows, nullptr, fixed, terms, roundings_of_embedding_backward},
    {"layernorm", "x gain bias", "eps", 3, infer_layernorm, cost_of_rows, nullptr, fixed, terms, roundings_of_row},
    {"add_layernorm", "x residual gain bias", "eps", 4, infer_layernorm, cost_of_rows, nullptr, fixed, terms, roundings_of_row},
    {"layernorm_backward", "grad_y x gain mean rstd grad_residual?", "", 3, infer_layernorm_backward, cost_of_rows, nullptr, fixed, terms, roundings_of_layernorm_backward},
    {"attention", "q k v", "causal scale", 2, infer_attention, cost_of_attention, nullptr, fixed, terms, roundings_of_attention, false, Narrow::heads},
    {"attention_backward", "grad_out q k v out lse", "causal scale", 3, infer_attention_backward, cost_of_attention_backward, nullptr, fixed, terms, roundings_of_attention, false, Narrow::heads},

    // ---- In place: outputs w, state, step; mask, step; step. kind: 0 sgd, 1 momentum, 2 adam, 3 adamw ----
    {"optimizer_step", "grad rate", "kind momentum beta1 beta2 epsilon weight_decay", 3, infer_optimizer_step, cost_of_optimizer_step, nullptr, fixed, terms, roundings_of_optimizer_step, true},
    {"dropout_mask", "", "p seed", 2, infer_dropout_mask, cost_of_moves, nullptr, exact, result, no_rounding, true},
    {"count_up", "", "", 1, infer_count_up, cost_of_moves, nullptr, exact, result, no_rounding, true},
};
// clang-format on
const int kOpCount = static_cast<int>(sizeof kOps / sizeof kOps[0]);

namespace {

// How many letters differ: the least number of insertions, deletions and changes.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

const Op& op_named(const char* name) {
  static const std::unordered_map<std::string_view, const Op*> rows = [] {
    std::unordered_map<std::string_view, const Op*> all;
    for (const Op& op : kOps) all[op.name] = &op;
    return all;
  }();
  const auto found = rows.find(name);
  if (found != rows.end()) return *found->second;
  const Op* closest = kOps;
  for (const Op& op : kOps)
    if (distance(name, op.name) < distance(name, closest->name)) closest = &op;
  throw std::invalid_argument(std::string("no operation is called ") + name + ": did you mean " +
                              closest->name + "?");
}

}  // namespace framework
