// Products in any layout by the tiles of wmma_tiled: on every device, from rows of any alignment.
#pragma once

#include <cstring>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/matrix_unit.h"
#include "stage2_matrix/04_gemm_mixed/detail/product_epilogue.h"
#include "stage2_matrix/04_gemm_mixed/detail/tiles.h"

namespace gemm_mixed {

// What a block computes of C, and what a wave of it; multiplications along K per staged tile.
struct UnitTile {
  static constexpr int kRows = 64, kColumns = 64, kWaveRows = 32, kWaveColumns = 32;
  static constexpr int kWavesInRow = kColumns / kWaveColumns;
  static constexpr int kWaves = kRows / kWaveRows * kWavesInRow;
  static constexpr int kUnitsDeep = 2;
};

// Copies a tile of a matrix to shared memory, kRun elements along its rows and kLines rows of it,
// with zeros beyond the edges: `lines_left` and `run_left` are what is left of the matrix. Element
// i of line l goes to shared[l * kLineStep + i * kRunStep]; one of the two steps is 1. All threads
// of the block call it.
template <int kLines, int kRun, int kLineStep, int kRunStep, class T>
__device__ inline void stage_lines(T* shared, const T* tile, size_t ld, int lines_left,
                                   int run_left, bool aligned) {
  constexpr int kElements = kPerChunk<T>, kChunks = kRun / kElements;
  for (int i = gpu::thread_rank(); i < kLines * kChunks; i += static_cast<int>(blockDim.x)) {
    const int line = i / kChunks, first = i % kChunks * kElements;
    const int count = line < lines_left ? run_left - first : 0;
    uint4 chunk;
    if (count <= 0) {
      chunk = make_uint4(0, 0, 0, 0);
    } else {
      const T* from = tile + static_cast<size_t>(line) * ld + first;
      chunk = aligned && count >= kElements ? *reinterpret_cast<const uint4*>(from)
                                            : load_chunk(from, count);
    }
    if constexpr (kRunStep == 1) {
      *reinterpret_cast<uint4*>(shared + line * kLineStep + first) = chunk;
    } else {
      T elements[kElements];
      memcpy(elements, &chunk, sizeof chunk);
      GPU_UNROLL
      for (int e = 0; e < kElements; ++e)
        shared[line * kLineStep + (first + e) * kRunStep] = elements[e];
    }
  }
}

// C = epilogue(op(A)·op(B)), any layout, sizes and alignment; blockIdx.z counts the batch.
// Idea  : as wmma_tiled; a matrix that lies the other way is turned while it is staged.
// Thread: wave w owns kWaveRows x kWaveColumns of the block's kRows x kColumns of C.
// Costs : 2 barriers per tile; a turned tile is stored element by element.
template <class T, class C, class Epilogue>
static __global__ void GPU_LAUNCH_BOUNDS(UnitTile::kWaves* gpu::kMaxWaveSize, 1)
    gemm_units(Product<T, C> p, Epilogue epilogue, bool aligned_a, bool aligned_b) {
  using Unit = MatrixUnit<T>;
  using Tile = UnitTile;
  constexpr int kTile = Unit::kTile, kDepth = Tile::kUnitsDeep * Unit::kDepth;
  constexpr int kStrideA = kDepth + kPerChunk<T>, kStrideB = Tile::kColumns + kPerChunk<T>;
  constexpr int kUnitRows = Tile::kWaveRows / kTile, kUnitColumns = Tile::kWaveColumns / kTile;
  constexpr int kChunksA = Tile::kRows * kStrideA / kPerChunk<T>;
  constexpr int kChunksB = kDepth * kStrideB / kPerChunk<T>;
  __shared__ __align__(32) uint4 chunks_a[kChunksA], chunks_b[kChunksB];
  __shared__ __align__(32) float tiles_c[Tile::kWaves][kTile * kTile];
  T* shared_a = reinterpret_cast<T*>(chunks_a);
  T* shared_b = reinterpret_cast<T*>(chunks_b);

  const size_t blocks_in_row = gpu::ceil_div(p.N, size_t{Tile::kColumns});
  const size_t row = blockIdx.x / blocks_in_row * Tile::kRows;
  const size_t column = blockIdx.x % blocks_in_row * Tile::kColumns;
  const int rows_left = clip(p.M - row, Tile::kRows);
  const int columns_left = clip(p.N - column, Tile::kColumns);
  const int wave = gpu::wave_id();
  const int wave_row = wave / Tile::kWavesInRow * Tile::kWaveRows;
  const int wave_column = wave % Tile::kWavesInRow * Tile::kWaveColumns;
  const T* const a = p.a + blockIdx.z * p.stride_a;
  const T* const b = p.b + blockIdx.z * p.stride_b;

  typename Unit::C sums[kUnitRows][kUnitColumns];
  for (auto& row_of_sums : sums)
    for (auto& sum : row_of_sums) Unit::clear(sum);

  for (size_t k = 0; k < p.K; k += kDepth) {
    const int depth_left = clip(p.K - k, kDepth);
    if (p.layout == Layout::TN)
      stage_lines<kDepth, Tile::kRows, 1, kStrideA>(shared_a, a + k * p.lda + row, p.lda,
                                                    depth_left, rows_left, aligned_a);
    else
      stage_lines<Tile::kRows, kDepth, kStrideA, 1>(shared_a, a + row * p.lda + k, p.lda, rows_left,
                                                    depth_left, aligned_a);
    if (p.layout == Layout::NT)
      stage_lines<Tile::kColumns, kDepth, 1, kStrideB>(shared_b, b + column * p.ldb + k, p.ldb,
                                                       columns_left, depth_left, aligned_b);
    else
      stage_lines<kDepth, Tile::kColumns, kStrideB, 1>(shared_b, b + k * p.ldb + column, p.ldb,
                                                       depth_left, columns_left, aligned_b);
    __syncthreads();  // both tiles are complete
    for (int unit = 0; unit < Tile::kUnitsDeep; ++unit) {
      const int depth = unit * Unit::kDepth;
      typename Unit::A fragments_a[kUnitRows];
      typename Unit::B fragments_b[kUnitColumns];
      GPU_UNROLL
      for (int i = 0; i < kUnitRows; ++i)
        Unit::load(fragments_a[i], shared_a + (wave_row + i * kTile) * kStrideA + depth, kStrideA);
      GPU_UNROLL
      for (int j = 0; j < kUnitColumns; ++j)
        Unit::load(fragments_b[j], shared_b + depth * kStrideB + wave_column + j * kTile, kStrideB);
      GPU_UNROLL
      for (int i = 0; i < kUnitRows; ++i) {
        GPU_UNROLL
        for (int j = 0; j < kUnitColumns; ++j)
          Unit::multiply_add(sums[i][j], fragments_a[i], fragments_b[j]);
      }
    }
    __syncthreads();  // no wave needs the tiles any more: the next ones may overwrite them
  }

  C* const c = p.c + blockIdx.z * p.stride_c;
  GPU_UNROLL
  for (int i = 0; i < kUnitRows; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kUnitColumns; ++j) {
      const size_t first_row = row + static_cast<size_t>(wave_row + i * kTile);
      const size_t first_column = column + static_cast<size_t>(wave_column + j * kTile);
      gpu::wave_sync();  // every lane has used the last tile
      Unit::store(tiles_c[wave], kTile, sums[i][j]);
      gpu::wave_sync();  // the tile is complete
      for (int e = gpu::lane_id(); e < kTile * kTile; e += gpu::wave_size()) {
        const size_t r = first_row + static_cast<size_t>(e / kTile);
        const size_t s = first_column + static_cast<size_t>(e % kTile);
        if (r >= p.M || s >= p.N) continue;
        C* const to = c + r * p.ldc + s;
        *to = finish(epilogue, tiles_c[wave][e], r, s, to);
      }
    }
  }
}

template <class T, class C, class Epilogue>
void launch_units(const Product<T, C>& product, const Epilogue& epilogue, hipStream_t stream) {
  const auto aligned = [](const T* data, size_t ld, size_t stride) {
    return chunks_are_aligned(data, ld * sizeof(T)) && stride % kPerChunk<T> == 0;
  };
  const bool aligned_a = aligned(product.a, product.lda, product.stride_a);
  const bool aligned_b = aligned(product.b, product.ldb, product.stride_b);
  launch_grids(product, UnitTile::kRows, UnitTile::kColumns,
               [&](unsigned rows, unsigned columns, const auto& p) {
                 LAUNCH_ON(stream, (gemm_units<T, C, Epilogue>),
                           dim3(rows * columns, 1, static_cast<unsigned>(p.batch)),
                           UnitTile::kWaves * gpu::device_wave_size(), 0, p, epilogue, aligned_a,
                           aligned_b);
               });
}

}  // namespace gemm_mixed
