#include "stage7_transformer/05_attention_backward/reference.h"

#include <algorithm>
#include <cmath>

#include "stage3_ml_ops/02_softmax/reference.h"

namespace attention_backward {

namespace {

// Sums of n products each, of a first factor that is off and an exact second one.
class GradientSums {
 public:
  GradientSums(size_t n, bool independent)
      : independent_(independent), sums_(n), inherited_(n), shared_(n) {}

  // Adds value * x, where value is off by error.
  void add(size_t i, double value, double error, double x) {
    const double off = error * std::fabs(x);
    sums_.add(i, value * x);
    sums_.absolute[i] += off;
    inherited_[i] += independent_ ? off * off : off;
  }
  // What the errors that all terms of sum i share make of it, if the others are independent.
  void add_shared(size_t i, double error) { shared_[i] += error; }
  double value(size_t i) const { return sums_.value[i]; }

  // The sums of up to n products, times `factor`.
  Values finish(double n, double factor, const Roundings& roundings) const {
    n = roundings.of_product * (n + 1);
    Values values{sums_.value, sums_.value};
    for (size_t i = 0; i < sums_.size(); ++i) {
      const double error = factor * (independent_ ? std::sqrt(inherited_[i]) + shared_[i] +
                                                        sums_[i].mean_zero_bound(n)
                                                  : inherited_[i] + sums_[i].worst_case(n, n));
      values.value[i] *= factor;
      values.error[i] =
          error + roundings.of_stored * (std::fabs(values.value[i]) + error) + softmax::kTiny;
    }
    return values;
  }

 private:
  bool independent_;
  rounding::Sums sums_;
  std::vector<double> inherited_, shared_;
};

}  // namespace

// Each product inherits what its factors are off and adds its own roundings, as in step 5.5. P
// comes from the row's lse where it was not kept, so it may be off by what lse is off, and by the
// rounding of lse and of the difference. Twice the error of lse covers a P that was divided by a
// sum of its own, too.
//
// Of terms with random signs, whose errors are independent, the squares of the errors add up
// (reference.cpp of step 7.4). What a row's lse and delta are off is the same for all pairs of the
// row: it moves grad_q by as much times grad_q, and times the sum of P K.
ExpectedGradients backward_cpu(const Head& head, const Problem& p, const Roundings& roundings,
                               const std::vector<size_t>& queries, const std::vector<size_t>& keys,
                               Terms terms) {
  const bool independent = terms == Terms::mean_zero;
  const double u = kFloatRoundoff, scale = static_cast<double>(p.scale);
  const size_t D = p.D;
  const double depth = roundings.of_product * static_cast<double>(D), n = static_cast<double>(D);
  const double of_stored = (independent ? rounding::kLambda : 1) * roundings.of_stored;
  const auto off = [&](const rounding::Sum& sum, double deep) {
    return independent ? sum.mean_zero_bound(deep) : sum.worst_case(deep, deep);
  };
  GradientSums grad_q(queries.size() * D, independent), grad_k(keys.size() * D, independent),
      grad_v(keys.size() * D, independent);
  std::vector<double> weighted_keys(D);
  size_t next_query = 0;
  for (size_t i = 0; i < p.Tq; ++i) {
    const size_t visible = attention::visible_keys(p, i);
    const bool wanted = next_query < queries.size() && queries[next_query] == i;
    const float *q = head.q + i * D, *grad_out = head.grad_out + i * D;
    if (visible > 0) {
      const attention::ExpectedRow row =
          attention::row_cpu({q, head.k, head.v}, visible, p, roundings, terms);
      rounding::ApproximateSum delta;
      for (size_t d = 0; d < D; ++d)
        delta.add({row.out[d], row.out_error[d]}, {static_cast<double>(grad_out[d]), 0});
      const double delta_error =
          (independent ? delta.mean_zero_bound(n) : delta.worst_case(n, n)).error;
      // What all pairs of the row share: the errors of lse and delta.
      const double of_lse = row.lse_error + 3 * u * std::fabs(row.lse);
      const auto add = [&](size_t j, bool shared, auto use) {
        const double probability = row.probability[j];
        const double difference = -std::log(std::max(probability, softmax::kTiny));
        const double own = row.score_error[j] + u * (6 * difference + 15);
        const double relative = std::expm1(shared ? own + 2 * of_lse : own);
        const double error = probability * (relative + of_stored * (1 + relative)) + softmax::kTiny;
        const rounding::Sum of_p = attention::dot_row(grad_out, head.v + j * D, D);
        const double slope = of_p.value - delta.value;
        double slope_error = off(of_p, depth) + (shared ? delta_error : 0);
        slope_error += u * (std::fabs(slope) + slope_error);
        const double grad = probability * slope;
        double grad_error = error * (std::fabs(slope) + slope_error) + probability * slope_error;
        grad_error += (u + of_stored) * (std::fabs(grad) + grad_error) + softmax::kTiny;
        use(probability, error, grad, grad_error);
      };
      if (wanted) {
        const size_t first = next_query * D;
        std::fill(weighted_keys.begin(), weighted_keys.end(), 0.0);
        for (size_t j = 0; j < visible; ++j)
          add(j, !independent, [&](double probability, double, double grad, double error) {
            for (size_t d = 0; d < D; ++d) {
              const double x = static_cast<double>(head.k[j * D + d]);
              grad_q.add(first + d, grad, error, x);
              weighted_keys[d] += probability * x;
            }
          });
        for (size_t d = 0; d < D; ++d)
          grad_q.add_shared(first + d, 2 * of_lse * std::fabs(grad_q.value(first + d)) +
                                           delta_error * std::fabs(weighted_keys[d]));
      }
      for (size_t k = 0; k < keys.size(); ++k)
        if (keys[k] < visible)
          add(keys[k], true, [&](double probability, double error, double grad, double grad_error) {
            for (size_t d = 0; d < D; ++d) {
              grad_v.add(k * D + d, probability, error, static_cast<double>(grad_out[d]));
              grad_k.add(k * D + d, grad, grad_error, static_cast<double>(q[d]));
            }
          });
    }
    if (wanted) ++next_query;
  }
  const double Tq = static_cast<double>(p.Tq), Tk = static_cast<double>(p.Tk);
  return {grad_q.finish(Tk, scale, roundings), grad_k.finish(Tq, scale, roundings),
          grad_v.finish(Tq, 1, roundings)};
}

}  // namespace attention_backward
