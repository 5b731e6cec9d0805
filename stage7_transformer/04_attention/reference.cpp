#include "stage7_transformer/04_attention/reference.h"

#include <algorithm>
#include <cmath>

#include "common/half.h"
#include "stage3_ml_ops/02_softmax/reference.h"

namespace attention {

// Every tile of 2 keys or more may rescale what was there; composed adds up a row twice.
Roundings float_roundings(const Problem& p) {
  const double Tk = static_cast<double>(p.Tk), tiles = std::ceil(Tk / 2);
  return {1 + tiles, 2 * Tk + tiles + 11};
}
// A tile of 2 keys or more may rescale what was there; exp2 is off by 2^-22, or 4 u.
Roundings bf16_roundings(const Problem& p) {
  const double Tk = static_cast<double>(p.Tk), tiles = std::ceil(Tk / 2);
  return {2 * (tiles + 1), Tk + tiles + 16, 3, gpu::kBfloat16Roundoff};
}

rounding::Sum dot_row(const float* a, const float* b, size_t D) {
  rounding::Sum sum;
  for (size_t d = 0; d < D; ++d) sum.add(static_cast<double>(a[d]) * static_cast<double>(b[d]));
  return sum;
}

// Let x be the scores times scale and p = exp(x - m), with any m that all keys of the row share.
// To first order in u = 2^-24 a float's p is off by a relative
//
//   a = |scale| bound(scores) + 2 u |x|           scale (and log2(e)) and their product are rounded
//       + u (3 (max x - x) + 5 exponentials)      as in step 3.2's bounds
//
// or by r = exp(a) - 1 where a is not small. Of any terms,
//
//   bound(scores) = rounding::worst_case; the row's sum l = sum of p is off by R = (sum of p r) / l
//   and by the additions; out = (sum of p v) / l is off by what both are off, at most the sum of
//   p |v| (r + R) / (1 - R), by the additions of the products (rounding::worst_case) and by 4
//   roundings of the quotient and of p, if it is stored.
//
// Of terms with random signs, whose errors are independent,
//
//   bound(scores) = rounding::mean_zero_bound; l is off by R = sqrt(sum of (p r)^2) / l and by
//   rounding::random_bound of its additions, since all p are positive; out moves with p[j] by
//   p[j] (v[j] - out), so that it is off by the root of the sum of (p r (v - out))^2, by
//   rounding::mean_zero_bound of the products, and as l by its additions. Where p is stored with
//   fewer bits, these roundings add 8 of_stored times the root of the sum of (p v)^2. A tile that
//   raises no maximum multiplies by 2^0, which is exact: of the exponentials, two at most for each
//   key whose score exceeds all before it count.
//
// lse = log l + m inherits R, and rounds m and the logarithm.
ExpectedRow row_cpu(const RowOf& row, size_t visible, const Problem& p, const Roundings& roundings,
                    Terms terms) {
  ExpectedRow want;
  want.out.assign(p.D, 0), want.out_error.assign(p.D, 0);
  if (visible == 0) return want;
  const bool independent = terms == Terms::mean_zero;
  const double u = kFloatRoundoff, scale = static_cast<double>(p.scale);
  const double depth = roundings.of_product * static_cast<double>(p.D);
  std::vector<double> x(visible);
  want.probability.resize(visible), want.relative.resize(visible);
  want.score_error.resize(visible);
  double max = -std::numeric_limits<double>::infinity(), records = 0;
  for (size_t j = 0; j < visible; ++j) {
    const rounding::Sum score = dot_row(row.q, row.k + j * p.D, p.D);
    x[j] = scale * score.value;
    const double off = independent ? score.mean_zero_bound(depth) : score.worst_case(depth, depth);
    want.score_error[j] = scale * off + 2 * u * std::fabs(x[j]);
    if (x[j] > max) max = x[j], ++records;
  }
  const double exponentials =
      independent ? std::min(roundings.exponentials, 2 + 2 * records) : roundings.exponentials;
  double sum = 0;
  for (size_t j = 0; j < visible; ++j) sum += want.probability[j] = std::exp(x[j] - max);
  double of_sum = 0, squares = 0;
  for (size_t j = 0; j < visible; ++j) {
    want.probability[j] /= sum;
    want.relative[j] = std::expm1(want.score_error[j] + u * (3 * (max - x[j]) + 5 * exponentials));
    const double off = want.probability[j] * want.relative[j];
    of_sum += off, squares += off * off;
  }
  const double of_additions =
      independent ? rounding::random_bound(roundings.additions, 1) : u * roundings.additions;
  of_sum = (independent ? std::sqrt(squares) : of_sum) + of_additions;
  const double spread = of_sum < 1 ? 1 / (1 - of_sum) : std::numeric_limits<double>::infinity();
  const std::vector<double> own = want.relative;
  for (double& relative : want.relative) relative = (relative + of_sum) * spread;
  const double n = roundings.of_product * roundings.additions + 4;
  for (size_t d = 0; d < p.D; ++d) {
    rounding::Sum products;
    double inherited = 0, tiny = softmax::kTiny;
    for (size_t j = 0; j < visible; ++j) {
      const double value = static_cast<double>(row.v[j * p.D + d]);
      products.add(want.probability[j] * value), tiny += softmax::kTiny * std::fabs(value);
    }
    want.out[d] = products.value;
    for (size_t j = 0; j < visible; ++j) {
      const double value = static_cast<double>(row.v[j * p.D + d]);
      const double size = want.probability[j] * std::fabs(value);
      if (independent)
        inherited += std::pow(want.probability[j] * own[j] * std::fabs(value - want.out[d]), 2) +
                     std::pow(rounding::kLambda * roundings.of_stored * size * (1 + own[j]), 2);
      else
        inherited += size * (want.relative[j] + roundings.of_stored * (1 + want.relative[j]));
    }
    double error;
    if (independent)
      error = std::sqrt(inherited) + products.mean_zero_bound(n) +
              std::fabs(want.out[d]) * (of_additions + 4 * u);
    else
      error = inherited + rounding::worst_case(n, n, products.absolute + inherited);
    want.out_error[d] =
        error + tiny + roundings.of_stored * (std::fabs(want.out[d]) + error + tiny);
  }
  want.lse = max + std::log(sum);
  want.lse_error = of_sum * spread +
                   u * (5 * std::fabs(max) + std::fabs(want.lse) + 4 * std::fabs(std::log(sum)));
  return want;
}

Expected forward_cpu(const std::vector<float>& q, const std::vector<float>& k,
                     const std::vector<float>& v, const Problem& p, const Roundings& roundings,
                     const std::vector<size_t>& rows, Terms terms) {
  Expected expected;
  for (const size_t row : rows) {
    const size_t keys = row / p.Tq * p.Tk * p.D;
    const ExpectedRow want = row_cpu({q.data() + row * p.D, k.data() + keys, v.data() + keys},
                                     visible_keys(p, row % p.Tq), p, roundings, terms);
    const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(expected.out.value, want.out), append(expected.out.error, want.out_error);
    append(expected.lse.value, {want.lse}), append(expected.lse.error, {want.lse_error});
  }
  return expected;
}

}  // namespace attention
