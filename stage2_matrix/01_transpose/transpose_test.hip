// Three wrong kernels that transpose_test.cpp must see fail.
#include "common/gpu.h"

namespace transpose_test {

void launch_unbounded(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream);
void launch_swapped(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream);
void launch_unsynchronized(float* out, const float* a, size_t rows, size_t cols,
                           hipStream_t stream);

constexpr unsigned kSide = 32;  // of a block

// Does not look where the matrix ends.
static __global__ void unbounded(float* out, const float* a, size_t rows, size_t cols) {
  const size_t row = blockIdx.y * kSide + threadIdx.y, col = blockIdx.x * kSide + threadIdx.x;
  const bool inside = row < rows && col < cols;
  out[col * rows + row] = inside ? a[row * cols + col] : 0.0f;
}

// Writes each element where it read it.
static __global__ void swapped(float* out, const float* a, size_t rows, size_t cols) {
  const size_t row = blockIdx.y * kSide + threadIdx.y, col = blockIdx.x * kSide + threadIdx.x;
  if (row < rows && col < cols) out[row * rows + col] = a[row * cols + col];
}

// Does not wait for the tile. For one block.
static __global__ void unsynchronized(float* out, const float* a, size_t rows, size_t cols) {
  __shared__ float tile[kSide * kSide];
  const size_t row = threadIdx.y, col = threadIdx.x;
  tile[row * kSide + col] = a[row * cols + col];
  out[row * rows + col] = tile[col * kSide + row];
}

static dim3 grid_over(size_t rows, size_t cols) {
  return dim3(static_cast<unsigned>(gpu::ceil_div(cols, kSide)),
              static_cast<unsigned>(gpu::ceil_div(rows, kSide)));
}

void launch_unbounded(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream) {
  LAUNCH_ON(stream, unbounded, grid_over(rows, cols), dim3(kSide, kSide), 0, out, a, rows, cols);
}

void launch_swapped(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream) {
  LAUNCH_ON(stream, swapped, grid_over(rows, cols), dim3(kSide, kSide), 0, out, a, rows, cols);
}

void launch_unsynchronized(float* out, const float* a, size_t rows, size_t cols,
                           hipStream_t stream) {
  LAUNCH_ON(stream, unsynchronized, grid_over(rows, cols), dim3(kSide, kSide), 0, out, a, rows,
            cols);
}

}  // namespace transpose_test
