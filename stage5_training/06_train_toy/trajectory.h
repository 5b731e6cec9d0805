// What the first steps of a training must do: the losses and the gradient of a reference in double,
// and how far a float version may be off from them at any learning rate. Steps 5.7, 5.8 and 6.4
// hold their versions against it too. Host code only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "common/compare.h"
#include "common/gpu_runtime.h"
#include "common/random.h"
#include "common/rounding.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/04_optimizers/reference.h"
#include "stage5_training/05_sequential/layer.h"

namespace train_toy {

// The losses before each of the first steps, and what a float version may be off from them.
struct Trajectory {
  std::vector<double> losses, bounds;
  // Of the first step, all tensors one behind the other: the reference's and its first twin's.
  std::vector<double> gradient = {}, twin_gradient = {};
};

// Training is a loop: the error of a step changes the weights, and so all that follows. A bound
// that follows each rounding through 20 steps would be larger than the loss. So the loop is asked
// itself: further runs of the reference, the twins, begin with weights that are four roundings
// away, up or down at random, and are moved so far again after each step. How far their losses
// drift from the reference's says how much this training amplifies a rounding at this learning
// rate: the larger the rate, the more. A step rounds more often than that, and each version in its
// own order: hence `factor`. To that come 1e-5 of the loss, which goes through a hundred roundings
// at most. Where a rounding decides something, such as the side of its corner on which ReLU is, one
// twin may miss what another one meets.
//
// Twins have numbers from 1; number 0 is the reference itself, which nothing here changes.
class Twins {
 public:
  // of_sum: what the loss may be off beside that, absolutely; of_loss: in place of 1e-5.
  explicit Twins(double factor, double of_sum = 0, double of_loss = 1e-5)
      : factor_(factor), of_sum_(of_sum), of_loss_(of_loss) {}

  // The weights that a twin begins with; `stream` is another one for each tensor.
  static std::vector<float> beside(std::vector<float> weights, unsigned twin,
                                   std::uint32_t stream = 0) {
    for (std::size_t i = 0; i < weights.size(); ++i)
      weights[i] *= static_cast<float>(1 + roundings(twin, 0, stream, i));
    return weights;
  }
  static std::vector<std::vector<float>> beside(std::vector<std::vector<float>> tensors,
                                                unsigned twin) {
    for (std::size_t k = 0; k < tensors.size(); ++k)
      tensors[k] = beside(std::move(tensors[k]), twin, static_cast<std::uint32_t>(k));
    return tensors;
  }
  // Moves a twin's weights after step number t, the first being 1.
  static void move(std::vector<optimizers::Element>& tensor, unsigned twin, std::uint64_t t,
                   std::uint32_t stream = 0) {
    for (std::size_t i = 0; i < tensor.size(); ++i)
      tensor[i].w *= 1 + roundings(twin, t, stream, i);
  }
  // What a version stores as a float, a twin does too: of a probability near 1, less
  // 1, a multiple of 2^-24 is left, from which Adam takes a full step.
  static double stored(double value, unsigned twin) {
    return twin == 0 ? value : static_cast<double>(static_cast<float>(value));
  }

  // Adds a step. False where the trajectory ends before this step: there the training has diverged,
  // its loss being ten times that of the first step and that of guessing, which is about 1, or
  // nothing is left to compare because the twins' losses have nothing in common. The first step,
  // which no rate has touched, always counts.
  bool add(Trajectory& to, double loss, const std::vector<double>& of_twins) {
    constexpr double kDiverged = 10;
    for (const double of_twin : of_twins) {
      const double apart = std::fabs(1 - of_twin / loss);
      if (loss == of_twin) continue;  // where both are 0, 1 - 0/0 says nothing
      apart_ =
          std::isfinite(apart) ? std::max(apart_, apart) : std::numeric_limits<double>::infinity();
    }
    const double bound = (of_loss_ + factor_ * apart_) * loss + of_sum_;
    const bool says_something = bound < std::max(loss, 2 * of_sum_);
    if (!to.losses.empty() &&
        !(says_something && loss <= kDiverged * std::max(1.0, to.losses.front())))
      return false;
    to.losses.push_back(loss), to.bounds.push_back(bound);
    return true;
  }

 private:
  // Four roundings of a float of size 1, up or down.
  static double roundings(unsigned twin, std::uint64_t t, std::uint32_t stream, std::size_t i) {
    if (twin == 0) return 0;
    return std::copysign(4 * kFloatRoundoff,
                         static_cast<double>(random_numbers::uniform(t << 8 | twin, stream, i)));
  }

