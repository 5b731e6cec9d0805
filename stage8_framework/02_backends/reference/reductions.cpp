// Several elements become one.
#include <cmath>
#include <limits>

#include "stage8_framework/02_backends/reference/operations.h"

namespace reference {
namespace {

// Whether `a` comes in place of `best`: NaN counts as the largest, and of equals the first stays.
bool is_larger(double a, double best) { return a > best || (std::isnan(a) && !std::isnan(best)); }

double plain_sum(const Numbers& x) {
  double sum = 0;
  for (Integer n = 0; n < x.size(); ++n) sum += x[n];
  return sum;
}

double average(const Numbers& x) { return plain_sum(x) / static_cast<double>(x.size()); }

// 0 counts as larger than -0: whoever looks at the elements in another order has the same bits.
double largest(const Numbers& x) {
  double max = -std::numeric_limits<double>::infinity();
  for (Integer n = 0; n < x.size(); ++n)
    if (is_larger(x[n], max) || (x[n] == max && std::signbit(max))) max = x[n];
  return max;
}

// Each element of y from those elements of x whose indices differ from its own only in the axes of
// the mask.
template <class Reduction>
std::function<void(const Arguments&)> over_axes(Reduction reduce) {
  return [reduce](const Arguments& arguments) {
    const unsigned mask = static_cast<unsigned>(arguments.whole(0));
    const Numbers x = arguments.in(0).with_axes_last(mask), y = arguments.out(0);
    int reduced = 0;
    for (int d = 0; d < x.rank(); ++d) reduced += mask >> d & 1;
    for (Integer n = 0; n < y.size(); ++n) y[n] = reduce(x.part(n, reduced));
  };
}

// Where the largest element of each row is.
void argmax(const Arguments& arguments) {
  const Numbers x = arguments.in(0), y = arguments.out(0);
  for (Integer n = 0; n < y.size(); ++n) {
    const Numbers row = x.part(n, 1);
    Integer best = 0;
    for (Integer c = 1; c < row.size(); ++c)
      if (is_larger(row(c), row(best))) best = c;
    y[n] = static_cast<double>(best);
  }
}

}  // namespace

std::vector<Operation> reductions() {
  return {{"sum", over_axes(plain_sum)},
          {"mean", over_axes(average)},
          {"max", over_axes(largest)},
          {"argmax", argmax}};
}

}  // namespace reference
