// A step's memory, one allocation that is kept from step to step.
//
// Fixes : calls of the driver in each step.
// Idea  : a model knows beforehand what it will need: an output per layer, and two gradients in
//         turn, each for the widest output. It asks once, and a step only launches. Kernels see the
//         same addresses in each step, as a captured graph must have it.
#include <algorithm>
#include <string>
#include <vector>

#include "stage5_training/05_sequential/sequential.h"

namespace sequential {

void Sequential::release() {
  step_memory_ = {};
  ++moves_;
  max_batch_ = 0;
  forward_done_ = false;
}

void Sequential::reserve(size_t max_batch) {
  max_batch = std::max(max_batch, size_t{1});
  if (max_batch <= max_batch_) return;
  const std::string what = "a batch of " + std::to_string(max_batch) + " for " + description();
  size_t end = 0, widest = 0;
  std::vector<size_t> begins(layers_.size());  // of the outputs
  for (size_t i = 0; i < layers_.size(); ++i) {
    const size_t output = aligned(checked_product({max_batch, width(i)}, what));
    widest = std::max(widest, output);
    begins[i] = end;
    if (!fused_[i]) end += output;
    check_addressable(end <= kMostFloats, what);
  }

  release();  // first: old and new memory together might not fit
  step_memory_ = DeviceBuffer<float>(end + 2 * widest);
  if (max_batch > max_batch_of_layers_) {
    for (const auto& layer : layers_) layer->reserve(max_batch);
    max_batch_of_layers_ = max_batch;
    HIP_CHECK(hipDeviceSynchronize());  // what they have written there
  }
  outputs_.resize(layers_.size());
  // exercise: where in step_memory_ each output lies, that of a fused layer where the next layer's
  // does; and behind them two buffers for gradients, each for the widest output (about 4 lines)
  for (size_t i = layers_.size(); i-- > 0;)
    outputs_[i] = fused_[i] ? outputs_[i + 1] : step_memory_.data() + begins[i];
  gradients_[0] = step_memory_.data() + end;
  gradients_[1] = gradients_[0] + widest;
  // end exercise
  max_batch_ = max_batch;
}

}  // namespace sequential
