// naive: one element per thread.
#include <algorithm>

#include "common/gpu.h"
#include "stage1_vector/02_axpy/axpy.h"

namespace axpy {

// y = alpha * x    x, y (n).
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element; threads behind the last element do nothing.
// Thread: thread t of the grid owns y[t].
// Costs : 8 n bytes of global memory; no shared memory, no barrier.
static __global__ void scale_naive(float* y, float alpha, const float* x, size_t n) {
  // exercise: scale this thread's element, if it has one (about 2 lines)
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = alpha * x[i];
  // end exercise
}

// y = alpha * x + y    x, y (n).
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element reads y[t] and overwrites it; no other thread touches it.
// Thread: thread t of the grid owns y[t].
// Costs : 12 n bytes of global memory; no shared memory, no barrier.
static __global__ void axpy_naive(float* y, float alpha, const float* x, size_t n) {
  // exercise: the same, added to the y that is there (about 2 lines)
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = alpha * x[i] + y[i];
  // end exercise
}

constexpr size_t kNaiveBlock = 256;                // threads per block
constexpr size_t kNaiveThreads = size_t{1} << 31;  // of one launch: AMD counts them in 32 bits

void launch_naive_scale(float* y, float alpha, const float* x, size_t n, hipStream_t stream) {
  for (size_t begin = 0; begin < n; begin += kNaiveThreads) {  // once, unless n is huge
    const size_t count = std::min(n - begin, kNaiveThreads);
    const size_t blocks = gpu::ceil_div(count, kNaiveBlock);
    LAUNCH_ON(stream, scale_naive, blocks, kNaiveBlock, 0, y + begin, alpha, x + begin, count);
  }
}

void launch_naive_axpy(float* y, float alpha, const float* x, size_t n, hipStream_t stream) {
  for (size_t begin = 0; begin < n; begin += kNaiveThreads) {
    const size_t count = std::min(n - begin, kNaiveThreads);
    const size_t blocks = gpu::ceil_div(count, kNaiveBlock);
    LAUNCH_ON(stream, axpy_naive, blocks, kNaiveBlock, 0, y + begin, alpha, x + begin, count);
  }
}

}  // namespace axpy
