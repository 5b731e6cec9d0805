// 1.3  dot: result = sum over i of x[i] * y[i], for n floats.
//
// The first kernel whose threads must work together. It reads 8 bytes per element and writes one
// number: the limit is the device's read bandwidth. The ladder first gets rid of the contention for
// that number, then keeps enough loads on their way, then fixes the order of the additions.
//
// Every launcher takes device arrays of n floats, any n (0 gives 0), aligned to 4 bytes, a device
// pointer to the result and a Workspace of this device that no other stream uses at the same time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage1_vector/01_vector_add/detail/grid.h"

namespace dot {

using vector_add::kMaxThreads;
using vector_add::Split;
using vector_add::split_vectors;

// ---- Reference and bound ----------------------------------------------------------------------

// The sum and the sum of the absolute values, in double. Partial sums of `+=` over pieces of a few
// thousand elements keep the error of the reference far below float's.
struct Sums {
  double dot = 0, absolute = 0;
  Sums& operator+=(const Sums& other) {
    dot += other.dot, absolute += other.absolute;
    return *this;
  }
};

inline Sums dot_cpu(const std::vector<float>& x, const std::vector<float>& y) {
  Sums total;
  constexpr size_t kPiece = 4096;
  for (size_t begin = 0; begin < x.size(); begin += kPiece) {
    Sums piece;
    for (size_t i = begin; i < std::min(begin + kPiece, x.size()); ++i) {
      const double product = static_cast<double>(x[i]) * static_cast<double>(y[i]);
      piece += {product, std::fabs(product)};
    }
    total += piece;
  }
  return total;
}

// What a sum may be off whose products go through at most `roundings` operations each:
// gamma(k) = k u / (1 - k u) times the sum of |x_i y_i| (Higham, Accuracy and Stability of
// Numerical Algorithms, 2nd ed., sections 3.1 and 4.2). A sum in any order is never off by more
// than n u times the same (Jeannerod and Rump: Improved error bounds for inner products in
// floating-point arithmetic, SIAM J. Matrix Anal. Appl. 34, 2013), which also holds where k u
// reaches 1.
inline double bound(double roundings, double n, double absolute) {
  const double ku = roundings * kFloatRoundoff, nu = n * kFloatRoundoff;
  return (ku < 1 ? std::min(ku / (1 - ku), nu) : nu) * absolute;
}

// ---- Tuning and workspace ---------------------------------------------------------------------

inline constexpr unsigned kBlock = 256;                  // threads per block, a power of two
inline constexpr unsigned kBlocksPerMultiprocessor = 8;  // grid of the versions with scalar loads
inline constexpr unsigned kFixedBlocks = 512;            // largest grid of two_pass, everywhere
inline constexpr int kLoads = 4;  // float4s of x and as many of y on their way per thread
// So many blocks of kBlock threads shall fit a multiprocessor: few enough to leave each thread the
// registers for its loads. Without this promise nvcc saves registers and waits after every second.
inline constexpr unsigned kResidentBlocks = 4;
inline constexpr unsigned kMaxBlocks = 16384;
inline constexpr unsigned kCpuRounds = 32;  // enough additions per thread to pay for its barriers

// Device memory for what the blocks leave behind.
struct Workspace {
  float* partials;     // (kMaxBlocks) one sum per block
  unsigned* finished;  // (1) how many blocks have left theirs; 0 before and after each launch
};

// The grid of the versions that follow the device; one block where there is nothing to add.
inline unsigned dot_blocks(size_t items, unsigned per_multiprocessor = kBlocksPerMultiprocessor) {
  const unsigned blocks =
      vector_add::grid_stride_blocks(items, kBlock, per_multiprocessor, kCpuRounds);
  return std::clamp(blocks, 1u, kMaxBlocks);
}

// ---- Atomic per thread ------------------------------------------------------------------------

// *result += x·y    x, y (n), n < 2^32; *result is 0 before.
// Fixes : a CPU core adds the products one after the other.
// Idea  : one thread per product; atomicAdd lets all threads add to one number.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x adds x[t] * y[t].
// Costs : 8 n bytes of global memory; n atomics on one address, which go one after the other.
static __global__ void dot_atomic(float* result, const float* x, const float* y, size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(result, x[i] * y[i]);
}

inline void launch_atomic(float* result, const float* x, const float* y, size_t n,
                          const Workspace&) {
  HIP_CHECK(hipMemsetAsync(result, 0, sizeof(float), nullptr));
  for (size_t begin = 0; begin < n; begin += kMaxThreads) {  // once, unless n is huge
    const size_t count = std::min(n - begin, kMaxThreads);
    LAUNCH(dot_atomic, static_cast<unsigned>(gpu::ceil_div(count, kBlock)), kBlock, 0, result,
           x + begin, y + begin, count);
  }
}

// ---- Shared-memory tree -----------------------------------------------------------------------

// This thread's share of the sum: the elements t, t + T, t + 2T, ... with T threads in the grid.
__device__ inline float thread_sum(const float* x, const float* y, size_t n) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  float sum = 0;
  for (size_t i = thread; i < n; i += threads) sum += x[i] * y[i];
  return sum;
}

