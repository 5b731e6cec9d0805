// 7.6  transformer_block: attention and a feed-forward network, the layer that language models
// stack.
//
//   h = x + proj(attention(qkv(norm1(x))))          tokens look at the tokens before them
//   y = h + out(gelu(fc(norm2(h))))                 each token for itself
//
//   x --+-> norm1 -> qkv -> attention -> proj -> (+) -> h --+-> norm2 -> fc -> gelu -> out -> (+)
//   -> y
//       |                                         ^         |                                  ^
//       +-----------------------------------------+         +----------------------------------+
//
// What goes round a box is added to what comes out of it, so the gradient goes round it too: a
// block begins as nearly the identity however many are stacked. The normalizations stand in front
// of the boxes and not in the way around them (Xiong et al.: On layer normalization in the
// transformer architecture, arXiv:2002.04745; so does GPT-2).
//
// Everything in it has been taught. What is left is what stands between the products: how often do
// the activations go to memory and come back, and how many launches wait for one another? That is
// the ladder.
//
//   B sequences, T tokens in each, C channels, H heads of D = C / H      x, h, y (B, T, C)
//   weights are (out, in) with a bias, as torch.nn.Linear's; fc makes 4 C, q, k, v lie side by side
//
// All arrays are float, row-major, on the device, aligned to 4 bytes; outputs overlap no input. The
// same bits on every run of one device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/01_vector_add/vector_add.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/product.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage4_forward/01_dense/reference.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage5_training/02_activation_backward/activation_backward.h"
#include "stage5_training/05_sequential/reference.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/03_layernorm_backward/layernorm_backward.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/05_attention_backward/attention_backward.h"

namespace transformer_block {

using activations::GeluTanh;  // GPT-2's
using dense::Values;
using device_matrix::DeviceBuffer;
using sequential::Approximate;

// ---- Shapes and parameters --------------------------------------------------------------------

struct Shape {
  size_t B, T, C, H;
  size_t D() const { return C / H; }
  size_t rows() const { return B * T; }
};

inline constexpr size_t kExpansion = 4;   // fc makes so many times C
inline constexpr float kEpsilon = 1e-5f;  // of both normalizations, as in PyTorch

// Throws std::invalid_argument where no block is of this shape.
inline void check(const Shape& shape) {
  if (shape.B == 0 || shape.T == 0 || shape.C == 0 || shape.H == 0)
    throw std::invalid_argument("transformer_block: B, T, C and H must be at least 1");
  if (shape.C % shape.H != 0)
    throw std::invalid_argument("transformer_block: " + std::to_string(shape.C) +
                                " channels are no multiple of " + std::to_string(shape.H) +
                                " heads");
}

// A pointer for each parameter of a block, or for its gradient.
template <class Pointer>
struct Tensors {
  Pointer norm1_gain, norm1_bias;  // (C), (C)
  Pointer qkv_w, qkv_bias;         // (3 C, C), (3 C)
  Pointer proj_w, proj_bias;       // (C, C), (C)
  Pointer norm2_gain, norm2_bias;  // (C), (C)
  Pointer fc_w, fc_bias;           // (4 C, C), (4 C)
  Pointer out_w, out_bias;         // (C, 4 C), (C)
};
using Parameters = Tensors<const float*>;
using Gradients = Tensors<float*>;

struct ParameterShape {
  const char* name;
  std::vector<size_t> shape;
};

// Names and shapes, in the order of Tensors.
inline std::vector<ParameterShape> parameter_shapes(size_t C) {
  const size_t wide = kExpansion * C;
  return {{"norm1.weight", {C}}, {"norm1.bias", {C}},       {"qkv.weight", {3 * C, C}},
          {"qkv.bias", {3 * C}}, {"proj.weight", {C, C}},   {"proj.bias", {C}},
          {"norm2.weight", {C}}, {"norm2.bias", {C}},       {"fc.weight", {wide, C}},
          {"fc.bias", {wide}},   {"out.weight", {C, wide}}, {"out.bias", {C}}};
}
inline constexpr size_t kTensors = 12;

// Tensors from a list in their order.
template <class Pointer, class List>
Tensors<Pointer> tensors_of(const List& list) {
  return {list[0], list[1], list[2], list[3], list[4],  list[5],
          list[6], list[7], list[8], list[9], list[10], list[11]};
}

// The four products' layers.
struct Layers {
  dense::Layer qkv, proj, fc, out;
};
inline Layers layers(const Shape& shape, const Parameters& p) {
  const size_t C = shape.C, wide = kExpansion * C;
  return {{C, 3 * C, p.qkv_w, p.qkv_bias},
          {C, C, p.proj_w, p.proj_bias},
          {C, wide, p.fc_w, p.fc_bias},
          {wide, C, p.out_w, p.out_bias}};
}

// ---- Reference and bound ----------------------------------------------------------------------
// The block in double. Every number carries how far a float version is likely to be from it: what
// its operands are off, through the derivative of the operation, and the operation's own rounding.
// Worst cases would be multiplied by the sum of a row's |w| in each product, and after four of them
// no mistake could break the bound. But roundings are independent, or nearly so, and as often up as
// down: their squares add up. A sum of n terms is then off by sqrt(n) u times the sum of their
// sizes where the worst case says n u, but with a probability of 2 exp(-k^2 / 2) by more than k
// times that (Higham and Mary: A new approach to probabilistic rounding error analysis, SIAM J.
// Sci. Comput. 41, 2019, theorem 3.1). k = 8 makes it 3e-14.
inline constexpr double kConfidence = 8;

inline Approximate rounded(double value, double inherited) {
  return {value, std::hypot(inherited, kFloatRoundoff * value)};
}
inline Approximate operator+(Approximate a, Approximate b) {
  return rounded(a.value + b.value, std::hypot(a.error, b.error));
}
inline Approximate operator-(Approximate a, Approximate b) {
  return rounded(a.value - b.value, std::hypot(a.error, b.error));
}
inline Approximate operator*(Approximate a, Approximate b) {
  return rounded(a.value * b.value, std::hypot(a.value * b.error, a.error * b.value));
}
inline Approximate exactly(float value) { return {static_cast<double>(value), 0}; }
inline Approximate rounded(double value) { return rounded(value, 0); }

// A sum of products in any order, fused or not.
class Sum {
 public:
  void add(Approximate a, Approximate b = {1, 0}) {
    const double left = a.value * b.error, right = a.error * b.value;
    value_ += a.value * b.value, absolute_ += std::fabs(a.value * b.value);
    inherited_ += left * left + right * right, ++terms_;
  }
  Approximate result() const {
    const double own = std::sqrt(terms_) * kFloatRoundoff * absolute_;
    return {value_, std::sqrt(inherited_ + own * own)};
  }

