#include "stage5_training/06_train_toy/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "common/rounding.h"
#include "stage5_training/04_optimizers/reference.h"

namespace train_toy {

using optimizers::Hyperparameters;
using optimizers::Kind;

namespace {

// A network in double. Parameters in the order of the model's: a layer's weights (out, in), then
// its biases.
class Reference {
 public:
  // A twin keeps the layers' outputs as floats. Where tanh is nearly 1, hardly a digit is left of
  // its slope 1 - h^2 then; Adam takes a full step from whatever is left.
  Reference(std::vector<size_t> widths, const std::vector<float>& parameters, unsigned twin)
      : widths_(std::move(widths)), twin_(twin) {
    for (const float value : parameters) elements_.push_back({static_cast<double>(value)});
  }

  // The mean loss over the points; then one step of the optimizer, number t (the first is 1).
  double step(const Points& points, Kind kind, const Hyperparameters& hyper, std::uint64_t t) {
    const size_t layers = widths_.size() - 1, count = points.labels.size();
    std::vector<double>& grad = gradient_;
    grad.assign(elements_.size(), 0);
    double loss = 0;
    for (size_t s = 0; s < count; ++s) {
      std::vector<std::vector<double>> values{
          {points.x.begin() + static_cast<std::ptrdiff_t>(s * widths_[0]),
           points.x.begin() + static_cast<std::ptrdiff_t>((s + 1) * widths_[0])}};
      for (size_t l = 0; l < layers; ++l) values.push_back(forward(l, values[l]));
      std::vector<double> delta = values.back();  // from here on: the gradient of the sums
      const double max = *std::max_element(delta.begin(), delta.end());
      double sum = 0;
      for (const double logit : delta) sum += std::exp(logit - max);
      const size_t label = static_cast<size_t>(points.labels[s]);
      loss += (std::log(sum) + max - delta[label]) / static_cast<double>(count);
      for (size_t c = 0; c < delta.size(); ++c) {
        const double p = std::exp(delta[c] - max) / sum;
        delta[c] = (Twins::stored(p, twin_) - (c == label)) / static_cast<double>(count);
      }
      for (size_t l = layers; l-- > 0;) delta = backward(l, values[l], delta, grad);
    }
    optimizers::step_cpu(kind, hyper, t, std::vector<float>(grad.begin(), grad.end()), elements_);
    Twins::move(elements_, twin_, t);
    return loss;
  }
  const std::vector<double>& gradient() const { return gradient_; }  // of the last step

 private:
  // Where the weights of layer l begin.
  size_t begin(size_t l) const {
    size_t at = 0;
    for (size_t k = 0; k < l; ++k) at += (widths_[k] + 1) * widths_[k + 1];
    return at;
  }
  std::vector<double> forward(size_t l, const std::vector<double>& x) const {
    const size_t in = widths_[l], out = widths_[l + 1], w = begin(l);
    std::vector<double> y(out);
    for (size_t o = 0; o < out; ++o) {
      y[o] = elements_[w + in * out + o].w;
      for (size_t k = 0; k < in; ++k) y[o] += elements_[w + o * in + k].w * x[k];
      if (l + 2 < widths_.size()) y[o] = std::tanh(y[o]);
      y[o] = Twins::stored(y[o], twin_);
    }
    return y;
  }
  // Adds to the parameters' gradient; returns that of the sums whose tanh is x.
  std::vector<double> backward(size_t l, const std::vector<double>& x,
                               const std::vector<double>& delta, std::vector<double>& grad) const {
    const size_t in = widths_[l], out = widths_[l + 1], w = begin(l);
    std::vector<double> result(in);
    for (size_t o = 0; o < out; ++o) {
      grad[w + in * out + o] += delta[o];
      for (size_t k = 0; k < in; ++k) {
        grad[w + o * in + k] += delta[o] * x[k];
        result[k] += delta[o] * elements_[w + o * in + k].w;
      }
    }
    for (size_t k = 0; k < in; ++k) result[k] *= 1 - x[k] * x[k];
    return result;
  }

  std::vector<size_t> widths_;
  unsigned twin_;
  std::vector<optimizers::Element> elements_;
  std::vector<double> gradient_;
};

}  // namespace

Trajectory trajectory_cpu(const std::vector<size_t>& widths, const Points& points,
                          const std::vector<float>& parameters, Kind kind,
                          const Hyperparameters& hyper, size_t steps) {
  return follow(
      steps, 3, Twins(10, 4 * kFloatRoundoff),
      [&](unsigned twin) { return Reference(widths, Twins::beside(parameters, twin), twin); },
      [&](Reference& run, std::uint64_t t) { return run.step(points, kind, hyper, t); });
}

}  // namespace train_toy