// The sum of `value` over the block, in thread 0; the order depends on kBlock alone.
//
//   values   0 1 2 3 4 5 6 7      each round the lower half adds the upper half to itself
//   round 1  0+4 1+5 2+6 3+7
//   round 2  0+4+2+6 1+5+3+7
//   round 3  all
__device__ inline float block_sum_tree(float value) {
  __shared__ float sums[kBlock];
  // exercise: the tree above; say at each barrier what is true after it (about 6 lines)
  sums[threadIdx.x] = value;
  __syncthreads();  // every thread's value is in sums
  for (unsigned half = kBlock / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();  // sums[0, half) hold the sum of everything
  }
  return sums[0];
  // end exercise
}

// *result += x·y    x, y (n), any n; *result is 0 before.
// Fixes : atomic makes n threads queue up for one address.
// Idea  : threads sum in a register, the block in a tree in shared memory; one atomic per block.
// Thread: t sums x[i] * y[i] over i = t, t + T, ...; thread 0 of a block adds the block's sum.
// Costs : 8 n bytes of global memory; log2(kBlock) + 1 barriers, 4 kBlock bytes of shared memory.
static __global__ void dot_shared_tree(float* result, const float* x, const float* y, size_t n) {
  const float sum = block_sum_tree(thread_sum(x, y, n));
  if (threadIdx.x == 0) atomicAdd(result, sum);
}

inline void launch_shared_tree(float* result, const float* x, const float* y, size_t n,
                               const Workspace&) {
  HIP_CHECK(hipMemsetAsync(result, 0, sizeof(float), nullptr));
  LAUNCH(dot_shared_tree, dot_blocks(n), kBlock, 0, result, x, y, n);
}

// ---- Wave shuffle -----------------------------------------------------------------------------

// The sum of `value` over the wave, in every lane: lanes 2^k apart exchange and add.
__device__ inline float wave_sum(float value) {
  for (int distance = gpu::wave_size() / 2; distance > 0; distance /= 2)
    value += gpu::wave_shfl_xor(value, distance);
  return value;
}

// The sum of `value` over the block, in the threads of wave 0. Wait at a barrier before calling it
// again: wave 0 may still be reading.
__device__ inline float block_sum(float value) {
  __shared__ float sums[kBlock];  // one per wave is used
  value = wave_sum(value);
  if (gpu::lane_id() == 0) sums[gpu::wave_id()] = value;
  __syncthreads();  // every wave's sum is in sums
  const int waves = static_cast<int>(kBlock) / gpu::wave_size();
  if (gpu::wave_id() == 0) value = wave_sum(gpu::lane_id() < waves ? sums[gpu::lane_id()] : 0.0f);
  return value;
}

// *result += x·y    x, y (n), any n; *result is 0 before.
// Fixes : the tree waits for the whole block after every addition.
// Idea  : lanes of a wave exchange registers without memory or barrier; then one value per wave.
// Thread: t sums x[i] * y[i] over i = t, t + T, ...; thread 0 of a block adds the block's sum.
// Costs : 8 n bytes of global memory; 1 barrier, 4 bytes of shared memory per wave.
static __global__ void dot_wave_shuffle(float* result, const float* x, const float* y, size_t n) {
  const float sum = block_sum(thread_sum(x, y, n));
  if (threadIdx.x == 0) atomicAdd(result, sum);
}

inline void launch_wave_shuffle(float* result, const float* x, const float* y, size_t n,
                                const Workspace&) {
  HIP_CHECK(hipMemsetAsync(result, 0, sizeof(float), nullptr));
  LAUNCH(dot_wave_shuffle, dot_blocks(n), kBlock, 0, result, x, y, n);
}

