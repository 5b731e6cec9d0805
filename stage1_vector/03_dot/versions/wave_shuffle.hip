// wave_shuffle: the lanes of a wave add without memory or barrier.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/grid.h"
#include "stage1_vector/03_dot/dot.h"

namespace dot {

// *result += x·y    x, y (n), any n; *result is 0 before.
// Fixes : the tree waits for the whole block after every addition.
// Idea  : lanes that are 2^k apart exchange their registers and add, without memory or barrier.
//         Then one sum per wave goes through shared memory, and wave 0 adds those the same way.
// Thread: t sums x[i] * y[i] over i = t, t + T, ...; thread 0 of a block adds the block's sum.
// Costs : 8 n bytes of global memory; 1 barrier, 4 bytes of shared memory per wave.
static __global__ void dot_wave_shuffle(float* result, const float* x, const float* y, size_t n) {
  __shared__ float sums[kBlock];  // one per wave is used
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  float sum = 0;
  for (size_t i = thread; i < n; i += threads) sum += x[i] * y[i];
  // exercise: the sum over the wave; one per wave to sums; their sum in wave 0 (about 9 lines)
  for (int distance = gpu::wave_size() / 2; distance > 0; distance /= 2)
    sum += gpu::wave_shfl_xor(sum, distance);
  if (gpu::lane_id() == 0) sums[gpu::wave_id()] = sum;
  __syncthreads();  // every wave's sum is in sums
  if (gpu::wave_id() == 0) {
    const int waves = static_cast<int>(kBlock) / gpu::wave_size();
    sum = gpu::lane_id() < waves ? sums[gpu::lane_id()] : 0.0f;
    for (int distance = gpu::wave_size() / 2; distance > 0; distance /= 2)
      sum += gpu::wave_shfl_xor(sum, distance);
  }
  // end exercise
  if (threadIdx.x == 0) atomicAdd(result, sum);
}

void launch_wave_shuffle(float* result, const float* x, const float* y, size_t n,
                         void* /*workspace*/, hipStream_t stream) {
  HIP_CHECK(hipMemsetAsync(result, 0, sizeof(float), stream));
  LAUNCH_ON(stream, dot_wave_shuffle, dot_blocks(n), kBlock, 0, result, x, y, n);
}

}  // namespace dot
