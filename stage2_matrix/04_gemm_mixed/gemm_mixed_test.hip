// Wrong kernels that gemm_mixed_test.cpp must see fail. On a GPU they may go well by chance, so
// they are there on the CPU backend only.
#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/wrong_pairs_for_tests.h"

#if defined(GPU_BACKEND_CPU)

#include <type_traits>
#include <utility>

#include "common/half.h"
#include "stage2_matrix/04_gemm_mixed/detail/fp8_pair_for_tests.h"
#include "stage2_matrix/04_gemm_mixed/detail/held_operand_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/matrix_unit.h"
#include "stage2_matrix/04_gemm_mixed/detail/ring_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/skinny_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tiles.h"
#include "stage2_matrix/04_gemm_mixed/mistakes_for_tests.h"

namespace gemm_mixed_test {

using gpu::half;

void launch_without_barrier(float* c, const half* a, const half* b, size_t M, size_t N, size_t K,
                            hipStream_t stream);
void launch_load_fragment(unsigned* out, const uint4* in, bool swizzled, int late);

// Calls action with `mistake` as a type, std::integral_constant<Mistake, mistake>.
template <class Mistake, int... kMistakes, class Action>
static void with_constant(Mistake mistake, std::integer_sequence<int, kMistakes...>,
                          Action&& action) {
  const auto act_if = [&](auto is) {
    if (mistake == is) action(is);
  };
  (act_if(std::integral_constant<Mistake, Mistake{kMistakes}>()), ...);
}

// wmma_tiled for a single tile, without the barrier between staging and loading.
static __global__ void gemm_without_barrier(float* c, const half* a, const half* b) {
  using Unit = gemm_mixed::MatrixUnit<half>;
  constexpr int kTile = Unit::kTile;
  DYNAMIC_SHARED(half, shared);
  half* shared_b = shared + kTile * kTile;
  gemm_mixed::stage_tile<kTile, kTile, kTile>(shared, a, kTile, kTile, 0, 0, true);
  gemm_mixed::stage_tile<kTile, kTile, kTile>(shared_b, b, kTile, kTile, 0, 0, true);
  Unit::A fragment_a;
  Unit::B fragment_b;
  Unit::C sums;
  Unit::clear(sums);
  Unit::load(fragment_a, shared, kTile);
  Unit::load(fragment_b, shared_b, kTile);
  Unit::multiply_add(sums, fragment_a, fragment_b);
  if (gpu::wave_id() == 0) Unit::store(c, kTile, sums);
}

void launch_without_barrier(float* c, const half* a, const half* b, size_t, size_t, size_t,
                            hipStream_t stream) {
  LAUNCH_ON(stream, gemm_without_barrier, 1, 64, 4 * 16 * 16, c, a, b);
}

// Copies a tile of A to shared memory, swizzled, and loads its first fragment.
template <bool kSwizzledToo, int kLate>
static __global__ void load_fragment(unsigned* out, const uint4* in) {
  DYNAMIC_SHARED(uint4, tile);
  const auto place = [](int row, int chunk) { return row * 8 + (chunk ^ row % 8); };
  gemm_mixed::AsyncCopies copies;
  for (int i = static_cast<int>(threadIdx.x); i < 16 * 8; i += static_cast<int>(blockDim.x))
    copies.begin(tile + place(i / 8, i % 8), in + i, true);
  copies.end_group();
  copies.wait<kLate>();
  __syncthreads();  // the tile is complete, if kLate is 0
  const int lane = gemm_mixed::warp_lane(), row = lane % 16, chunk = lane / 16;
  unsigned words[4];
  gemm_mixed::load_matrices(words, tile + (kSwizzledToo ? place(row, chunk) : row * 8 + chunk));
  for (int i = 0; i < 4; ++i) out[4 * lane + i] = words[i];
}

void launch_load_fragment(unsigned* out, const uint4* in, bool swizzled, int late) {
  const size_t bytes = 16 * 8 * sizeof(uint4);
  if (!swizzled)
    LAUNCH((load_fragment<false, 0>), 1, 64, bytes, out, in);
  else if (late == 0)
    LAUNCH((load_fragment<true, 0>), 1, 64, bytes, out, in);
  else
    LAUNCH((load_fragment<true, 1>), 1, 64, bytes, out, in);
}

// warp_specialized for a single tile of C, with one mistake.
template <RingMistake kMistake>
static __global__ void ring_with_mistake(const CUtensorMap map_c, const CUtensorMap map_a,
                                         const CUtensorMap map_b, int steps) {
  using gemm_mixed::kWarpGroup, gemm_mixed::kBoxRowBytes;
  using Tile = gemm_mixed::SpecializedTile;
  using Is = RingMistake;
  DYNAMIC_SHARED(unsigned char, dynamic);
  auto& shared = gemm_mixed::aligned_shared<gemm_mixed::SpecializedShared<half>>(dynamic);
  const unsigned behind = kMistake == Is::misplaced_barrier ? 8 : 0;
  if (threadIdx.x == 0 || kMistake == Is::initialized_by_all) {
    shared.init(kMistake == Is::too_many_arrivals_awaited ? 2 : 1);
    if (kMistake == Is::too_few_arrivals_awaited)
      for (auto& empty : shared.empty) empty.state = 0, empty.init(1);
    gemm_mixed::publish_barriers();
    if (kMistake == Is::not_published) shared.full[0].state = 0, shared.full[0].init(1);
  }
  __syncthreads();  // every thread knows the barriers

  const int group = static_cast<int>(threadIdx.x) / kWarpGroup;
  gemm_mixed::RingPlace place;
  if (group == 0) {
    if (threadIdx.x != 0) return;
    for (int step = 0; step < steps; ++step, place.next()) {
      auto& stage = shared.stages[place.stage];
      auto& full = shared.full[place.stage];
      if (kMistake != Is::stage_not_awaited)
        shared.empty[place.stage].wait(place.parity ^
                                       (kMistake == Is::wrong_parity_of_empty ? 0 : 1));
      full.expect(kMistake == Is::too_few_bytes_expected    ? sizeof stage.a
                  : kMistake == Is::too_many_bytes_expected ? sizeof stage + 16
                                                            : sizeof stage);
      gemm_mixed::load_box(stage.a, map_a, 0, step * Tile::kDepth, full);
      for (int i = 0; i < Tile::kColumns / 64; ++i)
        gemm_mixed::load_box(stage.b[i], map_b, step * Tile::kDepth, i * 64, full);
    }
    return;
  }
  const int consumer = group - 1;
  const bool leads = threadIdx.x % kWarpGroup == 0;
  float sums[128];
  for (int step = 0; step < steps; ++step, place.next()) {
    auto& stage = shared.stages[place.stage];
    if (kMistake != Is::tiles_not_awaited) {
      auto* full = reinterpret_cast<gemm_mixed::PhaseBarrier*>(
          reinterpret_cast<unsigned char*>(&shared.full[place.stage]) + behind);
      full->wait(place.parity ^ (kMistake == Is::wrong_parity_of_full ? 1 : 0));
    }
    if (kMistake != Is::sums_not_ordered) gemm_mixed::begin_wgmma();
    for (int k = 0; k < Tile::kSteps; ++k) {
      gemm_mixed::Descriptor a = gemm_mixed::describe_a(stage.a + consumer * 64 * Tile::kDepth, k);
      if (kMistake == Is::no_swizzle_described) a &= ~(gemm_mixed::Descriptor{3} << 62);
      if (kMistake == Is::step_of_the_other_operand) a += static_cast<unsigned>(k) * 126u;
      const unsigned box_bytes =
          kMistake == Is::wrong_distance_of_boxes ? kBoxRowBytes * 8 : sizeof stage.b[0];
      gemm_mixed::multiply_64x256<half>(sums, a, gemm_mixed::describe_b(stage.b, box_bytes, k),
                                        step + k > 0);
    }
    gemm_mixed::end_wgmma();
    if (kMistake == Is::stage_given_back_early && leads) shared.empty[place.stage].arrive();
    if (kMistake == Is::products_not_awaited)
      gemm_mixed::wait_for_wgmma<1>();
    else
      gemm_mixed::wait_for_wgmma<0>();
    if (kMistake != Is::stage_given_back_early && leads) shared.empty[place.stage].arrive();
  }
  gemm_mixed::store_64x256(map_c, consumer * 64, 0, sums, shared.stores[consumer], group);
  if (kMistake != Is::stores_not_awaited && leads) gemm_mixed::wait_for_stores();
}

template <RingMistake kMistake>
static void launch_ring_with(float* c, const half* a, const half* b, size_t M, size_t N, size_t K,
                             hipStream_t stream) {
  using Tile = gemm_mixed::SpecializedTile;
  constexpr size_t kBytes = sizeof(gemm_mixed::SpecializedShared<half>) + gemm_mixed::kBoxAlignment;
  gpu::allow_shared_bytes(ring_with_mistake<kMistake>, kBytes);
  LAUNCH_ON(stream, (ring_with_mistake<kMistake>), 1, unsigned{Tile::kThreads}, kBytes,
            gemm_mixed::tensor_map(c, M, N, gemm_mixed::kStoreRows),
            gemm_mixed::tensor_map(a, M, K, Tile::kRows),
            gemm_mixed::tensor_map(b, K, N, Tile::kDepth), static_cast<int>(K) / Tile::kDepth);
}
void launch_ring(RingMistake mistake, float* c, const half* a, const half* b, size_t M, size_t N,
                 size_t K, hipStream_t stream) {
  with_constant<RingMistake>(
      mistake, std::make_integer_sequence<int, kRingMistakes>(),
      [&](auto is) { launch_ring_with<decltype(is)::value>(c, a, b, M, N, K, stream); });
}

// What a producer of clusters does for one step, with one mistake.
template <ClusterMistake kMistake>
static __device__ inline void fill_stage_of_pair(gemm_mixed::SpecializedShared<half>& shared,
                                                 gemm_mixed::RingPlace place,
                                                 const CUtensorMap& map_a, const CUtensorMap& map_b,
                                                 int row, int k) {
  using Is = ClusterMistake;
  const unsigned block = gemm_mixed::block_of_cluster(), other = block ^ 1;
  auto& stage = shared.stages[place.stage];
  auto& full = shared.full[place.stage];
  if (kMistake != Is::stage_not_awaited)
    shared.empty[place.stage].wait(place.parity ^ (kMistake == Is::wrong_parity_of_empty ? 0 : 1));
  full.expect(kMistake == Is::own_bytes_expected_only ? sizeof stage - sizeof stage.b / 2
                                                      : sizeof stage);
  gemm_mixed::load_box(stage.a, map_a, row, k, full);
  const unsigned blocks = kMistake == Is::half_for_own_block_only     ? 1u << block
                          : kMistake == Is::half_for_other_block_only ? 1u << other
                          : kMistake == Is::half_for_a_third_block    ? 0b111u
                                                                      : gemm_mixed::kWholeCluster;
  if (kMistake == Is::other_half_left_out && block == 1) return;
  for (unsigned i = 0; i < 2; ++i) {
    const unsigned box = i + (kMistake == Is::same_half_by_both ? 0 : 2 * block);
    gemm_mixed::load_box_for(blocks, stage.b[box], map_b, k, static_cast<int>(box) * 64, full);
  }
}

// clusters for a single pair of tiles of C, with one mistake.
template <ClusterMistake kMistake>
static __global__ void pair_with_mistake(const CUtensorMap map_c, const CUtensorMap map_a,
                                         const CUtensorMap map_b, int steps) {
  using gemm_mixed::kWarpGroup;
  using Tile = gemm_mixed::SpecializedTile;
  using Is = ClusterMistake;
  DYNAMIC_SHARED(unsigned char, dynamic);
  auto& shared = gemm_mixed::aligned_shared<gemm_mixed::SpecializedShared<half>>(dynamic);
  if (threadIdx.x == 0)
    shared.init(kMistake == Is::arrivals_of_one_block_awaited      ? 1
                : kMistake == Is::arrivals_of_three_blocks_awaited ? 3
                                                                   : 2);
  if (kMistake == Is::blocks_not_awaited_at_the_begin)
    __syncthreads();  // this block's threads know the barriers
  else
    gemm_mixed::sync_cluster();  // those of both blocks know them
  if (kMistake != Is::launch_before_not_awaited) gpu::wait_for_launch_before();

  const int block = static_cast<int>(gemm_mixed::block_of_cluster());
  const int row = (kMistake == Is::rows_of_the_other_block ? 1 - block : block) * Tile::kRows;
  const int group = static_cast<int>(threadIdx.x) / kWarpGroup;
  gemm_mixed::RingPlace place;
  if (threadIdx.x == 0)
    for (int step = 0; step < steps; ++step, place.next())
      fill_stage_of_pair<kMistake>(shared, place, map_a, map_b, row, step * Tile::kDepth);
  if (group > 0) {
    const unsigned thread = threadIdx.x % kWarpGroup, own = static_cast<unsigned>(block);
    float sums[128];
    for (int step = 0; step < steps; ++step, place.next()) {
      shared.full[place.stage].wait(place.parity ^ (kMistake == Is::wrong_parity_of_full ? 1 : 0));
      gemm_mixed::multiply_stage(sums, shared.stages[place.stage], group - 1, step > 0);
      gemm_mixed::wait_for_wgmma<0>();
      if (thread >= gemm_mixed::kClusterBlocks) continue;
      if (kMistake == Is::arrives_at_own_block_only && thread != own) continue;
      if (kMistake == Is::arrives_at_other_block_only && thread == own) continue;
      const unsigned further = kMistake == Is::arrives_at_a_third_block ? 1 : 0;
      gemm_mixed::arrive_at(shared.empty[place.stage], thread + further);
    }
    gemm_mixed::store_64x256(map_c, block * Tile::kRows + (group - 1) * 64, 0, sums,
                             shared.stores[group - 1], group);
    if (thread == 0) gemm_mixed::wait_for_stores();
  }
  if (kMistake != Is::blocks_not_awaited_at_the_end)
    gemm_mixed::sync_cluster();  // the other block writes no more to this one's shared memory
}

template <ClusterMistake kMistake>
static void launch_pair_with(float* c, const half* a, const half* b, size_t M, size_t N, size_t K,
                             hipStream_t stream) {
  using Tile = gemm_mixed::SpecializedTile;
  constexpr size_t kBytes = sizeof(gemm_mixed::SpecializedShared<half>) + gemm_mixed::kBoxAlignment;
  gpu::allow_shared_bytes(pair_with_mistake<kMistake>, kBytes);
  LAUNCH_EARLY_IN_CLUSTERS(stream, pair_with_mistake<kMistake>, 2, 2, unsigned{Tile::kThreads},
                           kBytes, gemm_mixed::tensor_map(c, M, N, gemm_mixed::kStoreRows),
                           gemm_mixed::tensor_map(a, M, K, Tile::kRows),
                           gemm_mixed::tensor_map(b, K, N, Tile::kDepth),
                           static_cast<int>(K) / Tile::kDepth);
}
void launch_pair(ClusterMistake mistake, float* c, const half* a, const half* b, size_t M, size_t N,
                 size_t K, hipStream_t stream) {
  with_constant<ClusterMistake>(
      mistake, std::make_integer_sequence<int, kClusterMistakes>(),
      [&](auto is) { launch_pair_with<decltype(is)::value>(c, a, b, M, N, K, stream); });
}

// Half a warp takes 128 bytes at a time, as many as there are banks: 16 times two floats that are
// in different banks, both of B and of C.
static constexpr bool half_warps_meet_all_banks() {
  for (int half_warp = 0; half_warp < gemm_mixed::kWarpGroup / 16; ++half_warp) {
    unsigned of_b = 0, of_c = 0;
    for (int i = 0; i < 16; ++i) {
      const auto own = gemm_mixed::HeldColumns::of(half_warp * 16 + i);
      of_b |= 1u << own.of_b(0, 0) / 2 % 16;
      of_c |= 1u << own.of_c(0) / 2 % 16;
    }
    if (of_b != 0xFFFF || of_c != 0xFFFF) return false;
  }
  return true;
}
static_assert(half_warps_meet_all_banks());

// What a consumer of register_operand loads of four steps, where the tile were not swizzled, or the
// rows of B were those that a fragment of 16-bit numbers has.
template <HeldMistake kMistake>
static __device__ inline void load_wrongly(gemm_mixed::HeldFragments& held, const float* box,
                                           gemm_mixed::HeldColumns own) {
  for (int i = 0; i < 8; ++i) {
    const bool other_rows = kMistake == HeldMistake::other_rows;
    const int k = i / 2 * 8 + (other_rows ? own.quarter * 2 + i % 2 : own.quarter + i % 2 * 4);
    const int place = kMistake == HeldMistake::no_swizzle ? own.chunk : own.chunk ^ k % 8;
    for (int j = 0; j < 2; ++j)
      memcpy(&held[i / 2][i % 2 * 2 + j], box + k * 32 + place * 4 + own.first + j, sizeof(float));
  }
}

// register_operand for a single pair of tiles of C, with one mistake. It loads all fragments of a
// stage at once.
template <HeldMistake kMistake>
static __global__ void held_with_mistake(const CUtensorMap map_c, const CUtensorMap map_a,
                                         const CUtensorMap map_b, int stages) {
  using gemm_mixed::kWarpGroup;
  using Tile = gemm_mixed::HeldTile;
  using Is = HeldMistake;
  DYNAMIC_SHARED(unsigned char, dynamic);
  auto& shared = gemm_mixed::aligned_shared<gemm_mixed::Ring<gemm_mixed::HeldStage>>(dynamic);
  if (threadIdx.x == 0) shared.init(2);
  gemm_mixed::sync_cluster();  // the threads of both blocks know the barriers

  const int column = static_cast<int>(gemm_mixed::block_of_cluster()) * Tile::kColumns;
  const int group = static_cast<int>(threadIdx.x) / kWarpGroup, consumer = group - 1;
  gemm_mixed::RingPlace place;
  if (threadIdx.x == 0)
    for (int i = 0; i < stages; ++i, place.next())
      gemm_mixed::fill_held_stage(shared, place, map_a, map_b, 0, column, i * Tile::kDepth);
  if (group > 0) {
    const unsigned thread = threadIdx.x % kWarpGroup;
    const auto own = gemm_mixed::HeldColumns::of(static_cast<int>(thread));
    auto others = own;
    others.chunk ^= 1;
    gemm_mixed::HeldFragments held;
    float sums[128];
    for (int i = 0; i < stages; ++i, place.next()) {
      const auto& stage = shared.stages[place.stage];
      auto& full = shared.full[place.stage];
      const bool awaits = kMistake != Is::tiles_not_awaited;
      if (awaits && kMistake != Is::loaded_before_it_arrived) full.wait(place.parity);
      for (int step = 0; step < Tile::kSteps; step += Tile::kAhead)
        gemm_mixed::load_held(held, stage, consumer, own, step);
      if (kMistake == Is::no_swizzle || kMistake == Is::other_rows)
        load_wrongly<kMistake>(held, stage.b[consumer * 2 + own.box], own);
      if (kMistake == Is::loaded_before_it_arrived) full.wait(place.parity);
      for (int step = 0; step < Tile::kSteps; step += Tile::kAhead)
        gemm_mixed::multiply_held_steps(sums, held, stage, step, i + step > 0);
      const bool early = kMistake == Is::stage_given_back_early;
      if (early && thread < 2) gemm_mixed::arrive_at(shared.empty[place.stage], thread);
      if (kMistake == Is::overwritten_while_multiplied)
        gemm_mixed::load_held(held, stage, consumer, others, 0);  // the next ones
      gemm_mixed::wait_for_wgmma<0>();
      if (!early && thread < 2) gemm_mixed::arrive_at(shared.empty[place.stage], thread);
    }
    gemm_mixed::store_256x64(map_c, 0, column + consumer * 64, sums,
                             kMistake == Is::columns_in_another_order ? others : own,
                             shared.stores[consumer], group);
    if (thread == 0) gemm_mixed::wait_for_stores();
  }
  gemm_mixed::sync_cluster();  // the other block writes no more to this one's shared memory
}

template <HeldMistake kMistake>
static void launch_held_with(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                             hipStream_t stream) {
  using Tile = gemm_mixed::HeldTile;
  constexpr size_t kBytes =
      sizeof(gemm_mixed::Ring<gemm_mixed::HeldStage>) + gemm_mixed::kBoxAlignment;
  gpu::allow_shared_bytes(held_with_mistake<kMistake>, kBytes);
  LAUNCH_IN_CLUSTERS(
      stream, held_with_mistake<kMistake>, 2, 2, unsigned{gemm_mixed::SpecializedTile::kThreads},
      kBytes, gemm_mixed::tensor_map(c, M, N, gemm_mixed::kStoreRows),
      gemm_mixed::tensor_map(a, M, K, Tile::kHalf), gemm_mixed::tensor_map(b, K, N, Tile::kDepth),
      static_cast<int>(K) / Tile::kDepth);
}
void launch_held(HeldMistake mistake, float* c, const float* a, const float* b, size_t M, size_t N,
                 size_t K, hipStream_t stream) {
  with_constant<HeldMistake>(
      mistake, std::make_integer_sequence<int, kHeldMistakes>(),
      [&](auto is) { launch_held_with<decltype(is)::value>(c, a, b, M, N, K, stream); });
}

// skinny for one cluster, with one mistake.
template <SkinnyMistake kMistake>
static __global__ void slices_with_mistake(float* c, const CUtensorMap map_a,
                                           const CUtensorMap map_b, size_t M, size_t N, int steps) {
  using Is = SkinnyMistake;
  using Tile = gemm_mixed::SkinnyShared<half, 16>;
  constexpr gemm_mixed::ClusterShape kShape{2, 2};
  DYNAMIC_SHARED(unsigned char, dynamic);
  auto& shared = gemm_mixed::aligned_shared<Tile>(dynamic);
  if (threadIdx.x == 0) shared.init(kShape.sharers);
  gemm_mixed::sync_cluster();  // all threads know the barriers

  const unsigned slice = gemm_mixed::block_of_cluster() / 2;
  const unsigned tile = gemm_mixed::block_of_cluster() % 2;
  const int column = static_cast<int>(tile) * Tile::kColumns;
  const int first = gemm_mixed::slice_begin(steps, slice, kShape);
  const int end = gemm_mixed::slice_begin(steps, slice + 1, kShape);
  const int thread = static_cast<int>(threadIdx.x);
  gemm_mixed::RingPlace place;
  gemm_mixed::SkinnySums<16> sums;
  if (thread == Tile::kProducer)
    for (int step = first; step < end; ++step, place.next(Tile::kStages))
      gemm_mixed::fill_stage(shared, place, map_a, map_b, column, step * Tile::kDepth, slice * 2,
                             kMistake == Is::a_for_a_third_block ? 3 : 2);
  if (thread < Tile::kProducer) {
    for (int step = first; step < end; ++step, place.next(Tile::kStages)) {
      shared.full[place.stage].wait(place.parity);
      const auto& [a, b] = shared.stages[place.stage];
      gemm_mixed::begin_wgmma();
      for (int k = 0; k < Tile::kSteps; ++k)
        gemm_mixed::multiply_swapped<half>(sums,
                                           kMistake == Is::tile_taken_as_along_k
                                               ? gemm_mixed::describe_a(b, k)
                                               : gemm_mixed::describe_b(b, sizeof b, k),
                                           gemm_mixed::describe_a(a, k), step > first || k > 0);
      gemm_mixed::end_wgmma();
      gemm_mixed::wait_for_wgmma<0>();
      if (threadIdx.x < 2)
        gemm_mixed::arrive_at(shared.empty[place.stage], slice * 2 + threadIdx.x);
    }
  }
  if (thread < Tile::kProducer)
    gemm_mixed::store_sums<16>(shared.sums, Tile::kPitch, 16, Tile::kColumns, sums);
  if (kMistake == Is::sums_not_awaited)
    __syncthreads();  // this block's sums are there
  else
    gemm_mixed::sync_cluster();  // those of all blocks are there
  const unsigned to = kMistake == Is::columns_of_the_other_tile ? 1 - tile : tile;
  gemm_mixed::add_slices<half, 16>(c, shared, M, N, to * size_t{Tile::kColumns},
                                   {kMistake == Is::slice_left_out ? 1u : 2u, 2});
  if (kMistake != Is::readers_not_awaited)
    gemm_mixed::sync_cluster_relaxed();  // no block reads another one's sums any more
}

template <SkinnyMistake kMistake>
static void launch_slices_with(float* c, const half* a, const half* b, size_t M, size_t N, size_t K,
                               hipStream_t stream) {
  using Tile = gemm_mixed::SkinnyShared<half, 16>;
  constexpr size_t kBytes = sizeof(Tile) + gemm_mixed::kBoxAlignment;
  gpu::allow_shared_bytes(slices_with_mistake<kMistake>, kBytes);
  LAUNCH_IN_CLUSTERS(stream, slices_with_mistake<kMistake>, 4, 4, unsigned{Tile::kThreads}, kBytes,
                     c, gemm_mixed::tensor_map(a, M, K, Tile::kBoxRows),
                     gemm_mixed::tensor_map(b, K, N, Tile::kDepth), M, N,
                     static_cast<int>(K) / Tile::kDepth);
}
void launch_slices(SkinnyMistake mistake, float* c, const half* a, const half* b, size_t M,
                   size_t N, size_t K, hipStream_t stream) {
  with_constant<SkinnyMistake>(
      mistake, std::make_integer_sequence<int, kSkinnyMistakes>(),
      [&](auto is) { launch_slices_with<decltype(is)::value>(c, a, b, M, N, K, stream); });
}

// fp8 for a single pair of tiles of C, with one mistake.
template <Fp8Mistake kMistake>
static __global__ void fp8_with_mistake(const CUtensorMap map_c, const CUtensorMap map_a,
                                        const CUtensorMap map_b, int steps) {
  DYNAMIC_SHARED(unsigned char, dynamic);
  auto& shared = gemm_mixed::aligned_shared<Fp8Ring>(dynamic);
  multiply_fp8_pair<kMistake>(shared, map_c, map_a, map_b, steps);
}

template <Fp8Mistake kMistake>
static void launch_fp8_with(float* c, const gpu::fp8* a, const gpu::fp8* b, size_t M, size_t N,
                            size_t K, hipStream_t stream) {
  using Tile = gemm_mixed::Fp8Tile;
  constexpr size_t kBytes = sizeof(Fp8Ring) + gemm_mixed::kBoxAlignment;
  gpu::allow_shared_bytes(fp8_with_mistake<kMistake>, kBytes);
  LAUNCH_IN_CLUSTERS(stream, fp8_with_mistake<kMistake>, 2, 2, unsigned{Tile::kThreads}, kBytes,
                     gemm_mixed::tensor_map(c, M, N, gemm_mixed::kStoreRows),
                     gemm_mixed::tensor_map(a, M, K, Tile::kRows),
                     gemm_mixed::tensor_map(b, N, K, Tile::kHalf),
                     static_cast<int>(K) / Tile::kDepth);
}
void launch_fp8_pair(Fp8Mistake mistake, float* c, const gpu::fp8* a, const gpu::fp8* b, size_t M,
                     size_t N, size_t K, hipStream_t stream) {
  with_constant<Fp8Mistake>(mistake, std::make_integer_sequence<int, kFp8Mistakes>(), [&](auto is) {
    launch_fp8_with<decltype(is)::value>(c, a, b, M, N, K, stream);
  });
}

// c (64, 32): row by row 0, 1, 2 ..., through shared memory and the TMA.
static __global__ void store_with_mistake(const CUtensorMap map_c, StoreMistake mistake) {
  DYNAMIC_SHARED(unsigned char, dynamic);
  auto& box = gemm_mixed::aligned_shared<gemm_mixed::StoreBuffer>(dynamic).boxes[0];
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 64 * 32; i += gemm_mixed::kWarpGroup) {
    const int row = i / 32, chunk = i % 32 / 4;
    const int place = mistake == StoreMistake::no_swizzle ? chunk : chunk ^ row % 8;
    box[row * 32 + place * 4 + i % 4] = static_cast<float>(i);
  }
  if (mistake != StoreMistake::no_fence) gemm_mixed::fence_for_tma();
  __syncthreads();  // the box is complete, for the TMA too
  if (thread != 0) return;
  gemm_mixed::store_box(map_c, 0, 0, box);
  if (mistake != StoreMistake::group_not_ended) gemm_mixed::end_stores();
  if (mistake == StoreMistake::overwritten_early) box[5] = 0;
  if (mistake != StoreMistake::not_awaited) gemm_mixed::wait_until_stores_have_read();
  if (mistake != StoreMistake::overwritten_early) box[5] = 0;
}
void launch_store(StoreMistake mistake, float* c, hipStream_t stream) {
  LAUNCH_ON(stream, store_with_mistake, 1, unsigned{gemm_mixed::kWarpGroup},
            sizeof(gemm_mixed::StoreBuffer) + gemm_mixed::kBoxAlignment,
            gemm_mixed::tensor_map(c, 64, 32, 64), mistake);
}

}  // namespace gemm_mixed_test

#endif
