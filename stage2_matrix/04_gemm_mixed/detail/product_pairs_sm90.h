// Products in any layout by the loop of `clusters`: wgmma reads either matrix along K or across it.
#pragma once

#include <limits>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/product_epilogue.h"

#if !defined(GPU_BACKEND_HIP)

#include "stage2_matrix/04_gemm_mixed/detail/pair_loop_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"

namespace gemm_mixed {

// The tiles of a batch of products, in pairs, and whether all products have the same A or B.
struct BatchOfPairs {
  unsigned rows, columns;  // pairs in a column of C, tiles in a row of it
  bool same_a, same_b;
};

// What a thread does of the loop of pairs. A stage has the same bytes in every layout:
//
//   A (M, K)   128 rows of M, 64 columns of K: one box, 64 rows of it for each consumer
//   A (K, M)   64 rows of K, 2 x 64 columns of M: two boxes, one for each consumer
//   B (K, N)   64 rows of K, 4 x 64 columns of N: each block of the pair copies two of four boxes
//   B (N, K)   256 rows of N, 64 columns of K: each copies 128 rows, which are one box
template <class T, class C, Layout kLayout, class Epilogue>
struct ProductPair {
  using Tile = SpecializedTile;
  static constexpr bool kAcrossA = kLayout == Layout::TN, kAcrossB = kLayout != Layout::NT;
  static constexpr int kRowsOfHalf = kHalfOfB * 64;  // of B (N, K)

  const CUtensorMap &map_c, &map_first, &map_a, &map_b;
  const Product<T, C>& p;
  const Epilogue& epilogue;
  const BatchOfPairs& batch;
  unsigned block;

  __device__ TileOfPair tile(unsigned pair) const {
    const unsigned pairs = batch.rows * batch.columns, product = pair / pairs;
    return tile_of_pair(pair - product * pairs, block, batch.rows, batch.columns,
                        static_cast<int>(product));
  }

  __device__ __forceinline__ void copy(SpecializedStage<T>& stage, PhaseBarrier& full,
                                       const TileOfPair& at, int k) const {
    const int a = batch.same_a ? 0 : at.product, b = batch.same_b ? 0 : at.product;
    const int first = static_cast<int>(block) * kHalfOfB;  // box of B
    if constexpr (kAcrossA) {
      GPU_UNROLL
      for (int i = 0; i < Tile::kRows / 64; ++i)
        load_box(stage.a + i * 64 * Tile::kDepth, map_a, {k, at.row + i * 64, a, 0}, full);
    } else {
      load_box(stage.a, map_a, {at.row, k, a, 0}, full);
    }
    if constexpr (kAcrossB) {
      GPU_UNROLL
      for (int i = 0; i < kHalfOfB; ++i)
        load_box_for(kWholeCluster, stage.b[first + i], map_b,
                     {k, at.column + (first + i) * 64, b, 0}, full);
    } else {
      load_box_for(kWholeCluster, stage.b[first], map_b, {at.column + first * 64, k, b, 0}, full);
    }
  }

  __device__ __forceinline__ void multiply(float (&sums)[128], const SpecializedStage<T>& stage,
                                           int consumer, bool add) const {
    multiply_stage<kAcrossA, kAcrossB>(sums, stage, consumer, add);
  }

  __device__ __forceinline__ void tell(PhaseBarrier* empty, int step, int stage, int& multiplied,
                                       unsigned thread) const {
    tell_both(empty, step, stage, multiplied, thread);
  }

