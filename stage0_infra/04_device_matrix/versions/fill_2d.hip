// fill_2d: the grid has the shape of the matrix.
#include <algorithm>

#include "common/gpu.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"

namespace device_matrix {

// out = value    out (rows, cols), row-major, any sizes.
// Fixes : -
// Idea  : the grid has the two dimensions of the matrix, so no thread divides to find its place.
// Thread: (x, y) owns column x of the rows y, y + gridDim.y * blockDim.y, ...
// Costs : threads beyond the last column do nothing. With one column nearly all threads are idle.
template <class T>
static __global__ void fill_2d(T* out, size_t rows, size_t cols, T value) {
  const size_t col = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  // exercise: write value into this thread's column of every row that it owns (about 3 lines)
  const size_t first_row = size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const size_t row_stride = size_t{gridDim.y} * blockDim.y;
  for (size_t row = first_row; row < rows; row += row_stride) out[row * cols + col] = value;
  // end exercise
}

template <class T>
void launch_fill_2d(T* out, size_t rows, size_t cols, T value, hipStream_t stream) {
  constexpr size_t kColsPerBlock = 64, kRowsPerBlock = 4;
  if (rows == 0 || cols == 0) return;  // a grid of 0 blocks is an error
  const dim3 block(kColsPerBlock, kRowsPerBlock);
  const dim3 grid(
      static_cast<unsigned>(gpu::ceil_div(cols, kColsPerBlock)),
      static_cast<unsigned>(std::min(gpu::ceil_div(rows, kRowsPerBlock), gpu::kMaxGridY)));
  LAUNCH_ON(stream, (fill_2d<T>), grid, block, 0, out, rows, cols, value);
}

template void launch_fill_2d(float*, size_t, size_t, float, hipStream_t);
template void launch_fill_2d(double*, size_t, size_t, double, hipStream_t);
template void launch_fill_2d(int*, size_t, size_t, int, hipStream_t);
template void launch_fill_2d(unsigned*, size_t, size_t, unsigned, hipStream_t);

}  // namespace device_matrix
