// Products in any layout by the loop of mma_sync: ldmatrix turns 16-bit numbers on request.
#pragma once

#include <cstdint>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/product_epilogue.h"

#if !defined(GPU_BACKEND_HIP)

#include "stage2_matrix/04_gemm_mixed/detail/fragments_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/tile_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/tiles.h"

namespace gemm_mixed {

// A tile of A or B in shared memory: kExtent rows of op(A), or columns of op(B), and 64 along K.
// Its lines are what the matrix has as rows, swizzled as mma_sync's:
//
//   kAlongK    kExtent lines of 64 elements along K    A (M, K), B (N, K)
//   else       64 lines of kExtent elements            A (K, M), B (K, N)
//
// Each thread copies the same chunks of every tile.
template <class T, bool kAlongK, int kExtent, int kThreads, bool kAligned>
class TileOfLines {
  static constexpr int kDepth = kStageDepth<T>;
  static constexpr int kLines = kAlongK ? kExtent : kDepth;
  static constexpr int kChunks = (kAlongK ? kDepth : kExtent) / kPerChunk<T>;
  static constexpr int kAtOnce = kThreads / kChunks;  // lines
  static_assert(kAtOnce % 8 == 0, "a thread's chunks all have the same place in their lines");

 public:
  static constexpr int kSize = kLines * kChunks;  // chunks

  // `extent` and `K`: of the matrix; `first`: of the tile along the extent.
  __device__ TileOfLines(const T* matrix, size_t ld, size_t extent, size_t K, size_t first)
      : ld_(ld), left_(K) {
    const int thread = static_cast<int>(threadIdx.x);
    line_ = thread / kChunks, element_ = thread % kChunks * kPerChunk<T>;
    extent_left_ = clip(extent - first, kExtent);
    const size_t line = static_cast<size_t>(line_), element = static_cast<size_t>(element_);
    from_ = kAlongK ? matrix + (first + line) * ld + element : matrix + line * ld + first + element;
  }

  // Begins to copy the next tile along K, with zeros beyond the edges. Beyond the end of K all is
  // zeros.
  __device__ void begin(uint4* tile, AsyncCopies& copies) {
    const int depth = clip(left_, kDepth);
    const int lines = kAlongK ? extent_left_ : depth;
    const int count = (kAlongK ? depth : extent_left_) - element_;
    GPU_UNROLL
    for (int i = 0; i < kLines / kAtOnce; ++i) {
      const int inside = line_ + i * kAtOnce < lines ? count : 0;
      uint4* const to = tile + place(line_ + i * kAtOnce, element_ / kPerChunk<T>);
      const T* const from = from_ + static_cast<size_t>(i * kAtOnce) * ld_;
      if constexpr (kAligned)
        copies.begin(to, from, inside > 0);  // all of it, or nothing
      else
        *to = load_chunk(from, inside);
    }
    from_ += kAlongK ? kDepth : kDepth * ld_;
    left_ -= static_cast<size_t>(depth);
  }

  // The fragment of step `step` along K that begins at `first` of the extent: four 8x8 matrices,
  // of which lane 8 m + r names row r of matrix m. They go along the extent
  // first, as mma.sync wants them of A, or along K, as of B.
  template <bool kAlongExtentFirst>
  static __device__ void load(unsigned (&words)[4], const uint4* tile, int first, int step) {
    const int lane = warp_lane(), m = lane / 8;
    const int extent = kAlongExtentFirst ? m % 2 : m / 2, k = kAlongExtentFirst ? m / 2 : m % 2;
    if constexpr (kAlongK)
      load_matrices(words, tile + place(first + extent * 8 + lane % 8, 2 * step + k));
    else
      load_transposed(words, tile + place(step * 16 + k * 8 + lane % 8, first / 8 + extent));
  }

 private:
  static __device__ int place(int line, int chunk) { return line * kChunks + (chunk ^ line % 8); }

