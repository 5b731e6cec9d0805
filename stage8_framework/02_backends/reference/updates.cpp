// What works in place, in double: numbers are read before they are written.
#include <cmath>

#include "stage8_framework/02_backends/detail/dropout.h"
#include "stage8_framework/02_backends/reference/operations.h"

namespace reference {
namespace {

enum : Integer { kSgd, kMomentum, kAdam, kAdamW };  // as the attribute counts

// Step t = step + 1 of each parameter w by its gradient g, and step = t:
//   sgd         w -= rate g
//   momentum    m = momentum m + g,  w -= rate m
//   adam        m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
//               w -= rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)
//   adamw       w -= rate weight_decay w, then as adam
void optimizer_step(const Arguments& arguments) {
  const Numbers grad = arguments.in(0), w = arguments.out(0), state = arguments.out(1);
  const double rate = arguments.in(1)[0], momentum = arguments.attribute(1);
  const double beta1 = arguments.attribute(2), beta2 = arguments.attribute(3);
  const double epsilon = arguments.attribute(4), weight_decay = arguments.attribute(5);
  const Integer kind = arguments.whole(0), n = w.size();
  const Element step = arguments.out(2)[0];
  const double t = step + 1;
  for (Integer i = 0; i < n; ++i) {
    const double g = grad[i];
    if (kind == kSgd) {
      w[i] = w[i] - rate * g;
    } else if (kind == kMomentum) {
      const double m = momentum * state[i] + g;
      state[i] = m, w[i] = w[i] - rate * m;
    } else {
      const double m = beta1 * state[i] + (1 - beta1) * g;
      const double v = beta2 * state[n + i] + (1 - beta2) * g * g;
      const double decayed = kind == kAdamW ? w[i] - rate * weight_decay * w[i] : w[i];
      const double unseen1 = 1 - std::pow(beta1, t), unseen2 = 1 - std::pow(beta2, t);
      state[i] = m, state[n + i] = v;
      w[i] = decayed - rate * (m / unseen1) / (std::sqrt(v / unseen2) + epsilon);
    }
  }
  step = t;
}

// mask[i] = 0 with probability p, else 1 / (1 - p); step += 1.
void dropout_mask(const Arguments& arguments) {
  const Numbers mask = arguments.out(0);
  const Element step = arguments.out(1)[0];
  const auto steps = static_cast<Integer>(step);
  const framework::DropoutRule rule(arguments.attribute(0),
                                    static_cast<std::uint64_t>(arguments.whole(1)));
  for (Integer i = 0; i < mask.size(); ++i)
    mask[i] = rule.drops(steps, static_cast<std::uint64_t>(i)) ? 0 : rule.kept;
  step = static_cast<double>(steps + 1);
}

void count_up(const Arguments& arguments) {
  const Element step = arguments.out(0)[0];
  step = step + 1;
}

}  // namespace

std::vector<Operation> updates() {
  return {
      {"optimizer_step", optimizer_step}, {"dropout_mask", dropout_mask}, {"count_up", count_up}};
}

}  // namespace reference
