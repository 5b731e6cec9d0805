#include "stage5_training/08_train_mnist/reference.h"

#include "stage5_training/06_train_toy/reference.h"

namespace train_mnist {

Trajectory trajectory_cpu(const Sequential& model, const std::vector<float>& parameters,
                          const mnist::Digits& digits, const Settings& settings, size_t steps) {
  const Sampler sampler{digits.count(), settings.batch, settings.seed};
  const train_toy::Examples images{
      [&](std::uint64_t step) {
        sequential::Values x;
        for (size_t sample = 0; sample < sampler.batch; ++sample)
          for (size_t k = 0, row = sampler.row(step, sample); k < kPixels; ++k)
            x.value.push_back(digits.pixels[row * kPixels + k] / 255.0);
        x.error.resize(x.value.size());
        return x;
      },
      [&](std::uint64_t step, const sequential::Values& y, bool stores_floats) {
        std::vector<int> labels;
        for (size_t sample = 0; sample < sampler.batch; ++sample)
          labels.push_back(digits.labels[sampler.row(step, sample)]);
        return sequential::cross_entropy_cpu(y, labels, kClasses, stores_floats);
      }};
  return train_toy::trajectory_cpu(model, parameters, settings, sampler.batch, images, steps,
                                   train_toy::Twins(10));
}

}  // namespace train_mnist
