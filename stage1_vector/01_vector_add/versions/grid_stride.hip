// grid_stride: a grid that fits the device walks over the elements.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/01_vector_add/detail/operations.h"
#include "stage1_vector/01_vector_add/vector_add.h"

namespace vector_add {

// c = operation(a, b)    a, b, c (n), any n.
// Fixes : naive needs a grid as large as n, and starts a thread for every 12 bytes.
// Idea  : the grid is as large as the device can use; each thread steps on by the grid's size.
// Thread: t owns c[t], c[t + T], c[t + 2T], ... with T threads in the grid.
// Costs : 12 n bytes of global memory; no shared memory, no barrier.
template <class Operation>
static __global__ void elementwise_grid_stride(float* c, const float* a, const float* b, size_t n) {
  // exercise: this thread's elements, a grid apart (about 3 lines)
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = thread; i < n; i += threads) c[i] = Operation{}(a[i], b[i]);
  // end exercise
}

void launch_grid_stride_add(float* c, const float* a, const float* b, size_t n,
                            hipStream_t stream) {
  if (n == 0) return;
  LAUNCH_ON(stream, (elementwise_grid_stride<Add>), grid_stride_blocks(n), kBlock, 0, c, a, b, n);
}

void launch_grid_stride_multiply(float* c, const float* a, const float* b, size_t n,
                                 hipStream_t stream) {
  if (n == 0) return;
  LAUNCH_ON(stream, (elementwise_grid_stride<Multiply>), grid_stride_blocks(n), kBlock, 0, c, a, b,
            n);
}

}  // namespace vector_add
