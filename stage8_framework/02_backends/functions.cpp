#include "stage8_framework/02_backends/functions.h"

#include <algorithm>
#include <stdexcept>

namespace framework {

namespace {

using Tensors = std::initializer_list<const Tensor*>;
using Attributes = std::initializer_list<double>;

Call call_of(const char* name, Tensors inputs, Attributes attributes) {
  Call call;
  call.op = &op_named(name);
  for (const Tensor* input : inputs) call.inputs[call.input_count++] = *input;
  std::copy(attributes.begin(), attributes.end(), call.attributes);
  return call;
}
// `out`: its outputs, undefined where they shall be allocated.
Call done(const char* name, Tensors inputs, Attributes attributes, Tensors out = {}) {
  Call call = call_of(name, inputs, attributes);
  Tensor* output = call.outputs;
  for (const Tensor* given : out) {
    if (given->is_defined()) *output = *given, call.output_count = call.op->output_count;
    ++output;
  }
  run(call);
  return call;
}

Tensor only(const char* name, Tensors inputs, Attributes attributes = {}, const Tensor& out = {}) {
  return done(name, inputs, attributes, {&out}).outputs[0];
}
Pair pair(const char* name, Tensors inputs, Attributes attributes, const Pair& out = {}) {
  const Call call = done(name, inputs, attributes, {&out.first, &out.second});
  return {call.outputs[0], call.outputs[1]};
}
Triple triple(const char* name, Tensors inputs, Attributes attributes, const Triple& out = {}) {
  const Call call = done(name, inputs, attributes, {&out.first, &out.second, &out.third});
  return {call.outputs[0], call.outputs[1], call.outputs[2]};
}

// A bit for each axis.
Tensor reduced(const char* name, const Tensor& a, const Shape& axes, bool keepdims,
               const Tensor& out = {}) {
  const auto rank = static_cast<std::int64_t>(a.rank());
  unsigned mask = axes.rank() == 0 ? (1u << rank) - 1 : 0;
  for (const std::int64_t axis : axes) {
    if (axis < -rank || axis >= rank)
      throw std::invalid_argument(std::string(name) + " of " + a.text() + ": there is no axis " +
                                  std::to_string(axis));
    mask |= 1u << (axis < 0 ? axis + rank : axis);
  }
  return only(name, {&a}, {static_cast<double>(mask), static_cast<double>(keepdims)}, out);
}

thread_local Dtype factor_type = Dtype::f32;  // what an Autocast makes of f32

Tensor as_factor(const Tensor& a) {
  return a.is_defined() && a.dtype() == Dtype::f32 ? cast(a, factor_type) : a;
}

double number(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

Tensor neg(const Tensor& a) { return only("neg", {&a}); }
Tensor abs(const Tensor& a) { return only("abs", {&a}); }
Tensor square(const Tensor& a) { return only("square", {&a}); }
Tensor sqrt(const Tensor& a) { return only("sqrt", {&a}); }
Tensor rsqrt(const Tensor& a) { return only("rsqrt", {&a}); }
Tensor reciprocal(const Tensor& a) { return only("reciprocal", {&a}); }
Tensor exp(const Tensor& a) { return only("exp", {&a}); }
Tensor log(const Tensor& a) { return only("log", {&a}); }
Tensor tanh(const Tensor& a) { return only("tanh", {&a}); }
Tensor sigmoid(const Tensor& a) { return only("sigmoid", {&a}); }
Tensor relu(const Tensor& a) { return only("relu", {&a}); }
Tensor gelu(const Tensor& a) { return only("gelu", {&a}); }
Tensor add(const Tensor& a, const Tensor& b) { return only("add", {&a, &b}); }
Tensor sub(const Tensor& a, const Tensor& b) { return only("sub", {&a, &b}); }
Tensor mul(const Tensor& a, const Tensor& b) { return only("mul", {&a, &b}); }
Tensor div(const Tensor& a, const Tensor& b) { return only("div", {&a, &b}); }
Tensor maximum(const Tensor& a, const Tensor& b) { return only("maximum", {&a, &b}); }
Tensor minimum(const Tensor& a, const Tensor& b) { return only("minimum", {&a, &b}); }
Tensor pow(const Tensor& a, const Tensor& b) { return only("pow", {&a, &b}); }
Tensor equal(const Tensor& a, const Tensor& b) { return only("equal", {&a, &b}); }
Tensor less(const Tensor& a, const Tensor& b) { return only("less", {&a, &b}); }
Tensor less_equal(const Tensor& a, const Tensor& b) { return only("less_equal", {&a, &b}); }
Tensor select(const Tensor& c, const Tensor& a, const Tensor& b) {
  return only("select", {&c, &a, &b});
}

Tensor copy(const Tensor& a) { return only("copy", {&a}); }
Tensor cast(const Tensor& a, Dtype dtype) {
  return only("cast", {&a}, {static_cast<double>(dtype)});
}
void fill(const Tensor& out, double value) { done("fill", {}, {value}, {&out}); }
Tensor full(Device& device, const Shape& shape, double value, Dtype dtype) {
  const Tensor out = Tensor::empty(device, shape, dtype);
  fill(out, value);
  return out;
}
Tensor gather(const Tensor& a, const Tensor& ids) { return only("gather", {&a, &ids}); }

Tensor sum(const Tensor& a, const Shape& axes, bool keepdims, const Tensor& out) {
  return reduced("sum", a, axes, keepdims, out);
}
Tensor mean(const Tensor& a, const Shape& axes, bool keepdims) {
  return reduced("mean", a, axes, keepdims);
}
Tensor max(const Tensor& a, const Shape& axes, bool keepdims) {
  return reduced("max", a, axes, keepdims);
}
Tensor argmax(const Tensor& a) { return only("argmax", {&a}); }

Autocast::Autocast(Dtype type) : before_(factor_type) {
  if (type != Dtype::f32 && type != Dtype::bf16 && type != Dtype::f16)
    throw std::invalid_argument(std::string("Autocast: products are not made in ") + name_of(type));
  factor_type = type;
}
Autocast::~Autocast() { factor_type = before_; }

Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& out) {
  if (factor_type == Dtype::f32) return only("matmul", {&a, &b}, {}, out);
  const Tensor left = as_factor(a), right = as_factor(b);
  return only("matmul", {&left, &right}, {}, out);
}
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation) {
  const double f = static_cast<double>(activation);
  if (factor_type == Dtype::f32) return only("linear", {&x, &w, &bias}, {f});
  const Tensor left = as_factor(x), right = as_factor(w);
  return only("linear", {&left, &right, &bias}, {f});
}
Pair linear_grad_w(const Tensor& grad_y, const Tensor& x, const Pair& out) {
  return pair("linear_grad_w", {&grad_y, &x}, {}, out);
}
Tensor gelu_linear_backward(const Tensor& grad_y, const Tensor& x, const Tensor& w,
                            const Tensor& bias) {
  return only("gelu_linear_backward", {&grad_y, &x, &w, &bias});
}

Tensor softmax(const Tensor& x) { return only("softmax", {&x}); }
Tensor log_softmax(const Tensor& x) { return only("log_softmax", {&x}); }
Tensor softmax_backward(const Tensor& grad_y, const Tensor& y) {
  return only("softmax_backward", {&grad_y, &y});
}
Tensor squared_error(const Tensor& p, const Tensor& t) { return only("squared_error", {&p, &t}); }
Tensor squared_error_backward(const Tensor& grad, const Tensor& p, const Tensor& t) {
  return only("squared_error_backward", {&grad, &p, &t});
}
Tensor cross_entropy(const Tensor& logits, const Tensor& labels) {
  return only("cross_entropy", {&logits, &labels});
}
Tensor cross_entropy_backward(const Tensor& grad, const Tensor& logits, const Tensor& labels) {
  return only("cross_entropy_backward", {&grad, &logits, &labels});
}
Tensor relu_backward(const Tensor& grad_y, const Tensor& x) {
  return only("relu_backward", {&grad_y, &x});
}
Tensor gelu_backward(const Tensor& grad_y, const Tensor& x) {
  return only("gelu_backward", {&grad_y, &x});
}
Tensor sigmoid_backward(const Tensor& grad_y, const Tensor& y) {
  return only("sigmoid_backward", {&grad_y, &y});
}
Tensor tanh_backward(const Tensor& grad_y, const Tensor& y) {
  return only("tanh_backward", {&grad_y, &y});
}

Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Sliding& at) {
  return only("conv2d", {&x, &w, &bias},
              {number(at.stride_y), number(at.stride_x), number(at.pad_y), number(at.pad_x)});
}
Tensor conv2d_grad_x(const Tensor& grad_y, const Tensor& w, const Sliding& at, Rectangle size) {
  return only("conv2d_grad_x", {&grad_y, &w},
              {number(at.stride_y), number(at.stride_x), number(at.pad_y), number(at.pad_x),
               number(size.y), number(size.x)});
}
Pair conv2d_grad_w(const Tensor& grad_y, const Tensor& x, const Sliding& at, Rectangle size,
                   const Pair& out) {
  return pair("conv2d_grad_w", {&grad_y, &x},
              {number(at.stride_y), number(at.stride_x), number(at.pad_y), number(at.pad_x),
               number(size.y), number(size.x)},
              out);
}
Pair maxpool2d(const Tensor& x, Rectangle window, const Sliding& at) {
  return pair("maxpool2d", {&x},
              {number(window.y), number(window.x), number(at.stride_y), number(at.stride_x),
               number(at.pad_y), number(at.pad_x)});
}
Tensor maxpool2d_backward(const Tensor& grad_y, const Tensor& argmax, Rectangle window,
                          const Sliding& at, Rectangle size) {
  return only("maxpool2d_backward", {&grad_y, &argmax},
              {number(window.y), number(window.x), number(at.stride_y), number(at.stride_x),
               number(at.pad_y), number(at.pad_x), number(size.y), number(size.x)});
}

