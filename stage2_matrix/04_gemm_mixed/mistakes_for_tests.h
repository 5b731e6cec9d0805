// The mistakes with the instructions of sm_90 that the tests plant, and the kernels that have them.
#pragma once

#include <cstddef>

#include "common/gpu_runtime.h"
#include "common/half.h"

namespace gemm_mixed_test {

// In the ring of a producer and its consumers.
enum class RingMistake {
  none,
  wrong_parity_of_full,
  wrong_parity_of_empty,
  tiles_not_awaited,
  stage_not_awaited,
  too_few_bytes_expected,
  too_many_bytes_expected,
  too_few_arrivals_awaited,
  too_many_arrivals_awaited,
  not_published,
  initialized_by_all,
  misplaced_barrier,
  sums_not_ordered,
  products_not_awaited,
  stage_given_back_early,
  no_swizzle_described,
  step_of_the_other_operand,
  wrong_distance_of_boxes,
  stores_not_awaited,
};
inline constexpr int kRingMistakes = static_cast<int>(RingMistake::stores_not_awaited) + 1;

// c = a b of fp16 for one tile of C, as warp_specialized computes it: M = 128, N = 256, K a
// multiple of 64.
void launch_ring(RingMistake mistake, float* c, const gpu::half* a, const gpu::half* b, size_t M,
                 size_t N, size_t K, hipStream_t stream);

// Between the two blocks of a cluster.
enum class ClusterMistake {
  none,
  launch_before_not_awaited,
  blocks_not_awaited_at_the_begin,
  blocks_not_awaited_at_the_end,
  arrivals_of_one_block_awaited,
  arrivals_of_three_blocks_awaited,
  arrives_at_own_block_only,
  arrives_at_other_block_only,
  arrives_at_a_third_block,
  wrong_parity_of_full,
  wrong_parity_of_empty,
  stage_not_awaited,
  half_for_own_block_only,
  half_for_other_block_only,
  half_for_a_third_block,
  other_half_left_out,
  same_half_by_both,
  own_bytes_expected_only,
  rows_of_the_other_block,
};
inline constexpr int kClusterMistakes =
    static_cast<int>(ClusterMistake::rows_of_the_other_block) + 1;

// c = a b of fp16 for a pair of tiles of C, as clusters computes it: M = 256, N = 256, K a multiple
// of 64.
void launch_pair(ClusterMistake mistake, float* c, const gpu::half* a, const gpu::half* b, size_t M,
                 size_t N, size_t K, hipStream_t stream);

// With an operand in registers.
enum class HeldMistake {
  none,
  tiles_not_awaited,
  loaded_before_it_arrived,
  overwritten_while_multiplied,
  stage_given_back_early,
  no_swizzle,
  other_rows,
  columns_in_another_order,
};
inline constexpr int kHeldMistakes = static_cast<int>(HeldMistake::columns_in_another_order) + 1;

// c = a b of tf32 for a pair of tiles of C, as register_operand computes it: M = 256, N = 256, K a
// multiple of 32.
void launch_held(HeldMistake mistake, float* c, const float* a, const float* b, size_t M, size_t N,
                 size_t K, hipStream_t stream);

// Where the blocks of a cluster share a row of tiles and each take a slice of K.
enum class SkinnyMistake {
  none,
  tile_taken_as_along_k,
  a_for_a_third_block,
  sums_not_awaited,
  readers_not_awaited,
  slice_left_out,
  columns_of_the_other_tile,
};
inline constexpr int kSkinnyMistakes =
    static_cast<int>(SkinnyMistake::columns_of_the_other_tile) + 1;

// c = a b of fp16 by one cluster of skinny, two tiles wide and two slices deep: M = 16, N = 128, K
// a multiple of 128.
void launch_slices(SkinnyMistake mistake, float* c, const gpu::half* a, const gpu::half* b,
                   size_t M, size_t N, size_t K, hipStream_t stream);

// In a store through shared memory.
enum class StoreMistake {
  none,
  no_fence,
  no_swizzle,
  group_not_ended,
  overwritten_early,
  not_awaited,
};
inline constexpr int kStoreMistakes = static_cast<int>(StoreMistake::not_awaited) + 1;

// c (64, 32): row by row 0, 1, 2 ...
void launch_store(StoreMistake mistake, float* c, hipStream_t stream);

}  // namespace gemm_mixed_test
