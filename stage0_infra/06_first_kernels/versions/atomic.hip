// atomic: many threads add to the same few places.
#include "common/gpu.h"
#include "stage0_infra/06_first_kernels/first_kernels.h"

namespace first_kernels {

// out[v] += how many elements of x are v    x (n) of integers from 0 to kValues - 1, out (kValues).
// Fixes : `out[v] += 1` reads, adds and writes. Two threads that read the same value write the same
//         sum, and one of them is lost.
// Idea  : atomicAdd(&out[v], 1) does all three with nobody in between.
// Thread: thread i of the grid owns x[i], if there is one.
// Costs : 4 n bytes of global memory; n atomics on kValues addresses, which queue up there.
static __global__ void count_values(int* out, const int* x, size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  // exercise: count this thread's element, if it has one (about 1 line)
  if (i < n) atomicAdd(&out[x[i]], 1);
  // end exercise
}

void launch_atomic(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream) {
  const size_t n = rows * cols;
  HIP_CHECK(hipMemsetAsync(out, 0, kValues * sizeof(int), stream));
  if (n == 0) return;
  LAUNCH_ON(stream, count_values, gpu::ceil_div(n, size_t{kBlock}), kBlock, 0, out, x, n);
}

}  // namespace first_kernels
