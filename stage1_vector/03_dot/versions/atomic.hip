// atomic: one atomic per element.
#include <algorithm>

#include "common/gpu.h"
#include "stage1_vector/03_dot/dot.h"

namespace dot {

// *result += x·y    x, y (n); *result is 0 before.
// Fixes : a CPU core adds the products one after the other.
// Idea  : one thread per product; atomicAdd lets all threads add to one number.
// Thread: thread t of the grid adds x[t] * y[t].
// Costs : 8 n bytes of global memory; n atomics on one address, which go one after the other.
static __global__ void dot_atomic(float* result, const float* x, const float* y, size_t n) {
  // exercise: this thread's element, if there is one, and its product (about 2 lines)
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(result, x[i] * y[i]);
  // end exercise
}

constexpr size_t kAtomicBlock = 256;                // threads per block
constexpr size_t kAtomicThreads = size_t{1} << 31;  // of one launch: AMD counts them in 32 bits

void launch_atomic(float* result, const float* x, const float* y, size_t n, void* /*workspace*/,
                   hipStream_t stream) {
  HIP_CHECK(hipMemsetAsync(result, 0, sizeof(float), stream));
  for (size_t begin = 0; begin < n; begin += kAtomicThreads) {  // once, unless n is huge
    const size_t count = std::min(n - begin, kAtomicThreads);
    const size_t blocks = gpu::ceil_div(count, kAtomicBlock);
    LAUNCH_ON(stream, dot_atomic, blocks, kAtomicBlock, 0, result, x + begin, y + begin, count);
  }
}

}  // namespace dot
