// copy: how fast device memory can be copied, by kernels with more and less in flight.
#include "common/gpu.h"
#include "stage0_infra/03_timing/detail/resident_blocks.h"
#include "stage0_infra/03_timing/timing.h"

namespace timing {

// to = from    from, to: n vectors of 16 bytes; n is a multiple of kBlock * kVectors.
// Fixes : -
// Idea  : bandwidth is bytes in flight over latency (Little's law): wide loads, several at once.
// Thread: t of a block owns vectors t, t + kBlock, ... of each tile that the block owns.
// Costs : 4 * kVectors registers.
template <int kVectors>
static __global__ void copy_vectors(uint4* to, const uint4* from, size_t n) {
  constexpr size_t kTile = size_t{kBlock} * kVectors;
  for (size_t tile = blockIdx.x * kTile; tile < n; tile += gridDim.x * kTile) {
    // exercise: load kVectors vectors, kBlock apart, before storing the first (about 4 lines)
    const size_t first = tile + threadIdx.x;
    uint4 held[kVectors];
    for (int v = 0; v < kVectors; ++v) held[v] = from[first + size_t{kBlock} * v];
    for (int v = 0; v < kVectors; ++v) to[first + size_t{kBlock} * v] = held[v];
    // end exercise
  }
}

// per_multiprocessor 0: a block for each tile.
template <int kVectors>
static void launch_copy(const Memory& memory, unsigned per_multiprocessor, hipStream_t stream) {
  const size_t tiles = memory.n / (size_t{kBlock} * kVectors);
  const unsigned blocks = per_multiprocessor == 0 ? static_cast<unsigned>(tiles)
                                                  : resident_blocks(tiles, per_multiprocessor);
  const uint4* from = memory.from;
  LAUNCH_ON(stream, (copy_vectors<kVectors>), blocks, kBlock, 0, memory.to, from, memory.n);
}

void launch_copy_1_vector(const Memory& memory, hipStream_t stream) {
  launch_copy<1>(memory, 0, stream);
}

void launch_copy_4_vectors(const Memory& memory, hipStream_t stream) {
  launch_copy<4>(memory, 0, stream);
}

void launch_copy_resident(const Memory& memory, hipStream_t stream) {
  launch_copy<8>(memory, 8, stream);
}

}  // namespace timing
