// read: how fast device memory can be read, by kernels that keep only a sum.
#include "common/gpu.h"
#include "stage0_infra/03_timing/detail/resident_blocks.h"
#include "stage0_infra/03_timing/timing.h"

namespace timing {

// sums[thread] = sum of the words that the thread reads, mod 2^32
//                from: n vectors of 16 bytes; n is a multiple of kThreads * kVectors.
// Fixes : a copy can't show how fast a reduction may be, since writing costs the memory extra time.
// Idea  : kVectors loads that do not wait for each other. The sum proves that every byte arrived,
//         and mod 2^32 it does not depend on the order.
// Thread: t of a block of kThreads reads vectors t, t + kThreads, ... of each tile of the block.
// Costs : one word written per thread.
template <int kThreads, int kVectors>
static __global__ void read_vectors(unsigned* sums, const uint4* from, size_t n) {
  constexpr size_t kTile = size_t{kThreads} * kVectors;
  uint4 sum = make_uint4(0, 0, 0, 0);
  for (size_t tile = blockIdx.x * kTile; tile < n; tile += gridDim.x * kTile) {
    const uint4* first = from + tile + threadIdx.x;
    for (int v = 0; v < kVectors; ++v) {
      const uint4 x = first[size_t{kThreads} * v];
      sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
  }
  sums[size_t{blockIdx.x} * kThreads + threadIdx.x] = sum.x + sum.y + sum.z + sum.w;
}

// Reads `from` and `to`, which are one piece of 2 n vectors.
template <int kThreads, int kVectors>
static void launch_read(const Memory& memory, unsigned per_multiprocessor, hipStream_t stream) {
  const size_t n = 2 * memory.n, tiles = n / (size_t{kThreads} * kVectors);
  const unsigned blocks = resident_blocks(tiles, per_multiprocessor);
  const uint4* from = memory.from;
  LAUNCH_ON(stream, (read_vectors<kThreads, kVectors>), blocks, kThreads, 0, memory.sums, from, n);
}

void launch_read_4_vectors(const Memory& memory, hipStream_t stream) {
  launch_read<kBlock, 4>(memory, 8, stream);
}

void launch_read_8_vectors(const Memory& memory, hipStream_t stream) {
  launch_read<kBlock, 8>(memory, 8, stream);
}

void launch_read_16_vectors(const Memory& memory, hipStream_t stream) {
  launch_read<kBlock, 16>(memory, 4, stream);
}

// One thread that reads in order is what a processor does best.
void launch_read_stream(const Memory& memory, hipStream_t stream) {
  launch_read<1, kWholeTiles>(memory, 16, stream);
}

// Of the kernels above, that with 4 vectors has the most threads.
size_t most_read_threads(size_t n) {
  return size_t{resident_blocks(2 * n / (size_t{kBlock} * 4), 8)} * kBlock;
}

}  // namespace timing
