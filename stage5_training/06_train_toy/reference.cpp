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

Trajectory trajectory_cpu(const sequential::DoubleNetwork& network,
                          const std::vector<std::vector<float>>& parameters,
                          const Settings& settings, size_t batch, const Examples& examples,
                          size_t steps, const Twins& drift,
                          const std::vector<sequential::Deviation>& twins,
                          const sequential::DoubleNetwork* of_twins) {
  const auto make = [&](unsigned twin) {
    const sequential::Deviation none{false, 0, 0, true};
    return Run{DoubleModel(twin == 0 || of_twins == nullptr ? network : *of_twins,
                           Twins::beside(parameters, twin), twin == 0 ? none : twins[twin - 1]),
               twin};
  };
  return follow(
      steps, static_cast<unsigned>(twins.size()), drift, make, [&](Run& run, std::uint64_t t) {
        const sequential::Values& y = run.model.forward(examples.x(t - 1), batch);
        const sequential::Loss loss = examples.loss(t - 1, y, run.twin > 0);
        if (t > 1 && t == steps) return loss.mean.value;  // nothing comes of its gradient
        run.model.backward(loss.grad);
        run.model.step(settings.kind, examples.hyper ? examples.hyper(t - 1) : settings.hyper, t);
        run.model.forget_errors();
        for (size_t k = 0; k < run.model.parameters(); ++k)
          Twins::move(run.model.parameter(k), run.twin, t, static_cast<std::uint32_t>(k));
        return loss.mean.value;
      });
}

Trajectory trajectory_cpu(const sequential::Sequential& model, const std::vector<float>& parameters,
                          const Settings& settings, size_t batch, const Examples& examples,
                          size_t steps, const Twins& drift) {
  // As far as tanhf may be off (step 1.4), which counts where it is nearly 1.
  constexpr int kTowardZero = 5;
  return trajectory_cpu(
      sequential::network_of(model), by_tensor(model, parameters), settings, batch, examples, steps,
      drift, {{true, 0, 2, true}, {true, kTowardZero, 0, true}, {true, -kTowardZero, 0, true}});
}

}  // namespace train_toy