 private:
  double value_ = 0, absolute_ = 0, inherited_ = 0, terms_ = 0;
};

inline Values zeros(size_t n) { return {std::vector<double>(n), std::vector<double>(n)}; }
inline void put(Values& values, size_t i, Approximate a) {
  values.value[i] = a.value, values.error[i] = a.error;
}
inline Values added(const Values& a, const Values& b) {
  Values sum = a;
  for (size_t i = 0; i < sum.value.size(); ++i)
    put(sum, i, sequential::at(a, i) + sequential::at(b, i));
  return sum;
}
// What a result is held against.
inline Values bounded(Values values) {
  for (double& error : values.error) error = kConfidence * error + activations::kTiny;
  return values;
}

// y (rows, out) = x (rows, in) w^T + bias, and the gradients of x, w and bias.
inline Values linear_cpu(const Values& x, const std::vector<float>& w,
                         const std::vector<float>& bias, size_t rows) {
  const size_t in = x.value.size() / rows, out = bias.size();
  Values y = zeros(rows * out);
  for (size_t i = 0; i < rows * out; ++i) {
    Sum sum;
    for (size_t k = 0; k < in; ++k)
      sum.add(sequential::at(x, i / out * in + k), exactly(w[i % out * in + k]));
    put(y, i, sum.result() + exactly(bias[i % out]));
  }
  return y;
}
inline Values linear_backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                                  const Values& x, const std::vector<float>& w, size_t rows) {
  const size_t in = x.value.size() / rows, out = grad_y.value.size() / rows;
  std::vector<Sum> of_x(rows * in), of_w(out * in), of_bias(out);
  for (size_t row = 0; row < rows; ++row)
    for (size_t o = 0; o < out; ++o) {
      const Approximate grad = sequential::at(grad_y, row * out + o);
      of_bias[o].add(grad);
      for (size_t k = 0; k < in; ++k) {
        of_x[row * in + k].add(grad, exactly(w[o * in + k]));
        of_w[o * in + k].add(grad, sequential::at(x, row * in + k));
      }
    }
  const auto results = [](const std::vector<Sum>& sums) {
    Values values = zeros(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) put(values, i, sums[i].result());
    return values;
  };
  gradients.push_back(results(of_w)), gradients.push_back(results(of_bias));
  return results(of_x);
}

inline Values gelu_cpu(Values x) {
  for (size_t i = 0; i < x.value.size(); ++i) {
    const double moved = GeluTanh::derivative_cpu(x.value[i]) * x.error[i];
    put(x, i, {GeluTanh::cpu(x.value[i]), std::hypot(moved, GeluTanh::bound(x.value[i]))});
  }
  return x;
}
inline Values gelu_backward_cpu(Values grad, const Values& x) {
  for (size_t i = 0; i < x.value.size(); ++i) {
    const double moved = sequential::kSharpest * x.error[i];
    put(grad, i,
        sequential::at(grad, i) *
            Approximate{GeluTanh::derivative_cpu(x.value[i]),
                        std::hypot(moved, GeluTanh::derivative_bound(x.value[i]))});
  }
  return grad;
}

// (x - mean) rstd of each row, and rstd. A version may take the mean of x - x[r,0], whose elements
// are up to `spread` from 0, and the variance in one pass, with an error that grows with sqrt(1 +
// mean^2 / variance) (Chan, Golub, LeVeque: Algorithms for computing the sample variance, 1983,
// section 3). 4 u for the root and its reciprocal.
struct Normalized {
  Values hat, rstd;
};
inline Normalized normalized_cpu(const Values& x, size_t rows, size_t cols) {
  using sequential::at;
  Normalized result{zeros(rows * cols), zeros(rows)};
  const double n = static_cast<double>(cols);
  for (size_t row = 0; row < rows; ++row) {
    Sum sum;
    double spread = 0;
    for (size_t i = row * cols; i < (row + 1) * cols; ++i) {
      sum.add(at(x, i));
      spread = std::fmax(spread, std::fabs(x.value[i] - x.value[row * cols]));
    }
    Approximate mean = sum.result() * rounded(1 / n);
    mean.error = std::hypot(mean.error, std::sqrt(n + 8) * kFloatRoundoff * spread);
    double variance = 0, moved = 0;
    for (size_t i = row * cols; i < (row + 1) * cols; ++i) {
      const Approximate centred = at(x, i) - mean;
      variance += centred.value * centred.value / n;
      moved += std::pow(2 * centred.value * centred.error / n, 2);
    }
    const double size = std::sqrt(variance * (variance + mean.value * mean.value));
    const double off = std::sqrt(moved) + std::sqrt(2 * n + 8) * kFloatRoundoff * size;
    const double divisor = variance + static_cast<double>(kEpsilon), root = 1 / std::sqrt(divisor);
    put(result.rstd, row, {root, root * std::hypot(off / (2 * divisor), 4 * kFloatRoundoff)});
    for (size_t i = row * cols; i < (row + 1) * cols; ++i)
      put(result.hat, i, (at(x, i) - mean) * at(result.rstd, row));
  }
  return result;
}

