// fma: how many fused multiply-adds the device can do, by kernels that do nothing else.
#include "common/gpu.h"
#include "stage0_infra/03_timing/detail/resident_blocks.h"
#include "stage0_infra/03_timing/timing.h"

namespace timing {

// ends[thread] = sum over c of x_c after `steps` steps of x_c = x_c * a + b, from x_c = c.
//                With a = b = 1 a chain counts up by one a step: exact in float up to 2^24.
// Fixes : -
// Idea  : the result of a multiply-add comes some cycles later, so each thread keeps kChains chains
//         that do not wait for each other.
// Thread: owns its chains; nothing is read from memory.
// Costs : kChains registers.
template <int kChains>
static __global__ void fma_chains(float* ends, int steps, float a, float b) {
  float x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = static_cast<float>(c);
  for (int step = 0; step < steps; ++step)
    for (int c = 0; c < kChains; ++c) x[c] = x[c] * a + b;  // contracted to one FMA
  float sum = 0;
  for (int c = 0; c < kChains; ++c) sum += x[c];
  ends[size_t{blockIdx.x} * kBlock + threadIdx.x] = sum;
}

static unsigned fma_blocks() { return 16 * gpu::multiprocessors(); }

size_t fma_threads() { return size_t{fma_blocks()} * kBlock; }

template <int kChains>
static void launch_fma(const Memory& memory, hipStream_t stream) {
  LAUNCH_ON(stream, (fma_chains<kChains>), fma_blocks(), kBlock, 0, memory.chain_ends,
            kMultiplyAdds / kChains, 1.0f, 1.0f);
}

void launch_fma_32_chains(const Memory& memory, hipStream_t stream) {
  launch_fma<32>(memory, stream);
}

void launch_fma_128_chains(const Memory& memory, hipStream_t stream) {
  launch_fma<128>(memory, stream);
}

}  // namespace timing
