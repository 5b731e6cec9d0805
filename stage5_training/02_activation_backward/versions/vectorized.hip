// vectorized: 16 bytes per load, four rows on their way.
//
// Fixes : a thread of fused asks for 4 bytes of each matrix at a time, and waits for them.
// Idea  : the kernel of detail/rounds.h: float4s, and kRowsInFlight rows of them on their way
// before
//         the first is used.
// Costs : 8 kRowsInFlight registers more. Rows that do not begin at a multiple of 16 bytes are read
//         4 bytes at a time.
#include "common/gpu.h"
#include "stage5_training/02_activation_backward/detail/rounds.h"

namespace activation_backward {

using activations::GeluErf;
using activations::GeluTanh;
using activations::Relu;
using activations::Sigmoid;
using activations::Softplus;
using activations::Tanh;

double roundings_vectorized(size_t rows, size_t cols) {
  const double scalar = share_out(rows, cols, cols, kRowsInFlight).roundings();
  if (cols % 4 != 0) return scalar;
  return std::max(scalar, share_out(rows, cols / 4, cols, kRowsInFlight).roundings());
}

// The functions that this file is compiled for.
template void launch_vectorized<Relu>(float*, float*, const float*, const float*, size_t, size_t,
                                      float, Workspace&, hipStream_t);
template void launch_vectorized<Sigmoid>(float*, float*, const float*, const float*, size_t, size_t,
                                         float, Workspace&, hipStream_t);
template void launch_vectorized<Tanh>(float*, float*, const float*, const float*, size_t, size_t,
                                      float, Workspace&, hipStream_t);
template void launch_vectorized<GeluErf>(float*, float*, const float*, const float*, size_t, size_t,
                                         float, Workspace&, hipStream_t);
template void launch_vectorized<GeluTanh>(float*, float*, const float*, const float*, size_t,
                                          size_t, float, Workspace&, hipStream_t);
template void launch_vectorized<Softplus>(float*, float*, const float*, const float*, size_t,
                                          size_t, float, Workspace&, hipStream_t);

}  // namespace activation_backward
