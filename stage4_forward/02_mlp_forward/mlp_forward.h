// 4.2  mlp_forward: a network of two layers, y = W2 f(W1 x + b1) + b2, for a batch of samples.
//
//   x (batch, in)  ->  h (batch, hidden)  ->  y (batch, out)      row-major, without gaps
//
// The layers are those of step 4.1, one after the other. A hidden value is made by one launch, kept
// in memory, and read by the next: the ladder takes away the launches within a layer, then the one
// between the layers, and with it the memory for h.
//
// Any sizes (0 too), all arrays on the device and aligned to 4 bytes. y and h overlap nothing else.
// The work is queued on `stream`. Errors: gpu::Error where a launch is refused,
// std::invalid_argument where an array that is needed is null, or where the second layer does not
// take what the first one makes.
#pragma once

#include <cstddef>

#include "common/version.h"
#include "stage4_forward/01_dense/dense.h"

namespace mlp_forward {

using dense::Layer;
using dense::Linear;

struct Network {
  Layer first, second;  // first.out == second.in: the hidden units
};

// Throws std::invalid_argument where the layers do not fit together.
void check(const Network& network);

// The launchers are compiled for Relu and Sigmoid of step 1.4. h (batch, hidden) is memory for the
// hidden values.

// versions/separate.hip: five launches: product, bias, activation; product, bias.
template <class Activation>
void launch_separate(float* y, float* h, const float* x, size_t batch, const Network& network,
                     hipStream_t stream = nullptr);

// versions/fused_layers.hip: two launches. h goes to memory once and comes back once.
template <class Activation>
void launch_fused_layers(float* y, float* h, const float* x, size_t batch, const Network& network,
                         hipStream_t stream = nullptr);

// versions/one_kernel.hip: one launch; h is not used. A network too wide for a block's shared
// memory is left to fused_layers.
template <class Activation>
void launch_one_kernel(float* y, float* h, const float* x, size_t batch, const Network& network,
                       hipStream_t stream = nullptr);

using Launch = void (*)(float* y, float* h, const float* x, size_t batch, const Network& network,
                        hipStream_t stream);

// The same versions for both functions: kVersions<Relu>, kVersions<Sigmoid>.
template <class Activation>
inline constexpr Version<Launch> kVersions[] = {
    {"separate", launch_separate<Activation>, "every operation of every layer is a launch"},
    {"fused_layers", launch_fused_layers<Activation>, "one launch per layer"},
    {"one_kernel", launch_one_kernel<Activation>,
     "the hidden values stay in shared memory; nothing waits for a second launch"},
};

}  // namespace mlp_forward
