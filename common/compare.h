// Holding a result against its reference. Plain C++: no GPU needed.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>

// The unit roundoff u = 2^-24 of float: each rounded operation is off by a factor of at most 1 ± u.
inline constexpr double kFloatRoundoff = 5.9604644775390625e-08;

// The verdict on one result: the element that came closest to its bound, or broke it worst.
struct Comparison {
  bool ok = true;
  size_t compared = 0;       // how many elements were looked at
  size_t failed = 0;         // how many of them were out of bound or NaN
  size_t unwritten = 0;      // how many still hold the poison (0xFF in every byte)
  double max_error = 0;      // |got - want| of the worst element; NaN where a NaN stood
  size_t index = 0;          // its flat index
  size_t first = 0;          // the flat index of the first element out of bound
  double got = 0, want = 0;  // the two values there
  double bound = 0;          // the bound there
  bool exact() const { return ok && max_error == 0; }
};

// True where every byte of value is 0xFF.
template <class T>
bool is_poison(const T& value) {
  T poisoned;
  std::memset(static_cast<void*>(&poisoned), 0xFF, sizeof(T));
  return std::memcmp(&value, &poisoned, sizeof(T)) == 0;
}

// Compares got(i) with want(i) for i in [0, n) and holds |got - want| <= bound(i). All three are
// callables; got returns the tested type, want and bound return double. A bound is derived from
// the arithmetic, e.g. n * u * sum |a_k b_k| for an n-term dot product in any order (Higham,
// Accuracy and Stability of Numerical Algorithms, 2nd ed., section 3.1). A reference of infinity
// is matched only by the same infinity, a reference of NaN only by NaN.
template <class Got, class Want, class Bound>
Comparison compare(size_t n, Got got, Want want, Bound bound) {
  Comparison result;
  double worst = -1;  // error / bound of the element reported so far
  for (size_t i = 0; i < n; ++i) {
    const auto value = got(i);
    const double g = static_cast<double>(value), w = want(i), limit = bound(i);
    ++result.compared;
    if (is_poison(value) && !(w == g)) ++result.unwritten;
    const bool same = g == w || (std::isnan(g) && std::isnan(w) && !is_poison(value));
    const double error = same ? 0.0 : std::fabs(g - w);
    const bool good = same || (error <= limit && !std::isinf(error));  // false for NaN
    double ratio = same ? 0.0 : error / limit;
    if (!(ratio >= 0)) ratio = std::numeric_limits<double>::infinity();
    if (!good && result.failed++ == 0) result.first = i;
    if (ratio > worst) {
      worst = ratio;
      result.index = i, result.got = g, result.want = w, result.bound = limit;
      result.max_error = error;
    }
  }
  result.ok = result.failed == 0;
  return result;
}
