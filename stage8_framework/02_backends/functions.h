// The operations of kOps as functions: each makes a Call, runs it and returns its output. Shapes,
// types and errors are those of the operation's row in ops.h and of run() in dispatch.h.
// Those whose results are gradients of parameters can be told where these belong: `out`, if it is
// defined, is written and returned.
//
//   Tensor y = relu(linear(x, w, bias));
#pragma once

#include <cstdint>

#include "stage8_framework/02_backends/dispatch.h"

namespace framework {

// The outputs of an operation that has several.
struct Pair {
  Tensor first, second;
};
struct Triple {
  Tensor first, second, third;
};
struct Normalized {
  Tensor y, mean, rstd, sum;
};

// ---- Elements; those of two or three inputs broadcast -------------------------------------------
Tensor neg(const Tensor& a);
Tensor abs(const Tensor& a);
Tensor square(const Tensor& a);
Tensor sqrt(const Tensor& a);
Tensor rsqrt(const Tensor& a);
Tensor reciprocal(const Tensor& a);
Tensor exp(const Tensor& a);
Tensor log(const Tensor& a);
Tensor tanh(const Tensor& a);
Tensor sigmoid(const Tensor& a);
Tensor relu(const Tensor& a);
Tensor gelu(const Tensor& a);
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor select(const Tensor& c, const Tensor& a, const Tensor& b);
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& a) { return neg(a); }

// ---- Moves --------------------------------------------------------------------------------------
Tensor copy(const Tensor& a);
Tensor cast(const Tensor& a, Dtype dtype);
Tensor full(Device& device, const Shape& shape, double value, Dtype dtype = Dtype::f32);
void fill(const Tensor& out, double value);
// Row ids[...] of a, of any type; NaN, or 0 where the type has none, for ids that are no row.
Tensor gather(const Tensor& a, const Tensor& ids);

// ---- Reductions: over `axes`, -1 being the last one; over all where there are none --------------
Tensor sum(const Tensor& a, const Shape& axes = {}, bool keepdims = false, const Tensor& out = {});
Tensor mean(const Tensor& a, const Shape& axes = {}, bool keepdims = false);
Tensor max(const Tensor& a, const Shape& axes = {}, bool keepdims = false);
Tensor argmax(const Tensor& a);

// ---- Products -----------------------------------------------------------------------------------
// Of two factors in f32 or f64, of their type; of two in bf16 or f16, f32, as the bias is.

// While one lives, matmul and linear of its thread cast factors of f32 to `type` first. attention
// does so where the device's plug-in takes that, and casts its result back; where not, it stays in
// f32, and left_in_f32() of dispatch.h says why. Biases and all other operations stay as they are.
// The casts have gradients, and a gradient on the way back
// is f32: parameters stay in f32, and so does their optimizer. f32 casts nothing, which an inner
// one can ask for. f16 is for numbers that are not small: gradients below 2^-24 become 0. Throws
// std::invalid_argument for other types.
class Autocast {
 public:
  explicit Autocast(Dtype type = Dtype::bf16);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  Dtype before_;
};

enum class Activation { none, relu, sigmoid, tanh, gelu };
Tensor matmul(const Tensor& a, const Tensor& b, const Tensor& out = {});
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& bias = {},
              Activation activation = Activation::none);
// The gradients of a linear layer's w and bias.
Pair linear_grad_w(const Tensor& grad_y, const Tensor& x, const Pair& out = {});
// grad_y times the slope of gelu at x w^T + bias, which is computed again.
Tensor gelu_linear_backward(const Tensor& grad_y, const Tensor& x, const Tensor& w,
                            const Tensor& bias);

