// fill_flat: a row-major matrix is one flat array.
#include <algorithm>

#include "common/gpu.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"

namespace device_matrix {

// out = value    out (n); a row-major matrix (rows, cols) is an array of n = rows * cols elements.
// Fixes : fill_2d leaves threads idle beyond the last column.
// Idea  : the row and column of an element do not matter here, so the matrix is one array.
// Thread: t owns the elements t, t + all threads, t + 2 * all threads, ...
// Costs : no thread is idle, except in the last block.
template <class T>
static __global__ void fill_flat(T* out, size_t n, T value) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = value;
}

template <class T>
void launch_fill_flat(T* out, size_t rows, size_t cols, T value, hipStream_t stream) {
  constexpr size_t kBlock = 256, kMaxBlocks = size_t{1} << 20;
  const size_t n = rows * cols;
  if (n == 0) return;
  const size_t blocks = std::min(gpu::ceil_div(n, kBlock), kMaxBlocks);
  LAUNCH_ON(stream, (fill_flat<T>), static_cast<unsigned>(blocks), static_cast<unsigned>(kBlock), 0,
            out, n, value);
}

template void launch_fill_flat(float*, size_t, size_t, float, hipStream_t);
template void launch_fill_flat(double*, size_t, size_t, double, hipStream_t);
template void launch_fill_flat(int*, size_t, size_t, int, hipStream_t);
template void launch_fill_flat(unsigned*, size_t, size_t, unsigned, hipStream_t);

}  // namespace device_matrix
