// 5.7  The references of train_sales in double: a sale's features, and the first steps of a
// training.
#pragma once

#include <cstddef>
#include <vector>

#include "common/timer.h"
#include "stage5_training/06_train_toy/trajectory.h"
#include "stage5_training/07_train_sales/sales_training.h"

namespace train_sales {

using train_toy::compare_losses;
using train_toy::Trajectory;

// The row of a sale: the columns of the features and the target, 4 * kParts of them.
std::vector<double> row_cpu(const Sale& sale, const Normalization& normalization);

// How far a float row may be from it. An angle is off by 3 u (constant, place, product), and sine
// and cosine by 4 u more, as accurate as any of the backends takes them. A measure rounds up to
// twice and log1pf is off by 4 u; the difference rounds, and what it lost is not smaller than it
// was before the mean was taken away; then comes the scale.
double row_bound(double wanted, unsigned column, const Normalization& normalization);

// How many first steps are held against the reference.
inline constexpr size_t kChecked = kTimes ? 20 : 2;

// What the first `steps` steps must do from these parameters; it may end before. Ten times what the
// twins drift away is allowed. A parameter whose gradient is all rounding may go anywhere, by
// Adam's rule even far; but then, to first order, the loss does not depend on it.
Trajectory trajectory_cpu(const Sequential& model, const std::vector<float>& parameters,
                          const std::vector<float4>& rows, const Sampler& sampler,
                          const Settings& settings, size_t steps);

}  // namespace train_sales