  // What is stored of 64 x 256 sums. Most lie in C as a whole. Their code has no branch, so that
  // what the epilogue reads for one sum is under way while it works at others.
  struct Place {
    size_t row, column;
    int rows, columns;  // what is left of C
    C* c;
    size_t ldc;
  };
  template <class WholeEpilogue>
  struct Whole {
    const Place& at;
    const WholeEpilogue& epilogue;
    __device__ __forceinline__ TwoOf<C> operator()(float first, float second, size_t row,
                                                   size_t column) const {
      return finish_two(epilogue, first, second, at.row + row, at.column + column,
                        at.c + row * at.ldc + column);
    }
  };
  template <class EdgeEpilogue>
  struct AtEdge {
    const Place& at;
    const EdgeEpilogue& epilogue;
    __device__ __forceinline__ C one(float sum, size_t row, size_t column) const {
      if (static_cast<int>(row) >= at.rows || static_cast<int>(column) >= at.columns)
        return gpu::from_float<C>(0);  // which is not stored
      return finish(epilogue, sum, at.row + row, at.column + column, at.c + row * at.ldc + column);
    }
    __device__ __forceinline__ TwoOf<C> operator()(float first, float second, size_t row,
                                                   size_t column) const {
      return {one(first, row, column), one(second, row, column + 1)};
    }
  };
  template <class OneEpilogue>
  struct Write {
    const OneEpilogue& epilogue;
    const Place& at;
    const float (&sums)[128];
    StoreBuffer& buffer;
    __device__ __forceinline__ void operator()(int pass) const {
      const bool whole = at.rows >= kStoreRows && at.columns >= (pass + 1) * kColumnsOfPass<C>;
      if constexpr (std::is_same_v<OneEpilogue, AlphaBeta>) {
        if (whole && epilogue.beta == 0)
          return write_pass<C>(sums, buffer, pass, Whole<TimesAlpha>{at, {epilogue.alpha}});
      } else if (whole && fits_two(epilogue)) {
        return write_pass<C>(sums, buffer, pass, Whole<OneEpilogue>{at, epilogue});
      }
      write_pass<C>(sums, buffer, pass, AtEdge<OneEpilogue>{at, epilogue});
    }
  };
  struct StoreBox {
    const CUtensorMap& map_c;
    int row, column, product;
    __device__ __forceinline__ void operator()(int begin, const float* box) const {
      store_box(map_c, {row, column + begin, product, 0}, box);
    }
  };
  __device__ __forceinline__ void store(const TileOfPair& at, int consumer,
                                        const float (&sums)[128], StoreBuffer& buffer,
                                        int group) const {
    const int row = at.row + consumer * kStoreRows;
    C* const c = p.c + static_cast<size_t>(at.product) * p.stride_c +
                 static_cast<size_t>(row) * p.ldc + at.column;
    const Place place{static_cast<size_t>(row),
                      static_cast<size_t>(at.column),
                      static_cast<int>(p.M) - row,
                      static_cast<int>(p.N) - at.column,
                      c,
                      p.ldc};
    const StoreBox to_c{map_c, row, at.column, at.product};
    if constexpr (kStoresTwice<Epilogue>) {
      const auto first = epilogue.first();
      store_passes<C>(buffer, group, place.columns,
                      Write<decltype(first)>{first, place, sums, buffer},
                      StoreBox{map_first, row, at.column, at.product});
      const auto second = epilogue.second();
      store_passes<C>(buffer, group, place.columns,
                      Write<decltype(second)>{second, place, sums, buffer}, to_c);
    } else {
      store_passes<C>(buffer, group, place.columns, Write<Epilogue>{epilogue, place, sums, buffer},
                      to_c);
    }
  }
};

// C = epilogue(op(A)·op(B)), as suits_pairs() wants it; K in `steps` stages.
template <class T, class C, Layout kLayout, class Epilogue>
static __global__ void GPU_LAUNCH_BOUNDS(SpecializedTile::kThreads, 1)
    gemm_pairs(const __grid_constant__ CUtensorMap map_c,
               const __grid_constant__ CUtensorMap map_first,
               const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
               const __grid_constant__ Product<T, C> p, const __grid_constant__ Epilogue epilogue,
               int steps, const __grid_constant__ BatchOfPairs batch) {
  if constexpr (kHaveWgmma) {
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = aligned_shared<SpecializedShared<T>>(dynamic);
    multiply_pairs(shared, batch.rows * batch.columns * static_cast<unsigned>(p.batch), steps,
                   ProductPair<T, C, kLayout, Epilogue>{map_c, map_first, map_a, map_b, p, epilogue,
                                                        batch, block_of_cluster()});
  }
}

template <class T, class C>
BatchOf<T> matrices_a(const Product<T, C>& p) {
  const bool across = p.a_is_transposed();
  return {p.a, across ? p.K : p.M, across ? p.M : p.K, p.lda, p.batch, p.stride_a};
}
template <class T, class C>
BatchOf<T> matrices_b(const Product<T, C>& p) {
  const bool across = !p.b_is_transposed();
  return {p.b, across ? p.K : p.N, across ? p.N : p.K, p.ldb, p.batch, p.stride_b};
}
template <class T, class C>
BatchOf<C> matrices_c(const Product<T, C>& p) {
  return {p.c, p.M, p.N, p.ldc, p.batch, p.stride_c};
}

// The matrix that an epilogue stores beside C; C itself, if there is none.
template <class T, class C, class Epilogue>
BatchOf<C> matrix_first(const Product<T, C>& p, [[maybe_unused]] const Epilogue& epilogue) {
  if constexpr (kStoresTwice<Epilogue>)
    return {epilogue.stored_first(), p.M, p.N, p.N, 1, 0};
  else
    return matrices_c(p);
}

template <class T, class C>
size_t pair_rows(const Product<T, C>& p) {
  return gpu::ceil_div(p.M, size_t{SpecializedTile::kRows} * kClusterBlocks);
}
template <class T, class C>
size_t tile_columns(const Product<T, C>& p) {
  return gpu::ceil_div(p.N, size_t{SpecializedTile::kColumns});
}

// Whether the TMA can copy all matrices of a product that is not empty, and 32 bits can count its
// tiles. It stores 16 bytes at a time: a row of C that ends before would have a gap overwritten.
template <class T, class C>
bool suits_pairs(const Product<T, C>& p) {
  constexpr size_t kMostPairs = std::numeric_limits<int>::max();
  return p.K > 0 && p.alpha != 0 && matrices_a(p).suit_tma() && matrices_b(p).suit_tma() &&
         matrices_c(p).suit_tma() && p.N * sizeof(C) % 16 == 0 &&
         (p.batch == 1 || p.stride_c > 0) && pair_rows(p) * tile_columns(p) <= kMostPairs / p.batch;
}

template <Layout kLayout, class T, class C, class Epilogue>
void launch_pairs(const Product<T, C>& p, const Epilogue& epilogue, hipStream_t stream) {
  using Tile = SpecializedTile;
  using Pair = ProductPair<T, C, kLayout, Epilogue>;
  const auto a = matrices_a(p);
  const auto b = matrices_b(p);
  const BatchOfPairs batch{static_cast<unsigned>(pair_rows(p)),
                           static_cast<unsigned>(tile_columns(p)), a.are_one(), b.are_one()};
  const unsigned pairs = batch.rows * batch.columns * static_cast<unsigned>(p.batch);
  constexpr size_t kBytes = kBytesOfRing<SpecializedStage<T>>;
  gpu::allow_shared_bytes(gemm_pairs<T, C, kLayout, Epilogue>, kBytes);
  LAUNCH_IN_CLUSTERS(stream, (gemm_pairs<T, C, kLayout, Epilogue>), kClusterBlocks,
                     clusters_of(pairs) * kClusterBlocks, unsigned{Tile::kThreads}, kBytes,
                     tensor_map(matrices_c(p), kStoreRows),
                     tensor_map(matrix_first(p, epilogue), kStoreRows),
                     tensor_map(a, Pair::kAcrossA ? Tile::kDepth : Tile::kRows),
                     tensor_map(b, Pair::kAcrossB ? Tile::kDepth : Pair::kRowsOfHalf), p, epilogue,
                     static_cast<int>(gpu::ceil_div(p.K, size_t{Tile::kDepth})), batch);
}

}  // namespace gemm_mixed

#endif
