// The reference of 4.1 in double, and how far a correct float result may be from it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace dense {

// Numbers in double, and how far a float version's may be from them.
struct Values {
  std::vector<double> value, error;
};

// The numbers themselves, with no error.
Values exactly(const std::vector<float>& values);

// No activation of step 1.4 has a slope beyond this (that of GELU at 1.41), so that f moves an
// error by no larger factor.
inline constexpr double kSteepest = 1.13;

// What is known of the terms of a sum, which decides its bound: nothing (rounding::worst_case), or
// that their signs are random (rounding::mean_zero_bound). The weights' signs are enough.
enum class Terms { any, mean_zero };

// X W^T + b for `batch` samples of x (batch, in), w (out, in), bias (out). What comes in wrong by
// x.error comes out of a sum wrong by |w| x.error; the sum itself is off by the bound of its terms.
Values sums_cpu(const Values& x, const std::vector<float>& w, const std::vector<float>& bias,
                std::size_t batch, Terms terms = Terms::any);

// f of sums that are off by their errors: f passes these on and adds its own bound.
template <class Activation>
Values activated_cpu(Values sums) {
  for (std::size_t i = 0; i < sums.value.size(); ++i) {
    const double sum = sums.value[i], off = sums.error[i];
    sums.value[i] = Activation::cpu(sum);
    sums.error[i] =
        kSteepest * off + std::max(Activation::bound(sum - off), Activation::bound(sum + off));
  }
  return sums;
}

// f(X W^T + b).
template <class Activation>
Values dense_cpu(const Values& x, const std::vector<float>& w, const std::vector<float>& bias,
                 std::size_t batch, Terms terms = Terms::any) {
  return activated_cpu<Activation>(sums_cpu(x, w, bias, batch, terms));
}

}  // namespace dense
