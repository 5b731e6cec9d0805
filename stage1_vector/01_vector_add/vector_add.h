// 1.1  c = a + b and c = a * b, element by element, over n floats.
//
// One operation per 12 bytes moved (two reads, one write): the time is the memory's, and the
// versions differ only in how they ask the memory for the bytes. Every launcher takes device
// arrays of n floats, any n (0 too), aligned to 4 bytes; c must not overlap a or b.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"

namespace vector_add {

struct Add {
  template <class T>
  __host__ __device__ T operator()(T x, T y) const {
    return x + y;
  }
};

struct Multiply {
  template <class T>
  __host__ __device__ T operator()(T x, T y) const {
    return x * y;
  }
};

// The reference: c[i] = operation(a[i], b[i]) in double.
template <class Operation>
std::vector<double> elementwise_cpu(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<double> c(a.size());
  for (size_t i = 0; i < c.size(); ++i)
    c[i] = Operation{}(static_cast<double>(a[i]), static_cast<double>(b[i]));
  return c;
}

// What a correct float result may be off: one rounding, |got - want| <= u |want| (Higham, Accuracy
// and Stability of Numerical Algorithms, 2nd ed., equation 2.4).
inline double bound(double want) { return kFloatRoundoff * std::fabs(want); }

// ---- Tuning -----------------------------------------------------------------------------------

inline constexpr unsigned kBlock = 256;                   // threads per block
inline constexpr unsigned kBlocksPerMultiprocessor = 32;  // grid of the grid-stride versions
// The most threads of one launch: AMD counts the threads of a grid in 32 bits.
inline constexpr size_t kMaxThreads = size_t{1} << 31;

// ---- One element per thread -------------------------------------------------------------------

// c = a ∘ b    a, b, c (n), n < 2^32.
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element; the last block is cut off at n.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns c[t].
// Costs : 12 n bytes of global memory; no shared memory, no barrier.
template <class Operation>
static __global__ void elementwise_naive(float* c, const float* a, const float* b, size_t n) {
  // exercise: compute this thread's element, if it has one (about 2 lines)
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) c[i] = Operation{}(a[i], b[i]);
  // end exercise
}

template <class Operation>
inline void launch_naive(float* c, const float* a, const float* b, size_t n) {
  for (size_t begin = 0; begin < n; begin += kMaxThreads) {  // once, unless n is huge
    const size_t count = std::min(n - begin, kMaxThreads);
    LAUNCH((elementwise_naive<Operation>), static_cast<unsigned>(gpu::ceil_div(count, kBlock)),
           kBlock, 0, c + begin, a + begin, b + begin, count);
  }
}

// ---- Grid-stride ------------------------------------------------------------------------------

// c = a ∘ b    a, b, c (n), any n.
// Fixes : naive needs a grid as large as n, and starts a thread for every 12 bytes.
// Idea  : the grid is as large as the device can use; each thread steps through c by grid lengths.
// Thread: t owns c[t], c[t + T], c[t + 2T], ... with T threads in the grid.
// Costs : 12 n bytes of global memory; no shared memory, no barrier.
template <class Operation>
static __global__ void elementwise_grid_stride(float* c, const float* a, const float* b, size_t n) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = thread; i < n; i += threads) c[i] = Operation{}(a[i], b[i]);
}

// Blocks of `block` threads for a grid-stride loop over `items`: at most `per_multiprocessor` for
// each multiprocessor of the device, and no more than there are items for. The CPU backend runs the
// threads of a block one after the other: there each walks `cpu_rounds` rounds only, so that the
// next thread finds the cache lines that it shares with this one.
inline unsigned grid_stride_blocks(size_t items, unsigned block = kBlock,
                                   unsigned per_multiprocessor = kBlocksPerMultiprocessor,
                                   unsigned cpu_rounds = 8) {
  const size_t needed = gpu::ceil_div(items, block), most = kMaxThreads / block;
#if defined(GPU_BACKEND_CPU)
  static_cast<void>(per_multiprocessor);
  return static_cast<unsigned>(std::min(gpu::ceil_div(needed, cpu_rounds), most));
#else
  static_cast<void>(cpu_rounds);
  const size_t resident = size_t{gpu::multiprocessors()} * per_multiprocessor;
  return static_cast<unsigned>(std::min({needed, resident, most}));
#endif
}

