// waves: one thread speaks for its wave.
#include "common/gpu.h"
#include "stage0_infra/01_hello_gpu/hello_gpu.h"

namespace hello_gpu {

// out[number in the grid] = who I am    out: a record for each thread of the grid.
// Fixes : blocks does not show how the hardware runs a block: in waves of 32 or 64 threads.
// Idea  : the first thread of each wave, its lane 0, speaks for the wave.
// Thread: lane 0 of each wave writes its record.
// Costs : the other threads do nothing.
static __global__ void greet_waves(Greeting* out) {
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;  // this thread's number in the grid
  const unsigned wave_size = gpu::wave_size();                // 32 or 64: it depends on the device
  const unsigned wave = threadIdx.x / wave_size, lane = threadIdx.x % wave_size;
  if (lane == 0) out[me] = {blockIdx.x, threadIdx.x, wave, lane};
}

void launch_waves(Greeting* out, unsigned blocks, unsigned threads, hipStream_t stream) {
  LAUNCH_ON(stream, greet_waves, blocks, threads, 0, out);
}

}  // namespace hello_gpu
