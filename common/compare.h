// Holding a result against its reference. Plain C++: no GPU needed.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/rounding.h"

// The verdict on one result. The worst element is the one with the largest share of its bound,
// error / bound: it came closest to its bound, or broke it worst.
struct Comparison {
  bool ok = true;
  size_t compared = 0;       // how many elements were looked at
  size_t failed = 0;         // how many of them were out of bound or NaN
  size_t unwritten = 0;      // how many still hold the poison (0xFF in every byte)
  double max_error = 0;      // the largest |got - want| of all elements; NaN where a NaN is wrong
  double of_bound = 0;       // the worst element's share; infinite where it is NaN or its bound 0
  size_t index = 0;          // the worst element's flat index
  size_t first = 0;          // the flat index of the first element out of bound
  double got = 0, want = 0;  // the worst element's two values
  double bound = 0;          // the worst element's bound
  bool exact() const { return ok && max_error == 0; }
};

// The verdict on several results, such as all gradients of one launch: what is counted adds up, and
// the worst element is the worst of all. An index is one in the result that the element is from.
inline Comparison together(const std::vector<Comparison>& parts) {
  Comparison all;
  double worst = -1;
  for (const Comparison& part : parts) {
    if (!part.ok && all.ok) all.first = part.first;
    // A part may be refused whose elements are within their bounds.
    const bool worse = all.ok == part.ok ? part.of_bound > worst : all.ok;
    if (worse) {
      worst = part.of_bound;
      all.index = part.index, all.got = part.got, all.want = part.want, all.bound = part.bound;
    }
    all.ok = all.ok && part.ok;
    all.compared += part.compared, all.failed += part.failed, all.unwritten += part.unwritten;
    if (std::isnan(part.max_error) || part.max_error > all.max_error)
      all.max_error = part.max_error;
    if (part.of_bound > all.of_bound) all.of_bound = part.of_bound;
  }
  return all;
}

// True where every byte of value is 0xFF.
template <class T>
bool is_poison(const T& value) {
  T poisoned;
  std::memset(static_cast<void*>(&poisoned), 0xFF, sizeof(T));
  return std::memcmp(&value, &poisoned, sizeof(T)) == 0;
}

// Compares got(i) with want(i) for i in [0, n) and holds |got - want| <= bound(i). All three are
// callables; got returns the tested type, want and bound return double. A bound is derived from
// the arithmetic (common/rounding.h). A reference of infinity is matched only by the same
// infinity, a reference of NaN only by NaN.
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
    if (std::isnan(error) || error > result.max_error) result.max_error = error;
    if (ratio > worst) {
      worst = result.of_bound = ratio;
      result.index = i, result.got = g, result.want = w, result.bound = limit;
    }
  }
  result.ok = result.failed == 0;
  return result;
}
