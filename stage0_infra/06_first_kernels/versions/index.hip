// index: each thread finds out which element is its own.
#include "common/gpu.h"
#include "stage0_infra/06_first_kernels/first_kernels.h"

namespace first_kernels {

// out[i] = 2 * x[i]    out, x (as many as there are threads).
// Fixes : a loop on one CPU core takes the elements one after the other.
// Idea  : every thread runs this same function; its block's number and its place in the block,
//         blockIdx.x and threadIdx.x, say which element it takes.
// Thread: thread t of block b owns element b * blockDim.x + t.
// Costs : 8 bytes of global memory per element.
static __global__ void double_each(int* out, const int* x) {
  // exercise: the number of this thread's element; twice x there (about 2 lines)
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  out[i] = 2 * x[i];
  // end exercise
}

// One thread per element: whole blocks, and one block of what is left.
void launch_index(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream) {
  const size_t blocks = rows * cols / kBlock, rest = rows * cols % kBlock;
  const size_t behind = blocks * kBlock;
  if (blocks > 0) LAUNCH_ON(stream, double_each, blocks, kBlock, 0, out, x);
  if (rest > 0) LAUNCH_ON(stream, double_each, 1, rest, 0, out + behind, x + behind);
}

}  // namespace first_kernels
