// shared_memory: threads of a block hand values to one another.
#include "common/gpu.h"
#include "stage0_infra/06_first_kernels/first_kernels.h"

namespace first_kernels {

// The elements of each block, the last first    out, x (n), any n.
// Fixes : a value that one thread has read is of no use to the others.
// Idea  : a __shared__ array is one array for all threads of a block. Each thread puts a value
//         there. __syncthreads() is a barrier: nobody goes on before all threads of the block have
//         come to it. Behind it, each may take what another has put there.
// Thread: puts element first + threadIdx.x into `values`, and takes the one that mirrors it.
// Costs : 8 n bytes of global memory; 4 kBlock bytes of shared memory, 1 barrier.
static __global__ void reverse_blocks(int* out, const int* x, size_t n) {
  __shared__ int values[kBlock];
  const size_t first = size_t{blockIdx.x} * blockDim.x;  // the block's first element
  const size_t count = n - first < kBlock ? n - first : size_t{kBlock};  // how many it has
  const unsigned t = threadIdx.x;
  // exercise: put an element there, wait for the others, take the mirrored one (about 3 lines)
  if (t < count) values[t] = x[first + t];
  __syncthreads();  // the block's elements are in values[0, count)
  if (t < count) out[first + t] = values[count - 1 - t];
  // end exercise
}

void launch_shared_memory(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream) {
  const size_t n = rows * cols;
  if (n == 0) return;
  LAUNCH_ON(stream, reverse_blocks, gpu::ceil_div(n, size_t{kBlock}), kBlock, 0, out, x, n);
}

}  // namespace first_kernels
