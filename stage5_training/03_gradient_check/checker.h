// The checker: each element of a case's gradient is held against a difference quotient.
//
//   dL/dp  is  (L(p + h) - L(p - h)) / 2h   but for  h^2 / 6 L'''  and  u |L| / h,  u = 2^-53
//
// The first error is there because a parabola through three points is not the curve, the second
// because L is rounded. Their sum is smallest at h = cbrt(3 u L / L'''), about cbrt(3 u) where loss
// and parameter are of order 1 (Nocedal and Wright: Numerical Optimization, 2nd ed., section 8.1).
// What is left is near 1e-11. In float, whose u is 2^-24, it would be near 1e-4, no better than the
// tolerance.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "stage5_training/03_gradient_check/problem.h"

namespace gradient_check {

inline constexpr double kTolerance = 1e-4;
inline constexpr double kDoubleRoundoff = 1.1102230246251565e-16;  // 2^-53
inline constexpr double kStep = 7.62939453125e-06;  // 2^-17, which is about cbrt(3 * 2^-53)

// How the loss changes with one of its values: between a step below and a step above, and to either
// side alone.
struct Slopes {
  double central, above, below;
};

// versions/dense.hip: the slopes of `loss` by values[argument][index], which is put back. `here` is
// the loss as it stands.
Slopes difference_quotients(
    const std::function<double(const std::vector<std::vector<double>>&)>& loss,
    std::vector<std::vector<double>>& values, std::size_t argument, std::size_t index, double here);

// The element whose gradient is off by most.
struct Finding {
  bool ok = true;
  std::size_t checked = 0, failed = 0;
  std::size_t argument = 0, index = 0;  // where: of Case::arguments, and in its values
  double analytic = 0, numeric = 0;     // the device's gradient, and the difference quotient
  double error = 0;                     // relative, as relative_error says
  bool kink = false;                    // the slopes of the two sides differ as much: there is none
};

// Holds the case's gradient by every element of every argument against the difference quotient.
// An argument's floor is the root of the mean square of its gradients, but at least so large that
// what the rounding of the loss does to a quotient (some ten operations' worth of a number of order
// 1, though the loss may be their difference) stays within the tolerance. Errors: what the case's
// functions throw.
Finding check(const Case& c);
// The same of a case whose arguments are small integers and whose loss is linear in each of them:
// nothing is rounded, neither in the kernels nor in the quotients. A gradient that is not equal to
// its quotient is wrong.
Finding check_exactly(const Case& c);

// |a - n| over the larger of the two, or over `floor` where both are below: a gradient far below
// its neighbours is the difference of large numbers, and float has left it few digits.
double relative_error(double analytic, double numeric, double floor);
double root_mean_square(const std::vector<double>& values);

// The gradients that the case's kernels compute. What they do not write stays NaN.
std::vector<std::vector<float>> device_gradients(const Case& c);

}  // namespace gradient_check
