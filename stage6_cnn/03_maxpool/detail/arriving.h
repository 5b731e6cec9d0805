// What arrives at an output, as a functor: the kernels of the backward pass are written for either.
#pragma once

#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage6_cnn/03_maxpool/detail/packs.h"

namespace maxpool {

// The gradient of output i as it is.
struct AsItIs {
  const float* grad_y;
  AsItIs from(size_t first) const { return {grad_y + first}; }
  __device__ float operator()(size_t i) const { return grad_y[i]; }
  template <unsigned n>
  __device__ Pack<float, n> pack(size_t i) const {
    return packs<n>(grad_y)[i];
  }
};

// Where x is what a ReLU has made, the gradient of the ReLU's input: its slope at the one cell that
// gets it is that at y, which is the cell's value.
struct ThroughRelu {
  const float *grad_y, *y;
  ThroughRelu from(size_t first) const { return {grad_y + first, y + first}; }
  __device__ float operator()(size_t i) const {
    return grad_y[i] * activations::Relu{}.derivative(y[i]);
  }
  template <unsigned n>
  __device__ Pack<float, n> pack(size_t i) const {
    Pack<float, n> grad = packs<n>(grad_y)[i];
    const Pack<float, n> value = packs<n>(y)[i];
    GPU_UNROLL
    for (unsigned j = 0; j < n; ++j)
      grad.element[j] *= activations::Relu{}.derivative(value.element[j]);
    return grad;
  }
};

// Whether two neighbours can be loaded at once.
inline bool is_packed_by_2(const Arriving& arriving) {
  return is_packed<2>(arriving.grad_y) && is_packed<2>(arriving.y);
}

// Calls run(functor) with the one that fits.
template <class Run>
void with_gradient(const Arriving& arriving, Run&& run) {
  if (arriving.y == nullptr)
    run(AsItIs{arriving.grad_y});
  else
    run(ThroughRelu{arriving.grad_y, arriving.y});
}

}  // namespace maxpool