Tensor embedding(const Tensor& table, const Tensor& ids) {
  return only("embedding", {&table, &ids});
}
Tensor embedding_backward(const Tensor& grad_y, const Tensor& ids, std::int64_t rows,
                          const Tensor& out) {
  return only("embedding_backward", {&grad_y, &ids}, {number(rows)}, out);
}
Triple layernorm(const Tensor& x, const Tensor& gain, const Tensor& bias, double eps) {
  return triple("layernorm", {&x, &gain, &bias}, {eps});
}
Normalized add_layernorm(const Tensor& x, const Tensor& residual, const Tensor& gain,
                         const Tensor& bias, double eps) {
  const Call call = done("add_layernorm", {&x, &residual, &gain, &bias}, {eps});
  return {call.outputs[0], call.outputs[1], call.outputs[2], call.outputs[3]};
}
Triple layernorm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& gain,
                          const Tensor& mean, const Tensor& rstd, const Tensor& grad_residual,
                          const Triple& out) {
  return triple("layernorm_backward", {&grad_y, &x, &gain, &mean, &rstd, &grad_residual}, {}, out);
}

// ---- Attention ----------------------------------------------------------------------------------

namespace {

void count_left_in_f32(PluginDevice& device, const Op& op, const std::string& reason) {
  for (PluginDevice::LeftInF32& row : device.left_in_f32)
    if (row.op == &op && row.reason == reason) return void(++row.times);
  device.left_in_f32.push_back({&op, reason, 1});
}

// Why attention of such tensors in `type` is not made on their device, or can't be gone back
// through; "": it is. They are made, but nobody writes them.
std::string attention_refusal(Dtype type, const Tensor& q, const Tensor& k, const Tensor& v,
                              Attributes attributes) {
  const auto like = [&](const Tensor& t) { return Tensor::empty(q.device(), t.shape(), type); };
  if (type == Dtype::f16) return "there is no attention of f16";
  const Tensor a = like(q), b = like(k), c = like(v);
  const Call forward = call_of("attention", {&a, &b, &c}, attributes);
  const std::string refusal = refusal_of(forward);
  const bool goes_back = q.requires_grad() || k.requires_grad() || v.requires_grad();
  if (!refusal.empty() || !goes_back) return refusal;
  const Tensor lse = Tensor::empty(q.device(), {q.shape()[0], q.shape()[1], q.shape()[2]});
  return refusal_of(call_of("attention_backward", {&a, &a, &b, &c, &a, &lse}, attributes));
}

Pair attention_as_it_is(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                        double scale, bool are_joined) {
  Call call = call_of("attention", {&q, &k, &v}, {static_cast<double>(causal), scale});
  if (are_joined && q.rank() == 4) {
    const Shape& s = q.shape();
    call.outputs[0] =
        Tensor::empty(q.device(), {s[0], s[2], s[1], s[3]}, q.dtype()).transpose(1, 2);
    call.output_count = call.op->output_count;
  }
  run(call);
  return {call.outputs[0], call.outputs[1]};
}

}  // namespace

