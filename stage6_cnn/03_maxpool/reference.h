// Maximum pooling in double, forward and backward. Plain C++.
#pragma once

#include <vector>

#include "stage6_cnn/03_maxpool/maxpool.h"

namespace maxpool {

struct Pooled {
  std::vector<double> y;
  std::vector<Index> argmax;
};

// y and argmax of x. A maximum is one of its values: nothing is rounded, and a float version agrees
// exactly.
Pooled forward_cpu(const std::vector<float>& x, const Problem& p);

// grad_x in double, and what a float version may be off.
struct Expected {
  std::vector<double> value, bound;
};

// A cell that k windows have taken gets a sum of k terms, whose k - 1 additions round in whatever
// order: off by at most gamma(k - 1) times the sum of their absolute values, gamma(k) = k u / (1 -
// k u) (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 4.2). One term is
// exact, and windows that don't overlap leave no more.
Expected backward_cpu(const std::vector<float>& grad_y, const std::vector<Index>& argmax,
                      const Problem& p);

}  // namespace maxpool
