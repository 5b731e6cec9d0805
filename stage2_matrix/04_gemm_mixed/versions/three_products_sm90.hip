// three_products: floats, each in two tf32 parts, with the accuracy of float arithmetic.
#include <algorithm>
#include <stdexcept>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/accurate.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/three_products_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tiles.h"

namespace gemm_mixed {

#if !defined(GPU_BACKEND_HIP)

// C^T = B^T·A^T    A (M,K) in two parts, B (K,N), C (M,N), row-major float.
// Fixes : register_operand multiplies tf32, which has 11 of a float's 24 bits; and wgmma cuts its
//         sums off, always towards zero.
// Idea  : (large + small) (large' + small') without small small', which is below float's last bit.
//         wgmma adds up a stage only, 32 k. Ordinary additions, which round to nearest, collect
//         these partial sums.
// Thread: as in register_operand. While a consumer adds, the other one's products run.
// Costs : three products in place of one; 64 more registers for partial sums, 16 for fragments.
static __global__ void GPU_LAUNCH_BOUNDS(SpecializedTile::kThreads, 1)
    gemm_three_products(const __grid_constant__ CUtensorMap map_c,
                        const __grid_constant__ CUtensorMap map_large,
                        const __grid_constant__ CUtensorMap map_small,
                        const __grid_constant__ CUtensorMap map_b, int stages, unsigned tile_rows,
                        unsigned pair_columns) {
  if constexpr (kHaveWgmma) {
    using Tile = SplitTile;
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = aligned_shared<SplitRings>(dynamic);
    if (threadIdx.x == 0) shared.init();
    sync_cluster();  // every thread of both blocks and the TMA know the barriers

    // A pair is two tiles of C, side by side: one for each block.
    const unsigned block = block_of_cluster();
    const unsigned first_pair = blockIdx.x / kClusterBlocks, pairs = tile_rows * pair_columns;
    const unsigned clusters = gridDim.x / kClusterBlocks;
    const int group = static_cast<int>(threadIdx.x) / kWarpGroup;
    RingPlace place_a, place_b;
    if (group == 0) {
      give_registers<SpecializedTile::kProducerRegisters>();
      if (threadIdx.x == 0) {
        for (unsigned pair = first_pair; pair < pairs; pair += clusters) {
          const TilePlace at = tile_place(pair, tile_rows, pair_columns, kRasterPairs);
          const int row = static_cast<int>(at.row) * Tile::kRows;
          const int column = static_cast<int>(at.column * kClusterBlocks + block) * Tile::kColumns;
          for (int stage = 0; stage < stages; ++stage)
            fill_split_stage(shared, place_a, place_b, map_large, map_small, map_b, row, column,
                             stage * Tile::kDepth);
        }
      }
    } else {
      take_registers<SpecializedTile::kConsumerRegisters>();
      const int consumer = group - 1;
      const unsigned thread = threadIdx.x % kWarpGroup;
      const bool tells = thread < kClusterBlocks;
      const HeldColumns own = HeldColumns::of(static_cast<int>(thread));
      float sums[128], partial[Tile::kSumsOfHalf];
      SplitFragments b;
      for (unsigned pair = first_pair; pair < pairs; pair += clusters) {
        GPU_UNROLL
        for (float& sum : sums) sum = 0;
        for (int stage = 0; stage < stages; ++stage) {
          shared.full_b[place_b.stage].wait(place_b.parity);  // the tile of B is complete
          load_split(b, shared.b[place_b.stage], consumer, own);
          GPU_UNROLL
          for (int half = 0; half < Tile::kHalves; ++half) {
            shared.full_a[place_a.stage].wait(place_a.parity);  // this half of A is complete
            const SplitA& a = shared.a[place_a.stage];
            begin_wgmma();
            // exercise: begin the three products of all steps: those with a small part first, while
            // the partial sums are small. The first product does not add (about 6 lines)
            GPU_UNROLL
            for (int step = 0; step < Tile::kSteps; ++step) {
              multiply_held_rows(partial, b.large[step], describe_a(a.small, step), step > 0);
              multiply_held_rows(partial, b.small[step], describe_a(a.large, step), true);
            }
            GPU_UNROLL
            for (int step = 0; step < Tile::kSteps; ++step)
              multiply_held_rows(partial, b.large[step], describe_a(a.large, step), true);
            // end exercise
            end_wgmma();
            wait_for_wgmma<0>();
            if (tells) arrive_at(shared.empty_a[place_a.stage], thread);
            // All four warps have begun products with B, so all of B is in registers.
            if (half == 0 && thread == 0) shared.empty_b[place_b.stage].arrive();
            GPU_UNROLL
            for (int i = 0; i < Tile::kSumsOfHalf; ++i)
              sums[half * Tile::kSumsOfHalf + i] += partial[i];
            place_a.next(Tile::kStagesOfA);
          }
          place_b.next(Tile::kStagesOfB);
        }
        const TilePlace at = tile_place(pair, tile_rows, pair_columns, kRasterPairs);
        const int column = static_cast<int>(at.column * kClusterBlocks + block) * Tile::kColumns;
        store_256x64(map_c, static_cast<int>(at.row) * Tile::kRows, column + consumer * 64, sums,
                     own, shared.stores[consumer], group);
      }
      if (thread == 0) wait_for_stores();  // they read shared memory, which ends with the block
    }
    sync_cluster();  // the other block writes no more to this one's stages and barriers
  }
}

// large + small = a    a (M, K), the parts (M, 4 chunks), with zeros from column K on.
// Fixes : the kernel above wants both parts of A in shared memory, where wgmma reads them. Each
//         block that reads a tile would have to split it there.
// Idea  : A is split once, before. Rows of any length get parts that the TMA takes. With two or
//         three warps of the kernel above that split there, 4096^3 was no faster on an H100 and
//         8192^3 7% slower: power limits it, and every block splits again.
// Thread: a chunk, four neighbouring elements of a row, of every gridDim.y-th row.
// Costs : 12 bytes of global memory per element of A, and a workspace as large as two A.
static __global__ void split_matrix(uint4* large, uint4* small, const float* a, size_t M, size_t K,
                                    size_t chunks, bool aligned) {
  const size_t chunk = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (chunk >= chunks) return;
  for (size_t row = blockIdx.y; row < M; row += gridDim.y) {
    const float* from = a + row * K + chunk * 4;
    const uint4 bits =
        aligned ? *reinterpret_cast<const uint4*>(from) : load_chunk(from, clip(K - chunk * 4, 4));
    float values[4];
    memcpy(values, &bits, sizeof values);
    const TwoParts x = split(values[0]), y = split(values[1]), z = split(values[2]),
                   w = split(values[3]);
    large[row * chunks + chunk] = make_uint4(x.large, y.large, z.large, w.large);
    small[row * chunks + chunk] = make_uint4(x.small, y.small, z.small, w.small);
  }
}

// Of a row of A, and of the two parts that have it.
static size_t chunks_of_row(const gemm::Product& p) { return gpu::ceil_div(p.K, size_t{4}); }

size_t three_products_bytes(const gemm::Product& p) {
  return p.layout == gemm::Layout::NN ? 2 * p.M * chunks_of_row(p) * sizeof(uint4) : 0;
}

bool three_products_take(const gemm::Product& p, const void* workspace) {
  return p.layout == gemm::Layout::NN && p.alpha == 1 && p.beta == 0 && p.batch == 1 &&
         p.lda == p.K && p.ldb == p.N && p.ldc == p.N &&
         tma_takes(p.c, static_cast<const float*>(workspace), p.b, p.M, p.N, chunks_of_row(p) * 4);
}

void launch_three_products(const gemm::Product& p, void* workspace, hipStream_t stream) {
  using Tile = SplitTile;
  gemm::check(p);
  if (!three_products_take(p, workspace)) return gemm::best(p, stream);
  const size_t M = p.M, N = p.N, K = p.K, chunks = chunks_of_row(p), pitch = chunks * 4;
  float* const large = static_cast<float*>(workspace);
  float* const small = large + M * pitch;
  constexpr unsigned kThreads = 256, kMostRows = 65535;
  const dim3 grid(static_cast<unsigned>(gpu::ceil_div(chunks, size_t{kThreads})),
                  static_cast<unsigned>(std::min(M, size_t{kMostRows})));
  LAUNCH_ON(stream, split_matrix, grid, kThreads, 0, reinterpret_cast<uint4*>(large),
            reinterpret_cast<uint4*>(small), p.a, M, K, chunks,
            chunks_are_aligned(p.a, K * sizeof(float)));

  const auto tile_rows = static_cast<unsigned>(gpu::ceil_div(M, Tile::kRows));
  const auto pair_columns =
      static_cast<unsigned>(gpu::ceil_div(N, Tile::kColumns * int{kClusterBlocks}));
  const unsigned clusters =
      std::min(tile_rows * pair_columns, std::max(1u, gpu::multiprocessors() / kClusterBlocks));
  constexpr size_t kBytes = sizeof(SplitRings) + kBoxAlignment;
  gpu::allow_shared_bytes(gemm_three_products, kBytes);
  LAUNCH_IN_CLUSTERS(stream, gemm_three_products, kClusterBlocks, clusters * kClusterBlocks,
                     unsigned{SpecializedTile::kThreads}, kBytes, tensor_map(p.c, M, N, kStoreRows),
                     tensor_map(large, M, pitch, Tile::kRowsOfBlock),
                     tensor_map(small, M, pitch, Tile::kRowsOfBlock),
                     tensor_map(p.b, K, N, Tile::kDepth),
                     static_cast<int>(gpu::ceil_div(K, Tile::kDepth)), tile_rows, pair_columns);
}

#else

size_t three_products_bytes(const gemm::Product&) { return 0; }

bool three_products_take(const gemm::Product&, const void*) { return false; }

void launch_three_products(const gemm::Product&, void*, hipStream_t) {
  throw std::runtime_error("three_products needs sm_90");
}

#endif

}  // namespace gemm_mixed