inline Values scaled_cpu(const Normalized& x, const std::vector<float>& gain,
                         const std::vector<float>& bias) {
  Values y = x.hat;
  for (size_t i = 0; i < y.value.size(); ++i)
    put(y, i,
        sequential::at(x.hat, i) * exactly(gain[i % gain.size()]) + exactly(bias[i % bias.size()]));
  return y;
}

// grad_x = rstd (g - mean(g) - hat mean(g hat)) of each row with g = grad_y gain; appends the
// gradients of gain and bias.
inline Values normalized_backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                                      const Normalized& x, const std::vector<float>& gain) {
  using sequential::at;
  const size_t cols = gain.size(), rows = grad_y.value.size() / cols;
  const Approximate share = rounded(1 / static_cast<double>(cols));
  Values grad_x = zeros(rows * cols);
  std::vector<Sum> of_gain(cols), of_bias(cols);
  for (size_t row = 0; row < rows; ++row) {
    Sum sum, product;
    for (size_t c = 0; c < cols; ++c) {
      const Approximate grad = at(grad_y, row * cols + c), hat = at(x.hat, row * cols + c);
      const Approximate of_hat = grad * exactly(gain[c]);
      sum.add(of_hat), product.add(of_hat, hat);
      of_gain[c].add(grad, hat), of_bias[c].add(grad);
    }
    const Approximate mean = sum.result() * share, slope = product.result() * share;
    for (size_t c = 0; c < cols; ++c) {
      const size_t i = row * cols + c;
      const Approximate of_hat = at(grad_y, i) * exactly(gain[c]);
      put(grad_x, i, (of_hat - mean - at(x.hat, i) * slope) * at(x.rstd, row));
    }
  }
  for (const std::vector<Sum>& sums : {of_gain, of_bias}) {
    gradients.push_back(zeros(cols));
    for (size_t c = 0; c < cols; ++c) put(gradients.back(), c, sums[c].result());
  }
  return grad_x;
}

// Causal attention over packed q, k, v (B, T, 3, H, D). Probabilities P (B, H, T, T) are kept.
// P = exp(s) / sum of exp(s): where a score is off by e, P is relatively off by e, and by the mean
// of all e, weighted by P. To that come softmax's own roundings, as step 3.2 counts them, of a
// version that rescales its sum at every key; and those of the logarithm of the sum, which the
// backward pass has in place of the sum.
struct Attended {
  Values y, probabilities;
};
inline Attended attention_cpu(const Values& qkv, const Shape& shape) {
  using sequential::at;
  const size_t T = shape.T, C = shape.C, D = shape.D();
  const Approximate scale = rounded(1 / std::sqrt(static_cast<double>(D)));
  Attended result{zeros(shape.rows() * C), zeros(shape.B * shape.H * T * T)};
  for (size_t head = 0; head < shape.B * shape.H; ++head) {
    const size_t b = head / shape.H, channel = head % shape.H * D;
    const auto part = [&](size_t which, size_t t, size_t d) {
      return at(qkv, ((b * T + t) * 3 + which) * C + channel + d);
    };
    for (size_t i = 0; i < T; ++i) {
      std::vector<Approximate> scores;
      double max = -std::numeric_limits<double>::infinity(), total = 0, mean = 0;
      for (size_t j = 0; j <= i; ++j) {
        Sum sum;
        for (size_t d = 0; d < D; ++d) sum.add(part(0, i, d), part(1, j, d));
        scores.push_back(sum.result() * scale);
        max = std::fmax(max, scores.back().value);
      }
      for (const Approximate& score : scores) total += std::exp(score.value - max);
      const double n = static_cast<double>(i + 1), log_sum = std::fabs(max + std::log(total));
      for (Approximate& score : scores) {
        const double own = 3 * (max - score.value) + std::sqrt(6 * n + 8) + log_sum;
        score.error = std::hypot(score.error, kFloatRoundoff * own);
        mean += std::pow(std::exp(score.value - max) / total * score.error, 2);
      }
      std::vector<Sum> sums(D);
      for (size_t j = 0; j <= i; ++j) {
        const double p = std::exp(scores[j].value - max) / total;
        const Approximate probability{p, p * std::sqrt(mean + std::pow(scores[j].error, 2))};
        put(result.probabilities, (head * T + i) * T + j, probability);
        for (size_t d = 0; d < D; ++d) sums[d].add(probability, part(2, j, d));
      }
      for (size_t d = 0; d < D; ++d) put(result.y, (b * T + i) * C + channel + d, sums[d].result());
    }
  }
  return result;
}

