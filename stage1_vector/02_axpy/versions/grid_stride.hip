// grid_stride: a grid that fits the device walks over the elements.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage1_vector/02_axpy/detail/updates.h"

namespace axpy {

// y = update(x, y)    x, y (n), any n; update is Scale or Axpy, which hold alpha.
// Fixes : naive needs a grid as large as n, and hands alpha to a new thread for every element.
// Idea  : the grid is as large as the device can use; each thread steps on by the grid's size.
// Thread: t owns y[t], y[t + T], y[t + 2T], ... with T threads in the grid.
// Costs : axpy 12 n bytes of global memory, scale 8 n: the compiler drops a load that is not used.
template <class Update>
static __global__ void update_grid_stride(float* y, const float* x, size_t n, Update update) {
  // exercise: update this thread's elements, a grid apart (about 3 lines)
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = thread; i < n; i += threads) y[i] = update(x[i], y[i]);
  // end exercise
}

void launch_grid_stride_scale(float* y, float alpha, const float* x, size_t n, hipStream_t stream) {
  if (n == 0) return;
  LAUNCH_ON(stream, (update_grid_stride<Scale>), vector_add::grid_stride_blocks(n),
            vector_add::kBlock, 0, y, x, n, Scale{alpha});
}

void launch_grid_stride_axpy(float* y, float alpha, const float* x, size_t n, hipStream_t stream) {
  if (n == 0) return;
  LAUNCH_ON(stream, (update_grid_stride<Axpy>), vector_add::grid_stride_blocks(n),
            vector_add::kBlock, 0, y, x, n, Axpy{alpha});
}

}  // namespace axpy
