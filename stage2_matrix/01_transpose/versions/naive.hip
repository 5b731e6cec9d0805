// naive: one element per thread.
#include <algorithm>

#include "common/gpu.h"
#include "stage2_matrix/01_transpose/transpose.h"

namespace transpose {

// out[col, row] = a[row, col]    a (rows, cols), out (cols, rows).
// Fixes : a CPU core moves the elements one after the other.
// Idea  : one thread per element; neighbours in x read neighbours in a.
// Thread: (x, y) of the grid moves a[first_row + y, first_col + x].
// Costs : 8 bytes per element, but every lane of a wave writes to another row of out.
static __global__ void transpose_naive(float* out, const float* a, size_t rows, size_t cols,
                                       size_t first_row, size_t first_col) {
  const size_t row = first_row + blockIdx.y * blockDim.y + threadIdx.y;
  const size_t col = first_col + blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows && col < cols) out[col * rows + row] = a[row * cols + col];
}

constexpr size_t kNaiveSide = 32;  // a block has 32 x 32 threads
constexpr size_t kNaiveMost = size_t{1}
                              << 20;  // rows of one launch, and columns: a grid is limited

void launch_naive(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream) {
  for (size_t row = 0; row < rows; row += kNaiveMost)  // once, unless the matrix is huge
    for (size_t col = 0; col < cols; col += kNaiveMost) {
      const dim3 grid(gpu::ceil_div(std::min(cols - col, kNaiveMost), kNaiveSide),
                      gpu::ceil_div(std::min(rows - row, kNaiveMost), kNaiveSide));
      LAUNCH_ON(stream, transpose_naive, grid, dim3(kNaiveSide, kNaiveSide), 0, out, a, rows, cols,
                row, col);
    }
}

}  // namespace transpose
