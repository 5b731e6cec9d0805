// grad_x alone, by the kernel of step 1.4.
#pragma once

#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/vectors.h"
#include "stage5_training/02_activation_backward/activation_backward.h"

namespace activation_backward {

template <class Slope>
void launch_without_bias(float* grad_x, const float* grad_y, const float* kept, size_t rows,
                         size_t cols, hipStream_t stream) {
  const size_t n = rows * cols;
  if (n == 0) return;
  const activations::Split split = activations::split_vectors(n, {grad_x, grad_y, kept});
  LAUNCH_ON(stream, (activations::backward_vectorized<Slope>), activations::vector_blocks(split),
            activations::kBlock, 0, grad_x, grad_y, kept, split);
}

}  // namespace activation_backward
