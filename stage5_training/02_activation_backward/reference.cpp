#include "stage5_training/02_activation_backward/reference.h"

#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/02_activation_backward/softmax_backward.h"

namespace activation_backward {

void softmax_backward_cpu(const std::vector<float>& grad_p, const std::vector<float>& p,
                          size_t cols, double roundings, std::vector<double>& grad_x,
                          std::vector<double>& bound) {
  grad_x.resize(p.size()), bound.resize(p.size());
  for (size_t begin = 0; begin < p.size(); begin += cols) {
    double sum = 0, absolute = 0;
    for (size_t i = begin; i < begin + cols; ++i) {
      const double product = static_cast<double>(p[i]) * static_cast<double>(grad_p[i]);
      sum += product, absolute += std::fabs(product);
    }
    for (size_t i = begin; i < begin + cols; ++i) {
      const double probability = static_cast<double>(p[i]), grad = static_cast<double>(grad_p[i]);
      grad_x[i] = probability * (grad - sum);
      bound[i] =
          rounding::gamma(roundings + 3) * std::fabs(probability) * (std::fabs(grad) + absolute) +
          kTiny;
    }
  }
}

LossGradient cross_entropy_backward_cpu(const losses::HostRows& rows, const std::vector<float>& p,
                                        bool from_logits) {
  if (from_logits) {
    const losses::CrossEntropy want = losses::cross_entropy_cpu(rows);
    return {
        want.grad,
        losses::cross_entropy_bounds(rows, want, losses::roundings_best(rows.classes), false).grad};
  }
  const double roundings = 3 + roundings_softmax_backward(rows.classes) + 3;
  LossGradient result{std::vector<double>(p.size()), std::vector<double>(p.size())};
  for (size_t i = 0; i < p.size(); ++i) {
    const int label = rows.label(i / rows.classes);
    if (label < 0) continue;
    const double one_hot = i % rows.classes == static_cast<size_t>(label) ? 1 : 0;
    const double probability = static_cast<double>(p[i]);
    result.grad[i] = (probability - one_hot) / rows.count;
    result.bound[i] = rounding::gamma(roundings) * (probability + one_hot) / rows.count + kTiny;
  }
  return result;
}

}  // namespace activation_backward