// ---- Many loads in flight ---------------------------------------------------------------------

__device__ inline void multiply_add(float4& sum, float4 x, float4 y) {
  sum.x += x.x * y.x, sum.y += x.y * y.y, sum.z += x.z * y.z, sum.w += x.w * y.w;
}

// This thread's share of the sum, 16 bytes per load and 2 kLoads loads before the first sum: the
// float4s t, t + T, ... and of the head and tail the elements t, t + T, ...
__device__ inline float thread_sum(const float* x, const float* y, const Split& split) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  // exercise: rounds of kLoads float4s, the float4s left over, the single ones (about 18 lines)
  const float4* x4 = reinterpret_cast<const float4*>(x + split.head);
  const float4* y4 = reinterpret_cast<const float4*>(y + split.head);
  float4 sum = make_float4(0, 0, 0, 0);
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
  return (sum.x + sum.y) + (sum.z + sum.w);
  // end exercise
}

// *result += x·y    x, y (n), any n, any alignment; *result is 0 before.
// Fixes : wave_shuffle waits for two loads of 4 bytes before it asks for the next.
// Idea  : 2 kLoads independent loads of 16 bytes are on their way in every thread.
// Thread: t sums the float4s t, t + T, ...; thread 0 of a block adds the block's sum.
// Costs : 8 n bytes of global memory; 1 barrier; 8 kLoads registers for what is on its way.
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    dot_loads_in_flight(float* result, const float* x, const float* y, Split split) {
  const float sum = block_sum(thread_sum(x, y, split));
  if (threadIdx.x == 0) atomicAdd(result, sum);
}

// Blocks for float4s, or for single elements where there are more of them: as many as the device
// holds at a time, so that none has to wait for another to end.
inline unsigned dot_blocks(const Split& split) {
  return dot_blocks(std::max(split.vectors, split.head + split.tail), kResidentBlocks);
}

inline void launch_loads_in_flight(float* result, const float* x, const float* y, size_t n,
                                   const Workspace&) {
  const Split split = split_vectors(n, {x, y});
  HIP_CHECK(hipMemsetAsync(result, 0, sizeof(float), nullptr));
  LAUNCH(dot_loads_in_flight, dot_blocks(split), kBlock, 0, result, x, y, split);
}

// ---- Single pass ------------------------------------------------------------------------------

// *result = x·y    x, y (n), any n, any alignment.
// Fixes : loads_in_flight needs *result cleared first, and adds the blocks' sums in any order.
// Idea  : blocks leave their sums in memory; the last one to arrive adds them, in their order.
// Thread: t sums the float4s t, t + T, ...; in the last block also partials[t], [t + kBlock], ...
// Costs : 8 n bytes of global memory; 4 barriers in the last block; one integer atomic per block.
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    dot_single_pass(float* result, const float* x, const float* y, Split split,
                    Workspace workspace) {
  __shared__ bool last;
  const float sum = block_sum(thread_sum(x, y, split));
  if (threadIdx.x == 0) {
    workspace.partials[blockIdx.x] = sum;
    __threadfence();  // whoever sees this block counted sees its sum too
    last = atomicAdd(workspace.finished, 1u) == gridDim.x - 1;
    __threadfence();  // and the last block reads the sums, not older copies of its cache
  }
  __syncthreads();  // all threads know whether theirs is the last block
  if (last) {
    float total = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kBlock) total += workspace.partials[b];
    total = block_sum(total);
    if (threadIdx.x == 0) {
      *result = total;
      *workspace.finished = 0;  // for the next launch
    }
  }
}

inline void launch_single_pass(float* result, const float* x, const float* y, size_t n,
                               const Workspace& workspace) {
  const Split split = split_vectors(n, {x, y});
  LAUNCH(dot_single_pass, dot_blocks(split), kBlock, 0, result, x, y, split, workspace);
}

// ---- Deterministic two-pass -------------------------------------------------------------------

