#include "stage5_training/08_train_mnist/reference.h"

#include "stage5_training/05_sequential/reference.h"
#include "stage5_training/06_train_toy/reference.h"

namespace mnist {

sequential::Values images_of(const Digits& digits, const Sampler& sampler, std::uint64_t step) {
  sequential::Values x;
  for (size_t sample = 0; sample < sampler.batch; ++sample)
    for (size_t k = 0, row = sampler.row(step, sample); k < kPixels; ++k)
      x.value.push_back(digits.pixels[row * kPixels + k] / 255.0);
  x.error.resize(x.value.size());
  return x;
}

std::vector<int> labels_of(const Digits& digits, const Sampler& sampler, std::uint64_t step) {
  std::vector<int> labels;
  for (size_t sample = 0; sample < sampler.batch; ++sample)
    labels.push_back(digits.labels[sampler.row(step, sample)]);
  return labels;
}

Trajectory trajectory_cpu(const Training& training, const Digits& digits, size_t steps,
                          const train_toy::Twins& drift) {
  const Sampler& sampler = training.sampler;
  const train_toy::Examples examples{
      [&](std::uint64_t step) { return images_of(digits, sampler, step); },
      [&](std::uint64_t step, const sequential::Values& y, bool stores_floats) {
        return sequential::cross_entropy_cpu(y, labels_of(digits, sampler, step), kClasses,
                                             stores_floats);
      }};
  return train_toy::trajectory_cpu(training.model, training.parameters(), training.settings,
                                   sampler.batch, examples, steps, drift);
}

}  // namespace mnist
