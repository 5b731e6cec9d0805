// naive: one element per thread.
#include <algorithm>

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/vector_add.h"

namespace vector_add {

// c = a + b    a, b, c (n).
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element; threads behind the last element do nothing.
// Thread: thread t of the grid owns c[t].
// Costs : 12 n bytes of global memory; no shared memory, no barrier.
static __global__ void add_naive(float* c, const float* a, const float* b, size_t n) {
  // exercise: add this thread's element, if it has one (about 2 lines)
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
  // end exercise
}

// c = a * b    a, b, c (n).
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element; threads behind the last element do nothing.
// Thread: thread t of the grid owns c[t].
// Costs : 12 n bytes of global memory; no shared memory, no barrier.
static __global__ void multiply_naive(float* c, const float* a, const float* b, size_t n) {
  // exercise: the same for the product (about 2 lines)
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] * b[i];
  // end exercise
}

constexpr size_t kNaiveBlock = 256;                // threads per block
constexpr size_t kNaiveThreads = size_t{1} << 31;  // of one launch: AMD counts them in 32 bits

void launch_naive_add(float* c, const float* a, const float* b, size_t n, hipStream_t stream) {
  for (size_t begin = 0; begin < n; begin += kNaiveThreads) {  // once, unless n is huge
    const size_t count = std::min(n - begin, kNaiveThreads);
    const size_t blocks = gpu::ceil_div(count, kNaiveBlock);
    LAUNCH_ON(stream, add_naive, blocks, kNaiveBlock, 0, c + begin, a + begin, b + begin, count);
  }
}

void launch_naive_multiply(float* c, const float* a, const float* b, size_t n, hipStream_t stream) {
  for (size_t begin = 0; begin < n; begin += kNaiveThreads) {
    const size_t count = std::min(n - begin, kNaiveThreads);
    const size_t blocks = gpu::ceil_div(count, kNaiveBlock);
    LAUNCH_ON(stream, multiply_naive, blocks, kNaiveBlock, 0, c + begin, a + begin, b + begin,
              count);
  }
}

}  // namespace vector_add
