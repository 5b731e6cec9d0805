#include "stage5_training/08_train_mnist/reference.h"

#include <algorithm>
#include <cmath>

#include "common/random.h"
#include "stage5_training/04_optimizers/reference.h"

namespace train_mnist {

namespace {

// The network in double, and its training by the settings.
class Reference {
 public:
  // parameters: w1, b1, w2, b2. The first twin decides otherwise where a float version might:
  // whether a hidden unit's sum that is nearly 0 is above ReLU's corner.
  Reference(const Settings& settings, const mnist::Digits& digits,
            const std::vector<std::vector<float>>& parameters, unsigned twin)
      : settings_(settings), digits_(digits), twin_(twin) {
    for (const std::vector<float>& values : parameters) {
      network_.emplace_back(values.size());
      for (size_t i = 0; i < values.size(); ++i)
        network_.back()[i].w = static_cast<double>(values[i]);
    }
  }

  // The loss of step number `step`, the first being 0; leaves its gradients, and takes it.
  double step(size_t step) {
    grads_.clear();
    for (const auto& tensor : network_) grads_.emplace_back(tensor.size());
    const Course course{digits_.count(), settings_.batch, settings_.seed};
    const random_numbers::Permutation order = course.order(step);
    double loss = 0;
    for (size_t sample = 0; sample < settings_.batch; ++sample)
      loss += image(order(course.place(step, sample)));
    for (size_t k = 0; k < network_.size(); ++k) {
      optimizers::step_cpu(settings_.optimizer, mnist::hyperparameters_of(settings_), step + 1,
                           std::vector<float>(grads_[k].begin(), grads_[k].end()), network_[k]);
      train_toy::Twins::move(network_[k], twin_, step + 1, static_cast<std::uint32_t>(k));
    }
    return loss;
  }
  std::vector<double> gradient() const { return train_toy::flat(grads_); }  // of the last step

 private:
  // Its share in the loss; adds to the gradients.
  double image(size_t row) {
    const auto &w1 = network_[0], &b1 = network_[1], &w2 = network_[2], &b2 = network_[3];
    const size_t hidden = b1.size();
    const double batch = static_cast<double>(settings_.batch);
    std::vector<double> x(kPixels), h(hidden), logits(kClasses), grad_logits(kClasses);
    std::vector<bool> passes(hidden);
    for (size_t k = 0; k < kPixels; ++k) x[k] = digits_.pixels[row * kPixels + k] / 255.0;
    for (size_t c = 0; c < kClasses; ++c) logits[c] = b2[c].w;
    for (size_t unit = 0; unit < hidden; ++unit) {
      double sum = b1[unit].w, terms = std::fabs(sum);
      for (size_t k = 0; k < kPixels; ++k) {
        const double term = x[k] * w1[unit * kPixels + k].w;
        sum += term, terms += std::fabs(term);
      }
      h[unit] = std::fmax(sum, 0.0);
      // What a float version's sum usually is off: sqrt(n) u of its terms.
      const double doubt = 2 * std::sqrt(double{kPixels}) * kFloatRoundoff * terms;
      passes[unit] = (sum > 0) != (twin_ == 1 && sum != 0 && std::fabs(sum) <= doubt);
      for (size_t c = 0; c < kClasses; ++c) logits[c] += h[unit] * w2[c * hidden + unit].w;
    }
    const double max = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - max);
    const size_t label = digits_.labels[row];
    for (size_t c = 0; c < kClasses; ++c) {
      const double p = std::exp(logits[c] - max) / sum;
      grad_logits[c] = (train_toy::Twins::stored(p, twin_) - (c == label ? 1 : 0)) / batch;
      grads_[3][c] += grad_logits[c];
    }
    for (size_t unit = 0; unit < hidden; ++unit) {
      double grad_h = 0;
      for (size_t c = 0; c < kClasses; ++c) {
        grads_[2][c * hidden + unit] += grad_logits[c] * h[unit];
        grad_h += grad_logits[c] * w2[c * hidden + unit].w;
      }
      if (!passes[unit]) continue;
      grads_[1][unit] += grad_h;
      for (size_t k = 0; k < kPixels; ++k) grads_[0][unit * kPixels + k] += grad_h * x[k];
    }
    return (std::log(sum) + max - logits[label]) / batch;
  }

  Settings settings_;
  const mnist::Digits& digits_;
  unsigned twin_;
  std::vector<std::vector<optimizers::Element>> network_;
  std::vector<std::vector<double>> grads_;
};

}  // namespace

Trajectory trajectory_cpu(const Settings& settings, const mnist::Digits& digits,
                          const std::vector<std::vector<float>>& parameters, size_t steps) {
  return train_toy::follow(
      steps, 3, train_toy::Twins(10),
      [&](unsigned twin) {
        return Reference(settings, digits, train_toy::Twins::beside(parameters, twin), twin);
      },
      [](Reference& run, std::uint64_t t) { return run.step(t - 1); });
}

}  // namespace train_mnist
