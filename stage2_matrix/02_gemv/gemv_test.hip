// Wrong kernels that gemv_test.cpp must see fail.
#include "common/gpu.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage2_matrix/02_gemv/detail/sums.h"

namespace gemv_test {

using gemv::Product;
using gemv::Workspace;

void launch_one_column_more(const Product& product, const Workspace&, hipStream_t stream);
void launch_one_row_more(const Product& product, const Workspace&, hipStream_t stream);
void launch_swapped(const Product& product, const Workspace&, hipStream_t stream);
void launch_unsynchronized(const Product& product, const Workspace&, hipStream_t stream);

// The columns first, first + step, ... of row `row` of A times x.
__device__ inline float sum_of_row(const Product& p, size_t row, unsigned first, unsigned step) {
  float sum = 0;
  for (size_t col = first; col < p.cols; col += step) sum += p.a[row * p.lda + col] * p.x[col];
  return sum;
}

// Reads one element behind each row.
static __global__ void one_column_more(Product p) {
  const size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  ++p.cols;
  if (row < p.rows) gemv::store(p, row, sum_of_row(p, row, 0, 1));
}

// Writes one element too many.
static __global__ void one_row_more(Product p) {
  const size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row <= p.rows) gemv::store(p, row, row < p.rows ? sum_of_row(p, row, 0, 1) : 0);
}

// Takes A for its transpose.
static __global__ void swapped(Product p) {
  const size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= p.rows) return;
  float sum = 0;
  for (size_t col = 0; col < p.cols; ++col) sum += p.a[col * p.lda + row] * p.x[col];
  gemv::store(p, row, sum);
}

// block_per_row without a barrier between the threads' sums and their sum.
static __global__ void unsynchronized(Product p) {
  __shared__ float sums[gemv::kBlock];
  sums[threadIdx.x] = sum_of_row(p, blockIdx.x, threadIdx.x, gemv::kBlock);
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (const float thread : sums) sum += thread;
  gemv::store(p, blockIdx.x, sum);
}

void launch_one_column_more(const Product& product, const Workspace&, hipStream_t stream) {
  LAUNCH_ON(stream, one_column_more, 1, 64, 0, product);
}
void launch_one_row_more(const Product& product, const Workspace&, hipStream_t stream) {
  LAUNCH_ON(stream, one_row_more, 1, 64, 0, product);
}
void launch_swapped(const Product& product, const Workspace&, hipStream_t stream) {
  LAUNCH_ON(stream, swapped, 1, 64, 0, product);
}
void launch_unsynchronized(const Product& product, const Workspace&, hipStream_t stream) {
  LAUNCH_ON(stream, unsynchronized, static_cast<unsigned>(product.rows), gemv::kBlock, 0, product);
}

}  // namespace gemv_test
