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
      if (b.dtype() != b.grad().dtype())  // factors of 16 bits
        return gelu_backward(b.grad(), linear(b.input(0), b.input(1), b.input(2)));
      return gelu_linear_backward(b.grad(), b.input(0), b.input(1), b.input(2));
    default:
      return b.grad();
  }
}

}  // namespace

// y = activation(x w^T + bias): g w, g^T x and the sum of g's rows.
void linear_rule(WayBack& b) {
  const Tensor g = rows_of(through_activation(b)), factor = g.to(b.dtype());
  if (b.wants(0)) b.give(0, reshaped(matmul(factor, b.input(1)), b.shape(0)));
  if (b.wants(1) && b.wants(2) && b.dtype() == g.dtype()) {
    const auto [of_w, of_bias] = linear_grad_w(g, rows_of(b.input(0)), {b.home(1), b.home(2)});
    return b.give(1, of_w), b.give(2, of_bias);
  }
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
  if (b.wants(1)) {
    const Pair homes{b.home(1), b.wants(2) ? b.home(2) : Tensor()};
    const auto [of_w, of_bias] =
        conv2d_grad_w(b.grad(), b.input(0), at, size_of(b.shape(1)), homes);
    b.give(1, of_w);
    if (b.wants(2)) b.give(2, of_bias);
  } else if (b.wants(2)) {
    b.give(2, sum(b.grad(), {0, 2, 3}, false, b.home(2)));
  }
}
void maxpool2d_rule(WayBack& b) {
  b.give(0, maxpool2d_backward(b.grad(), b.output(1), {b.whole(0), b.whole(1)}, sliding_of(b, 2),
                               size_of(b.shape(0))));
}

// ---- Transformers -------------------------------------------------------------------------------

void embedding_rule(WayBack& b) {
  b.give(0, embedding_backward(b.grad(), b.input(1), b.shape(0)[0], b.home(0)));
}

namespace {

// Of y, mean and rstd of rows of n elements: gradients of gain and bias are given, that of x is
// returned, added to grad_residual where that is defined. Mean: g / n for each. rstd:
// -g rstd^3 (x - mean) / n. `gain` is the number of that input.
Tensor through_layernorm(WayBack& b, const Tensor& x, int gain, Tensor grad_residual) {
  const Tensor &mean = b.output(1), &rstd = b.output(2);
  const double share = 1 / static_cast<double>(b.shape(0)[b.shape(0).rank() - 1]);
  const auto add_to_x = [&](const Tensor& grad) {
    grad_residual = grad_residual.is_defined() ? grad_residual + grad : grad;
  };
  if (b.has_grad(1)) add_to_x(scaled(b.grad(1), share).unsqueeze(-1).expand(x.shape()));
  if (b.has_grad(2)) {
    const Tensor slope = scaled(b.grad(2) * rstd * square(rstd), -share);
    add_to_x(slope.unsqueeze(-1) * (x - mean.unsqueeze(-1)));
  }
  if (!b.has_grad(0)) return grad_residual;
  const auto [of_x, of_gain, of_bias] = layernorm_backward(
      b.grad(), x, b.input(gain), mean, rstd, grad_residual, {{}, b.home(gain), b.home(gain + 1)});
  if (b.wants(gain)) b.give(gain, of_gain);
  if (b.wants(gain + 1)) b.give(gain + 1, of_bias);
  return of_x;
}

}  // namespace

void layernorm_rule(WayBack& b) {
  const Tensor of_x = through_layernorm(b, b.input(0), 1, {});
  if (b.wants(0)) b.give(0, of_x);
}
void add_layernorm_rule(WayBack& b) {
  const Tensor of_sum = through_layernorm(b, b.output(3), 2, b.grad(3));
  if (b.wants(0)) b.give(0, of_sum);
  if (b.wants(1)) b.give(1, of_sum);
}

namespace {

// Memory for the gradients of q, k and v, side by side for each token: (B, T, 3, H, D). Who has
// taken these from one tensor of rows (3 H D), as self_attention() does, sees them as one then.
// Undefined where they differ in shape.
Tensor together(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (!(q.shape() == k.shape() && q.shape() == v.shape())) return {};
  const Shape& s = q.shape();
  return Tensor::empty(q.device(), {s[0], s[2], 3, s[1], s[3]}, q.dtype());
}
Triple parts_of(const Tensor& memory) {
  if (!memory.is_defined()) return {};
  const auto part = [&](std::int64_t i) { return memory.select(2, i).transpose(1, 2); };
  return {part(0), part(1), part(2)};
}
// The gradient of out in out's type, with the heads as out has them.
Tensor like_out(const Tensor& grad, const Tensor& out) {
  if (grad.dtype() == out.dtype() || out.is_contiguous()) return grad.to(out.dtype());
  return grad.transpose(1, 2).to(out.dtype()).transpose(1, 2);
}

// Gradients of q, k and v, of their type, as those that a rule gives.
Triple through_attention(const WayBack& b) {
  const Tensor &q = b.input(0), &k = b.input(1), &v = b.input(2), &out = b.output();
  const Tensor memory = together(q, k, v);
  const Triple grads = attention_backward(like_out(b.grad(), out), q, k, v, out, b.output(1),
                                          b.whole(0) != 0, b.attribute(1), parts_of(memory));
  const Dtype type = b.grad_dtype();
  if (memory.is_defined()) return parts_of(memory.to(type));
  return {grads.first.to(type), grads.second.to(type), grads.third.to(type)};
}

}  // namespace

// out = P v and lse, where P = softmax(scale q k^T) and lse is what it divides by, as a logarithm.
// By lse: scale g P k for q, and scale P^T (g q) for k, which is what v gets from an out of g q.
// Where q, k and v are bf16, so are these operations, and their results are cast.
void attention_rule(WayBack& b) {
  const Tensor &q = b.input(0), &k = b.input(1), &v = b.input(2), &lse = b.output(1);
  const bool is_causal = b.whole(0) != 0;
  const double scale = b.attribute(1);
  if (b.has_grad(0)) {
    const auto [of_q, of_k, of_v] = through_attention(b);
    if (b.wants(0)) b.give(0, of_q);
    if (b.wants(1)) b.give(1, of_k);
    if (b.wants(2)) b.give(2, of_v);
  }
  if (!b.has_grad(1)) return;
  const Tensor g = scaled(b.grad(1), scale).unsqueeze(-1);
  const Dtype type = b.grad_dtype();
  if (b.wants(0)) b.give(0, g * attention(q, k, k, is_causal, scale).first.to(type));
  if (!b.wants(1)) return;
  const Tensor through = (g * q.to(type)).to(b.dtype());
  const Triple grads = attention_backward(through, q, k, v, b.output(), lse, is_causal, scale);
  b.give(1, grads.third.to(type));
}

}  // namespace framework
