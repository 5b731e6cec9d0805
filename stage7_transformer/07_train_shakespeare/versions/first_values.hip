// What a training begins with: the first weights, and the schedule of each step.
#include <algorithm>
#include <cmath>

#include "common/gpu.h"
#include "common/random.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage7_transformer/07_train_shakespeare/model.h"

namespace train_shakespeare {

// out[i] = deviation * bell(seed, stream, i)    out (n).
// Fixes : uniform numbers are what other steps begin with; published models begin with normal ones.
// Idea  : every number follows from its place alone, so that nothing depends on the grid.
// Thread: t owns the elements t, t + T, ...
// Costs : 4 n bytes of global memory.
static __global__ void fill_bell(float* out, size_t n, float deviation, std::uint64_t seed,
                                 std::uint32_t stream) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    out[i] = deviation * random_numbers::bell(seed, stream, i);
}

// Of a matrix; 0 for a gain and for a bias.
static double first_deviation(const NamedTensor& tensor, size_t layers) {
  const auto ends_with = [&](const std::string& ending) {
    return tensor.name.size() > ending.size() &&
           tensor.name.compare(tensor.name.size() - ending.size(), ending.size(), ending) == 0;
  };
  if (tensor.shape.size() != 2) return 0;
  const bool ends_box = ends_with(".proj.weight") || ends_with(".out.weight");
  return ends_box ? kDeviation / std::sqrt(2 * static_cast<double>(layers)) : kDeviation;
}

void Model::initialize(std::uint64_t seed) {
  constexpr unsigned kBlock = 256, kMostBlocks = 32;
  HIP_CHECK(hipMemset(memory_.data(), 0, memory_.bytes()));
  for (size_t k = 0; k < tensors_.size(); ++k) {
    const NamedTensor& tensor = tensors_[k];
    const float deviation = static_cast<float>(first_deviation(tensor, sizes_.layers));
    const bool is_gain = tensor.shape.size() == 1 &&
                         tensor.name.find("norm") != std::string::npos &&
                         tensor.name.find(".weight") != std::string::npos;
    if (is_gain) device_matrix::launch_fill_flat(tensor.w, 1, tensor.n, 1.0f);
    if (deviation > 0)
      LAUNCH(fill_bell, std::min(vector_add::full_grid(tensor.n), kMostBlocks), kBlock, 0, tensor.w,
             tensor.n, deviation, seed, static_cast<std::uint32_t>(k));
  }
  HIP_CHECK(hipDeviceSynchronize());  // a stream that does not wait for the default one comes next
}

// On the host, so that every backend trains with the same bits.
std::vector<Schedule> schedules(const Settings& settings) {
  std::vector<Schedule> list(settings.steps);
  for (std::uint64_t t = 0; t < settings.steps; ++t) {
    list[t].hyper = settings.hyper;
    list[t].hyper.learning_rate = static_cast<float>(learning_rate(settings, t));
    list[t].step = t;
    optimizers::advance(list[t]);
  }
  return list;
}

}  // namespace train_shakespeare
