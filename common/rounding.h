// How far a float result may be from the exact one. Plain C++: no GPU needed.
//
// Each float operation returns the exact result times (1 + d) with |d| <= u. A term t of a sum goes
// through `depth` such operations: its own product, the additions on its way into the result, and
// what is done with the sum afterwards. Three bounds follow, from the safest to the sharpest:
//
//   worst_case   gamma(depth) sum |t|                   always holds
//   random_bound 8 sqrt(depth) u sum |t|                the d are independent, with mean zero
//   mean_zero    8 sqrt(depth) u sqrt(sum t^2) + u |s|  the terms are, too
//
// A check must see one missing term. For terms of one size, |t| = 1, the bounds are about n^2 u, 8
// n^1.5 u and 8 n u where a sum of n terms is added up one by one: they hide a missing term from n
// = 4096, 16384 and 2 million on. With n terms on 1000 additions they do so from 17 thousand, 66
// thousand and 4 billion on.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

// The unit roundoff u = 2^-24 of float: each rounded operation is off by a factor of at most 1 ± u.
inline constexpr double kFloatRoundoff = 5.9604644775390625e-08;

namespace rounding {

// gamma(k) = k u / (1 - k u): the product of k factors (1 + d), |d| <= u, is off from 1 by no more.
// (Higham: Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1.) Infinite where
// k u reaches 1.
double gamma(double k);

// What a sum of `terms` terms may be off whose terms go through at most `depth` roundings each:
// gamma(depth) times `absolute`, the sum of their absolute values, or, where that is less, `terms`
// u times it, which holds for a sum in any order (Jeannerod and Rump: Improved error bounds for
// inner products in floating-point arithmetic. SIAM J. Matrix Anal. Appl. 34, 2013).
double worst_case(double depth, double terms, double absolute);

// The lambda of the bounds below: how many u sqrt(depth) an error may be. Rounding errors that are
// independent and have mean zero exceed it in one element with a chance below
// kFalseAlarm = 2 exp(-lambda^2 / 2) = 2.5e-14, and in any of 2^24 elements below 4.3e-7. (An error
// is about 0.4 u, not u, so that the real chances are far smaller.)
inline constexpr double kLambda = 8;
inline constexpr double kFalseAlarm = 2.5328e-14;

// lambda sqrt(depth) u `absolute`. (Higham and Mary: A new approach to probabilistic rounding error
// analysis. SIAM J. Sci. Comput. 41, 2019, A2815; without a factor n in the chance: Ipsen and Zhou:
// Probabilistic error analysis for inner products. SIAM J. Matrix Anal. Appl. 41, 2020.) It needs
// roundings that go up as often as down: a sum of positive terms that are added one by one and are
// below its last digit, as beyond 2^24 equal terms, is not like that.
double random_bound(double depth, double absolute);

// lambda sqrt(depth) u sqrt(`squares`) + u |`result`|, where `squares` is the sum of the squared
// terms. For terms that are random with mean zero, or have random signs: their partial sums grow
// like sqrt(sum t^2), not like sum |t|. (Higham and Mary: Sharper probabilistic backward error
// analysis for basic linear algebra kernels with random data. SIAM J. Sci. Comput. 42, 2020,
// A3427.) u |result| is the last rounding, of a result that may be larger than its kind. It does
// not hold for probabilities, for ReLU's outputs or for anything else whose terms share a sign.
double mean_zero_bound(double depth, double squares, double result);

// ---- Error carriers ---------------------------------------------------------------------------

// A sum in double, with what the bounds are made of. Sums of pieces add up.
struct Sum {
  double value = 0, absolute = 0, squares = 0;

  void add(double term) { value += term, absolute += std::fabs(term), squares += term * term; }
  Sum& operator+=(const Sum& other) {
    value += other.value, absolute += other.absolute, squares += other.squares;
    return *this;
  }
  // The sum of all terms times `factor`.
  Sum times(double factor) const {
    return {factor * value, std::fabs(factor) * absolute, factor * factor * squares};
  }

  double worst_case(double depth, double terms) const {
    return rounding::worst_case(depth, terms, absolute);
  }
  double random_bound(double depth) const { return rounding::random_bound(depth, absolute); }
  double mean_zero_bound(double depth) const {
    return rounding::mean_zero_bound(depth, squares, value);
  }
};

// The exact sum of x[i] * y[i] over `terms` floats. Pieces of a few thousand terms keep the error
// of the sum itself far below float's.
Sum dot(const float* x, const float* y, std::size_t terms);

// Many sums that grow side by side, such as the rows of a product. Three arrays, so that a loop
// over i is vector code.
class Sums {
 public:
  explicit Sums(std::size_t size) : value(size), absolute(size), squares(size) {}

  void add(std::size_t i, double term) {
    value[i] += term, absolute[i] += std::fabs(term), squares[i] += term * term;
  }
  std::size_t size() const { return value.size(); }
  Sum operator[](std::size_t i) const { return {value[i], absolute[i], squares[i]}; }

  std::vector<double> value, absolute, squares;
};

// A number in double, and how far a float version's may be from it.
struct Approximate {
  double value = 0, error = 0;
};

// A sum of products of numbers that are off themselves: what comes in wrong is multiplied by the
// other factor. `inherited` adds these errors up as if all had one sign, `inherited_squares` holds
// their squares, for errors that are independent.
struct ApproximateSum : Sum {
  double inherited = 0, inherited_squares = 0;

  void add(Approximate a, Approximate b = {1, 0}) {
    const double size_a = std::fabs(a.value), size_b = std::fabs(b.value);
    const double size = (size_a + a.error) * (size_b + b.error);  // at most
    const double off = size_a * b.error + a.error * (size_b + b.error);
    value += a.value * b.value, absolute += size, squares += size * size;
    inherited += off, inherited_squares += off * off;
  }

  // The sum, off by what it inherits and by its own worst case.
  Approximate worst_case(double depth, double terms) const {
    return {value, inherited + rounding::worst_case(depth, terms, absolute)};
  }
  // The same where all errors are independent and have mean zero, those of the factors included:
  // the squares of errors add up, not the errors.
  Approximate random_bound(double depth) const {
    return {value,
            std::sqrt(inherited_squares + std::pow(rounding::random_bound(depth, absolute), 2))};
  }
  Approximate mean_zero_bound(double depth) const {
    return {value, std::sqrt(inherited_squares +
                             std::pow(rounding::mean_zero_bound(depth, squares, value), 2))};
  }
};

}  // namespace rounding
