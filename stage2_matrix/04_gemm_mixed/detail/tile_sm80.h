// mma_sync's tiles: what a block computes of C, and in which order. Plain C++ and device code.
#pragma once

#include <cstddef>

#include "stage2_matrix/04_gemm_mixed/detail/chunk.h"

namespace gemm_mixed {

// What a block computes of C, what each of its warps computes, the stages of the ring (each holds
// one tile of A and one of B), and how many blocks shall fit a multiprocessor.
template <int kRows_, int kColumns_, int kWarpRows_, int kWarpColumns_, int kStages_, int kBlocks_>
struct MmaTile {
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  static constexpr int kWarpRows = kWarpRows_, kWarpColumns = kWarpColumns_;
  static constexpr int kStages = kStages_, kBlocks = kBlocks_;
  static constexpr int kWarpsInRow = kColumns / kWarpColumns;
  static constexpr int kThreads = kRows / kWarpRows * kWarpsInRow * 32;  // a warp has 32 lanes
};

using LargeTile = MmaTile<128, 256, 64, 64, 4, 1>;   // 192 KiB: sm_90
using MediumTile = MmaTile<128, 128, 64, 64, 3, 2>;  // 96 KiB: every device from sm_80 on
using SmallTile = MmaTile<64, 64, 32, 32, 3, 2>;     // 48 KiB: small matrices, and the CPU backend
// 48 KiB, with warps as wide as LargeTile's and another number of stages. The CPU backend, whose
// blocks have 64 KiB, tests with it what it has no room for.
using WideTile = MmaTile<64, 128, 32, 64, 2, 1>;

// A tile of A is 128 bytes deep along K: eight chunks of 16 bytes. The tile of B is as deep.
inline constexpr int kChunksDeep = 8;
template <class T>
inline constexpr int kStageDepth = kPerChunk<T>* kChunksDeep;
inline constexpr int kSteps = kChunksDeep / 2;  // one mma.sync takes two chunks of a row

// Blocks take kRasterRows tiles of a column of C, then those of the next column. Blocks that run at
// the same time then share their tiles of A and B in the L2 cache.
inline constexpr unsigned kRasterRows = 16;

struct TilePlace {
  unsigned row, column;
};
// The tile of C that block `block` computes, of rows x columns tiles.
__host__ __device__ inline TilePlace tile_place(unsigned block, unsigned rows, unsigned columns,
                                                unsigned raster_rows = kRasterRows) {
  const unsigned band = block / (raster_rows * columns), in_band = block % (raster_rows * columns);
  const unsigned first = band * raster_rows;
  const unsigned height = rows - first < raster_rows ? rows - first : raster_rows;
  return {first + in_band % height, in_band / height};
}

// ---- For tests, defined in versions/mma_sync_sm80.hip ------------------------------------------

enum class TileName { Small, Medium, Large, Wide };

// launch_mma_sync with this tile, whatever the shape; `asynchronous` copies need rows that are
// aligned to 16 bytes. Small with either kind of copy; Medium and Large asynchronous only. Wide is
// there on the CPU backend only. Throws std::invalid_argument for others, gpu::Error where the
// device has too little shared memory for the tile.
template <class T>
void launch_mma_sync_tile(TileName tile, bool asynchronous, float* c, const T* a, const T* b,
                          size_t M, size_t N, size_t K, hipStream_t stream = nullptr);

// Where mma_sync keeps chunk `chunk` of row `row` in shared memory, of rows of `chunks` chunks.
int mma_sync_place(int row, int chunk, int chunks);

}  // namespace gemm_mixed
