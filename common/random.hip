// The generator's kernels: arrays of random numbers, made where they are used.
#include <algorithm>

#include "common/gpu.h"
#include "common/random.h"

namespace random_numbers {

namespace {

#if defined(COURSE_SANITIZE_THREAD)
// Threads and blocks are dear there, and small arrays all that it sees.
constexpr size_t kFillBlock = 1, kFillMaxBlocks = 1;
#else
constexpr size_t kFillBlock = 256, kFillMaxBlocks = 4096;
#endif

unsigned fill_blocks(size_t n) {
  return static_cast<unsigned>(std::min(gpu::ceil_div(n, kFillBlock), kFillMaxBlocks));
}

// out[i] = uniform(seed, stream, i)    out (n).
static __global__ void fill_uniform(float* out, size_t n, std::uint64_t seed,
                                    std::uint32_t stream) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride)
    out[i] = uniform(seed, stream, i);
}

// out[i] = integer(seed, stream, i)    out (n).
static __global__ void fill_integers(float* out, size_t n, std::uint64_t seed,
                                     std::uint32_t stream) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride)
    out[i] = integer(seed, stream, i);
}

}  // namespace

void launch_fill_uniform(float* out, size_t n, std::uint64_t seed, std::uint32_t stream,
                         hipStream_t queue) {
  if (n == 0) return;
  LAUNCH_ON(queue, fill_uniform, fill_blocks(n), static_cast<unsigned>(kFillBlock), 0, out, n, seed,
            stream);
}

void launch_fill_integers(float* out, size_t n, std::uint64_t seed, std::uint32_t stream,
                          hipStream_t queue) {
  if (n == 0) return;
  LAUNCH_ON(queue, fill_integers, fill_blocks(n), static_cast<unsigned>(kFillBlock), 0, out, n,
            seed, stream);
}

}  // namespace random_numbers
