// Which layers do their neighbours' work.
//
// Fixes : launches that only carry one array from memory to memory between two products.
// Idea  : a layer is asked whether it takes on the work of the next one (ReLU in the product's
//         epilogue), leaves a bias's gradient for the one before, or does the backward pass of the
//         one before. It alone knows what its kernels can do.
#include <memory>

#include "stage5_training/05_sequential/sequential.h"

namespace sequential {

void Sequential::set_mode(const Mode& mode) {
  mode_ = mode;
  fused_.assign(layers_.size(), false);
  for (const auto& layer : layers_) layer->leave_sums(nullptr);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const bool possible = mode.fuse && i + 1 < layers_.size();
    fused_[i] = layers_[i]->fuse(possible ? layers_[i + 1].get() : nullptr);
  }
  back_to_.resize(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {  // who leaves sums is settled now
    const bool possible = mode.fuse && i > 0 && layers_[i - 1]->parameters().empty();
    const bool fused = layers_[i]->fuse_backward(possible ? layers_[i - 1].get() : nullptr);
    back_to_[i] = fused ? back_to_[i - 1] : i;
  }
  release();
  max_batch_of_layers_ = 0;  // what they need has changed
}

}  // namespace sequential
