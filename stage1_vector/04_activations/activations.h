// 1.4  Activations y = f(x), and their backward pass grad_x = grad_y * f'(x), over n floats: ReLU,
// sigmoid, tanh, GELU (with erf, and its tanh form) and softplus.
//
// forward moves 8 bytes per element (read x, write y), backward 12 (read x and grad_y, write
// grad_x). Memory sets the time as long as f costs fewer instructions than the memory leaves time
// for. `Activation` is one of the functors of detail/formulas.h: Relu, Sigmoid, Tanh, GeluErf,
// GeluTanh, Softplus. They are accurate and do not overflow for any |x| up to 1e4.
//
// Every launcher takes device arrays of n floats: any n (0 too), aligned to 4 bytes. The output is
// an input or does not overlap it. The work is queued on `stream`. Errors: gpu::Error where the
// launch is refused.
#pragma once

#include <cstddef>

#include "common/version.h"

namespace activations {

// versions/scalar.hip: one element per thread.
template <class Activation>
void launch_forward_scalar(float* y, const float* x, size_t n, hipStream_t stream = nullptr);
template <class Activation>
void launch_backward_scalar(float* grad_x, const float* grad_y, const float* x, size_t n,
                            hipStream_t stream = nullptr);

// versions/vectorized.hip: 16 bytes per load, several loads in flight.
template <class Activation>
void launch_forward_vectorized(float* y, const float* x, size_t n, hipStream_t stream = nullptr);
template <class Activation>
void launch_backward_vectorized(float* grad_x, const float* grad_y, const float* x, size_t n,
                                hipStream_t stream = nullptr);

struct Launch {
  void (*forward)(float* y, const float* x, size_t n, hipStream_t stream);
  void (*backward)(float* grad_x, const float* grad_y, const float* x, size_t n,
                   hipStream_t stream);
};

// The same versions for every function: kVersions<Relu>, kVersions<Sigmoid>, ...
template <class Activation>
inline constexpr Version<Launch> kVersions[] = {
    {"scalar",
     {launch_forward_scalar<Activation>, launch_backward_scalar<Activation>},
     "one element per thread"},
    {"vectorized",
     {launch_forward_vectorized<Activation>, launch_backward_vectorized<Activation>},
     "16 bytes per load, several loads in flight"},
};

}  // namespace activations
