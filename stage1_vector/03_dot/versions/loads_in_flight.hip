// loads_in_flight: many independent 16-byte loads per thread.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage1_vector/03_dot/detail/grid.h"
#include "stage1_vector/03_dot/detail/thread_sum.h"
#include "stage1_vector/03_dot/dot.h"

namespace dot {

// *result += x·y    x, y (n), any n, any alignment; *result is 0 before. `split` says where the
// float4s lie.
// Fixes : wave_shuffle waits for two loads of 4 bytes before it asks for the next.
// Idea  : 2 kLoads independent loads of 16 bytes are in flight in every thread.
// Thread: t sums the float4s t, t + T, ..., kLoads per round, and of head and tail the elements t,
//         t + T, ...; thread 0 of a block adds the block's sum.
// Costs : 8 n bytes of global memory; 1 barrier; 8 kLoads registers for the loads in flight.
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    dot_loads_in_flight(float* result, const float* x, const float* y, Split split) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  float4 sum = make_float4(0, 0, 0, 0);
  // exercise: rounds of kLoads float4s, the float4s left over, the single ones (about 17 lines)
  const float4* x4 = reinterpret_cast<const float4*>(x + split.head);
  const float4* y4 = reinterpret_cast<const float4*>(y + split.head);
  size_t v = thread;
  for (; v + (kLoads - 1) * threads < split.vectors; v += kLoads * threads) {
    float4 held_x[kLoads], held_y[kLoads];
    for (int k = 0; k < kLoads; ++k) {
      held_x[k] = x4[v + k * threads];
      held_y[k] = y4[v + k * threads];
    }
    for (int k = 0; k < kLoads; ++k) multiply_add(sum, held_x[k], held_y[k]);
  }
  for (; v < split.vectors; v += threads) multiply_add(sum, x4[v], y4[v]);
  for (size_t s = thread; s < split.head + split.tail; s += threads) {
    const size_t i = s < split.head ? s : s + 4 * split.vectors;
    sum.x += x[i] * y[i];
  }
  const float of_thread = (sum.x + sum.y) + (sum.z + sum.w);
  // end exercise
  const float of_block = block_sum(of_thread);
  if (threadIdx.x == 0) atomicAdd(result, of_block);
}

void launch_loads_in_flight(float* result, const float* x, const float* y, size_t n,
                            void* /*workspace*/, hipStream_t stream) {
  const Split split = split_vectors(n, {x, y});
  HIP_CHECK(hipMemsetAsync(result, 0, sizeof(float), stream));
  LAUNCH_ON(stream, dot_loads_in_flight, dot_blocks(split), kBlock, 0, result, x, y, split);
}

}  // namespace dot
