// The numbers a training begins with.
#include <cmath>
#include <cstdint>

#include "common/random.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage5_training/05_sequential/sequential.h"

namespace sequential {

namespace {

// The bound of the uniform distribution; 0 where the rule is none.
float initial_bound(const Parameter& parameter) {
  const double in = static_cast<double>(parameter.fan_in);
  const double out = static_cast<double>(parameter.fan_out);
  switch (parameter.initial) {
    case Initial::Xavier:
      return static_cast<float>(std::sqrt(6 / (in + out)));
    case Initial::He:
      return static_cast<float>(std::sqrt(6 / in));
    case Initial::Torch:
      return static_cast<float>(1 / std::sqrt(in));
    default:
      break;
  }
  return 0;
}

}  // namespace

void Sequential::clear() {
  if (parameters_.size() > 0) HIP_CHECK(hipMemset(parameters_.data(), 0, parameters_.bytes()));
  HIP_CHECK(hipDeviceSynchronize());
}

void Sequential::initialize(std::uint64_t seed) {
  clear();
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const NamedTensor& tensor = tensors_[k];
    const float bound = initial_bound(specifications_[k]);
    if (specifications_[k].initial == Initial::Ones)
      device_matrix::launch_fill_flat(tensor.w, 1, tensor.n, 1.0f);
    if (bound == 0) continue;
    random_numbers::launch_fill_uniform(tensor.w, tensor.n, seed, static_cast<std::uint32_t>(k));
    axpy::launch_vectorized_scale(tensor.w, bound, tensor.w, tensor.n);
  }
  HIP_CHECK(hipDeviceSynchronize());  // a stream that does not wait for the default one comes next
}

}  // namespace sequential
