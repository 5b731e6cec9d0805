// two_d: a grid of rows and columns.
#include <algorithm>

#include "common/gpu.h"
#include "stage0_infra/06_first_kernels/first_kernels.h"

namespace first_kernels {

// out[row][col] = x[row][cols - 1 - col]: each row is mirrored    out, x (rows, cols), row-major.
// Fixes : with one number per thread, row and column cost a division.
// Idea  : blocks and grids may have two dimensions: x counts the columns, y the rows. In memory
//         the rows lie behind one another: element (row, col) is number row * cols + col.
// Thread: owns out[row][col]; row from blockIdx.y and threadIdx.y, col from blockIdx.x and
//         threadIdx.x; nothing behind the last row or column.
// Costs : 8 bytes of global memory per element.
static __global__ void mirror_rows(int* out, const int* x, size_t rows, size_t cols) {
  // exercise: this thread's row and column; if there is such a place, its element (about 3 lines)
  const size_t row = size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const size_t col = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row < rows && col < cols) out[row * cols + col] = x[row * cols + (cols - 1 - col)];
  // end exercise
}

void launch_two_d(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream) {
  constexpr size_t kCols = 16, kRows = 8;               // of a block
  constexpr size_t kMostRows = gpu::kMaxGridY * kRows;  // of a launch

  for (size_t first = 0; cols > 0 && first < rows; first += kMostRows) {  // once, as a rule
    const size_t count = std::min(rows - first, kMostRows);
    const dim3 grid(static_cast<unsigned>(gpu::ceil_div(cols, kCols)),
                    static_cast<unsigned>(gpu::ceil_div(count, kRows)));
    LAUNCH_ON(stream, mirror_rows, grid, dim3(kCols, kRows), 0, out + first * cols,
              x + first * cols, count, cols);
  }
}

}  // namespace first_kernels
