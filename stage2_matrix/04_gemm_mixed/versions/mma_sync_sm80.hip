// mma_sync: mma.sync fed by ldmatrix and a ring of tiles that cp.async fills.
#include <stdexcept>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/fragments_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/tile_loader_sm80.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

#if !defined(GPU_BACKEND_HIP)

// The place of chunk `chunk` (16 bytes) of row `row` in shared memory, in rows of `chunks` chunks.
// A load reads one chunk of eight rows; stored one below the other they would share their banks.
//
//   row 0    0 1 2 3 4 5 6 7     chunk 0 of rows 0 to 7 is a diagonal:
//   row 1    1 0 3 2 5 4 7 6     it is in different banks in each row
//   row 2    2 3 0 1 6 7 4 5     ...
struct Swizzle {
  static __host__ __device__ constexpr int place(int row, int chunk, int chunks) {
    // exercise: swap the chunks of each of eight neighbouring rows in another way (about 3 lines)
    int place = chunk;
    place ^= row % 8;
    return row * chunks + place;
    // end exercise
  }
};

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, any sizes.
// Fixes : wmma_tiled's units wait for each tile from global and each fragment from shared memory.
// Idea  : a ring of stages: while one is multiplied, copies fill the other kStages - 1. While a
// step
//         is multiplied, the fragments of the next step are loaded.
// Thread: warp w owns kWarpRows x kWarpColumns of the block's kRows x kColumns of C.
// Costs : 1 barrier per tile; kStages tiles of shared memory; two sets of fragments in registers.
template <class T, class Tile, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, Tile::kBlocks)
    gemm_mma_sync(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                  unsigned tile_rows, unsigned tile_columns) {
  if constexpr (kHaveMma) {
    using Stage = gemm_mixed::Stage<T, Tile, Swizzle>;
    DYNAMIC_SHARED(Stage, stages);
    const TilePlace place = tile_place(blockIdx.x, tile_rows, tile_columns);
    const size_t row = size_t{place.row} * Tile::kRows;
    const size_t column = size_t{place.column} * Tile::kColumns;
    const int warp = static_cast<int>(threadIdx.x) / kLanes;
    const int warp_row = warp / Tile::kWarpsInRow * Tile::kWarpRows;
    const int warp_column = warp % Tile::kWarpsInRow * Tile::kWarpColumns;

    StageLoader<Stage, kAligned> loader(a, b, M, N, K, row, column);
    const FragmentLoader<Stage> fragment_loader(warp_row, warp_column);
    AsyncCopies copies;
    float sums[Tile::kWarpRows / 16][Tile::kWarpColumns / 8][4] = {};
    Fragments<Tile> fragments[2];

    GPU_UNROLL
    for (int stage = 0; stage < Tile::kStages - 1; ++stage) {
      loader.begin(stages[stage], copies);
      copies.end_group();
    }
    copies.wait<Tile::kStages - 2>();
    __syncthreads();  // the first stage is complete
    fragment_loader.load(fragments[0], stages[0], 0);
    int reading = 0, filling = Tile::kStages - 1;
    const size_t tiles = gpu::ceil_div(K, kStageDepth<T>);
    for (size_t tile = 0; tile < tiles; ++tile) {
      // exercise: multiply step by step, begin a stage and go on to the next (about 16 lines)
      GPU_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        if (step == kSteps - 1) {
          copies.wait<Tile::kStages - 2>();
          __syncthreads();  // the next stage is complete, and every warp has read this one
          reading = reading + 1 == Tile::kStages ? 0 : reading + 1;
        }
        fragment_loader.load(fragments[(step + 1) % 2], stages[reading], (step + 1) % kSteps);
        if (step == 0) {
          loader.begin(stages[filling], copies);
          copies.end_group();  // an empty group counts too
          filling = filling + 1 == Tile::kStages ? 0 : filling + 1;
        }
        multiply_fragments<T>(sums, fragments[step % 2]);
      }
      // end exercise
    }

    // A lane's two neighbouring sums are stored together where every row begins at 8 bytes.
    const int lane = warp_lane();
    const bool pairs = N % 2 == 0 && reinterpret_cast<std::uintptr_t>(c) % sizeof(float2) == 0;
    GPU_UNROLL
    for (int r = 0; r < Tile::kWarpRows / 8; ++r) {
      const size_t to_row = row + static_cast<size_t>(warp_row + r * 8 + lane / 4);
      if (to_row >= M) break;
      GPU_UNROLL
      for (int j = 0; j < Tile::kWarpColumns / 8; ++j) {
        const size_t to_column = column + static_cast<size_t>(warp_column + j * 8 + lane % 4 * 2);
        const float* sum = sums[r / 2][j] + r % 2 * 2;
        float* to = c + to_row * N + to_column;
        if (pairs && to_column < N) *reinterpret_cast<float2*>(to) = make_float2(sum[0], sum[1]);
        if (!pairs && to_column < N) to[0] = sum[0];
        if (!pairs && to_column + 1 < N) to[1] = sum[1];
      }
    }
  }
}