// grad_qkv of grad_y: with gP = grad_y v^T, gS = P (gP - sum over keys of P gP), the latter also
// being the sum over d of grad_y y.
inline Values attention_backward_cpu(const Values& grad_y, const Values& qkv, const Attended& a,
                                     const Shape& shape) {
  using sequential::at;
  const size_t T = shape.T, C = shape.C, D = shape.D();
  const Approximate scale = rounded(1 / std::sqrt(static_cast<double>(D)));
  std::vector<Sum> sums(qkv.value.size());
  for (size_t head = 0; head < shape.B * shape.H; ++head) {
    const size_t b = head / shape.H, channel = head % shape.H * D;
    const auto place = [&](size_t which, size_t t, size_t d) {
      return ((b * T + t) * 3 + which) * C + channel + d;
    };
    for (size_t i = 0; i < T; ++i) {
      Sum through_y, through_p;
      std::vector<Approximate> grad_p;
      const auto grad = [&](size_t d) { return at(grad_y, (b * T + i) * C + channel + d); };
      for (size_t d = 0; d < D; ++d) through_y.add(grad(d), at(a.y, (b * T + i) * C + channel + d));
      for (size_t j = 0; j <= i; ++j) {
        Sum sum;
        for (size_t d = 0; d < D; ++d) sum.add(grad(d), at(qkv, place(2, j, d)));
        grad_p.push_back(sum.result());
        through_p.add(grad_p.back(), at(a.probabilities, (head * T + i) * T + j));
      }
      // Both ways to the same number; a version takes one of them.
      Approximate total = through_y.result();
      total.error = std::fmax(total.error, through_p.result().error);
      for (size_t j = 0; j <= i; ++j) {
        const Approximate p = at(a.probabilities, (head * T + i) * T + j);
        const Approximate grad_s = p * (grad_p[j] - total) * scale;
        for (size_t d = 0; d < D; ++d) {
          sums[place(0, i, d)].add(grad_s, at(qkv, place(1, j, d)));
          sums[place(1, j, d)].add(grad_s, at(qkv, place(0, i, d)));
          sums[place(2, j, d)].add(p, grad(d));
        }
      }
    }
  }
  Values grad_qkv = zeros(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) {
    const Approximate sum = sums[i].result();
    put(grad_qkv, i, rounded(sum.value, sum.error));  // the scale may come last
  }
  return grad_qkv;
}

// The forward pass, with all that the backward pass needs.
struct ForwardReference {
  Normalized hat1, hat2;
  Values norm1, qkv, h, norm2, sums, hidden, y;
  Attended attended;
};

// `p` in the order of Tensors.
inline ForwardReference forward_cpu(const Values& x, const std::vector<std::vector<float>>& p,
                                    const Shape& shape) {
  const size_t rows = shape.rows(), C = shape.C;
  ForwardReference f;
  f.hat1 = normalized_cpu(x, rows, C);
  f.norm1 = scaled_cpu(f.hat1, p[0], p[1]);
  f.qkv = linear_cpu(f.norm1, p[2], p[3], rows);
  f.attended = attention_cpu(f.qkv, shape);
  f.h = added(x, linear_cpu(f.attended.y, p[4], p[5], rows));
  f.hat2 = normalized_cpu(f.h, rows, C);
  f.norm2 = scaled_cpu(f.hat2, p[6], p[7]);
  f.sums = linear_cpu(f.norm2, p[8], p[9], rows);
  f.hidden = gelu_cpu(f.sums);
  f.y = added(f.h, linear_cpu(f.hidden, p[10], p[11], rows));
  return f;
}

// y, grad_x and the parameters' gradients, in the order of Tensors.
struct Reference {
  Values y, grad_x;
  std::vector<Values> gradients;
};

// Forward and backward of x and grad_y (B, T, C); the errors are bounds.
inline Reference block_cpu(const std::vector<float>& x, const std::vector<float>& grad_y,
                           const std::vector<std::vector<float>>& p, const Shape& shape) {
  const size_t rows = shape.rows();
  const ForwardReference f = forward_cpu(dense::exactly(x), p, shape);
  const Values grad = dense::exactly(grad_y);
  std::vector<Values> norm1, qkv, proj, norm2, fc, out;
  const Values grad_sums =
      gelu_backward_cpu(linear_backward_cpu(out, grad, f.hidden, p[10], rows), f.sums);
  const Values grad_norm2 = linear_backward_cpu(fc, grad_sums, f.norm2, p[8], rows);
  const Values grad_h = added(grad, normalized_backward_cpu(norm2, grad_norm2, f.hat2, p[6]));
  const Values grad_attended = linear_backward_cpu(proj, grad_h, f.attended.y, p[4], rows);
  const Values grad_qkv = attention_backward_cpu(grad_attended, f.qkv, f.attended, shape);
  const Values grad_norm1 = linear_backward_cpu(qkv, grad_qkv, f.norm1, p[2], rows);
  const Values grad_x = added(grad_h, normalized_backward_cpu(norm1, grad_norm1, f.hat1, p[0]));
  Reference result{bounded(f.y), bounded(grad_x), {}};
  for (const std::vector<Values>& part : {norm1, qkv, proj, norm2, fc, out})
    for (const Values& gradient : part) result.gradients.push_back(bounded(gradient));
  return result;
}

// ---- Memory -----------------------------------------------------------------------------------

// How a version runs: see kVersions.
struct Mode {
  bool flash;  // attention without the T x T matrix
  bool fuse;   // epilogues do what stands between the products
  bool group;  // the four weights' gradients in one launch
};

