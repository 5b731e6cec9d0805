// vectorized: 16 bytes per load and store, addresses in order.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/01_vector_add/detail/operations.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage1_vector/02_axpy/detail/updates.h"

namespace axpy {

// y = update(x, y)    x, y (n), any n, any alignment; `split` says where the float4s lie.
// Fixes : grid_stride asks for 4 bytes per instruction, from addresses all over the arrays.
// Idea  : a float4 moves 16 bytes per instruction. The grid is as large as the work, and blocks
//         start in order, so the addresses of one moment lie close together.
// Thread: t owns the float4s t, t + T, ... and of head and tail the elements t, t + T, ...
// Costs : axpy 12 n bytes of global memory, scale 8 n, in a quarter of the instructions.
template <class Update>
static __global__ void update_vectorized(float* y, const float* x, vector_add::Split split,
                                         Update update) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  // exercise: the float4s between head and tail, then the single elements (about 8 lines)
  const float4* x4 = reinterpret_cast<const float4*>(x + split.head);
  float4* y4 = reinterpret_cast<float4*>(y + split.head);
  for (size_t v = thread; v < split.vectors; v += threads)
    y4[v] = vector_add::apply(update, x4[v], y4[v]);
  for (size_t s = thread; s < split.head + split.tail; s += threads) {
    const size_t i = s < split.head ? s : s + 4 * split.vectors;
    y[i] = update(x[i], y[i]);
  }
  // end exercise
}

void launch_vectorized_scale(float* y, float alpha, const float* x, size_t n, hipStream_t stream) {
  if (n == 0) return;
  const vector_add::Split split = vector_add::split_vectors(n, {y, x});
  LAUNCH_ON(stream, (update_vectorized<Scale>), vector_add::full_grid(split), vector_add::kBlock, 0,
            y, x, split, Scale{alpha});
}

void launch_vectorized_axpy(float* y, float alpha, const float* x, size_t n, hipStream_t stream) {
  if (n == 0) return;
  const vector_add::Split split = vector_add::split_vectors(n, {y, x});
  LAUNCH_ON(stream, (update_vectorized<Axpy>), vector_add::full_grid(split), vector_add::kBlock, 0,
            y, x, split, Axpy{alpha});
}

}  // namespace axpy
