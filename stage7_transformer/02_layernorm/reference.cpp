#include "stage7_transformer/02_layernorm/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/rounding.h"
#include "stage3_ml_ops/02_softmax/reference.h"

namespace layernorm {
namespace {

using rounding::gamma;
using softmax::kTiny;

constexpr double kU = kFloatRoundoff;

// What a term may be off by `depth` roundings that go up as often as down, or at worst.
double rounded(double depth) { return std::min(gamma(depth), rounding::random_bound(depth, 1)); }

// Of a row: D = x - x[r,0] and E = x - mean.
struct RowSums {
  double cols, mean_d, max_d, mean_ed, mean_dd, variance;  // mean_d: of |D|, mean_ed: of |E D|
};

// What the mean of D and the mean of the squares of E may be off, with the rounded D and E that a
// version has instead; u = 2^-24.
struct Deviation {
  double mean, variance;
};

// Plain sums, one element after the other: at most `cols` additions. D is rounded once. Its mean is
// off by rounded(cols + 3) mean|D|: D, the additions, n and the quotient. An element of E is then
// off by its own part, at most u|D| + u|E| = p, and by what the mean is off, d, which is the same
// for all of the row: sum E = 0, so d counts in the sum of squares only as its square. The squares,
// the additions, n and the quotient round cols + 3 times.
Deviation of_plain_sums(const RowSums& row) {
  const double depth = rounded(row.cols + 3), d = depth * row.mean_d;
  const double p = kU * std::sqrt(row.mean_dd) + kU * std::sqrt(row.variance);
  const double squares = 2 * kU * (row.mean_ed + row.variance) + (p + d) * (p + d);
  return {d, squares + depth * (row.variance + squares) + kTiny};
}

// Welford's method, in teams of at least kLanes threads. An update m += (D - m) / k rounds by at
// most u max|D| (1 + 5 / k), and all that comes later shrinks that to its k-th part of the thread's
// elements: after k updates m is off by rounded(k / 2 + 6) max|D| = d at most. (At random the
// squares add up, to k / 3 + 6 + 31 / k, which is less than k / 2 + 6 from 13 updates on; `rounded`
// takes the random bound from 117 on, and the worst case below.) The squares grow by
// (D - m before) (D - m after), whose factors are off by h = d + 3 u max|D| each. With the
// differences before, B, sum of B^2 <= 2 sum of E^2 (without a thread's first, whose product is
// exactly 0), so that by Cauchy and Schwarz the variance v is off by 2 sqrt(2) sqrt(v) h + h^2, and
// by as much without the sqrt(2) where the threads' means are held against the row's.
Deviation of_welford(const RowSums& row) {
  constexpr double kLanes = 32, kTeam = 8;  // threads at least; rounds of additions in a team
  const double k = std::ceil(row.cols / kLanes);
  const double of_thread = rounded(k / 2 + 6) * row.max_d;
  const double d = of_thread + rounded(kTeam + 3) * row.max_d;
  const double h = of_thread + 3 * kU * row.max_d, between = of_thread + d + 2 * kU * row.max_d;
  const double squares =
      (2 * std::sqrt(2) * h + 2 * between) * std::sqrt(row.variance) + h * h + between * between;
  return {d, squares + rounded(k + kTeam + 6) * (row.variance + squares) + kTiny};
}

}  // namespace

// rstd = (v + eps)^(-1/2) follows the relative error of v + eps; the root and the quotient round
// once each. y's difference inherits what D and the mean are off, and y rounds four times more.
Normalized forward_cpu(const std::vector<float>& x, const std::vector<float>& gain,
                       const std::vector<float>& bias, std::size_t cols, float eps) {
  const std::size_t rows = x.size() / cols;
  const double n = static_cast<double>(cols);
  Normalized want;
  for (std::size_t row = 0; row < rows; ++row) {
    const float* row_x = x.data() + row * cols;
    const double first = static_cast<double>(row_x[0]);
    double sum = 0, sum_d = 0, max_d = 0, sum_dd = 0;
    for (std::size_t c = 0; c < cols; ++c) {
      const double d = static_cast<double>(row_x[c]) - first;
      sum += d, sum_d += std::fabs(d), max_d = std::fmax(max_d, std::fabs(d)), sum_dd += d * d;
    }
    const double mean = sum / n;
    double sum_ee = 0, sum_ed = 0;
    for (std::size_t c = 0; c < cols; ++c) {
      const double d = static_cast<double>(row_x[c]) - first;
      sum_ee += (d - mean) * (d - mean), sum_ed += std::fabs((d - mean) * d);
    }
    const double variance = sum_ee / n, with_eps = variance + static_cast<double>(eps);
    const RowSums sums{n, sum_d / n, max_d, sum_ed / n, sum_dd / n, variance};
    const Deviation plain = of_plain_sums(sums), welford = of_welford(sums);
    const double off_mean = std::max(plain.mean, welford.mean);
    const double off_variance = std::max(plain.variance, welford.variance);
    const double rstd = with_eps == 0 ? 0 : 1 / std::sqrt(with_eps);
    const double of_variance = with_eps == 0 ? 0 : off_variance / with_eps + kU;
    const double of_rstd = of_variance < 1 ? (1 + gamma(2)) / std::sqrt(1 - of_variance) - 1
                                           : std::numeric_limits<double>::infinity();
    want.mean.push_back(first + mean), want.rstd.push_back(rstd);
    want.bound_mean.push_back(off_mean + kU * (std::fabs(first + mean) + off_mean) + kTiny);
    want.bound_rstd.push_back(of_rstd * rstd);
    for (std::size_t c = 0; c < cols; ++c) {
      const double d = static_cast<double>(row_x[c]) - first, e = d - mean;
      const double scale = rstd * std::fabs(static_cast<double>(gain[c]));
      const double shift = static_cast<double>(bias[c]);
      const double of_e = kU * std::fabs(d) + off_mean + kU * std::fabs(e);
      const double largest = (std::fabs(e) + of_e) * scale * (1 + of_rstd);
      want.y.push_back(e * rstd * static_cast<double>(gain[c]) + shift);
      want.bound_y.push_back(largest - std::fabs(e) * scale + gamma(4) * largest +
                             kU * std::fabs(shift) + kTiny);
    }
  }
  return want;
}

}  // namespace layernorm
