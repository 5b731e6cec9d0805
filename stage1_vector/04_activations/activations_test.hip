// Two textbook formulas that activations_test.cpp must see fail, as kernels.
#include "common/gpu.h"

namespace activations_test {

void launch_textbook_softplus(float* y, const float* x, size_t n, hipStream_t stream);
void launch_textbook_sigmoid(float* y, const float* x, size_t n, hipStream_t stream);
void launch_textbook_slope(float* grad_x, const float* grad_y, const float* x, size_t n,
                           hipStream_t stream);

// y = log(1 + exp(x)): overflows from 89 on, and is 0 below -17.
static __global__ void textbook_softplus(float* y, const float* x, size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = logf(1.0f + expf(x[i]));
}

// y = exp(x) / (1 + exp(x)): infinity / infinity from 89 on.
static __global__ void textbook_sigmoid(float* y, const float* x, size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = expf(x[i]) / (1.0f + expf(x[i]));
}

// grad_x = grad_y s (1 - s) with s = sigmoid(x): 1 - s has no digits left from 17 on.
static __global__ void textbook_slope(float* grad_x, const float* grad_y, const float* x,
                                      size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float s = 1.0f / (1.0f + expf(-x[i]));
  grad_x[i] = grad_y[i] * s * (1.0f - s);
}

void launch_textbook_softplus(float* y, const float* x, size_t n, hipStream_t stream) {
  LAUNCH_ON(stream, textbook_softplus, 1, 256, 0, y, x, n);
}

void launch_textbook_sigmoid(float* y, const float* x, size_t n, hipStream_t stream) {
  LAUNCH_ON(stream, textbook_sigmoid, 1, 256, 0, y, x, n);
}

void launch_textbook_slope(float* grad_x, const float* grad_y, const float* x, size_t n,
                           hipStream_t stream) {
  LAUNCH_ON(stream, textbook_slope, 1, 256, 0, grad_x, grad_y, x, n);
}

}  // namespace activations_test
