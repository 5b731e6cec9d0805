// The rules of products, rows, losses, images and transformers. g is the gradient of the result.
#include "stage8_framework/03_autograd/detail/layer_rules.h"

namespace framework {

namespace {

// (..., C) as the rows (n, C).
Tensor rows_of(const Tensor& a) {
  if (a.rank() == 2) return a;
  const std::int64_t columns = a.shape()[a.rank() - 1];
  std::int64_t rows = 1;
  for (size_t d = 0; d + 1 < a.rank(); ++d) rows *= a.shape()[d];
  return reshaped(a, {rows, columns});
}
Tensor turned(const Tensor& a) { return a.transpose(-1, -2); }

}  // namespace

// ---- Products -----------------------------------------------------------------------------------

// Y = A B: g B^T and A^T g. Where one B serves a batch, the sum over the batch is a part of A^T g.
// Where A and B have 16 bits, g is rounded to their type: it is a factor as they are.
void matmul_rule(WayBack& b) {
  const Tensor g = b.grad().to(b.dtype());
  if (b.wants(0)) b.give(0, matmul(g, turned(b.input(1))));
  if (!b.wants(1)) return;
  const bool is_one = b.shape(1).rank() == 2;
  b.give(1, is_one ? matmul(turned(rows_of(b.input(0))), rows_of(g), b.home(1))
                   : matmul(turned(b.input(0)), g));
}

// The gradients of relu, sigmoid and tanh read the result. That of gelu reads what it was given,
// which is computed again.
std::uint32_t needs_of_activation(const Call& call) {
  switch (static_cast<Activation>(static_cast<int>(call.attributes[0]))) {
    case Activation::none:
      return 0;
    case Activation::gelu:
      return input_bit(0) | input_bit(1) | input_bit(2);
    default:
      return output_bit(0);
  }
}

namespace {

Tensor through_activation(const WayBack& b) {
  switch (static_cast<Activation>(b.whole(0))) {
    case Activation::relu:
      return relu_backward(b.grad(), b.output());
    case Activation::sigmoid:
      return sigmoid_backward(b.grad(), b.output());
    case Activation::tanh:
      return tanh_backward(b.grad(), b.output());
    case Activation::gelu:
      return gelu_backward(b.grad(), linear(b.input(0), b.input(1), b.input(2)));
    default:
      return b.grad();
  }
}

}  // namespace

// y = activation(x w^T + bias): g w, g^T x and the sum of g's rows.
void linear_rule(WayBack& b) {
  const Tensor g = rows_of(through_activation(b)), factor = g.to(b.dtype());
  if (b.wants(0)) b.give(0, reshaped(matmul(factor, b.input(1)), b.shape(0)));
  if (b.wants(1)) b.give(1, matmul(turned(factor), rows_of(b.input(0)), b.home(1)));
  if (b.wants(2)) b.give(2, sum(g, {0}, false, b.home(2)));
}

// ---- Rows and losses ----------------------------------------------------------------------------

void softmax_rule(WayBack& b) { b.give(0, softmax_backward(b.grad(), b.output())); }
// g - softmax(x) sum(g), along each row.
void log_softmax_rule(WayBack& b) {
  b.give(0, b.grad() - exp(b.output()) * sum(b.grad(), {-1}, true));
}
void squared_error_rule(WayBack& b) {
  if (b.wants(0)) b.give(0, squared_error_backward(b.grad(), b.input(0), b.input(1)));
  if (b.wants(1)) b.give(1, squared_error_backward(b.grad(), b.input(1), b.input(0)));
}
void cross_entropy_rule(WayBack& b) {
  b.give(0, cross_entropy_backward(b.grad(), b.input(0), b.input(1)));
}

// ---- Images -------------------------------------------------------------------------------------

namespace {

// Attributes from `first` on: stride_y, stride_x, pad_y, pad_x.
Sliding sliding_of(const WayBack& b, int first) {
  return {b.whole(first), b.whole(first + 1), b.whole(first + 2), b.whole(first + 3)};
}
// The last two extents.
Rectangle size_of(const Shape& images) { return {images[2], images[3]}; }

}  // namespace

void conv2d_rule(WayBack& b) {
  const Sliding at = sliding_of(b, 0);
  if (b.wants(0)) b.give(0, conv2d_grad_x(b.grad(), b.input(1), at, size_of(b.shape(0))));
  if (b.wants(1))
    b.give(1, conv2d_grad_w(b.grad(), b.input(0), at, size_of(b.shape(1)), b.home(1)));
  if (b.wants(2)) b.give(2, sum(b.grad(), {0, 2, 3}, false, b.home(2)));
}
void maxpool2d_rule(WayBack& b) {
  b.give(0, maxpool2d_backward(b.grad(), b.output(1), {b.whole(0), b.whole(1)}, sliding_of(b, 2),
                               size_of(b.shape(0))));
}

// ---- Transformers -------------------------------------------------------------------------------

void embedding_rule(WayBack& b) {
  b.give(0, embedding_backward(b.grad(), b.input(1), b.shape(0)[0], b.home(0)));
}

// y, mean and rstd of rows of n elements. Mean: g / n for each. rstd: -g rstd^3 (x - mean) / n.
void layernorm_rule(WayBack& b) {
  const Tensor &x = b.input(0), &gain = b.input(1), &mean = b.output(1), &rstd = b.output(2);
  if (b.has_grad(0)) {
    const auto [of_x, of_gain, of_bias] =
        layernorm_backward(b.grad(), x, gain, mean, rstd, {{}, b.home(1), b.home(2)});
    if (b.wants(0)) b.give(0, of_x);
    if (b.wants(1)) b.give(1, of_gain);
    if (b.wants(2)) b.give(2, of_bias);
  }
  if (!b.wants(0)) return;
  const double share = 1 / static_cast<double>(x.shape()[x.rank() - 1]);
  if (b.has_grad(1)) b.give(0, scaled(b.grad(1), share).unsqueeze(-1).expand(x.shape()));
  if (b.has_grad(2)) {
    const Tensor slope = scaled(b.grad(2) * rstd * square(rstd), -share);
    b.give(0, slope.unsqueeze(-1) * (x - mean.unsqueeze(-1)));
  }
}

namespace {

// Memory for the gradients of q, k and v, one behind the other. Who has taken these from one
// tensor, as unbind() does, sees them as one then.
Triple together(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (!(q.shape() == k.shape() && q.shape() == v.shape())) return {};
  Shape all = q.shape();
  all.insert(0, 3);
  const Tensor memory = Tensor::empty(q.device(), all, q.dtype());
  return {memory.select(0, 0), memory.select(0, 1), memory.select(0, 2)};
}

}  // namespace

// out = P v and lse, where P = softmax(scale q k^T) and lse is what it divides by, as a logarithm.
// By lse: scale g P k for q, and scale P^T (g q) for k, which is what v gets from an out of g q.
void attention_rule(WayBack& b) {
  const Tensor &q = b.input(0), &k = b.input(1), &v = b.input(2), &lse = b.output(1);
  const bool is_causal = b.whole(0) != 0;
  const double scale = b.attribute(1);
  if (b.has_grad(0)) {
    const auto [of_q, of_k, of_v] =
        attention_backward(b.grad(), q, k, v, b.output(), lse, is_causal, scale, together(q, k, v));
    if (b.wants(0)) b.give(0, of_q);
    if (b.wants(1)) b.give(1, of_k);
    if (b.wants(2)) b.give(2, of_v);
  }
  if (!b.has_grad(1)) return;
  const Tensor g = scaled(b.grad(1), scale).unsqueeze(-1);
  if (b.wants(0)) b.give(0, g * attention(q, k, k, is_causal, scale).first);
  if (b.wants(1))
    b.give(1, attention_backward(g * q, q, k, v, b.output(), lse, is_causal, scale).third);
}

}  // namespace framework
