#include "stage7_transformer/06_transformer_block/reference.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage7_transformer/06_transformer_block/double_norm.h"
#include "stage7_transformer/06_transformer_block/double_numbers.h"

namespace transformer_block {

namespace {

using activations::GeluTanh;
using sequential::Roundings;

// ---- GELU -------------------------------------------------------------------------------------

template <class Number>
Values gelu(const Values& x) {
  Values y = zeros<Number>(x.value.size());
  for (size_t i = 0; i < y.value.size(); ++i) {
    const double value = x.value[i];
    y.value[i] = GeluTanh::cpu(value);
    if constexpr (kHasError<Number>)
      y.error[i] = std::hypot(GeluTanh::derivative_cpu(value) * x.error[i], GeluTanh::bound(value));
  }
  return y;
}
template <class Number>
Values gelu_backward(const Values& grad_y, const Values& x) {
  Values grad_x = zeros<Number>(x.value.size());
  for (size_t i = 0; i < grad_x.value.size(); ++i) {
    const double value = x.value[i];
    Number slope{GeluTanh::derivative_cpu(value)};
    if constexpr (kHasError<Number>)
      slope.error =
          std::hypot(sequential::kSharpest * x.error[i], GeluTanh::derivative_bound(value));
    put(grad_x, i, number<Number>(grad_y, i) * slope);
  }
  return grad_x;
}

// ---- Attention --------------------------------------------------------------------------------

// Where the numbers of a head lie in packed q, k, v (B, T, 3, H, D), and in rows (B, T, H, D).
struct Head {
  size_t b, channel, T, C;
  size_t packed(size_t which, size_t t, size_t d) const {
    return ((b * T + t) * 3 + which) * C + channel + d;
  }
  size_t row(size_t t, size_t d) const { return (b * T + t) * C + channel + d; }
};
Head head_of(const Shape& shape, size_t head) {
  return {head / shape.H, head % shape.H * shape.D(), shape.T, shape.C};
}

// Causal attention: y (B, T, C), and the probabilities P (B, H, T, T). P = exp(s) / sum of exp(s):
// where a score is off by e, P is relatively off by e, and by the mean of all e, weighted by P. To
// that come softmax's own roundings, as step 3.2 counts them, of a version that rescales its sum at
// every key; and those of the logarithm of the sum, which the backward pass has in place of the
// sum.
template <class Number>
void attend(Values& y, Values& probabilities, const Values& qkv, const Shape& shape,
            Precision precision) {
  const size_t T = shape.T, D = shape.D();
  const Number factor = constant<Number>(1 / std::sqrt(static_cast<double>(D)));
  y = zeros<Number>(shape.rows() * shape.C);
  probabilities = zeros<Number>(shape.B * shape.H * T * T);
  for (size_t number_of_head = 0; number_of_head < shape.B * shape.H; ++number_of_head) {
    const Head head = head_of(shape, number_of_head);
    for (size_t i = 0; i < T; ++i) {
      std::vector<Number> scores;
      double max = -std::numeric_limits<double>::infinity(), total = 0, mean = 0;
      for (size_t j = 0; j <= i; ++j) {
        Total<Number> sum;
        for (size_t d = 0; d < D; ++d)
          sum.add(number<Number>(qkv, head.packed(0, i, d)),
                  number<Number>(qkv, head.packed(1, j, d)));
        scores.push_back(sum.result() * factor);
        max = std::fmax(max, value_of(scores.back()));
      }
      for (const Number score : scores) total += std::exp(value_of(score) - max);
      if constexpr (kHasError<Number>) {
        const double n = static_cast<double>(i + 1), log_sum = std::fabs(max + std::log(total));
        for (Approximate& score : scores) {
          const double own = 3 * (max - score.value) + std::sqrt(6 * n + 8) + log_sum;
          score.error = std::hypot(score.error, kRounding * own);
          mean += std::pow(std::exp(score.value - max) / total * score.error, 2);
        }
      }
      std::vector<Total<Number>> sums(D);
      for (size_t j = 0; j <= i; ++j) {
        Number p{std::exp(value_of(scores[j]) - max) / total};
        if constexpr (kHasError<Number>)
          p.error = p.value * std::sqrt(mean + std::pow(scores[j].error, 2));
        put(probabilities, (number_of_head * T + i) * T + j, p);
        const Number factor_of_v = as_factor(p, precision);
        for (size_t d = 0; d < D; ++d)
          sums[d].add(factor_of_v, number<Number>(qkv, head.packed(2, j, d)));
      }
      for (size_t d = 0; d < D; ++d) put(y, head.row(i, d), sums[d].result());
    }
  }
}

// grad_qkv of grad_y: with gP = grad_y v^T, gS = P (gP - sum over keys of P gP), the latter also
// being the sum over d of grad_y y, which is how the version for bf16 computes it from its y.
template <class Number>
Values attend_backward(const Values& grad_y, const Values& qkv, const Values& y,
                       const Values& probabilities, const Shape& shape, Precision precision) {
  const size_t T = shape.T, D = shape.D();
  const Number factor = constant<Number>(1 / std::sqrt(static_cast<double>(D)));
  std::vector<Total<Number>> sums(qkv.value.size());
  for (size_t number_of_head = 0; number_of_head < shape.B * shape.H; ++number_of_head) {
    const Head head = head_of(shape, number_of_head);
    const auto packed = [&](size_t which, size_t t, size_t d) {
      return number<Number>(qkv, head.packed(which, t, d));
    };
    for (size_t i = 0; i < T; ++i) {
      const auto grad = [&](size_t d) { return number<Number>(grad_y, head.row(i, d)); };
      const auto probability = [&](size_t j) {
        return number<Number>(probabilities, (number_of_head * T + i) * T + j);
      };
      Total<Number> through_p;
      std::vector<Number> grad_p;
      for (size_t j = 0; j <= i; ++j) {
        Total<Number> sum;
        for (size_t d = 0; d < D; ++d) sum.add(grad(d), packed(2, j, d));
        grad_p.push_back(sum.result());
        through_p.add(grad_p.back(), probability(j));
      }
      Total<Number> through_y;
      for (size_t d = 0; d < D; ++d) through_y.add(grad(d), number<Number>(y, head.row(i, d)));
      Number total = through_p.result();
      if (precision != Precision::fp32)
        total = through_y.result();
      else if constexpr (kHasError<Number>)  // both ways to the same number; a version takes one
        total.error = std::fmax(total.error, through_y.result().error);
      for (size_t j = 0; j <= i; ++j) {
        const Number p = as_factor(probability(j), precision);
        const Number grad_s = as_factor(probability(j) * (grad_p[j] - total) * factor, precision);
        for (size_t d = 0; d < D; ++d) {
          sums[head.packed(0, i, d)].add(grad_s, packed(1, j, d));
          sums[head.packed(1, j, d)].add(grad_s, packed(0, i, d));
          sums[head.packed(2, j, d)].add(p, grad(d));
        }
      }
    }
  }
  Values grad_qkv = results(sums);
  if constexpr (kHasError<Number>)  // the scale may come last
    for (size_t i = 0; i < sums.size(); ++i)
      put(grad_qkv, i, rounded(grad_qkv.value[i], grad_qkv.error[i]));
  return grad_qkv;
}

// ---- The block --------------------------------------------------------------------------------

// The places in HostPass::kept. The last four: the matrices as the products read them.
enum Part : size_t {
  kHat1,
  kRstd1,
  kNorm1,
  kQkv,
  kAttended,
  kProbabilities,
  kHat2,
  kRstd2,
  kNorm2,
  kSums,
  kHidden,
  kQkvW,
  kProjW,
  kFcW,
  kOutW,
  kCount
};

Values linear(const Values& x, const Values& w, const Values& bias, size_t rows) {
  return sequential::linear_cpu(x, w, bias, rows, Roundings::random);
}
Values linear_backward(std::vector<Values>& gradients, const Values& grad_y, const Values& x,
                       const Values& w, size_t rows) {
  return sequential::linear_backward_cpu(gradients, grad_y, x, w, rows, true, Roundings::random);
}

template <class Number>
Values forward_block(HostPass& pass, const Shape& shape, Precision precision) {
  const size_t rows = shape.rows(), C = shape.C;
  const auto store = [&](const Values& values) { return stored<Number>(values, precision); };
  const std::vector<Values>& p = pass.parameters;
  std::vector<Values>& k = pass.kept;
  k.assign(kCount, {});
  for (size_t i = 0; i < 4; ++i) k[kQkvW + i] = store(p[i < 2 ? 2 + 2 * i : 4 + 2 * i]);
  normalize<Number>(k[kHat1], k[kRstd1], pass.x, C);
  k[kNorm1] = store(scale<Number>(k[kHat1], p[0], p[1]));
  k[kQkv] = store(linear(k[kNorm1], k[kQkvW], p[3], rows));
  attend<Number>(k[kAttended], k[kProbabilities], k[kQkv], shape, precision);
  k[kAttended] = store(k[kAttended]);
  const Values h = added<Number>(pass.x, linear(k[kAttended], k[kProjW], p[5], rows));
  normalize<Number>(k[kHat2], k[kRstd2], h, C);
  k[kNorm2] = store(scale<Number>(k[kHat2], p[6], p[7]));
  k[kSums] = linear(k[kNorm2], k[kFcW], p[9], rows);
  k[kHidden] = store(gelu<Number>(k[kSums]));
  k[kSums] = store(k[kSums]);
  return added<Number>(h, linear(k[kHidden], k[kOutW], p[11], rows));
}

template <class Number>
Values backward_block(std::vector<Values>& gradients, const Values& grad_y, const HostPass& pass,
                      const Shape& shape, Precision precision) {
  const size_t rows = shape.rows();
  const auto store = [&](const Values& values) { return stored<Number>(values, precision); };
  const std::vector<Values>&p = pass.parameters, &k = pass.kept;
  std::vector<Values> norm1, qkv, proj, norm2, fc, out;
  const Values grad_sums = store(gelu_backward<Number>(
      linear_backward(out, store(grad_y), k[kHidden], k[kOutW], rows), k[kSums]));
  const Values grad_norm2 = store(linear_backward(fc, grad_sums, k[kNorm2], k[kFcW], rows));
  const Values grad_h = added<Number>(
      grad_y, normalize_backward<Number>(norm2, grad_norm2, k[kHat2], k[kRstd2], p[6]));
  const Values grad_attended =
      store(linear_backward(proj, store(grad_h), k[kAttended], k[kProjW], rows));
  const Values grad_qkv = store(attend_backward<Number>(grad_attended, k[kQkv], k[kAttended],
                                                        k[kProbabilities], shape, precision));
  const Values grad_norm1 = store(linear_backward(qkv, grad_qkv, k[kNorm1], k[kQkvW], rows));
  const Values grad_x = added<Number>(
      grad_h, normalize_backward<Number>(norm1, grad_norm1, k[kHat1], k[kRstd1], p[0]));
  for (const std::vector<Values>* part : {&norm1, &qkv, &proj, &norm2, &fc, &out})
    gradients.insert(gradients.end(), part->begin(), part->end());
  return grad_x;
}

}  // namespace

std::string DoubleNorm::description() const {
  return "LayerNorm(" + std::to_string(channels_) + ")";
}

std::vector<sequential::Parameter> DoubleNorm::parameters() const {
  return {{"weight", {channels_}}, {"bias", {channels_}}};
}

Values DoubleNorm::forward_cpu(HostPass& pass) const {
  pass.kept.assign(2, {});  // hat, rstd
  const auto run = [&](auto zero) {
    using Number = decltype(zero);
    normalize<Number>(pass.kept[0], pass.kept[1], pass.x, channels_);
    return scale<Number>(pass.kept[0], pass.parameters[0], pass.parameters[1]);
  };
  return pass.x.error.empty() ? run(0.0) : run(Approximate());
}

Values DoubleNorm::backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                                const HostPass& pass) const {
  const auto run = [&](auto zero) {
    return normalize_backward<decltype(zero)>(gradients, grad_y, pass.kept[0], pass.kept[1],
                                              pass.parameters[0]);
  };
  return pass.x.error.empty() ? run(0.0) : run(Approximate());
}