// partials[b] = the sum of block b's share of x·y    x, y (n), partials (gridDim.x).
// Fixes : the order of single_pass's additions depends on the device: on its number of
//         multiprocessors through the grid, and on the size of its waves.
// Idea  : grid and tree follow from n alone; the kernel's end is the barrier between the passes.
// Thread: t sums the float4s t, t + T, ...; thread 0 of a block stores the block's sum.
// Costs : 8 n bytes of global memory; log2(kBlock) + 1 barriers; a second launch.
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, kResidentBlocks)
    dot_partials(float* partials, const float* x, const float* y, Split split) {
  const float sum = block_sum_tree(thread_sum(x, y, split));
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// *result = sum over b of partials[b]    partials (count), one block.
// Fixes : a block can't know when the others have left their sums; the next launch can.
// Idea  : the same tree once more.
// Thread: t sums partials[t], partials[t + kBlock], ...; thread 0 stores the result.
// Costs : 4 count bytes of global memory; log2(kBlock) + 1 barriers.
static __global__ void sum_partials(float* result, const float* partials, unsigned count) {
  float total = 0;
  for (unsigned b = threadIdx.x; b < count; b += kBlock) total += partials[b];
  total = block_sum_tree(total);
  if (threadIdx.x == 0) *result = total;
}

// The same grid on every device: one round of kLoads float4s per thread, up to kFixedBlocks blocks.
inline unsigned fixed_blocks(const Split& split) {
  const size_t items = std::max(split.vectors, split.head + split.tail);
  return static_cast<unsigned>(
      std::clamp(gpu::ceil_div(items, size_t{kBlock} * kLoads), size_t{1}, size_t{kFixedBlocks}));
}

inline void launch_two_pass(float* result, const float* x, const float* y, size_t n,
                            const Workspace& workspace) {
  const Split split = split_vectors(n, {x, y});
  const unsigned blocks = fixed_blocks(split);
  LAUNCH(dot_partials, blocks, kBlock, 0, workspace.partials, x, y, split);
  LAUNCH(sum_partials, 1, kBlock, 0, result, workspace.partials, blocks);
}

// ---- Through how many roundings does a product go? --------------------------------------------
// Each is one rounding itself, and goes through one per addition to its thread's sum, log2(kBlock)
// in the block, and what the blocks' sums take. Each function takes the Split of x and y.

inline double sum_of_thread(double items, double threads) { return std::ceil(items / threads); }
inline double size_of(const Split& split) {
  return static_cast<double>(split.head + 4 * split.vectors + split.tail);
}
// In a thread that reads float4s: its float4s, its single elements, and the four sums of a float4.
inline double sum_of_vectors(const Split& split, double threads) {
  return sum_of_thread(static_cast<double>(split.vectors), threads) +
         sum_of_thread(static_cast<double>(split.head + split.tail), threads) + 2;
}

inline double roundings_atomic(const Split& split) { return 1 + size_of(split); }
inline double roundings_block_atomics(const Split& split) {
  const double n = size_of(split), blocks = dot_blocks(static_cast<size_t>(n));
  return 1 + sum_of_thread(n, blocks * kBlock) + std::log2(kBlock) + blocks;
}
inline double roundings_loads_in_flight(const Split& split) {
  const double blocks = dot_blocks(split);
  return 1 + sum_of_vectors(split, blocks * kBlock) + std::log2(kBlock) + blocks;
}
inline double roundings_of_partials(const Split& split, double blocks) {
  return 1 + sum_of_vectors(split, blocks * kBlock) + std::log2(kBlock) +
         sum_of_thread(blocks, kBlock) + std::log2(kBlock);
}
inline double roundings_single_pass(const Split& split) {
  return roundings_of_partials(split, dot_blocks(split));
}
inline double roundings_two_pass(const Split& split) {
  return roundings_of_partials(split, fixed_blocks(split));
}

// ---- The versions -----------------------------------------------------------------------------

struct Launch {
  void (*run)(float* result, const float* x, const float* y, size_t n, const Workspace& workspace);
  double (*roundings)(const Split& split);
  bool deterministic;  // the same bits on every run
};

inline constexpr Version<Launch> kVersions[] = {
    {"atomic", {launch_atomic, roundings_atomic, false}, "one atomic per element"},
    {"shared_tree",
     {launch_shared_tree, roundings_block_atomics, false},
     "a tree in shared memory, one atomic per block"},
    {"wave_shuffle",
     {launch_wave_shuffle, roundings_block_atomics, false},
     "the lanes of a wave add without memory or barrier"},
    {"loads_in_flight",
     {launch_loads_in_flight, roundings_loads_in_flight, false},
     "many independent 16-byte loads per thread"},
    {"single_pass",
     {launch_single_pass, roundings_single_pass, true},
     "the last block to finish adds the blocks' sums"},
    {"two_pass",
     {launch_two_pass, roundings_two_pass, true},
     "fixed grid, fixed order: the same bits on every device"},
};

}  // namespace dot