// ---- Rows and losses ----------------------------------------------------------------------------
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
Tensor softmax_backward(const Tensor& grad_y, const Tensor& y);
Tensor squared_error(const Tensor& p, const Tensor& t);
Tensor squared_error_backward(const Tensor& grad, const Tensor& p, const Tensor& t);
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);
Tensor cross_entropy_backward(const Tensor& grad, const Tensor& logits, const Tensor& labels);
Tensor relu_backward(const Tensor& grad_y, const Tensor& x);
Tensor gelu_backward(const Tensor& grad_y, const Tensor& x);
Tensor sigmoid_backward(const Tensor& grad_y, const Tensor& y);
Tensor tanh_backward(const Tensor& grad_y, const Tensor& y);

// ---- Images -------------------------------------------------------------------------------------
struct Sliding {
  std::int64_t stride_y = 1, stride_x = 1, pad_y = 0, pad_x = 0;
};
struct Rectangle {
  std::int64_t y, x;
};
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias = {}, const Sliding& at = {});
// The shape of x, or of w, is (.., .., size.y, size.x).
Tensor conv2d_grad_x(const Tensor& grad_y, const Tensor& w, const Sliding& at, Rectangle size);
Pair conv2d_grad_w(const Tensor& grad_y, const Tensor& x, const Sliding& at, Rectangle size,
                   const Pair& out = {});                              // of w and bias
Pair maxpool2d(const Tensor& x, Rectangle window, const Sliding& at);  // y, argmax
Tensor maxpool2d_backward(const Tensor& grad_y, const Tensor& argmax, Rectangle window,
                          const Sliding& at, Rectangle size);

// ---- Transformers -------------------------------------------------------------------------------
Tensor embedding(const Tensor& table, const Tensor& ids);
Tensor embedding_backward(const Tensor& grad_y, const Tensor& ids, std::int64_t rows,
                          const Tensor& out = {});
Triple layernorm(const Tensor& x, const Tensor& gain, const Tensor& bias,
                 double eps = 1e-5);  // y, mean, rstd
// The same of sum = x + residual.
Normalized add_layernorm(const Tensor& x, const Tensor& residual, const Tensor& gain,
                         const Tensor& bias, double eps = 1e-5);
// Of x, gain and bias. grad_residual may be undefined: the gradient that x gets elsewhere, to which
// this one is added.
Triple layernorm_backward(const Tensor& grad_y, const Tensor& x, const Tensor& gain,
                          const Tensor& mean, const Tensor& rstd, const Tensor& grad_residual = {},
                          const Triple& out = {});
// Whether attention of these, under the Autocast of this thread, is made in `*type`: where q, k and
// v of f32 are cast to that, the device's plug-in takes the call, and the gradient's where one is
// wanted. For who can cast them together; attention() itself asks.
bool is_cast_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale,
                       Dtype* type);
// out and lse. Where `are_joined`, out is a view of (B, Tq, H, D), for who puts the heads side by
// side.
Pair attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale,
               bool are_joined = false);
Triple attention_backward(const Tensor& grad_out, const Tensor& q, const Tensor& k, const Tensor& v,
                          const Tensor& out, const Tensor& lse, bool causal, double scale,
                          const Triple& gradients = {});  // of q, k, v

// ---- In place: `step` () of i64 counts the calls, and is read and written on the device ---------

struct OptimizerRule {
  int kind;  // 0 sgd, 1 momentum, 2 adam, 3 adamw: the rules of 5.4
  double momentum = 0.9, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 1e-2;
};
// One step of w by its gradient and the learning rate () of its type. state: (0, ...), (1, ...) for
// momentum, (2, ...) for adam and adamw, of w's extents; zeros before the first step, as `step` is.
// The numbers of the rule are rounded to w's type.
void optimizer_step(const Tensor& w, const Tensor& state, const Tensor& step, const Tensor& grad,
                    const Tensor& rate, const OptimizerRule& rule);
// Each element becomes 0 with probability p, else 1 / (1 - p), as (seed, step, place) say: the same
// on every backend. The seed is 2^53 at most.
void dropout_mask(const Tensor& mask, const Tensor& step, double p, std::uint64_t seed);
// Counts and does nothing else.
void count_up(const Tensor& step);

}  // namespace framework
