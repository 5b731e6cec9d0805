// A step: the layers one after the other, there and back. A model that does not keep its memory
// asks the driver for it in each step.
//
// Costs: hipMalloc and hipFree. The driver takes microseconds for each, and freeing waits until the
//        device is idle, so that the host can't queue the next step while this one runs.
#include <stdexcept>

#include "stage5_training/05_sequential/sequential.h"

namespace sequential {

const float* Sequential::forward(const float* x, size_t batch, hipStream_t stream) {
  if (x == nullptr && batch > 0) throw std::invalid_argument("Sequential: x is null");
  if (!mode_.keep_memory) release();
  reserve(batch);
  x_ = x, batch_ = batch, forward_done_ = true;
  // exercise: one layer after the other, each from the output of the one before (about 3 lines)
  for (size_t i = 0; i < layers_.size(); ++i)
    if (i == 0 || !fused_[i - 1])  // else the layer before has done its work
      layers_[i]->forward(outputs_[i], input(i), batch, stream);
  // end exercise
  return outputs_.back();
}

void Sequential::backward(const float* grad_y, float* grad_x, hipStream_t stream) {
  if (!forward_done_)
    throw std::logic_error("Sequential: there is no forward pass that backward could belong to");
  if (grad_y == nullptr && batch_ > 0) throw std::invalid_argument("Sequential: grad_y is null");
  // Layers before the first one with parameters are asked only where grad_x is wanted.
  const size_t first = grad_x != nullptr ? 0 : first_trained_;
  // exercise: the layers in reverse, each from the gradient of its output, to the gradient of the
  // input of layer back_to_[i], with which it goes on: the buffer that grad_y is not in, or grad_x
  // for layer 0; the first one asked makes none but that (about 8 lines)
  for (size_t i = layers_.size(); i-- > first;) {
    const size_t end = back_to_[i];
    float* const free = gradients_[grad_y == gradients_[0] ? 1 : 0];
    float* to = end == 0 ? grad_x : end <= first ? nullptr : free;
    layers_[i]->backward(to, grad_y, input(i), outputs_[i], batch_, stream);
    grad_y = to, i = end;
  }
  // end exercise
}

}  // namespace sequential
