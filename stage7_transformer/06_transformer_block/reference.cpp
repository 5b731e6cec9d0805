#include "stage7_transformer/06_transformer_block/reference.h"

#include <limits>

#include "stage1_vector/04_activations/detail/formulas.h"

namespace transformer_block {

using activations::GeluTanh;

Values zeros(size_t n) { return {std::vector<double>(n), std::vector<double>(n)}; }
void put(Values& values, size_t i, Approximate a) {
  values.value[i] = a.value, values.error[i] = a.error;
}
Values added(const Values& a, const Values& b) {
  Values sum = a;
  for (size_t i = 0; i < sum.value.size(); ++i)
    put(sum, i, sequential::at(a, i) + sequential::at(b, i));
  return sum;
}
Values bounded(Values values) {
  for (double& error : values.error) error = kConfidence * error + activations::kTiny;
  return values;
}

// y (rows, out) = x (rows, in) w^T + bias, and the gradients of x, w and bias.
Values linear_cpu(const Values& x, const std::vector<float>& w, const std::vector<float>& bias,
                  size_t rows) {
  const size_t in = x.value.size() / rows, out = bias.size();
  Values y = zeros(rows * out);
  for (size_t i = 0; i < rows * out; ++i) {
    LikelySum sum;
    for (size_t k = 0; k < in; ++k)
      sum.add(sequential::at(x, i / out * in + k), exactly(w[i % out * in + k]));
    put(y, i, sum.result() + exactly(bias[i % out]));
  }
  return y;
}
Values linear_backward_cpu(std::vector<Values>& gradients, const Values& grad_y, const Values& x,
                           const std::vector<float>& w, size_t rows) {
  const size_t in = x.value.size() / rows, out = grad_y.value.size() / rows;
  std::vector<LikelySum> of_x(rows * in), of_w(out * in), of_bias(out);
  for (size_t row = 0; row < rows; ++row)
    for (size_t o = 0; o < out; ++o) {
      const Approximate grad = sequential::at(grad_y, row * out + o);
      of_bias[o].add(grad);
      for (size_t k = 0; k < in; ++k) {
        of_x[row * in + k].add(grad, exactly(w[o * in + k]));
        of_w[o * in + k].add(grad, sequential::at(x, row * in + k));
      }
    }
  const auto results = [](const std::vector<LikelySum>& sums) {
    Values values = zeros(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) put(values, i, sums[i].result());
    return values;
  };
  gradients.push_back(results(of_w)), gradients.push_back(results(of_bias));
  return results(of_x);
}

static Values gelu_cpu(Values x) {
  for (size_t i = 0; i < x.value.size(); ++i) {
    const double moved = GeluTanh::derivative_cpu(x.value[i]) * x.error[i];
    put(x, i, {GeluTanh::cpu(x.value[i]), std::hypot(moved, GeluTanh::bound(x.value[i]))});
  }
  return x;
}
static Values gelu_backward_cpu(Values grad, const Values& x) {
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
Normalized normalized_cpu(const Values& x, size_t rows, size_t cols) {
  using sequential::at;
  Normalized result{zeros(rows * cols), zeros(rows)};
  const double n = static_cast<double>(cols);
  for (size_t row = 0; row < rows; ++row) {
    LikelySum sum;
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

Values scaled_cpu(const Normalized& x, const std::vector<float>& gain,
                  const std::vector<float>& bias) {
  Values y = x.hat;
  for (size_t i = 0; i < y.value.size(); ++i)
    put(y, i,
        sequential::at(x.hat, i) * exactly(gain[i % gain.size()]) + exactly(bias[i % bias.size()]));
  return y;
}

// grad_x = rstd (g - mean(g) - hat mean(g hat)) of each row with g = grad_y gain; appends the
// gradients of gain and bias.
Values normalized_backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                               const Normalized& x, const std::vector<float>& gain) {
  using sequential::at;
  const size_t cols = gain.size(), rows = grad_y.value.size() / cols;
  const Approximate share = rounded(1 / static_cast<double>(cols));
  Values grad_x = zeros(rows * cols);
  std::vector<LikelySum> of_gain(cols), of_bias(cols);
  for (size_t row = 0; row < rows; ++row) {
    LikelySum sum, product;
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
  for (const std::vector<LikelySum>& sums : {of_gain, of_bias}) {
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
static Attended attention_cpu(const Values& qkv, const Shape& shape) {
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
        LikelySum sum;
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
      std::vector<LikelySum> sums(D);
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
static Values attention_backward_cpu(const Values& grad_y, const Values& qkv, const Attended& a,
                                     const Shape& shape) {
  using sequential::at;
  const size_t T = shape.T, C = shape.C, D = shape.D();
  const Approximate scale = rounded(1 / std::sqrt(static_cast<double>(D)));
  std::vector<LikelySum> sums(qkv.value.size());
  for (size_t head = 0; head < shape.B * shape.H; ++head) {
    const size_t b = head / shape.H, channel = head % shape.H * D;
    const auto place = [&](size_t which, size_t t, size_t d) {
      return ((b * T + t) * 3 + which) * C + channel + d;
    };
    for (size_t i = 0; i < T; ++i) {
      LikelySum through_y, through_p;
      std::vector<Approximate> grad_p;
      const auto grad = [&](size_t d) { return at(grad_y, (b * T + i) * C + channel + d); };
      for (size_t d = 0; d < D; ++d) through_y.add(grad(d), at(a.y, (b * T + i) * C + channel + d));
      for (size_t j = 0; j <= i; ++j) {
        LikelySum sum;
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

ForwardReference forward_cpu(const Values& x, const std::vector<std::vector<float>>& p,
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

Reference block_cpu(const std::vector<float>& x, const std::vector<float>& grad_y,
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

}  // namespace transformer_block