template <class T, class Tile>
constexpr size_t kRingBytes = Tile::kStages * sizeof(Stage<T, Tile, Swizzle>);

template <class T, class Tile, bool kAligned>
static void launch_tile(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                        hipStream_t stream) {
  const auto tile_rows = static_cast<unsigned>(gpu::ceil_div(M, Tile::kRows));
  const auto tile_columns = static_cast<unsigned>(gpu::ceil_div(N, Tile::kColumns));
  gpu::allow_shared_bytes(gemm_mma_sync<T, Tile, kAligned>, kRingBytes<T, Tile>);
  LAUNCH_ON(stream, (gemm_mma_sync<T, Tile, kAligned>), tile_rows * tile_columns,
            static_cast<unsigned>(Tile::kThreads), (kRingBytes<T, Tile>), c, a, b, M, N, K,
            tile_rows, tile_columns);
}

template <class T>
void launch_mma_sync_tile(TileName tile, bool asynchronous, float* c, const T* a, const T* b,
                          size_t M, size_t N, size_t K, hipStream_t stream) {
  if (tile == TileName::Large && asynchronous)
    launch_tile<T, LargeTile, true>(c, a, b, M, N, K, stream);
  else if (tile == TileName::Medium && asynchronous)
    launch_tile<T, MediumTile, true>(c, a, b, M, N, K, stream);
  else if (tile == TileName::Small && asynchronous)
    launch_tile<T, SmallTile, true>(c, a, b, M, N, K, stream);
  else if (tile == TileName::Small)
    launch_tile<T, SmallTile, false>(c, a, b, M, N, K, stream);
#if defined(GPU_BACKEND_CPU)
  else if (tile == TileName::Wide && asynchronous)
    launch_tile<T, WideTile, true>(c, a, b, M, N, K, stream);
  else if (tile == TileName::Wide)
    launch_tile<T, WideTile, false>(c, a, b, M, N, K, stream);
#endif
  else
    throw std::invalid_argument("mma_sync is not compiled for this tile");
}

int mma_sync_place(int row, int chunk, int chunks) { return Swizzle::place(row, chunk, chunks); }

// Whether the device has the shared memory for this tile, and the product a tile for each of its
// multiprocessors.
template <class T, class Tile>
static bool suits(size_t M, size_t N) {
  return kRingBytes<T, Tile> <= gpu::max_shared_bytes() &&
         gpu::ceil_div(M, Tile::kRows) * gpu::ceil_div(N, Tile::kColumns) >= gpu::multiprocessors();
}

template <class T>
void launch_mma_sync(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                     hipStream_t stream) {
  if (M == 0 || N == 0) return;
  const bool aligned = rows_are_aligned(a, K * sizeof(T)) && rows_are_aligned(b, N * sizeof(T));
  const TileName tile = !aligned                     ? TileName::Small
                        : suits<T, LargeTile>(M, N)  ? TileName::Large
                        : suits<T, MediumTile>(M, N) ? TileName::Medium
                                                     : TileName::Small;
  launch_mma_sync_tile(tile, aligned, c, a, b, M, N, K, stream);
}

template void launch_mma_sync_tile(TileName, bool, float*, const gpu::half*, const gpu::half*,
                                   size_t, size_t, size_t, hipStream_t);
template void launch_mma_sync_tile(TileName, bool, float*, const gpu::bfloat16*,
                                   const gpu::bfloat16*, size_t, size_t, size_t, hipStream_t);
template void launch_mma_sync_tile(TileName, bool, float*, const float*, const float*, size_t,
                                   size_t, size_t, hipStream_t);

#else

template <class T>
void launch_mma_sync(float*, const T*, const T*, size_t, size_t, size_t, hipStream_t) {
  throw std::runtime_error("mma_sync needs sm_80");
}

#endif

template void launch_mma_sync(float*, const gpu::half*, const gpu::half*, size_t, size_t, size_t,
                              hipStream_t);
template void launch_mma_sync(float*, const gpu::bfloat16*, const gpu::bfloat16*, size_t, size_t,
                              size_t, hipStream_t);
template void launch_mma_sync(float*, const float*, const float*, size_t, size_t, size_t,
                              hipStream_t);

}  // namespace gemm_mixed
