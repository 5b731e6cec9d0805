// skinny: few rows. B and A change places, and the blocks of a cluster each take a slice of K.
#include <algorithm>
#include <stdexcept>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/skinny_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

#if !defined(GPU_BACKEND_HIP)

// C = A·B    A (M,K), M <= kRows    B (K,N)    C (M,N), row-major, as tma_takes() wants them.
// Fixes : a tile of `clusters` has 128 rows. With 16, 7/8 of its products are wasted, and N = 8192
//         is 32 tiles: a hundred multiprocessors do nothing, and the memory waits.
// Idea  : C^T = B^T A^T: the 64 rows of a wgmma are columns of C, and its n is M. The blocks of a
//         cluster share a tile. Each takes a slice of K; then they add their sums.
// Thread: two warp groups multiply 128 columns each of a tile of 256; thread 256 copies.
// Costs : B is read once. N = K = 8192: 32 tiles x 4 slices, 128 blocks of 32 stages, 1 MiB of B
//         each, up to 192 KiB of it under way. A is read 32 times, from the L2 cache: M/256 of B.
template <class T, int kRows>
static __global__ void GPU_LAUNCH_BOUNDS(SkinnyTile<kRows>::kThreads, 1)
    gemm_skinny(float* c, const __grid_constant__ CUtensorMap map_a,
                const __grid_constant__ CUtensorMap map_b, size_t M, size_t N, int steps,
                unsigned slices) {
  if constexpr (kHaveWgmma) {
    using Tile = SkinnyTile<kRows>;
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = aligned_shared<SkinnyShared<T, kRows>>(dynamic);
    if (threadIdx.x == 0) shared.init();
    __syncthreads();  // every thread and the TMA know the barriers

    const int slice = static_cast<int>(block_of_cluster()), of = static_cast<int>(slices);
    const int first = steps * slice / of, end = steps * (slice + 1) / of;
    const int column = static_cast<int>(blockIdx.x / slices) * Tile::kColumns;
    const int thread = static_cast<int>(threadIdx.x), consumer = thread / kWarpGroup;
    RingPlace place;
    float sums[Tile::kBoxes][kRows / 2];
    if (thread == Tile::kProducer) {
      for (int step = first; step < end; ++step, place.next(Tile::kStages))
        fill_stage(shared, place, map_a, map_b, column, step * Tile::kDepth);
    } else if (thread < Tile::kProducer) {
      const bool leads = thread % kWarpGroup == 0;
      int multiplied = 0;  // the stage before this one
      for (int step = first; step < end; ++step, place.next(Tile::kStages)) {
        shared.full[place.stage].wait(place.parity);  // both tiles are complete
        multiply_stage<T, kRows>(sums, shared.stages[place.stage], consumer, step > first);
        wait_for_wgmma<1>();  // all but this stage's multiplications are complete
        if (leads && step > first) shared.empty[multiplied].arrive();
        multiplied = place.stage;
      }
      wait_for_wgmma<0>();
    }
    __syncthreads();  // all stages are multiplied: the sums may overwrite them
    if (thread < Tile::kProducer) keep_sums<kRows>(shared.sums, sums, consumer);
    sync_cluster();  // the sums of all slices are there
    add_slices<kRows>(c, shared.sums, M, N, static_cast<size_t>(column), slices);
    sync_cluster();  // no block reads another one's sums any more
  }
}

template <class T, int kRows>
static void launch_rows(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                        hipStream_t stream) {
  using Tile = SkinnyTile<kRows>;
  constexpr size_t kBytes = sizeof(SkinnyShared<T, kRows>) + kBoxAlignment;
  constexpr unsigned kThreads = Tile::kThreads;
  gpu::allow_shared_bytes(gemm_skinny<T, kRows>, kBytes);
  const auto tiles = static_cast<unsigned>(gpu::ceil_div(N, Tile::kColumns));
  const auto steps = static_cast<unsigned>(gpu::ceil_div(K, Tile::kDepth));
  const unsigned slices = choose_slices(tiles, steps, [&](unsigned blocks) {
    return clusters_at_once(gemm_skinny<T, kRows>, blocks, kThreads, kBytes);
  });
  LAUNCH_IN_CLUSTERS(stream, (gemm_skinny<T, kRows>), slices, tiles * slices, kThreads, kBytes, c,
                     tensor_map(a, M, K, kRows), tensor_map(b, K, N, Tile::kDepth), M, N,
                     static_cast<int>(steps), slices);
}

template <class T>
void launch_skinny(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                   hipStream_t stream) {
  if constexpr (sizeof(T) != 2) {
    throw std::runtime_error("wgmma takes B (K, N) of 16-bit numbers only");
  } else {
    if (M > kFewRows) return launch_clusters(c, a, b, M, N, K, stream);
    if (!tma_takes(c, a, b, M, N, K)) return launch_mma_sync(c, a, b, M, N, K, stream);
    const auto launch = M <= 16   ? launch_rows<T, 16>
                        : M <= 64 ? launch_rows<T, 64>
                                  : launch_rows<T, kFewRows>;
    launch(c, a, b, M, N, K, stream);
  }
}

#else

template <class T>
void launch_skinny(float*, const T*, const T*, size_t, size_t, size_t, hipStream_t) {
  throw std::runtime_error("skinny needs sm_90");
}

#endif

template void launch_skinny(float*, const gpu::half*, const gpu::half*, size_t, size_t, size_t,
                            hipStream_t);
template void launch_skinny(float*, const gpu::bfloat16*, const gpu::bfloat16*, size_t, size_t,
                            size_t, hipStream_t);
template void launch_skinny(float*, const float*, const float*, size_t, size_t, size_t,
                            hipStream_t);

}  // namespace gemm_mixed
