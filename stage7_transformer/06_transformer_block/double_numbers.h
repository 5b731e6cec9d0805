// Numbers of the reference in double: with what a float version is likely off, or without. Plain
// C++.
#pragma once

#include <cmath>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "common/half.h"
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

// ---- bf16 -------------------------------------------------------------------------------------

// bf16_twin: bf16 by another version, whose weights of attention are rounded otherwise.
enum class Precision { fp32, bf16, bf16_twin };

inline double nearest_bf16(double value) {
  return static_cast<double>(
      gpu::to_float(gpu::from_float<gpu::bfloat16>(static_cast<float>(value))));
}

// What a rounding to bf16 counts. Errors that are spread evenly within half a unit of the last of 8
// digits have a deviation of 0.43 U on average: kLambda deviations.
inline constexpr double kBf16Rounding = rounding::kLambda * 0.43 * gpu::kBfloat16Roundoff;

// Numbers as a version stores them. Where no float that a version may have lies on the other side
// of the middle between two numbers of bf16, the rounded one has no error. Else it has that of two
// roundings, the reference's and the version's.
template <class Number>
Values stored(Values values, Precision precision) {
  if (precision == Precision::fp32) return values;
  for (size_t i = 0; i < values.value.size(); ++i) {
    double& value = values.value[i];
    if constexpr (kHasError<Number>) {
      double& error = values.error[i];
      error = nearest_bf16(value - error) == nearest_bf16(value + error)
                  ? 0
                  : std::hypot(error, std::sqrt(2) * kBf16Rounding * value);
    }
    value = nearest_bf16(value);
  }
  return values;
}

// A weight of attention, rounded to bf16 for the matrix unit. What is rounded depends on the
// maximum of the keys seen so far, so that the nearest number is not known.
template <class Number>
Number as_factor(Number a, Precision precision) {
  if (precision == Precision::fp32) return a;
  if constexpr (kHasError<Number>)
    return {a.value, std::hypot(a.error, kBf16Rounding * a.value)};
  else
    return precision == Precision::bf16_twin ? nearest_bf16(a) : a;
}

template <class Number>
Values added(const Values& a, const Values& b) {
  Values sum = zeros<Number>(a.value.size());
  for (size_t i = 0; i < sum.value.size(); ++i)
    put(sum, i, number<Number>(a, i) + number<Number>(b, i));
  return sum;
}

}  // namespace transformer_block