  double factor_, of_sum_, of_loss_, apart_ = 0;  // apart: of the loss, the most until now
};

// The values of all tensors one behind the other.
template <class T>
std::vector<T> flat(const std::vector<std::vector<T>>& tensors) {
  std::vector<T> all;
  for (const std::vector<T>& tensor : tensors) all.insert(all.end(), tensor.begin(), tensor.end());
  return all;
}

// The trajectory of the first `steps` steps; it may end before. make(twin) is the reference (0) or
// a twin, whose gradient() is that of its last step, all tensors one behind the other; step(run, t)
// takes its step number t, the first being 1, and returns the loss before it.
template <class Make, class Step>
Trajectory follow(std::size_t steps, unsigned twins, Twins drift, Make make, Step step) {
  std::vector<decltype(make(0u))> runs;
  for (unsigned twin = 0; twin <= twins; ++twin) runs.push_back(make(twin));
  Trajectory want;
  for (std::uint64_t t = 1; t <= steps; ++t) {
    std::vector<double> losses;
    for (auto& run : runs) losses.push_back(step(run, t));
    if (!drift.add(want, losses[0], {losses.begin() + 1, losses.end()})) break;
    if (t == 1) want.gradient = runs[0].gradient(), want.twin_gradient = runs[1].gradient();
  }
  return want;
}

// The losses of the first steps against a trajectory; `got` has as many or more.
inline Comparison compare_losses(const std::vector<float>& got, const Trajectory& want) {
  return compare(
      want.losses.size(), [&](std::size_t i) { return got[i]; },
      [&](std::size_t i) { return want.losses[i]; }, [&](std::size_t i) { return want.bounds[i]; });
}

// The gradient of a training's first step against the reference's. The losses alone do not show it:
// Adam takes the same steps from a gradient that is 20% too large. It is read off what the
// optimizer has made of it, by every version alike:
//   sgd        w_0 - w_1 = rate g, which loses u |w_1|
//   momentum   m_1 = g
//   adam(w)    m_1 = (1 - beta_1) g
// Tensor by tensor the 2-norm of the difference is held against that of the gradient. A sum of n
// terms loses some sqrt(n) u of the terms' norm (Higham and Mary, SIAM J. Sci. Comput. 41, 2019):
// n is at most 10^4 here, and that norm some hundred times the sum's, which makes 6e-4; 1e-3 is
// allowed, and ten times the distance of the twin's gradient, which takes ReLU's other side where a
// sum is nearly 0. No learning rate is in it. A tensor's gradient that is a percent off is refused.
// The model has one step of `hyper` behind it; `parameters` are its values before, tensor by
// tensor.
inline Comparison compare_gradient(const std::vector<sequential::NamedTensor>& tensors,
                                   optimizers::Kind kind, const optimizers::Hyperparameters& hyper,
                                   const std::vector<float>& parameters, const Trajectory& want) {
  constexpr double kOfGradient = 1e-3, kFactor = 10, kTiny = 1e-30;
  using optimizers::Kind;
  const double rate = static_cast<double>(hyper.learning_rate);
  const double share = kind == Kind::Momentum ? 1 : 1 - static_cast<double>(hyper.beta1);
  std::vector<double> errors, bounds;
  std::size_t first = 0;
  for (const sequential::NamedTensor& tensor : tensors) {
    std::vector<float> now(tensor.n);
    HIP_CHECK(hipMemcpy(now.data(), kind == Kind::Sgd ? tensor.w : tensor.m,
                        tensor.n * sizeof(float), hipMemcpyDeviceToHost));
    double error = 0, twin = 0, norm = 0, rounding = 0;
    for (std::size_t i = 0; i < tensor.n; ++i) {
      const double value = static_cast<double>(now[i]), g = want.gradient[first + i];
      const double before = static_cast<double>(parameters[first + i]);
      const double got = kind == Kind::Sgd ? (before - value) / rate : value / share;
      error += (got - g) * (got - g), norm += g * g;
      twin += (want.twin_gradient[first + i] - g) * (want.twin_gradient[first + i] - g);
      if (kind == Kind::Sgd) rounding += std::pow(kFloatRoundoff * value / rate, 2);
    }
    errors.push_back(std::sqrt(error));
    bounds.push_back(kOfGradient * std::sqrt(norm) + kFactor * std::sqrt(twin) +
                     std::sqrt(rounding) + kTiny);
    first += tensor.n;
  }
  return compare(
      errors.size(), [&](std::size_t i) { return errors[i]; }, [](std::size_t) { return 0.0; },
      [&](std::size_t i) { return bounds[i]; });
}

}  // namespace train_toy
