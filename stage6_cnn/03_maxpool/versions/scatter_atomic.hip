// scatter_atomic: each output adds its gradient to the cell that it has taken.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage6_cnn/03_maxpool/detail/arriving.h"

namespace maxpool {

// grad_x[argmax[i]] += what arrives at i    grad_x (planes,H,W), 0 before; argmax (planes,P,Q).
// Fixes : a CPU core takes the outputs one after the other.
// Idea  : one thread per output adds to the cell that its window has taken. Where windows overlap
//         several threads may add to the same cell: the addition has to be atomic.
// Thread: t owns the outputs t, t + T, ... of flat memory, with T threads in the grid.
// Costs : grad_x goes to memory twice and comes back once; sums in the order in which threads come.
template <class Gradient>
static __global__ void backward_scatter_atomic(float* grad_x, Gradient arriving,
                                               const Index* argmax, Shape shape, size_t outputs) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < outputs; i += threads) {
    // exercise: the cell's row and column in the image, then the addition (about 6 lines)
    const size_t row = i / shape.Q, plane = row / shape.P;
    const unsigned p = static_cast<unsigned>(row % shape.P), place = argmax[i];
    const unsigned q = static_cast<unsigned>(i % shape.Q);
    const unsigned h = p * shape.stride_h + place / shape.S - shape.pad_h;
    const unsigned w = q * shape.stride_w + place % shape.S - shape.pad_w;
    atomicAdd(grad_x + (plane * shape.H + h) * shape.W + w, arriving(i));
    // end exercise
  }
}

void launch_scatter_atomic(float* grad_x, const Arriving& arriving, const Index* argmax,
                           const Problem& p, hipStream_t stream) {
  const Shape shape = shape_of(p);
  const size_t planes = p.N * p.C, outputs = planes * shape.P * shape.Q;
  if (planes == 0) return;
  HIP_CHECK(hipMemsetAsync(grad_x, 0, planes * p.H * p.W * sizeof(float), stream));
  with_gradient(arriving, [&](auto gradient) {
    LAUNCH_ON(stream, (backward_scatter_atomic<decltype(gradient)>), vector_add::full_grid(outputs),
              vector_add::kBlock, 0, grad_x, gradient, argmax, shape, outputs);
  });
}

}  // namespace maxpool