bool is_cast_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale,
                       Dtype* type) {
  *type = factor_type;
  bool casts = false;
  for (const Tensor* const t : {&q, &k, &v}) {
    if (factor_type == Dtype::f32 || !t->is_defined()) return false;
    if (t->dtype() != Dtype::f32 && t->dtype() != factor_type) return false;
    casts = casts || t->dtype() == Dtype::f32;
  }
  if (!casts) return false;  // what has the type already needs no Autocast
  const std::string refusal =
      attention_refusal(factor_type, q, k, v, {static_cast<double>(causal), scale});
  if (refusal.empty()) return true;
  count_left_in_f32(plugin_device(q.device()), op_named("attention"), refusal);
  return false;
}

Pair attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale,
               bool are_joined) {
  Dtype type;
  if (!is_cast_attention(q, k, v, causal, scale, &type))
    return attention_as_it_is(q, k, v, causal, scale, are_joined);
  const auto [out, lse] =
      attention_as_it_is(as_factor(q), as_factor(k), as_factor(v), causal, scale, are_joined);
  if (!are_joined) return {cast(out, Dtype::f32), lse};
  return {cast(out.transpose(1, 2), Dtype::f32).transpose(1, 2), lse};  // joined still
}
Triple attention_backward(const Tensor& grad_out, const Tensor& q, const Tensor& k, const Tensor& v,
                          const Tensor& out, const Tensor& lse, bool causal, double scale,
                          const Triple& gradients) {
  return triple("attention_backward", {&grad_out, &q, &k, &v, &out, &lse},
                {static_cast<double>(causal), scale}, gradients);
}

