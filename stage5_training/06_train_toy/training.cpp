#include "stage5_training/06_train_toy/training.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "stage5_training/05_sequential/layers.h"

namespace train_toy {

namespace {

sequential::Sequential make_model(const std::vector<size_t>& widths) {
  if (widths.size() < 2) throw std::invalid_argument("train_toy: a network has two widths or more");
  std::vector<std::unique_ptr<sequential::Layer>> layers;
  for (size_t l = 0; l + 1 < widths.size(); ++l) {
    if (l > 0) layers.push_back(std::make_unique<sequential::Tanh>());
    layers.push_back(std::make_unique<sequential::Linear>(widths[l], widths[l + 1]));
  }
  return sequential::Sequential(std::move(layers));
}

}  // namespace

Training::Training(const std::vector<size_t>& widths, const Points& points, const Settings& wanted)
    : SequentialTrainer(make_model(widths), wanted, points.labels.size(), CurveShape{1}),
      x(points.x),
      labels(points.labels),
      widths_(widths),
      loss_buffers_(points.labels.size()) {
  const size_t count = points.labels.size();
  if (count == 0 || points.x.size() != count * widths[0])
    throw std::invalid_argument("train_toy: " + std::to_string(points.x.size()) +
                                " coordinates are not " + std::to_string(widths[0]) +
                                " for each of " + std::to_string(count) + " points");
  for (size_t i = 0; i < count; ++i)
    if (points.labels[i] < 0 || static_cast<size_t>(points.labels[i]) >= widths.back())
      throw std::out_of_range("point " + std::to_string(i) + ": label " +
                              std::to_string(points.labels[i]) + " is not in [0, " +
                              std::to_string(widths.back()) + ")");
  model.reserve(count);
}

void Training::reset(unsigned count, unsigned every_steps) {
  restart();
  set_curve({count / every_steps, every_steps});
}

Network Training::network() const {
  if (widths_.size() > kMaxLayers + 1)
    throw std::invalid_argument("train_toy: more than " + std::to_string(kMaxLayers) + " layers");
  Network n{};
  n.layers = static_cast<int>(widths_.size()) - 1;
  n.points = static_cast<int>(points());
  // A multiple of four floats by an odd number: lanes that read 16 bytes of neighbouring rows
  // find them in different banks.
  n.stride = 4 * ((n.points + 3) / 4 | 1);
  for (int l = 0; l < n.layers; ++l) {
    Layer& layer = n.layer[l];
    const size_t k = 2 * static_cast<size_t>(l);
    layer.in = static_cast<int>(widths_[static_cast<size_t>(l)]);
    layer.out = static_cast<int>(widths_[static_cast<size_t>(l) + 1]);
    layer.w = static_cast<int>(model.tensors()[k].w - model.arena().w);
    layer.bias = static_cast<int>(model.tensors()[k + 1].w - model.arena().w);
    layer.weights = n.parameters;
    n.parameters += layer.out * (layer.in + 1);
    layer.inputs = n.rows;
    layer.grads = n.rows + layer.in + 1;
    n.rows += layer.in + 1 + layer.out;
  }
  n.labels = n.rows++, n.losses = n.rows++;
  return n;
}

void Training::require_room(unsigned count) const {
  if ((steps + count) / every > curve.size())
    throw std::invalid_argument("train_toy: more steps than reset() was told of");
}

Trajectory trajectory_cpu(const Training& t, const Points& points, size_t steps) {
  const Examples all{[&](std::uint64_t) { return dense::exactly(points.x); },
                     [&](std::uint64_t, const sequential::Values& y, bool stores_floats) {
                       return sequential::cross_entropy_cpu(y, points.labels, t.widths().back(),
                                                            stores_floats);
                     }};
  return trajectory_cpu(t.model, t.parameters(), t.settings, points.labels.size(), all, steps,
                        Twins(10, 4 * kFloatRoundoff));
}

}  // namespace train_toy