inline attention::Problem attention_problem(const Shape& shape) {
  const float scale = 1 / std::sqrt(static_cast<float>(shape.D()));
  return {shape.B, shape.H, shape.T, shape.T, shape.D(), true, scale};
}

// What a forward pass of this mode keeps for the backward pass.
struct Kept {
  explicit Kept(const Shape& shape, const Mode& mode)
      : norm1(shape.rows() * shape.C),
        qkv(3 * shape.rows() * shape.C),
        attended(shape.rows() * shape.C),
        h(shape.rows() * shape.C),
        norm2(shape.rows() * shape.C),
        sums(kExpansion * shape.rows() * shape.C),
        hidden(kExpansion * shape.rows() * shape.C),
        statistics(4 * shape.rows()),
        lse(shape.rows() * shape.H),
        attention(mode.flash ? attention_backward::memory_of_flash(attention_problem(shape))
                             : attention_backward::memory_of_composed(attention_problem(shape))) {}

  size_t bytes() const {
    return norm1.bytes() + qkv.bytes() + attended.bytes() + h.bytes() + norm2.bytes() +
           sums.bytes() + hidden.bytes() + statistics.bytes() + lse.bytes() + attention.bytes();
  }

  DeviceBuffer<float> norm1, qkv, attended, h, norm2;
  DeviceBuffer<float> sums, hidden;  // of fc, before and behind GELU
  DeviceBuffer<float> statistics;    // mean and 1 / deviation of norm1's rows, then of norm2's
  DeviceBuffer<float> lse;           // of attention's rows
  DeviceBuffer<float> attention;     // its memory, with the T x T matrices where they are kept
};

// ---- All weights' gradients in one launch -----------------------------------------------------

// A layer's weights and bias: w (out, in) = grad_y^T x, bias (out) = the sum of grad_y's rows, for
// grad_y (rows, out) and x (rows, in).
struct WeightTask {
  const float* grad_y;
  const float* x;
  size_t out, in;
  float* w;
  float* bias;  // nullptr: there is none
};

inline constexpr unsigned kMostTasks = 4;
inline constexpr size_t kSliceRows = 64;           // the least rows of a slice
inline constexpr size_t kBlocksWanted = 2;         // of weight_slices, per multiprocessor
inline constexpr double kGroupedOperations = 8e9;  // beyond, each product fills the device alone

#if defined(GPU_BACKEND_CPU)
using WeightTile = gemm::Shape<64, 64, 32, 8, 16>;
using WeightPlaces = gemm::BlockedTiles<WeightTile>;
#else
using WeightTile = gemm::Shape<64, 64, 16, 4, 4, 3>;
using WeightPlaces = gemm::WaveTiles<WeightTile>;
#endif

// The tasks of a launch. Tiles and results of all tasks are numbered through.
struct TaskList {
  WeightTask tasks[kMostTasks];
  unsigned tile_ends[kMostTasks];  // of the tiles of each task
  size_t sum_ends[kMostTasks];     // of the results of each task: out x in, then out for the bias
  unsigned count;
  size_t rows, slice;  // rows of all, and of a slice

  unsigned tiles() const { return tile_ends[count - 1]; }
  size_t results() const { return sum_ends[count - 1]; }
  unsigned slices() const { return static_cast<unsigned>(gpu::ceil_div(rows, slice)); }
  __device__ unsigned tiles_before(unsigned task) const {
    return task == 0 ? 0 : tile_ends[task - 1];
  }
  __device__ size_t sums_before(unsigned task) const { return task == 0 ? 0 : sum_ends[task - 1]; }
};

inline TaskList list_tasks(const std::vector<WeightTask>& tasks, size_t rows) {
  if (tasks.empty() || tasks.size() > kMostTasks)
    throw std::invalid_argument("transformer_block: a launch takes 1 to " +
                                std::to_string(kMostTasks) + " weights' gradients");
  TaskList list{};
  unsigned tiles = 0;
  size_t results = 0;
  for (const WeightTask& task : tasks) {
    tiles += static_cast<unsigned>(gpu::ceil_div(task.out, WeightTile::kTileM) *
                                   gpu::ceil_div(task.in, WeightTile::kTileN));
    results += gpu::ceil_div(task.out * task.in + task.out, 4) * 4;  // the next one is aligned
    list.tasks[list.count] = task;
    list.tile_ends[list.count] = tiles, list.sum_ends[list.count] = results;
    ++list.count;
  }
  list.rows = rows;
  const size_t wanted = size_t{gpu::multiprocessors()} * kBlocksWanted / std::max(tiles, 1u);
  const size_t slices = std::max(std::min(wanted, rows / kSliceRows), size_t{1});
  list.slice = gpu::ceil_div(gpu::ceil_div(rows, slices), WeightTile::kTileK) * WeightTile::kTileK;
  return list;
}

// How many floats of sums the launches of these tasks need.
inline size_t sums_of(const std::vector<WeightTask>& tasks, size_t rows) {
  const TaskList list = list_tasks(tasks, rows);
  return list.results() * list.slices();
}