  const T* from_;  // this thread's first chunk of the next tile
  size_t ld_, left_;
  int line_, element_, extent_left_;
};

// C = epilogue(op(A)·op(B)), any sizes; blockIdx.z counts the batch.
// Idea, thread and costs: as mma_sync's, in versions/mma_sync_sm80.hip.
template <class T, class C, Layout kLayout, class Tile, bool kAligned, class Epilogue>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, Tile::kBlocks)
    gemm_mma(Product<T, C> p, Epilogue epilogue, unsigned tile_rows, unsigned tile_columns) {
  if constexpr (kHaveMma) {
    using TileA = TileOfLines<T, kLayout != Layout::TN, Tile::kRows, Tile::kThreads, kAligned>;
    using TileB = TileOfLines<T, kLayout == Layout::NT, Tile::kColumns, Tile::kThreads, kAligned>;
    constexpr int kStage = TileA::kSize + TileB::kSize;
    DYNAMIC_SHARED(uint4, stages);
    const TilePlace place = tile_place(blockIdx.x, tile_rows, tile_columns);
    const size_t row = size_t{place.row} * Tile::kRows;
    const size_t column = size_t{place.column} * Tile::kColumns;
    const int warp = static_cast<int>(threadIdx.x) / kLanes;
    const int warp_row = warp / Tile::kWarpsInRow * Tile::kWarpRows;
    const int warp_column = warp % Tile::kWarpsInRow * Tile::kWarpColumns;

    TileA a(p.a + blockIdx.z * p.stride_a, p.lda, p.M, p.K, row);
    TileB b(p.b + blockIdx.z * p.stride_b, p.ldb, p.N, p.K, column);
    AsyncCopies copies;
    float sums[Tile::kWarpRows / 16][Tile::kWarpColumns / 8][4] = {};
    Fragments<Tile> fragments[2];
    const auto begin = [&](int stage) {
      a.begin(stages + stage * kStage, copies);
      b.begin(stages + stage * kStage + TileA::kSize, copies);
      copies.end_group();  // an empty group counts too
    };
    const auto load = [&](Fragments<Tile>& to, int stage, int step) {
      const uint4* const tile_a = stages + stage * kStage;
      GPU_UNROLL
      for (int i = 0; i < Tile::kWarpRows / 16; ++i)
        TileA::template load<true>(to.a[i], tile_a, warp_row + i * 16, step);
      GPU_UNROLL
      for (int j = 0; j < Tile::kWarpColumns / 16; ++j)
        TileB::template load<false>(to.b[j], tile_a + TileA::kSize, warp_column + j * 16, step);
    };

    GPU_UNROLL
    for (int stage = 0; stage < Tile::kStages - 1; ++stage) begin(stage);
    copies.wait<Tile::kStages - 2>();
    __syncthreads();  // the first stage is complete
    load(fragments[0], 0, 0);
    int reading = 0, filling = Tile::kStages - 1;
    const size_t tiles = gpu::ceil_div(p.K, size_t{kStageDepth<T>});
    for (size_t tile = 0; tile < tiles; ++tile) {
      GPU_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        if (step == kSteps - 1) {
          copies.wait<Tile::kStages - 2>();
          __syncthreads();  // the next stage is complete, and every warp has read this one
          reading = reading + 1 == Tile::kStages ? 0 : reading + 1;
        }
        load(fragments[(step + 1) % 2], reading, (step + 1) % kSteps);
        if (step == 0) {
          begin(filling);
          filling = filling + 1 == Tile::kStages ? 0 : filling + 1;
        }
        multiply_fragments<T>(sums, fragments[step % 2]);
      }
    }

    // A lane's two neighbours are stored together where every row of C begins so.
    C* const c = p.c + blockIdx.z * p.stride_c;
    const int lane = warp_lane();
    const bool pairs = fits_two(epilogue) && p.ldc % 2 == 0 && p.N % 2 == 0 &&
                       reinterpret_cast<std::uintptr_t>(c) % sizeof(TwoOf<C>) == 0;
    GPU_UNROLL
    for (int r = 0; r < Tile::kWarpRows / 8; ++r) {
      const size_t to_row = row + static_cast<size_t>(warp_row + r * 8 + lane / 4);
      if (to_row >= p.M) break;
      GPU_UNROLL
      for (int j = 0; j < Tile::kWarpColumns / 8; ++j) {
        const size_t to_column = column + static_cast<size_t>(warp_column + j * 8 + lane % 4 * 2);
        const float* sum = sums[r / 2][j] + r % 2 * 2;
        C* to = c + to_row * p.ldc + to_column;
        if (to_column >= p.N) continue;
        if (pairs) {
          *reinterpret_cast<TwoOf<C>*>(to) =
              finish_two(epilogue, sum[0], sum[1], to_row, to_column, to);
          continue;
        }
        to[0] = finish(epilogue, sum[0], to_row, to_column, to);
        if (to_column + 1 < p.N) to[1] = finish(epilogue, sum[1], to_row, to_column + 1, to + 1);
      }
    }
  }
}

// Whether the chunks of A and B can be copied as a whole.
template <class T, class C>
bool has_whole_chunks(const Product<T, C>& p) {
  const auto suits = [](const T* data, size_t run, size_t ld, size_t stride) {
    return chunks_are_aligned(data, ld * sizeof(T)) && (run | stride) % kPerChunk<T> == 0;
  };
  return suits(p.a, p.a_is_transposed() ? p.M : p.K, p.lda, p.stride_a) &&
         suits(p.b, p.b_is_transposed() ? p.K : p.N, p.ldb, p.stride_b);
}

template <Layout kLayout, class Tile, bool kAligned, class T, class C, class Epilogue>
void launch_mma_tile(const Product<T, C>& product, const Epilogue& epilogue, hipStream_t stream) {
  constexpr size_t kBytes =
      sizeof(uint4) * Tile::kStages * (Tile::kRows + Tile::kColumns) * kChunksDeep;
  gpu::allow_shared_bytes(gemm_mma<T, C, kLayout, Tile, kAligned, Epilogue>, kBytes);
  launch_grids(
      product, Tile::kRows, Tile::kColumns, [&](unsigned rows, unsigned columns, const auto& p) {
        LAUNCH_ON(stream, (gemm_mma<T, C, kLayout, Tile, kAligned, Epilogue>),
                  dim3(rows * columns, 1, static_cast<unsigned>(p.batch)),
                  static_cast<unsigned>(Tile::kThreads), kBytes, p, epilogue, rows, columns);
      });
}

template <Layout kLayout, class T, class C, class Epilogue>
void launch_mma(const Product<T, C>& p, const Epilogue& epilogue, hipStream_t stream) {
  if (!has_whole_chunks(p)) return launch_mma_tile<kLayout, SmallTile, false>(p, epilogue, stream);
#if defined(GPU_BACKEND_CUDA)  // the CPU backend's blocks are too small
  const size_t tiles = gpu::ceil_div(p.M, size_t{MediumTile::kRows}) *
                       gpu::ceil_div(p.N, size_t{MediumTile::kColumns}) * p.batch;
  if (tiles >= gpu::multiprocessors())
    return launch_mma_tile<kLayout, MediumTile, true>(p, epilogue, stream);
#endif
  launch_mma_tile<kLayout, SmallTile, true>(p, epilogue, stream);
}

}  // namespace gemm_mixed

#endif
