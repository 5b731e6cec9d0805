// clusters: two blocks need the same tile of B; each copies half of it to both.
#include <stdexcept>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/pair_loop_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

#if !defined(GPU_BACKEND_HIP)

template <class T>
struct SharedPair;

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, as tma_takes() wants them; K in `steps` stages.
// Fixes : each of warp_specialized's blocks copies both of its tiles itself, although its
//         neighbours copy the same ones: 48 KiB a stage from the L2 cache.
// Idea  : two blocks are a cluster. Each copies half of their tile of B, once, to both: 32 KiB.
// Thread: as in warp_specialized; thread i of a consumer tells block i that a stage is multiplied.
// Costs : a stage is filled again when the consumers of both blocks have left it. A block stays
//         until the other one is done, since that writes to its shared memory.
template <class T>
static __global__ void GPU_LAUNCH_BOUNDS(SpecializedTile::kThreads, 1)
    gemm_clusters(const __grid_constant__ CUtensorMap map_c,
                  const __grid_constant__ CUtensorMap map_a,
                  const __grid_constant__ CUtensorMap map_b, int steps, unsigned pair_rows,
                  unsigned tile_columns) {
  if constexpr (kHaveWgmma) {
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = aligned_shared<SpecializedShared<T>>(dynamic);
    multiply_pairs(shared, pair_rows * tile_columns, steps,
                   SharedPair<T>{map_c, map_a, map_b, pair_rows, tile_columns, block_of_cluster()});
  }
}

// What a thread does of the loop of pairs: detail/pair_loop_sm90.h.
template <class T>
struct SharedPair {
  using Tile = SpecializedTile;
  const CUtensorMap &map_c, &map_a, &map_b;
  unsigned pair_rows, tile_columns, block;

  __device__ TileOfPair tile(unsigned pair) const {
    return tile_of_pair(pair, block, pair_rows, tile_columns);
  }

  __device__ __forceinline__ void copy(SpecializedStage<T>& stage, PhaseBarrier& full,
                                       const TileOfPair& at, int k) const {
    const int column = at.column, first = static_cast<int>(block) * kHalfOfB;  // boxes of B
    load_box(stage.a, map_a, at.row, k, full);
    // exercise: copy this block's half of the boxes of B to both blocks (about 3 lines)
    GPU_UNROLL
    for (int i = 0; i < kHalfOfB; ++i)
      load_box_for(kWholeCluster, stage.b[first + i], map_b, k, column + (first + i) * 64, full);
    // end exercise
  }

  __device__ __forceinline__ void multiply(float (&sums)[128], const SpecializedStage<T>& stage,
                                           int consumer, bool add) const {
    multiply_stage(sums, stage, consumer, add);
  }

  // Thread i of a consumer tells block i. `stage` is being multiplied, `multiplied` is the one
  // before.
  __device__ __forceinline__ void tell(PhaseBarrier* empty, int step, int stage, int& multiplied,
                                       unsigned thread) const {
    const bool tells = thread < kClusterBlocks;
    // exercise: when the stage before is multiplied, tell both blocks (about 3 lines)
    wait_for_wgmma<1>();  // all but this stage's multiplications are complete
    if (tells && step > 0) arrive_at(empty[multiplied], thread);
    multiplied = stage;
    // end exercise
  }

  __device__ __forceinline__ void store(const TileOfPair& at, int consumer,
                                        const float (&sums)[128], StoreBuffer& buffer,
                                        int group) const {
    store_64x256(map_c, at.row + consumer * kStoreRows, at.column, sums, buffer, group);
  }
};

template <class T>
void launch_clusters(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                     hipStream_t stream) {
  if constexpr (sizeof(T) != 2) {
    throw std::runtime_error("wgmma takes B (K, N) of 16-bit numbers only");
  } else {
    if (!tma_takes(c, a, b, M, N, K)) return launch_mma_sync(c, a, b, M, N, K, stream);
    using Tile = SpecializedTile;
    const auto pair_rows = static_cast<unsigned>(gpu::ceil_div(M, Tile::kRows * kClusterBlocks));
    const auto tile_columns = static_cast<unsigned>(gpu::ceil_div(N, Tile::kColumns));
    constexpr size_t kBytes = kBytesOfRing<SpecializedStage<T>>;
    gpu::allow_shared_bytes(gemm_clusters<T>, kBytes);
    LAUNCH_EARLY_IN_CLUSTERS(stream, gemm_clusters<T>, kClusterBlocks,
                             clusters_of(pair_rows * tile_columns) * kClusterBlocks,
                             unsigned{Tile::kThreads}, kBytes, tensor_map(c, M, N, kStoreRows),
                             tensor_map(a, M, K, Tile::kRows), tensor_map(b, K, N, Tile::kDepth),
                             static_cast<int>(gpu::ceil_div(K, Tile::kDepth)), pair_rows,
                             tile_columns);
  }
}

#else

template <class T>
void launch_clusters(float*, const T*, const T*, size_t, size_t, size_t, hipStream_t) {
  throw std::runtime_error("clusters needs sm_90");
}

#endif

template void launch_clusters(float*, const gpu::half*, const gpu::half*, size_t, size_t, size_t,
                              hipStream_t);
template void launch_clusters(float*, const gpu::bfloat16*, const gpu::bfloat16*, size_t, size_t,
                              size_t, hipStream_t);
template void launch_clusters(float*, const float*, const float*, size_t, size_t, size_t,
                              hipStream_t);

}  // namespace gemm_mixed