// sums[slice] = grad_y^T x and the sums of grad_y's columns, over a slice of the rows, of all tasks
// grad_y (rows, out), x (rows, in), sums (slices, results).
// Fixes : each weight's gradient is a few tiles of long sums: four products are four launches that
//         leave the device idle, and four more that add slices, and each bias reads grad_y again.
// Idea  : the tiles of all weights and slices are one grid. The block that has columns of grad_y in
//         shared memory anyway adds them up: the bias's gradient is free.
// Thread: as in step 2.3's wave_tiled; thread i also owns column i of the tile's grad_y.
// Costs : 1 barrier per tile of rows; slices * results floats that come back in add_slices.
template <class Shape, class Places, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    weight_slices(TaskList list, float* sums) {
  __shared__ gemm::Tiles<Shape> tiles[2];
  constexpr int kColumns = (Shape::kTileM + Shape::kThreads - 1) / Shape::kThreads;
  const int thread = static_cast<int>(threadIdx.x);
  unsigned number = 0;
  while (blockIdx.x >= list.tile_ends[number]) ++number;
  const WeightTask task = list.tasks[number];
  const size_t tile = blockIdx.x - list.tiles_before(number);
  const size_t across = gpu::ceil_div(task.in, Shape::kTileN);
  const gemm::TileOrigin corner{tile / across * Shape::kTileM, tile % across * Shape::kTileN};
  const size_t first = blockIdx.y * list.slice;
  size_t left = min(list.slice, list.rows - first);

  gemm::TileLoader<false, kAligned, Shape::kTileK, Shape::kTileM, Shape::kThreads> a(
      {task.grad_y, task.out, 1, list.rows, task.out}, first, corner.row, thread);
  gemm::TileLoader<false, kAligned, Shape::kTileK, Shape::kTileN, Shape::kThreads> b(
      {task.x, task.in, 1, list.rows, task.in}, first, corner.col, thread);
  const auto load_next = [&] {
    const int lines = gemm::depth_of_tile<Shape>(left);
    a.load(lines), b.load(lines);
    left -= lines;
  };
  const gemm::ThreadTile place = Places::of(thread);
  const bool sums_bias = task.bias != nullptr && corner.col == 0;
  float products[Shape::kThreadM][Shape::kThreadN] = {}, columns[kColumns] = {};

  const size_t steps = gpu::ceil_div(left, Shape::kTileK);
  load_next();
  for (size_t step = 0; step < steps; ++step) {
    gemm::Tiles<Shape>& current = tiles[step % 2];
    a.store(current.a), b.store(current.b);
    __syncthreads();  // this tile is in shared memory, and all lines of the one before were read
    load_next();      // nothing, in the last step
    // exercise: multiply the tile's lines, and add up this thread's columns of grad_y (about 10
    // lines)
    GPU_UNROLL
    for (int k = 0; k < Shape::kTileK; ++k) {
      float held_a[Shape::kThreadM], held_b[Shape::kThreadN];
      gemm::load_fragment(held_a, &current.a[k][place.row], place.row_step);
      gemm::load_fragment(held_b, &current.b[k][place.col], place.col_step);
      gemm::add_outer_product(products, held_a, held_b);
    }
    for (int c = 0; sums_bias && c < kColumns; ++c) {
      const int column = thread + c * Shape::kThreads;
      for (int k = 0; column < Shape::kTileM && k < Shape::kTileK; ++k)
        columns[c] += current.a[k][column];
    }
    // end exercise
  }

  float* const to = sums + (blockIdx.y * list.sum_ends[list.count - 1] + list.sums_before(number));
  gemm::Product p;
  p.M = task.out, p.N = task.in, p.c = to, p.ldc = task.in;
  gemm::store_tile<Shape>(p, gemm::AlphaBeta{1, 0}, corner, place, products);
  for (int c = 0; sums_bias && c < kColumns; ++c) {
    const int column = thread + c * Shape::kThreads;
    if (column < Shape::kTileM && corner.row + column < task.out)
      to[task.out * task.in + corner.row + column] = columns[c];
  }
}

// w and bias of all tasks = their sums over all slices, in the slices' order    sums (slices,
// results).
// Fixes : a weight's gradient lies in as many parts as there are slices.
// Idea  : one launch for all weights and biases; the parts are in the L2 cache still.
// Thread: t owns result t.
// Costs : 4 results (slices + 1) bytes.
static __global__ void add_slices(TaskList list, const float* sums, unsigned slices) {
  const size_t results = list.sum_ends[list.count - 1];
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= results) return;
  unsigned number = 0;
  while (i >= list.sum_ends[number]) ++number;
  const WeightTask task = list.tasks[number];
  const size_t place = i - list.sums_before(number), weights = task.out * task.in;
  const bool is_bias = place >= weights;
  if (is_bias && (task.bias == nullptr || place >= weights + task.out)) return;  // a gap
  float sum = 0;
  for (unsigned s = 0; s < slices; ++s) sum += sums[s * results + i];
  (is_bias ? task.bias : task.w)[is_bias ? place - weights : place] = sum;
}

// The gradients of up to kMostTasks layers, of which the grad_y and x have `rows` rows each. `sums`
// has room for sums_of(tasks, rows) floats.
inline void weight_gradients(const std::vector<WeightTask>& tasks, size_t rows, float* sums,
                             hipStream_t stream = nullptr) {
  const TaskList list = list_tasks(tasks, rows);
  if (list.results() == 0) return;
  bool aligned = true;
  for (const WeightTask& task : tasks)
    aligned = aligned && gemm::rows_are_aligned(task.grad_y, task.out, 0) &&
              gemm::rows_are_aligned(task.x, task.in, 0);
  constexpr unsigned kThreads = WeightTile::kThreads, kBlock = 256;
  const dim3 grid(list.tiles(), list.slices());
  if (aligned)
    LAUNCH_ON(stream, (weight_slices<WeightTile, WeightPlaces, true>), grid, kThreads, 0, list,
              sums);
  else
    LAUNCH_ON(stream, (weight_slices<WeightTile, WeightPlaces, false>), grid, kThreads, 0, list,
              sums);
  LAUNCH_ON(stream, add_slices, static_cast<unsigned>(gpu::ceil_div(list.results(), kBlock)),
            kBlock, 0, list, sums, list.slices());
}

