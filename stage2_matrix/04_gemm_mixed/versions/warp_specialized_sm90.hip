// warp_specialized: one warp group copies, two multiply; blocks stay and take tile after tile.
#include <algorithm>
#include <stdexcept>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/ring_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tile_sm80.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

#if !defined(GPU_BACKEND_HIP)

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, as tma_takes() wants them; K in `steps` stages.
// Fixes : wgmma's blocks wait for each of their copies, and multiply nothing while they store C.
// Idea  : a warp group of its own copies, four stages ahead, and gives its registers to the two
//         that multiply: these hold 128 x 256 sums. One multiplication is always under way, and the
//         stores of a tile run during the next one.
// Thread: warp group 0 is the producer, one thread of it works; 1 and 2 own 64 rows each of a tile.
// Costs : all of a multiprocessor: 225 KiB of shared memory, and all registers.
template <class T>
static __global__ void GPU_LAUNCH_BOUNDS(SpecializedTile::kThreads, 1)
    gemm_warp_specialized(const __grid_constant__ CUtensorMap map_c,
                          const __grid_constant__ CUtensorMap map_a,
                          const __grid_constant__ CUtensorMap map_b, int steps, unsigned tile_rows,
                          unsigned tile_columns) {
  if constexpr (kHaveWgmma) {
    using Tile = SpecializedTile;
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = aligned_shared<SpecializedShared<T>>(dynamic);
    if (threadIdx.x == 0) shared.init();
    __syncthreads();  // every thread and the TMA know the barriers

    const int group = static_cast<int>(threadIdx.x) / kWarpGroup;
    // It goes on from tile to tile: the producer fills the next tile's first stages while the
    // consumers store this one.
    RingPlace place;
    if (group == 0) {
      give_registers<Tile::kProducerRegisters>();
      if (threadIdx.x == 0) {
        for (unsigned tile = blockIdx.x; tile < tile_rows * tile_columns; tile += gridDim.x) {
          const TilePlace at = tile_place(tile, tile_rows, tile_columns);
          const int row = static_cast<int>(at.row) * Tile::kRows;
          const int column = static_cast<int>(at.column) * Tile::kColumns;
          for (int step = 0; step < steps; ++step, place.next()) {
            const int k = step * Tile::kDepth;
            SpecializedStage<T>& stage = shared.stages[place.stage];
            PhaseBarrier &full = shared.full[place.stage], &empty = shared.empty[place.stage];
            // exercise: fill the stage when it is empty: A's box from (row, k) on, and B's boxes of
            // 64 columns from (k, column) on; `full` waits for the bytes of all (about 5 lines)
            empty.wait(place.parity ^ 1);  // in the first round: empty from the start
            full.expect(sizeof stage);
            load_box(stage.a, map_a, row, k, full);
            GPU_UNROLL
            for (int i = 0; i < Tile::kColumns / 64; ++i)
              load_box(stage.b[i], map_b, k, column + i * 64, full);
            // end exercise
          }
        }
      }
    } else {
      take_registers<Tile::kConsumerRegisters>();
      const int consumer = group - 1;
      const bool leads = threadIdx.x % kWarpGroup == 0;
      float sums[128];
      for (unsigned tile = blockIdx.x; tile < tile_rows * tile_columns; tile += gridDim.x) {
        int multiplied = 0;  // the stage before this one
        for (int step = 0; step < steps; ++step, place.next()) {
          // exercise: begin to multiply the stage when it is complete; when the one before is
          // multiplied, tell the producer that it is empty (about 5 lines)
          shared.full[place.stage].wait(place.parity);  // both tiles are complete
          multiply_stage(sums, shared.stages[place.stage], consumer, step > 0);
          wait_for_wgmma<1>();  // all but this stage's multiplications are complete
          if (leads && step > 0) shared.empty[multiplied].arrive();
          multiplied = place.stage;
          // end exercise
        }
        wait_for_wgmma<0>();
        if (leads) shared.empty[multiplied].arrive();

        const TilePlace at = tile_place(tile, tile_rows, tile_columns);
        const int row = static_cast<int>(at.row) * Tile::kRows + consumer * kStoreRows;
        store_64x256(map_c, row, static_cast<int>(at.column) * Tile::kColumns, sums,
                     shared.stores[consumer], group);
      }
      if (leads) wait_for_stores();  // they read shared memory, which ends with the block
    }
  }
}

template <class T>
void launch_warp_specialized(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                             hipStream_t stream) {
  if constexpr (sizeof(T) != 2) {
    throw std::runtime_error("wgmma takes B (K, N) of 16-bit numbers only");
  } else {
    if (!tma_takes(c, a, b, M, N, K)) return launch_mma_sync(c, a, b, M, N, K, stream);
    using Tile = SpecializedTile;
    const auto tile_rows = static_cast<unsigned>(gpu::ceil_div(M, Tile::kRows));
    const auto tile_columns = static_cast<unsigned>(gpu::ceil_div(N, Tile::kColumns));
    const unsigned blocks = std::min(tile_rows * tile_columns, gpu::multiprocessors());
    constexpr size_t kBytes = sizeof(SpecializedShared<T>) + kBoxAlignment;
    gpu::allow_shared_bytes(gemm_warp_specialized<T>, kBytes);
    LAUNCH_ON(stream, (gemm_warp_specialized<T>), blocks, unsigned{Tile::kThreads}, kBytes,
              tensor_map(c, M, N, kStoreRows), tensor_map(a, M, K, Tile::kRows),
              tensor_map(b, K, N, Tile::kDepth), static_cast<int>(gpu::ceil_div(K, Tile::kDepth)),
              tile_rows, tile_columns);
  }
}

#else

template <class T>
void launch_warp_specialized(float*, const T*, const T*, size_t, size_t, size_t, hipStream_t) {
  throw std::runtime_error("warp_specialized needs sm_90");
}

#endif

template void launch_warp_specialized(float*, const gpu::half*, const gpu::half*, size_t, size_t,
                                      size_t, hipStream_t);
template void launch_warp_specialized(float*, const gpu::bfloat16*, const gpu::bfloat16*, size_t,
                                      size_t, size_t, hipStream_t);
template void launch_warp_specialized(float*, const float*, const float*, size_t, size_t, size_t,
                                      hipStream_t);

}  // namespace gemm_mixed
