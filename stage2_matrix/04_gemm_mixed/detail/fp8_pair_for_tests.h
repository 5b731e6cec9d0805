// fp8 for a single pair of tiles of C, with one mistake: the kernel of gemm_mixed_test.hip.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/ring_fp8_sm90.h"
#include "stage2_matrix/04_gemm_mixed/fp8_mistakes_for_tests.h"

#if defined(GPU_BACKEND_CPU)

namespace gemm_mixed_test {

using Fp8Ring = gemm_mixed::Ring<gemm_mixed::Fp8Stage>;

// What a producer does for one step.
template <Fp8Mistake kMistake>
__device__ inline void fill_fp8_stage(Fp8Ring& shared, gemm_mixed::RingPlace place,
                                      const CUtensorMap& map_a, const CUtensorMap& map_b, int row,
                                      int step) {
  using Is = Fp8Mistake;
  using Tile = gemm_mixed::Fp8Tile;
  const unsigned block = gemm_mixed::block_of_cluster();
  const int k = step * (kMistake == Is::depth_of_16_bit_numbers ? 64 : Tile::kDepth);
  auto& stage = shared.stages[place.stage];
  auto& full = shared.full[place.stage];
  if (kMistake != Is::stage_not_awaited) shared.empty[place.stage].wait(place.parity ^ 1);
  full.expect(kMistake == Is::bytes_of_a_only_expected ? sizeof stage.a : sizeof stage);
  gemm_mixed::load_box(stage.a, map_a, row, k, full);
  const unsigned half = kMistake == Is::same_half_by_both ? 0 : block;
  const unsigned from = kMistake == Is::halves_of_b_exchanged ? 1 - half : half;
  const int column = static_cast<int>(from) * Tile::kHalf;
  const bool swapped = kMistake == Is::row_taken_for_k;
  gemm_mixed::load_box_for(
      kMistake == Is::half_for_own_block_only ? 1u << block : gemm_mixed::kWholeCluster,
      stage.b[half], map_b, swapped ? k : column, swapped ? column : k, full);
}

// And a consumer.
template <Fp8Mistake kMistake>
__device__ inline void multiply_fp8_stage(float (&sums)[128], const gemm_mixed::Fp8Stage& stage,
                                          int consumer, bool add) {
  using Is = Fp8Mistake;
  using Tile = gemm_mixed::Fp8Tile;
  if (kMistake == Is::rows_of_the_other_consumer) consumer = 1 - consumer;
  gemm_mixed::begin_wgmma();
  for (int step = 0; step < Tile::kSteps; ++step) {
    auto a = gemm_mixed::describe_a(stage.a + consumer * 64 * Tile::kDepth, step);
    auto b = gemm_mixed::describe_a(stage.b, step);
    if (kMistake == Is::no_swizzle_described) b &= ~(gemm_mixed::Descriptor{3} << 62);
    if (kMistake == Is::b_taken_across_k)
      b = gemm_mixed::describe_b(stage.b, sizeof stage.b[0], step);
    if (kMistake == Is::step_of_16_numbers) a -= static_cast<unsigned>(step);
    gemm_mixed::multiply_fp8_64x256(sums, a, b, add || step > 0);
  }
  gemm_mixed::end_wgmma();
}

// The kernel's body.
template <Fp8Mistake kMistake>
__device__ inline void multiply_fp8_pair(Fp8Ring& shared, const CUtensorMap& map_c,
                                         const CUtensorMap& map_a, const CUtensorMap& map_b,
                                         int steps) {
  using gemm_mixed::kWarpGroup;
  using Is = Fp8Mistake;
  if (threadIdx.x == 0) shared.init(2);
  gemm_mixed::sync_cluster();  // the threads of both blocks know the barriers

  const unsigned block = gemm_mixed::block_of_cluster();
  const int row = static_cast<int>(block) * gemm_mixed::Fp8Tile::kRows;
  const int group = static_cast<int>(threadIdx.x) / kWarpGroup, consumer = group - 1;
  gemm_mixed::RingPlace place;
  if (threadIdx.x == 0)
    for (int step = 0; step < steps; ++step, place.next())
      fill_fp8_stage<kMistake>(shared, place, map_a, map_b, row, step);
  if (group > 0) {
    const unsigned thread = threadIdx.x % kWarpGroup;
    float sums[128];
    for (int step = 0; step < steps; ++step, place.next()) {
      if (kMistake != Is::tiles_not_awaited) shared.full[place.stage].wait(place.parity);
      multiply_fp8_stage<kMistake>(sums, shared.stages[place.stage], consumer,
                                   kMistake != Is::new_sums_in_each_stage && step > 0);
      if (kMistake != Is::products_not_awaited) gemm_mixed::wait_for_wgmma<0>();
      if (thread < 2 && (kMistake != Is::tells_own_block_only || thread == block))
        gemm_mixed::arrive_at(shared.empty[place.stage], thread);
    }
    gemm_mixed::store_64x256(map_c, row + consumer * 64, 0, sums, shared.stores[consumer], group);
    if (thread == 0) gemm_mixed::wait_for_stores();
  }
  gemm_mixed::sync_cluster();  // the other block writes no more to this one's shared memory
}

}  // namespace gemm_mixed_test

#endif
