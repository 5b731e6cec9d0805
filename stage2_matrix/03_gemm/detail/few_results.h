// Products of few results: where they are sums of a few terms, and where the sums are long. best()
// takes them on a GPU; the tiles of product_loop.h would leave most multiprocessors without work,
// and wait at barriers for what one thread can load by itself.
#pragma once

#include <cstddef>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/product.h"

namespace gemm {

// ---- Short sums ---------------------------------------------------------------------------------

inline constexpr unsigned kRowsAtOnce = 8, kColsAtOnce = 32;  // of a block's results

// C = epilogue(op(A) op(B))    op(A) (M, K), op(B) (K, N), C (M, N).
// Fixes : a tile in shared memory takes several barriers, however few products there are.
// Idea  : naive, of any layout: for a few terms the caches reuse what neighbours load.
// Thread: t owns element (t / kColsAtOnce, t % kColsAtOnce) of the block's tile.
// Costs : 2 K loads per thread, all of which may be on their way at the same time.
template <class Epilogue>
static __global__ void GPU_LAUNCH_BOUNDS(kRowsAtOnce* kColsAtOnce, 1)
    gemm_short_sums(Product p, Epilogue epilogue) {
  const TileOrigin origin = tile_origin(p, kRowsAtOnce, kColsAtOnce);
  const size_t row = origin.row + threadIdx.x / kColsAtOnce;
  const size_t col = origin.col + threadIdx.x % kColsAtOnce;
  if (row >= p.M || col >= p.N) return;
  const Operand a = operand_a(p), b = operand_b(p);
  float sum = 0;
  for (size_t k = 0; k < p.K; ++k) sum += *a.at(k, row) * *b.at(k, col);
  float* const c = element_of_c(p, row, col);
  *c = epilogue(sum, row, col, c);
}

template <class Epilogue>
void launch_short_sums(const Product& product, const Epilogue& epilogue, hipStream_t stream) {
  with_grid(product, kRowsAtOnce, kColsAtOnce, [&](dim3 grid, const Product& p) {
    LAUNCH_ON(stream, gemm_short_sums<Epilogue>, grid, kRowsAtOnce * kColsAtOnce, 0, p, epilogue);
  });
}

// ---- Long sums ----------------------------------------------------------------------------------

inline constexpr int kSide = 8, kResults = kSide * kSide;  // of a block
inline constexpr int kLongThreads = 256;
inline constexpr int kTermsAtOnce = 4;  // of a thread
inline constexpr int kMostWaves = 8;    // of kLongThreads threads: a wave has 32 lanes or more

// One exchange: the lanes that are `distance` apart keep kKept sums each. Then the next one. The
// number of the first sum that is kept grows. A loop over kKept would keep the sums in memory.
template <int kKept>
__device__ inline void exchange_halves(float (&sums)[kResults], int distance, int& first) {
  if (distance == 0) return;
  const bool is_upper = (gpu::lane_id() & distance) != 0;
  GPU_UNROLL
  for (int j = 0; j < kKept; ++j) {
    const float given = is_upper ? sums[j] : sums[j + kKept];
    const float own = is_upper ? sums[j + kKept] : sums[j];
    sums[j] = own + gpu::wave_shfl_xor(given, distance);
  }
  if (is_upper) first += kKept;
  if constexpr (kKept > 1) exchange_halves<kKept / 2>(sums, distance / 2, first);
}

// Adds up the sums of all lanes. A lane is left with kResults / wave_size() of them, in front; the
// number of the first one is returned. All lanes of the wave call it.
//
//   lanes 2^k apart exchange halves:   lane 0   | 0 1 2 3 | 4 5 6 7 |    keeps 0 to 3
//                                      lane 2^k | 0 1 2 3 | 4 5 6 7 |    keeps 4 to 7
__device__ inline int add_lanes(float (&sums)[kResults]) {
  int first = 0;
  exchange_halves<kResults / 2>(sums, gpu::wave_size() / 2, first);
  return first;
}

// C = epilogue(op(A) op(B))    op(A) (M, K), op(B) (K, N), C (M, N).
// Fixes : 64 x 128 results are eight tiles of 32 x 32: most multiprocessors are idle, and the
//         slices of a tile wait for a load at every step along K.
// Idea  : small squares of C, and the block's threads share K: a thread has a partial sum of each
//         result. Its loads of several k are on their way at the same time. Then lanes add up their
//         sums by exchanging halves, and waves theirs in shared memory, in a fixed order.
// Thread: t owns the terms k = t, t + kLongThreads, ...
// Costs : each block reads kSide rows of A and columns of B; 62 shuffles per wave of 32; 1 barrier.
template <class Epilogue>
static __global__ void GPU_LAUNCH_BOUNDS(kLongThreads, 1)
    gemm_long_sums(Product p, Epilogue epilogue) {
  __shared__ float of_waves[kMostWaves][kResults];
  const TileOrigin origin = tile_origin(p, kSide, kSide);
  const Operand a = operand_a(p), b = operand_b(p);
  const int thread = static_cast<int>(threadIdx.x);
  float sums[kResults] = {};
  for (size_t k0 = 0; k0 < p.K; k0 += kLongThreads * kTermsAtOnce) {
    float a_k[kTermsAtOnce][kSide] = {}, b_k[kTermsAtOnce][kSide] = {};
    GPU_UNROLL
    for (int u = 0; u < kTermsAtOnce; ++u) {
      const size_t k = k0 + static_cast<size_t>(u * kLongThreads + thread);
      GPU_UNROLL
      for (int i = 0; i < kSide; ++i) {
        if (k < p.K && origin.row + i < p.M) a_k[u][i] = *a.at(k, origin.row + i);
        if (k < p.K && origin.col + i < p.N) b_k[u][i] = *b.at(k, origin.col + i);
      }
    }
    GPU_UNROLL
    for (int u = 0; u < kTermsAtOnce; ++u) {
      if (k0 + static_cast<size_t>(u * kLongThreads) >= p.K) break;  // no thread has such a term
      GPU_UNROLL
      for (int i = 0; i < kResults; ++i) sums[i] += a_k[u][i / kSide] * b_k[u][i % kSide];
    }
  }
  const int first = add_lanes(sums), left = kResults / gpu::wave_size();
  GPU_UNROLL
  for (int j = 0; j < kResults * kMostWaves / kLongThreads; ++j)
    if (j < left) of_waves[gpu::wave_id()][first + j] = sums[j];
  __syncthreads();  // every wave's sums are in of_waves
  const size_t row = origin.row + static_cast<size_t>(thread / kSide);
  const size_t col = origin.col + static_cast<size_t>(thread % kSide);
  if (thread >= kResults || row >= p.M || col >= p.N) return;
  float sum = of_waves[0][thread];
  for (int wave = 1; wave < kLongThreads / gpu::wave_size(); ++wave) sum += of_waves[wave][thread];
  float* const c = element_of_c(p, row, col);
  *c = epilogue(sum, row, col, c);
}

template <class Epilogue>
void launch_long_sums(const Product& product, const Epilogue& epilogue, hipStream_t stream) {
  with_grid(product, kSide, kSide, [&](dim3 grid, const Product& p) {
    LAUNCH_ON(stream, gemm_long_sums<Epilogue>, grid, kLongThreads, 0, p, epilogue);
  });
}

// ---- Which products -----------------------------------------------------------------------------

inline constexpr size_t kShortSum = 16;
// A thread waits for memory once. Longer sums take as many times longer, as few blocks add them.
inline constexpr size_t kLongSum = size_t{kLongThreads} * kTermsAtOnce;

// Whether no multiprocessor gets more than one block of rows x cols results.
inline bool is_few(const Product& p, size_t rows, size_t cols) {
  const size_t blocks = gpu::ceil_div(p.M, rows) * gpu::ceil_div(p.N, cols);
  return blocks <= gpu::multiprocessors() && blocks * p.batch <= gpu::multiprocessors();
}
inline bool has_few_short_sums(const Product& p) {
  return p.K <= kShortSum && is_few(p, kRowsAtOnce, kColsAtOnce);
}
inline bool has_few_long_sums(const Product& p) {
  return p.K > kShortSum && p.K <= kLongSum && is_few(p, kSide, kSide);
}

}  // namespace gemm