void optimizer_step(const Tensor& w, const Tensor& state, const Tensor& step, const Tensor& grad,
                    const Tensor& rate, const OptimizerRule& rule) {
  const bool is_float = w.is_defined() && w.dtype() == Dtype::f32;
  const auto rounded = [&](double value) {
    if (!is_float) return value;
    // GCC 12 drops the rounding where it vectorizes it, with -O3 and AVX: it must not.
    const volatile float narrow = static_cast<float>(value);
    return static_cast<double>(narrow);
  };
  done("optimizer_step", {&grad, &rate},
       {static_cast<double>(rule.kind), rounded(rule.momentum), rounded(rule.beta1),
        rounded(rule.beta2), rounded(rule.epsilon), rounded(rule.weight_decay)},
       {&w, &state, &step});
}
void dropout_mask(const Tensor& mask, const Tensor& step, double p, std::uint64_t seed) {
  if (seed > std::uint64_t{kLargestSeed})  // not every number above it is a double
    throw std::invalid_argument("dropout_mask: the seed must be 2^53 at most, not " +
                                std::to_string(seed));
  done("dropout_mask", {}, {p, static_cast<double>(seed)}, {&mask, &step});
}
void count_up(const Tensor& step) { done("count_up", {}, {}, {&step}); }

}  // namespace framework
