// Losses: one number that says how wrong a batch is, and its gradient.
#include <cmath>
#include <limits>

#include "stage8_framework/02_backends/reference/operations.h"
#include "stage8_framework/02_backends/reference/rows.h"

namespace reference {
namespace {

constexpr double kIgnored = -1;

// The mean of (p - t)^2; of no elements, NaN.
void squared_error(const Arguments& arguments) {
  const Numbers p = arguments.in(0), t = arguments.in(1);
  double sum = 0;
  for (Integer n = 0; n < p.size(); ++n) sum += (p[n] - t[n]) * (p[n] - t[n]);
  arguments.out(0)[0] = sum / static_cast<double>(p.size());
}

// grad_p = grad 2 (p - t) / elements
void squared_error_backward(const Arguments& arguments) {
  const Numbers grad = arguments.in(0), p = arguments.in(1), t = arguments.in(2);
  const Numbers grad_p = arguments.out(0);
  for (Integer n = 0; n < p.size(); ++n)
    grad_p[n] = grad[0] * 2 * (p[n] - t[n]) / static_cast<double>(p.size());
}

// How many rows the mean is over: those whose label is not kIgnored.
double counted(const Numbers& labels) {
  double count = 0;
  for (Integer r = 0; r < labels.size(); ++r) count += labels[r] != kIgnored;
  return count;
}

bool is_class(const Numbers& logits, double label) {
  return label >= 0 && label < static_cast<double>(logits.extent(-1));
}

// The mean of log(sum over k of exp(x[r,k])) - x[r, label[r]] over the rows that count; NaN where
// there is none, or where a label is no class.
void cross_entropy(const Arguments& arguments) {
  const Numbers logits = arguments.in(0), labels = arguments.in(1);
  double sum = 0;
  for (Integer r = 0; r < labels.size(); ++r) {
    const Numbers row = logits.part(r, 1);
    if (labels[r] == kIgnored) continue;
    const RowSum of = sum_of_exponentials(row);
    sum += is_class(logits, labels[r]) ? std::log(of.sum) + (of.max - row(labels[r]))
                                       : std::numeric_limits<double>::quiet_NaN();
  }
  arguments.out(0)[0] = sum / counted(labels);
}

// grad_x[r,c] = grad (softmax(x)[r,c] - 1[c = label[r]]) / rows that count; 0 in all other rows.
void cross_entropy_backward(const Arguments& arguments) {
  const Numbers grad = arguments.in(0), logits = arguments.in(1), labels = arguments.in(2);
  const Numbers grad_x = arguments.out(0);
  const double count = counted(labels);
  for (Integer r = 0; r < labels.size(); ++r) {
    const Numbers row = logits.part(r, 1), out = grad_x.part(r, 1);
    const RowSum of = sum_of_exponentials(row);
    for (Integer c = 0; c < row.size(); ++c) {
      const double target = labels[r] == static_cast<double>(c);
      const double slope = std::exp(row(c) - of.max) / of.sum - target;
      out(c) = is_class(logits, labels[r]) ? grad[0] * slope / count : 0;
    }
  }
}

}  // namespace

std::vector<Operation> losses() {
  return {{"squared_error", squared_error},
          {"squared_error_backward", squared_error_backward},
          {"cross_entropy", cross_entropy},
          {"cross_entropy_backward", cross_entropy_backward}};
}

}  // namespace reference
