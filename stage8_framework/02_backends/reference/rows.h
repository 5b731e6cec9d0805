// What softmax and the losses share.
#pragma once

#include "stage8_framework/02_backends/reference/numbers.h"

namespace reference {

// A row's maximum, and the sum of exp(x - maximum): no exponential overflows.
struct RowSum {
  double max, sum;
};
RowSum sum_of_exponentials(const Numbers& row);

}  // namespace reference
