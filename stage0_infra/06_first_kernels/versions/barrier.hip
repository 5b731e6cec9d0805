// barrier: whoever overwrites shared memory waits for those who read it.
#include "common/gpu.h"
#include "stage0_infra/06_first_kernels/first_kernels.h"

namespace first_kernels {

// out[i] = x[first] + ... + x[i], where first begins i's block    out, x (n), any n.
// Fixes : in shared_memory each place is written once; here all are read and written in each round.
// Idea  : a round adds to each place what stood `distance` before it:
//           place       0   1   2    3     a..b is the sum of x[a] to x[b]
//           distance 1  0  0..1 1..2 2..3
//           distance 2  0  0..1 0..2 0..3
//         A barrier between reading and writing, since a neighbour may still want the old value;
//         another one behind writing, since the next round reads the new one.
//         (Hillis, Steele: Data parallel algorithms. Communications of the ACM 29, 1986.)
// Thread: owns place threadIdx.x of `sums`, and out[i].
// Costs : 8 n bytes of global memory; 4 kBlock bytes of shared memory, 2 log2(kBlock) + 1 barriers.
static __global__ void prefix_sums(int* out, const int* x, size_t n) {
  __shared__ int sums[kBlock];
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const unsigned t = threadIdx.x;
  sums[t] = i < n ? x[i] : 0;
  __syncthreads();  // sums hold the block's elements
  for (unsigned distance = 1; distance < kBlock; distance *= 2) {
    // exercise: a round: what stands `distance` before this place, or 0; add it (about 4 lines)
    const int before = t >= distance ? sums[t - distance] : 0;
    __syncthreads();  // all have read: sums may change
    sums[t] += before;
    __syncthreads();  // sums[t] is the sum of the 2 * distance elements that end at t
    // end exercise
  }
  if (i < n) out[i] = sums[t];
}

void launch_barrier(int* out, const int* x, size_t rows, size_t cols, hipStream_t stream) {
  const size_t n = rows * cols;
  if (n == 0) return;
  LAUNCH_ON(stream, prefix_sums, gpu::ceil_div(n, size_t{kBlock}), kBlock, 0, out, x, n);
}

}  // namespace first_kernels