// ---- Epilogues --------------------------------------------------------------------------------
// What step 2.3's kernels do to a sum while it is in a register.

// sums = sum + bias, kept for the backward pass; GELU of it is what is stored.
struct KeepAndActivate {
  const float* bias;
  float* sums;
  size_t cols;
  __device__ float operator()(float sum, size_t row, size_t col, const float*) const {
    // exercise: add the bias, keep the sum, return its GELU (about 3 lines)
    const float kept = sum + bias[col];
    sums[row * cols + col] = kept;
    return GeluTanh{}(kept);
    // end exercise
  }
};

// sum + bias + what went round the box.
struct AddResidual {
  const float* bias;
  const float* residual;
  size_t cols;
  __device__ float operator()(float sum, size_t row, size_t col, const float*) const {
    return residual[row * cols + col] + (sum + bias[col]);
  }
};

// The gradient of GELU's argument from that of its result.
struct TimesSlope {
  const float* sums;
  size_t cols;
  __device__ float operator()(float sum, size_t row, size_t col, const float*) const {
    return sum * GeluTanh{}.derivative(sums[row * cols + col]);
  }
};

// A product with one of these epilogues. Compiled once, in transformer_block_instances.hip.
template <gemm::Layout kLayout, class Epilogue>
void multiply(const gemm::Product& p, const Epilogue& epilogue, hipStream_t stream) {
  gemm::best<gemm::Layouts<kLayout>>(p, epilogue, stream);
}
extern template void multiply<gemm::Layout::NT>(const gemm::Product&, const KeepAndActivate&,
                                                hipStream_t);
extern template void multiply<gemm::Layout::NT>(const gemm::Product&, const AddResidual&,
                                                hipStream_t);
extern template void multiply<gemm::Layout::NN>(const gemm::Product&, const TimesSlope&,
                                                hipStream_t);

// ---- Memory of a backward pass ----------------------------------------------------------------

inline bool is_grouped(const Shape& shape) {
  const double C = static_cast<double>(shape.C);
  return 24 * static_cast<double>(shape.rows()) * C * C <= kGroupedOperations;
}

// The gradients of what Kept keeps, and what the parts' backward passes need.
struct Workspace {
  explicit Workspace(const Shape& shape)
      : grad_hidden(kExpansion * shape.rows() * shape.C),
        grad_norm(shape.rows() * shape.C),
        grad_h(shape.rows() * shape.C),
        grad_attended(shape.rows() * shape.C),
        grad_qkv(3 * shape.rows() * shape.C),
        norm(shape.rows(), shape.C),
        qkv(shape.rows(), shape.C, 3 * shape.C),
        proj(shape.rows(), shape.C, shape.C),
        fc(shape.rows(), shape.C, kExpansion * shape.C),
        out(shape.rows(), kExpansion * shape.C, shape.C) {
    check(shape);
    if (is_grouped(shape)) {
      const size_t C = shape.C, wide = kExpansion * C;
      sums = DeviceBuffer<float>(sums_of({{nullptr, nullptr, 3 * C, C, nullptr, nullptr},
                                          {nullptr, nullptr, C, C, nullptr, nullptr},
                                          {nullptr, nullptr, wide, C, nullptr, nullptr},
                                          {nullptr, nullptr, C, wide, nullptr, nullptr}},
                                         shape.rows()));
    }
  }

  DeviceBuffer<float> grad_hidden, grad_norm, grad_h, grad_attended, grad_qkv;
  DeviceBuffer<float> sums;  // of weight_gradients
  layernorm_backward::Workspace norm;
  dense_backward::Workspace qkv, proj, fc, out;
};

// ---- Forward ----------------------------------------------------------------------------------

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

inline void attend(Kept& kept, const Shape& shape, const Mode& mode, hipStream_t stream) {
  const auto from = heads_of_qkv(static_cast<const float*>(kept.qkv.data()), shape);
  const attention::View out = heads_of(kept.attended.data(), shape);
  const attention::Problem problem = attention_problem(shape);
  if (mode.flash)
    attention::forward(out, kept.lse.data(), from.q, from.k, from.v, problem, stream);
  else
    attention::launch_composed(out, kept.lse.data(), from.q, from.k, from.v, problem,
                               kept.attention.data(), stream);
}

inline void add(float* sum, const float* a, const float* b, size_t n, hipStream_t stream) {
  vector_add::launch_vectorized_add(sum, a, b, n, stream);
}

// y = x w^T + bias, by step 4.1: with the bias in the epilogue, or in a launch of its own.
inline void linear(float* y, const float* x, size_t rows, const dense::Layer& layer,
                   const Mode& mode, hipStream_t stream) {
  if (mode.fuse)
    dense::forward<dense::Linear>(y, x, rows, layer, stream);
  else
    dense::launch_separate<dense::Linear>(y, x, rows, layer, {}, stream);
}

