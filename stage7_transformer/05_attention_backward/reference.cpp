#include "stage7_transformer/05_attention_backward/reference.h"

#include <algorithm>
#include <cmath>

#include "stage3_ml_ops/02_softmax/reference.h"

namespace attention_backward {

// Each product inherits what its factors are off and adds rounding::worst_case, as in step 5.5. P
// comes from the row's lse where it was not kept, so it may be off by what lse is off, and by the
// rounding of lse and of the difference.
ExpectedGradients backward_cpu(const Head& head, const Problem& p, const Roundings& roundings,
                               const std::vector<size_t>& queries,
                               const std::vector<size_t>& keys) {
  const double u = kFloatRoundoff, scale = static_cast<double>(p.scale);
  const size_t D = p.D;
  const double depth = roundings.of_product * static_cast<double>(D);
  struct Gradient {
    Values values;
    std::vector<double> absolute;
    explicit Gradient(size_t n)
        : values{std::vector<double>(n), std::vector<double>(n)}, absolute(n) {}
    // value * x, where value is off by error.
    void add(size_t i, double value, double error, double x) {
      values.value[i] += value * x;
      values.error[i] += error * std::fabs(x);
      absolute[i] += (std::fabs(value) + error) * std::fabs(x);
    }
    // Of sums of n products, times `factor`.
    Values finish(double n, double factor, const Roundings& roundings) {
      n = roundings.of_product * (n + 1);
      for (size_t i = 0; i < absolute.size(); ++i) {
        values.value[i] *= factor;
        const double error = factor * (values.error[i] + rounding::worst_case(n, n, absolute[i]));
        values.error[i] =
            error + roundings.of_stored * (std::fabs(values.value[i]) + error) + softmax::kTiny;
      }
      return values;
    }
  };
  Gradient grad_q(queries.size() * D), grad_k(keys.size() * D), grad_v(keys.size() * D);
  size_t next_query = 0;
  for (size_t i = 0; i < p.Tq; ++i) {
    const size_t visible = attention::visible_keys(p, i);
    const bool wanted = next_query < queries.size() && queries[next_query] == i;
    const float *q = head.q + i * D, *grad_out = head.grad_out + i * D;
    if (visible > 0) {
      const attention::ExpectedRow row =
          attention::row_cpu({q, head.k, head.v}, visible, p, roundings);
      double delta = 0, delta_error = 0, absolute = 0;
      for (size_t d = 0; d < D; ++d) {
        const double size = std::fabs(static_cast<double>(grad_out[d]));
        delta += static_cast<double>(grad_out[d]) * row.out[d];
        delta_error += size * row.out_error[d];
        absolute += size * (std::fabs(row.out[d]) + row.out_error[d]);
      }
      delta_error += rounding::worst_case(static_cast<double>(D), static_cast<double>(D), absolute);
      const auto add = [&](size_t j, auto use) {
        const double probability = row.probability[j];
        const double difference = -std::log(std::max(probability, softmax::kTiny));
        const double off = std::expm1(row.relative[j] + row.lse_error +
                                      u * (3 * std::fabs(row.lse) + 3 * difference + 5));
        const double error = probability * (off + roundings.of_stored * (1 + off)) + softmax::kTiny;
        const rounding::Sum of_p = attention::dot_row(grad_out, head.v + j * D, D);
        const double slope = of_p.value - delta;
        double slope_error = of_p.worst_case(depth, depth) + delta_error;
        slope_error += u * (std::fabs(slope) + slope_error);
        const double grad = probability * slope;
        double grad_error = error * (std::fabs(slope) + slope_error) + probability * slope_error;
        grad_error += (u + roundings.of_stored) * (std::fabs(grad) + grad_error) + softmax::kTiny;
        use(probability, error, grad, grad_error);
      };
      if (wanted)
        for (size_t j = 0; j < visible; ++j)
          add(j, [&](double, double, double grad, double error) {
            for (size_t d = 0; d < D; ++d)
              grad_q.add(next_query * D + d, grad, error, static_cast<double>(head.k[j * D + d]));
          });
      for (size_t n = 0; n < keys.size(); ++n)
        if (keys[n] < visible)
          add(keys[n], [&](double probability, double error, double grad, double grad_error) {
            for (size_t d = 0; d < D; ++d) {
              grad_v.add(n * D + d, probability, error, static_cast<double>(grad_out[d]));
              grad_k.add(n * D + d, grad, grad_error, static_cast<double>(q[d]));
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
