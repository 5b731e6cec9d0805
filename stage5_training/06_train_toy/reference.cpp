#include "stage5_training/06_train_toy/reference.h"

#include <utility>

namespace train_toy {

using sequential::DoubleModel;

std::vector<std::vector<float>> by_tensor(const sequential::Sequential& model,
                                          const std::vector<float>& parameters) {
  std::vector<std::vector<float>> tensors;
  auto at = parameters.begin();
  for (const sequential::NamedTensor& tensor : model.tensors()) {
    const auto end = at + static_cast<std::ptrdiff_t>(tensor.n);
    tensors.emplace_back(at, end);
    at = end;
  }
  return tensors;
}

namespace {

// The reference, or one of its twins.
struct Run {
  DoubleModel model;
  unsigned twin;

  std::vector<double> gradient() const {
    std::vector<double> all;
    for (const sequential::Values& tensor : model.gradients())
      all.insert(all.end(), tensor.value.begin(), tensor.value.end());
    return all;
  }
};

}  // namespace

Trajectory trajectory_cpu(const sequential::Sequential& model, const std::vector<float>& parameters,
                          const Settings& settings, size_t batch, const Examples& examples,
                          size_t steps, const Twins& drift) {
  const std::vector<std::vector<float>> tensors = by_tensor(model, parameters);
  // As far as tanhf may be off (step 1.4), which counts where it is nearly 1.
  constexpr int kTowardZero[] = {0, 0, 5, -5};
  const auto make = [&](unsigned twin) {
    return Run{DoubleModel(model, Twins::beside(tensors, twin),
                           {twin > 0, kTowardZero[twin], twin == 1 ? 2.0 : 0.0, true}),
               twin};
  };
  return follow(steps, 3, drift, make, [&](Run& run, std::uint64_t t) {
    const sequential::Values& y = run.model.forward(examples.x(t - 1), batch);
    const sequential::Loss loss = examples.loss(t - 1, y, run.twin > 0);
    run.model.backward(loss.grad);
    run.model.step(settings.kind, settings.hyper, t);
    run.model.forget_errors();
    for (size_t k = 0; k < run.model.parameters(); ++k)
      Twins::move(run.model.parameter(k), run.twin, t, static_cast<std::uint32_t>(k));
    return loss.mean.value;
  });
}

}  // namespace train_toy