// y = residual + x w^T + bias.
inline void linear_beside(float* y, const float* residual, const float* x, size_t rows,
                          const dense::Layer& layer, const Mode& mode, hipStream_t stream) {
  if (mode.fuse)
    return multiply<gemm::Layout::NT>(dense::product(y, x, rows, layer),
                                      AddResidual{layer.bias, residual, layer.out}, stream);
  linear(y, x, rows, layer, mode, stream);
  add(y, residual, y, rows * layer.out, stream);
}

// y (B, T, C) from x, queued on `stream`.
inline void forward(float* y, const float* x, const Parameters& p, const Shape& shape, Kept& kept,
                    const Mode& mode, hipStream_t stream = nullptr) {
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
  if (mode.fuse) {
    multiply<gemm::Layout::NT>(dense::product(kept.hidden.data(), kept.norm2.data(), rows, to.fc),
                               KeepAndActivate{p.fc_bias, kept.sums.data(), to.fc.out}, stream);
  } else {
    linear(kept.sums.data(), kept.norm2.data(), rows, to.fc, mode, stream);
    matrix_activations::launch_activation<GeluTanh>(kept.hidden.data(), kept.sums.data(), rows,
                                                    to.fc.out, stream);
  }
  linear_beside(y, kept.h.data(), kept.hidden.data(), rows, to.out, mode, stream);
}

// ---- Backward ---------------------------------------------------------------------------------

inline void attend_backward(Kept& kept, Workspace& w, const Shape& shape, const Mode& mode,
                            hipStream_t stream) {
  const auto from = heads_of_qkv(static_cast<const float*>(kept.qkv.data()), shape);
  const auto to = heads_of_qkv(w.grad_qkv.data(), shape);
  const attention::ConstView grad_out = heads_of(w.grad_attended.data(), shape),
                             out = heads_of(kept.attended.data(), shape);
  const auto backward =
      mode.flash ? attention_backward::launch_flash : attention_backward::launch_composed;
  backward(to.q, to.k, to.v, grad_out, out, kept.lse.data(), from.q, from.k, from.v,
           attention_problem(shape), kept.attention.data(), stream);
}

// What lies on the way from grad_y to grad_x, and the gradients of the normalizations' parameters.
// Where the weights' gradients are not left to weights_backward, it also has each layer make its
// own, as step 5.1 does.
inline void chain_backward(const Gradients& grad, float* grad_x, const float* grad_y,
                           const float* x, const Parameters& p, const Shape& shape, Kept& kept,
                           Workspace& w, const Mode& mode, hipStream_t stream = nullptr) {
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
                               workspace, stream);
  };

  float *grad_hidden = w.grad_hidden.data(), *grad_h = w.grad_h.data();
  if (mode.fuse) {
    multiply<gemm::Layout::NN>(dense_backward::product_of_x(grad_hidden, grad_y, rows, to.out, 0),
                               TimesSlope{kept.sums.data(), to.out.in}, stream);
    if (!later)
      dense_backward::backward({grad.out_w, grad.out_bias, nullptr}, grad_y, kept.hidden.data(),
                               rows, to.out, 0, w.out, stream);
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
  attend_backward(kept, w, shape, mode, stream);
  backward_of(w.grad_norm.data(), grad.qkv_w, grad.qkv_bias, w.grad_qkv.data(), kept.norm1.data(),
              to.qkv, w.qkv);
  layernorm_backward::backward(grad_x, grad.norm1_gain, grad.norm1_bias, w.grad_norm.data(), x,
                               p.norm1_gain, mean1, rstd1, grad_h, rows, C, w.norm, stream);
}

// What chain_backward has left: nobody waits for it but the optimizer, so that it may run on
// another stream, beside the chain of the block below, as long as that one works in another
// Workspace.
inline void weights_backward(const Gradients& grad, const float* grad_y, const Shape& shape,
                             const Kept& kept, Workspace& w, const Mode& mode,
                             hipStream_t stream = nullptr) {
  if (!mode.group || !is_grouped(shape)) return;
  const size_t C = shape.C, wide = kExpansion * C;
  weight_gradients({{w.grad_qkv.data(), kept.norm1.data(), 3 * C, C, grad.qkv_w, grad.qkv_bias},
                    {w.grad_h.data(), kept.attended.data(), C, C, grad.proj_w, grad.proj_bias},
                    {w.grad_hidden.data(), kept.norm2.data(), wide, C, grad.fc_w, grad.fc_bias},
                    {grad_y, kept.hidden.data(), C, wide, grad.out_w, grad.out_bias}},
                   shape.rows(), w.sums.data(), stream);
}

// The gradients of x and of all parameters from grad_y, all (B, T, C), behind forward() of the same
// mode. Overwrites them.
inline void backward(const Gradients& grad, float* grad_x, const float* grad_y, const float* x,
                     const Parameters& p, const Shape& shape, Kept& kept, Workspace& w,
                     const Mode& mode, hipStream_t stream = nullptr) {
  chain_backward(grad, grad_x, grad_y, x, p, shape, kept, w, mode, stream);
  weights_backward(grad, grad_y, shape, kept, w, mode, stream);
}

// ---- The versions -----------------------------------------------------------------------------

inline constexpr Version<Mode> kVersions[] = {
    {"composed", {false, false, false}, "a kernel per operation, the T x T matrix in memory"},
    {"flash", {true, false, false}, "attention keeps a number per row in place of the matrix"},
    {"fused",
     {true, true, false},
     "bias, GELU, its slope and the residual in the products' epilogues"},
    {"grouped", {true, true, true}, "the gradients of all weights and biases in one launch"},
};
inline constexpr Mode kBest = kVersions[3].launch;

}  // namespace transformer_block