std::string DoubleBlock::description() const {
  return "Block(" + std::to_string(shape_.T) + ", " + std::to_string(shape_.C) + ", " +
         std::to_string(shape_.H) + ")";
}

std::vector<sequential::Parameter> DoubleBlock::parameters() const {
  std::vector<sequential::Parameter> parameters;
  for (const auto& [name, shape] : parameter_shapes(shape_.C)) parameters.push_back({name, shape});
  return parameters;
}

Values DoubleBlock::forward_cpu(HostPass& pass) const {
  const Shape shape{pass.batch, shape_.T, shape_.C, shape_.H};
  return pass.x.error.empty() ? forward_block<double>(pass, shape, precision_)
                              : forward_block<Approximate>(pass, shape, precision_);
}

Values DoubleBlock::backward_cpu(std::vector<Values>& gradients, const Values& grad_y,
                                 const HostPass& pass) const {
  const Shape shape{pass.batch, shape_.T, shape_.C, shape_.H};
  return pass.x.error.empty()
             ? backward_block<double>(gradients, grad_y, pass, shape, precision_)
             : backward_block<Approximate>(gradients, grad_y, pass, shape, precision_);
}

Reference block_cpu(const std::vector<float>& x, const std::vector<float>& grad_y,
                    const std::vector<std::vector<float>>& p, const Shape& shape,
                    Precision precision) {
  const DoubleBlock block(shape, precision);
  HostPass pass{dense::exactly(x), sequential::exactly(p), shape.B};
  Reference result;
  result.y = block.forward_cpu(pass);
  result.grad_x = block.backward_cpu(result.gradients, dense::exactly(grad_y), pass);
  const auto allow_tiny = [](Values& values) {  // below float's normal range u is no measure
    for (double& error : values.error) error += activations::kTiny;
  };
  allow_tiny(result.y), allow_tiny(result.grad_x);
  for (Values& gradient : result.gradients) allow_tiny(gradient);
  return result;
}

}  // namespace transformer_block
