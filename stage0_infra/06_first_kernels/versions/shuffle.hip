// shuffle: the lanes of a wave read one another's registers.
#include "common/gpu.h"
#include "stage0_infra/06_first_kernels/first_kernels.h"

namespace first_kernels {

// out[i] = the sum of the kGroup elements that i is among    out, x (n), any n.
// Fixes : through shared memory, each exchange is a store, a barrier and a load.
// Idea  : wave_shfl_xor(value, d) is the value of the lane whose number differs in the bit d. Three
//         exchanges give each of eight lanes the sum of all eight:
//           lane      0     1     2     3
//           d = 1    0+1   0+1   2+3   2+3    ...
//           d = 2    0..3  0..3  0..3  0..3   ...
//           d = 4    0..7  ...
//         All lanes must take part, those without an element too.
// Thread: thread i of the grid owns element i; where there is none, its value is 0.
// Costs : 8 n bytes of global memory; no shared memory, no barrier.
static __global__ void sum_groups(int* out, const int* x, size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  int value = i < n ? x[i] : 0;
  // exercise: add the values of the lanes 1, 2 and 4 away (about 2 lines)
  for (int distance = 1; distance < static_cast<int>(kGroup); distance *= 2)
    value += gpu::wave_shfl_xor(value, distance);
  // end exercise
  if (i < n) out[i] = value;
}

void launch_shuffle(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream) {
  const size_t n = rows * cols;
  if (n == 0) return;
  LAUNCH_ON(stream, sum_groups, gpu::ceil_div(n, size_t{kBlock}), kBlock, 0, out, x, n);
}

}  // namespace first_kernels
