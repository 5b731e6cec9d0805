#include "stage5_training/04_optimizers/reference.h"

#include <cmath>

#include "common/rounding.h"

namespace optimizers {

void step_cpu(Kind kind, const Hyperparameters& hyper, std::uint64_t t,
              const std::vector<float>& grad_w, std::vector<Element>& elements) {
  step_cpu(kind, hyper, t, std::vector<double>(grad_w.begin(), grad_w.end()),
           std::vector<double>(grad_w.size()), elements);
}

void step_cpu(Kind kind, const Hyperparameters& hyper, std::uint64_t t,
              const std::vector<double>& grad_w, const std::vector<double>& grad_error,
              std::vector<Element>& elements) {
  constexpr double u = kFloatRoundoff;
  const double rate = static_cast<double>(hyper.learning_rate);
  const double momentum = static_cast<double>(hyper.momentum);
  const double beta1 = static_cast<double>(hyper.beta1), beta2 = static_cast<double>(hyper.beta2);
  const double epsilon = static_cast<double>(hyper.epsilon);
  const double decay = 1 - rate * static_cast<double>(hyper.weight_decay);
  const double step_size = rate / (1 - std::pow(beta1, static_cast<double>(t)));
  const double root_scale = 1 / std::sqrt(1 - std::pow(beta2, static_cast<double>(t)));
  // Of states that have begun at 0, |m| <= most sqrt(v) by the inequality of Cauchy and Schwarz: no
  // step is longer, however little is known of a gradient near 0. kMore: what is rounded there.
  const double most = (1 - beta1) / std::sqrt((1 - beta2) * (1 - beta1 * beta1 / beta2));
  constexpr double kMore = 1.001;
  for (size_t i = 0; i < elements.size(); ++i) {
    Element& e = elements[i];
    const double g = grad_w[i], g_error = grad_error[i];
    if (kind == Kind::Sgd) {
      e.w -= rate * g;
      e.w_error += rate * g_error + u * std::fabs(e.w) + kTiny;
      continue;
    }
    if (kind == Kind::Momentum) {
      e.m = momentum * e.m + g;
      e.m_error = momentum * e.m_error + g_error + u * std::fabs(e.m) + kTiny;
      e.w -= rate * e.m;
      e.w_error += rate * e.m_error + u * std::fabs(e.w) + kTiny;
      continue;
    }
    if (kind == Kind::AdamW) {
      e.w *= decay;
      e.w_error = std::fabs(decay) * e.w_error + 2 * u * std::fabs(e.w) + kTiny;
    }
    // 1 - beta is rounded once, each product once, the sum once.
    const double new_m = (1 - beta1) * g, new_v = (1 - beta2) * g * g;
    e.m = beta1 * e.m + new_m;
    e.m_error = beta1 * e.m_error + (1 - beta1) * g_error +
                u * (2 * std::fabs(new_m) + std::fabs(e.m)) + kTiny;
    e.v = beta2 * e.v + new_v;
    e.v_error = beta2 * e.v_error + (1 - beta2) * (2 * std::fabs(g) + g_error) * g_error +
                u * (3 * new_v + e.v) + kTiny;
    // |sqrt(a) - sqrt(b)| = |a - b| / (sqrt(a) + sqrt(b)), and never more than sqrt(|a - b|).
    const double root = std::sqrt(e.v);
    const double root_error = std::fmin(e.v_error / root, std::sqrt(e.v_error)) + 6 * u * root;
    const double divisor = root * root_scale + epsilon, quotient = e.m / divisor;
    const double divisor_error = root_scale * (root_error + u * root) + u * divisor;
    const double quotient_error =
        divisor_error < divisor
            ? (e.m_error + std::fabs(quotient) * divisor_error) / (divisor - divisor_error) +
                  5 * u * std::fabs(quotient)
            : std::fabs(quotient) + kMore * most / root_scale;
    e.w -= step_size * quotient;
    e.w_error +=
        step_size * (quotient_error + u * std::fabs(quotient)) + u * std::fabs(e.w) + kTiny;
  }
}

std::vector<Element> elements_of(const std::vector<float>& w, const std::vector<float>& m,
                                 const std::vector<float>& v) {
  std::vector<Element> elements(w.size());
  for (std::size_t i = 0; i < elements.size(); ++i) {
    elements[i].w = static_cast<double>(w[i]);
    elements[i].m = static_cast<double>(m[i]);
    elements[i].v = static_cast<double>(v[i]);
  }
  return elements;
}

}  // namespace optimizers
