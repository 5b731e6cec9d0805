// The references of 3.3 in double, and how far correct float results may be from them. Plain C++.
#pragma once

#include <cstddef>
#include <vector>

#include "common/rounding.h"
#include "stage3_ml_ops/02_softmax/reference.h"
#include "stage3_ml_ops/03_losses/detail/targets.h"

namespace losses {

using rounding::gamma;
using softmax::Roundings;

// Through how many roundings a value goes on its way into the mean of n values (launch_mean).
double mean_roundings(size_t n);

// ---- Squared error ----------------------------------------------------------------------------

// The mean of (p - t)^2, and its gradient 2 (p - t) / n for elements of a larger batch of n.
double squared_error_cpu(const std::vector<float>& p, const std::vector<float>& t);
std::vector<double> squared_error_gradient_cpu(const std::vector<float>& p,
                                               const std::vector<float>& t, size_t n);

// What an element `grad` of the gradient may be off. The bounds of the mean are in losses.h.
double squared_error_gradient_bound(double grad);

// ---- Cross-entropy ----------------------------------------------------------------------------

// Rows on the host. `count` is what the mean divides by: of a sample, that of the whole batch.
struct HostRows {
  size_t classes = 0;
  std::vector<float> logits;  // (labels.size(), classes)
  std::vector<int> labels;
  double count = 0;
  long long ignore_index = kIgnoreNothing;

  // The row's class, or kIgnored, or kBadLabel.
  int label(size_t row) const { return class_of(labels[row], classes, ignore_index); }
};

struct CrossEntropy {
  std::vector<double> row_losses, grad;
};

// Each row's loss and gradient. The gradient of a row whose label is ignored or bad is 0, its loss
// 0 or NaN.
CrossEntropy cross_entropy_cpu(const HostRows& rows);

// What float results may be off, to first order in u; `want` is that of cross_entropy_cpu.
CrossEntropy cross_entropy_bounds(const HostRows& rows, const CrossEntropy& want,
                                  Roundings roundings, bool from_probabilities);

// What the mean of row_losses, all of them at least nearly 0, may be off.
double mean_bound(const std::vector<float>& row_losses, double count);

}  // namespace losses
