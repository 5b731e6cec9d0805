// 3.1  Activations over a matrix: Y = f(X), and what a layer does to its sums, Y[r,c] = f(X[r,c] +
// bias[c]), with the backward pass grad_x = grad_y * f'(x + bias).
//
// Where an element's column does not matter, a row-major matrix is flat memory and stage 1's
// kernels do as they are. The bias does depend on the column: the ladder first gets rid of the
// matrix's second trip through memory, then of a division per element, then of 4-byte loads.
// forward moves 8 bytes per element, backward 12; the bias stays in the caches.
//
// x, y, grad_x, grad_y (rows, cols), row-major without gaps; bias (cols); any sizes (0 too), all on
// the device and aligned to 4 bytes. The output may be x, or grad_y; apart from that it overlaps no
// input. One exception: the backward pass of `separate` keeps x + bias in grad_x, which can't be
// grad_y then. The work is queued on `stream`. Errors: gpu::Error where a launch is refused.
#pragma once

#include <cstddef>
#include <type_traits>

#include "common/version.h"
#include "stage1_vector/04_activations/activations.h"

namespace matrix_activations {

// f(x) = x: what is left is the addition of the bias.
struct Identity {
  __host__ __device__ float operator()(float x) const { return x; }
};

// Y = f(X). No element needs to know its column: stage 1's kernel.
template <class Activation>
void launch_activation(float* y, const float* x, size_t rows, size_t cols,
                       hipStream_t stream = nullptr) {
  activations::launch_forward_vectorized<Activation>(y, x, rows * cols, stream);
}

// versions/separate.hip: Y[r,c] = X[r,c] + bias[c], then stage 1's kernel over the sums.
void launch_bias(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                 hipStream_t stream = nullptr);
template <class Activation>
void launch_forward_separate(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                             hipStream_t stream = nullptr);
template <class Activation>
void launch_backward_separate(float* grad_x, const float* grad_y, const float* x, const float* bias,
                              size_t rows, size_t cols, hipStream_t stream = nullptr);

// versions/fused_flat.hip: one kernel, and a division per element.
template <class Activation>
void launch_forward_fused_flat(float* y, const float* x, const float* bias, size_t rows,
                               size_t cols, hipStream_t stream = nullptr);
template <class Activation>
void launch_backward_fused_flat(float* grad_x, const float* grad_y, const float* x,
                                const float* bias, size_t rows, size_t cols,
                                hipStream_t stream = nullptr);

// versions/fused_2d.hip: a grid of the matrix's shape. Its forward pass has Identity, too.
template <class Activation>
void launch_forward_fused_2d(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                             hipStream_t stream = nullptr);
template <class Activation>
void launch_backward_fused_2d(float* grad_x, const float* grad_y, const float* x, const float* bias,
                              size_t rows, size_t cols, hipStream_t stream = nullptr);

// versions/vectorized.hip: 16 bytes per load and store, row by row. forward_vectorized is compiled
// for the functions of step 1.4 and for Identity.
template <class Activation>
void forward_vectorized(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                        hipStream_t stream);
template <class Activation>
void launch_backward_vectorized(float* grad_x, const float* grad_y, const float* x,
                                const float* bias, size_t rows, size_t cols,
                                hipStream_t stream = nullptr);

// A function that derives from Identity, such as that of step 4.1's linear layer, runs as Identity.
template <class Activation>
void launch_forward_vectorized(float* y, const float* x, const float* bias, size_t rows,
                               size_t cols, hipStream_t stream = nullptr) {
  using Compiled =
      std::conditional_t<std::is_base_of_v<Identity, Activation>, Identity, Activation>;
  forward_vectorized<Compiled>(y, x, bias, rows, cols, stream);
}

struct Launch {
  void (*forward)(float* y, const float* x, const float* bias, size_t rows, size_t cols,
                  hipStream_t stream);
  void (*backward)(float* grad_x, const float* grad_y, const float* x, const float* bias,
                   size_t rows, size_t cols, hipStream_t stream);
};

// The same versions for every function: kVersions<Relu>, kVersions<Sigmoid>, ...
template <class Activation>
inline constexpr Version<Launch> kVersions[] = {
    {"separate",
     {launch_forward_separate<Activation>, launch_backward_separate<Activation>},
     "bias and activation in two kernels: the sums go to memory and come back"},
    {"fused_flat",
     {launch_forward_fused_flat<Activation>, launch_backward_fused_flat<Activation>},
     "one kernel; a division per element finds its column"},
    {"fused_2d",
     {launch_forward_fused_2d<Activation>, launch_backward_fused_2d<Activation>},
     "a grid of the matrix's shape: nothing to divide"},
    {"vectorized",
     {launch_forward_vectorized<Activation>, launch_backward_vectorized<Activation>},
     "16 bytes per load and store, row by row"},
};

}  // namespace matrix_activations
