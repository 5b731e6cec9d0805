// skinny: few rows. B and A change places, and the blocks of a cluster each take a slice of K.
#include <array>
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
// Idea  : C^T = B^T A^T: the 64 rows of a wgmma are columns of C, and its n is M. A tile has 64
//         columns; two neighbours are a cluster and share A. Where tiles are fewer than
//         multiprocessors, more blocks of a cluster take a slice of K each, and add their sums.
// Thread: a warp group multiplies the tile, 1/128 of it each; thread 128 copies.
// Costs : B is read once. N = K = 8192: 128 tiles, a block each, of 128 stages: 1 MiB of B, 64 KiB
//         or more of it under way. A comes 64 times from the L2 cache: M/128 of B.
template <class T, int kRows>
static __global__ void GPU_LAUNCH_BOUNDS((SkinnyShared<T, kRows>::kThreads), 1)
    gemm_skinny(float* c, const __grid_constant__ CUtensorMap map_a,
                const __grid_constant__ CUtensorMap map_b, size_t M, size_t N, int steps,
                ClusterShape shape) {
  if constexpr (kHaveWgmma) {
    using Tile = SkinnyShared<T, kRows>;
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = aligned_shared<Tile>(dynamic);
    if (threadIdx.x == 0) shared.init(shape.sharers);
    sync_cluster_relaxed();  // every thread of all blocks and the TMA know the barriers
    gpu::let_next_launch_begin();

    const unsigned slice = block_of_cluster() / shape.sharers;
    const unsigned first_sharer = slice * shape.sharers;
    const unsigned cluster = blockIdx.x / (shape.slices * shape.sharers);
    const unsigned tile = cluster * shape.sharers + block_of_cluster() - first_sharer;
    const int column = static_cast<int>(tile) * Tile::kColumns;
    const int first = slice_begin(steps, slice, shape), end = slice_begin(steps, slice + 1, shape);
    const int thread = static_cast<int>(threadIdx.x);
    RingPlace place;
    SkinnySums<kRows> sums;
    if (thread == Tile::kProducer) {
      gpu::wait_for_launch_before();  // the stores wait for this thread's copies
      int step = first + static_cast<int>(cluster) * Tile::kApart % (end - first);
      for (int copied = first; copied < end; ++copied, place.next(Tile::kStages)) {
        fill_stage(shared, place, map_a, map_b, column, step * Tile::kDepth, first_sharer,
                   shape.sharers);
        if (++step == end) step = first;  // the steps that it began behind
      }
    } else if (thread < Tile::kProducer) {
      const bool tells = threadIdx.x < shape.sharers;  // a block of those that share A
      int multiplied = 0;                              // the stage before this one
      for (int step = first; step < end; ++step, place.next(Tile::kStages)) {
        shared.full[place.stage].wait(place.parity);  // both tiles are complete
        multiply_stage<T, kRows>(sums, shared, place.stage, step > first);
        wait_for_wgmma<1>();  // all but this stage's multiplications are complete
        if (tells && step > first) arrive_at(shared.empty[multiplied], first_sharer + threadIdx.x);
        multiplied = place.stage;
      }
      wait_for_wgmma<0>();  // the warp group has multiplied all stages
    }
    const auto left = static_cast<size_t>(column);
    if (shape.slices == 1) {
      if (thread < Tile::kProducer && left < N) store_sums<kRows>(c + left, N, M, N - left, sums);
    } else {
      if (thread < Tile::kProducer)  // the sums may overwrite the stages
        store_sums<kRows>(shared.sums, Tile::kPitch, kRows, Tile::kColumns, sums);
      sync_cluster();  // the sums of all slices are there
      add_slices<T, kRows>(c, shared, M, N, left, shape);
    }
    sync_cluster_relaxed();  // no block reads or tells another one any more
  }
}

template <class T, int kRows>
static void launch_rows(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                        hipStream_t stream) {
  using Tile = SkinnyShared<T, kRows>;
  constexpr size_t kBytes = sizeof(Tile) + kBoxAlignment;
  constexpr unsigned kThreads = Tile::kThreads;
  gpu::allow_shared_bytes(gemm_skinny<T, kRows>, kBytes);
  static const auto at_once = [] {
    std::array<unsigned, kMostBlocks + 1> clusters{};
    for (unsigned blocks = 1; blocks <= kMostBlocks; ++blocks)
      clusters[blocks] = clusters_at_once(gemm_skinny<T, kRows>, blocks, kThreads, kBytes);
    return clusters;
  }();
  const auto tiles = static_cast<unsigned>(gpu::ceil_div(N, Tile::kColumns));
  const auto steps = static_cast<unsigned>(gpu::ceil_div(K, Tile::kDepth));
  const ClusterShape shape = choose_cluster(tiles, steps, at_once);
  const unsigned blocks = shape.slices * shape.sharers;
  LAUNCH_EARLY_IN_CLUSTERS(
      stream, (gemm_skinny<T, kRows>), blocks, gpu::ceil_div(tiles, shape.sharers) * blocks,
      kThreads, kBytes, c, tensor_map(a, M, K, Tile::kBoxRows, Fetch::bytes_128),
      tensor_map(b, K, N, Tile::kDepth, Fetch::bytes_128), M, N, static_cast<int>(steps), shape);
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
