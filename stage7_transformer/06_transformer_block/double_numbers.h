// Numbers of the reference in double: with what a float version is likely off, or without. Plain
// C++.
#pragma once

#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "common/rounding.h"
#include "stage5_training/05_sequential/reference.h"

namespace transformer_block {

using rounding::Approximate;
using sequential::Values;

// What works with a Number is written once for double and for Approximate. An Approximate carries
// how far a float version is likely to be from it: what its operands are off, through the
// derivative of the operation, and the operation's own rounding. Worst cases would be multiplied by
// the sum of a row's |w| in each product, and after four of them no mistake could break the bound.
// But roundings are independent, or nearly so, and as often up as down: their squares add up, as in
// rounding::random_bound.
template <class Number>
inline constexpr bool kHasError = std::is_same_v<Number, Approximate>;

// What a rounding counts: so many times u that more has a chance of rounding::kFalseAlarm.
inline constexpr double kRounding = rounding::kLambda * kFloatRoundoff;

inline Approximate rounded(double value, double inherited) {
  return {value, std::hypot(inherited, kRounding * value)};
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

inline double value_of(double a) { return a; }
inline double value_of(Approximate a) { return a.value; }

// A constant, which is rounded to a float.
template <class Number>
Number constant(double value) {
  if constexpr (kHasError<Number>)
    return rounded(value, 0);
  else
    return value;
}

template <class Number>
Number number(const Values& values, size_t i) {
  if constexpr (kHasError<Number>)
    return sequential::at(values, i);
  else
    return values.value[i];
}
inline void put(Values& values, size_t i, double a) { values.value[i] = a; }
inline void put(Values& values, size_t i, Approximate a) {
  values.value[i] = a.value, values.error[i] = a.error;
}
template <class Number>
Values zeros(size_t n) {
  return {std::vector<double>(n), std::vector<double>(kHasError<Number> ? n : 0)};
}

// A sum of products in any order, fused or not.
template <class Number>
struct Total {
  void add(double a, double b = 1) { value += a * b; }
  double result() const { return value; }
  double value = 0;
};
template <>
struct Total<Approximate> {
  void add(Approximate a, Approximate b = {1, 0}) { sum.add(a, b), ++terms; }
  Approximate result() const { return sum.random_bound(terms); }
  rounding::ApproximateSum sum;
  double terms = 0;
};
template <class Number>
Values results(const std::vector<Total<Number>>& sums) {
  Values values = zeros<Number>(sums.size());
  for (size_t i = 0; i < sums.size(); ++i) put(values, i, sums[i].result());
  return values;
}

template <class Number>
Values added(const Values& a, const Values& b) {
  Values sum = zeros<Number>(a.value.size());
  for (size_t i = 0; i < sum.value.size(); ++i)
    put(sum, i, number<Number>(a, i) + number<Number>(b, i));
  return sum;
}

}  // namespace transformer_block