template <class Operation>
inline void launch_grid_stride(float* c, const float* a, const float* b, size_t n) {
  if (n == 0) return;
  LAUNCH((elementwise_grid_stride<Operation>), grid_stride_blocks(n), kBlock, 0, c, a, b, n);
}

// ---- 128-bit loads and stores -----------------------------------------------------------------

// How arrays of n floats are read 16 bytes at a time:
//
//   element  0 1 2 | 3 4 5 6 | 7 8 9 10 | ... | n-2 n-1      here a starts 4 bytes behind
//            head  | float4  |  float4  | ... |  tail        a multiple of 16
//
// A float4 must lie at a multiple of 16 bytes. Arrays that are not aligned alike have no element
// where all of them could be read so: all their elements are then single ones.
struct Split {
  size_t head;     // single elements before the first float4
  size_t vectors;  // float4s
  size_t tail;     // single elements behind the last float4
};

inline Split split_vectors(size_t n, std::initializer_list<const float*> arrays) {
  const auto past_16 = [](const float* p) {
    return reinterpret_cast<std::uintptr_t>(p) % sizeof(float4);
  };
  const size_t past = past_16(*arrays.begin());
  for (const float* array : arrays)
    if (past_16(array) != past) return {n, 0, 0};
  const size_t head = std::min(n, (sizeof(float4) - past) % sizeof(float4) / sizeof(float));
  const size_t vectors = (n - head) / 4;
  return {head, vectors, n - head - 4 * vectors};
}

template <class Operation>
__device__ inline float4 apply(Operation operation, float4 x, float4 y) {
  return make_float4(operation(x.x, y.x), operation(x.y, y.y), operation(x.z, y.z),
                     operation(x.w, y.w));
}

// c = a ∘ b    a, b, c (n), any n, any alignment.
// Fixes : grid_stride asks for 4 bytes per instruction, and after a few rounds its threads ask for
//         addresses that lie all over the arrays.
// Idea  : float4 moves 16 bytes per instruction; a grid as large as the work hands out its blocks,
//         and so the addresses, in order. What fits no float4 is done element by element.
// Thread: t owns the float4s t, t + T, ... and of the head and tail the elements t, t + T, ...
// Costs : 12 n bytes of global memory, in a quarter of the instructions.
template <class Operation>
static __global__ void elementwise_vectorized(float* c, const float* a, const float* b,
                                              Split split) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  // exercise: the float4s between head and tail, then the single elements (about 9 lines)
  const float4* a4 = reinterpret_cast<const float4*>(a + split.head);
  const float4* b4 = reinterpret_cast<const float4*>(b + split.head);
  float4* c4 = reinterpret_cast<float4*>(c + split.head);
  for (size_t v = thread; v < split.vectors; v += threads) c4[v] = apply(Operation{}, a4[v], b4[v]);
  for (size_t s = thread; s < split.head + split.tail; s += threads) {
    const size_t i = s < split.head ? s : s + 4 * split.vectors;
    c[i] = Operation{}(a[i], b[i]);
  }
  // end exercise
}

// Blocks for a thread per item, as many as one launch may have: beyond that the threads go round.
inline unsigned full_grid(size_t items) {
  return static_cast<unsigned>(std::min(gpu::ceil_div(items, kBlock), kMaxThreads / kBlock));
}

template <class Operation>
inline void launch_vectorized(float* c, const float* a, const float* b, size_t n) {
  if (n == 0) return;
  const Split split = split_vectors(n, {c, a, b});
  LAUNCH((elementwise_vectorized<Operation>),
         full_grid(std::max(split.vectors, split.head + split.tail)), kBlock, 0, c, a, b, split);
}

// ---- The versions -----------------------------------------------------------------------------

struct Launch {
  using Function = void (*)(float* c, const float* a, const float* b, size_t n);
  Function add, multiply;
};

inline constexpr Version<Launch> kVersions[] = {
    {"naive", {launch_naive<Add>, launch_naive<Multiply>}, "one element per thread"},
    {"grid_stride",
     {launch_grid_stride<Add>, launch_grid_stride<Multiply>},
     "a grid that fits the device walks over the elements"},
    {"vectorized",
     {launch_vectorized<Add>, launch_vectorized<Multiply>},
     "16 bytes per load and store, addresses in order"},
};

}  // namespace vector_add
