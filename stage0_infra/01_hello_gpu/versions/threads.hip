// threads: every thread speaks for itself.
#include "common/gpu.h"
#include "stage0_infra/01_hello_gpu/hello_gpu.h"

namespace hello_gpu {

// out[number in the grid] = who I am    out: a record for each thread of the grid.
// Fixes : waves uses one thread of each wave.
// Idea  : the usual form of a kernel: each thread does its own small part.
// Thread: each writes its own record.
// Costs : no thread is idle.
static __global__ void greet_threads(Greeting* out) {
  const unsigned wave_size = gpu::wave_size();
  const unsigned wave = threadIdx.x / wave_size, lane = threadIdx.x % wave_size;
  // exercise: find this thread's number in the grid and write its record there (about 2 lines)
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
  out[me] = {blockIdx.x, threadIdx.x, wave, lane};
  // end exercise
}

void launch_threads(Greeting* out, unsigned blocks, unsigned threads, hipStream_t stream) {
  LAUNCH_ON(stream, greet_threads, blocks, threads, 0, out);
}

}  // namespace hello_gpu
