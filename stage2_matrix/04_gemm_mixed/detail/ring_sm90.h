// The ring of stages between warp_specialized's producer and its consumers.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/store_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

// A block's tile of C, the depth of a stage, the stages of the ring, and the warp groups that
// multiply: each owns 64 rows of the tile.
struct SpecializedTile {
  static constexpr int kRows = 128, kColumns = 256, kDepth = 64, kSteps = kDepth / 16;
  static constexpr int kStages = 4, kConsumers = kRows / 64;
  static constexpr int kThreads = kWarpGroup * (1 + kConsumers);
  // Of a thread. A launch gives each of the three groups 168, a third of all; sums alone are 128.
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= 3 * 168);
};

// Where the rows of A lie across K, `a` is two boxes of 64 columns; where those of B lie along K,
// `b` is 256 rows of kDepth elements. They take the same bytes.
template <class T>
struct SpecializedStage {
  T a[SpecializedTile::kRows * SpecializedTile::kDepth];              // one box
  T b[SpecializedTile::kColumns / 64][SpecializedTile::kDepth * 64];  // boxes of 64 columns
};

// A block's shared memory, 225 KiB, of stages with a tile of A and one of B. Each has two barriers:
//
//   full    completes when the bytes of both tiles have arrived; the consumers wait for it
//   empty   completes when every consumer has multiplied the tiles; the producer waits for it:
//           those of `blocks` blocks, where the producer writes to so many
template <class Stage>
struct Ring {
  Stage stages[SpecializedTile::kStages];
  StoreBuffer stores[SpecializedTile::kConsumers];
  PhaseBarrier full[SpecializedTile::kStages], empty[SpecializedTile::kStages];

  // One thread calls this before all use, then the block's __syncthreads().
  __device__ void init(int blocks = 1) {
    for (int stage = 0; stage < SpecializedTile::kStages; ++stage) {
      full[stage].init(1);
      empty[stage].init(SpecializedTile::kConsumers * blocks);
    }
    publish_barriers();
  }
};
template <class T>
using SpecializedShared = Ring<SpecializedStage<T>>;

// Where a warp group is in the ring: a stage, and the parity of the phase of its barriers, which
// changes with each round.
struct RingPlace {
  int stage = 0;
  unsigned parity = 0;

  __device__ void next(int stages = SpecializedTile::kStages) {
    if (++stage < stages) return;
    stage = 0;
    parity ^= 1;
  }
};

// Waits until the stage is empty. `full` then waits for all of its bytes, which the caller copies.
template <class Stage>
__device__ inline Stage& begin_stage(Ring<Stage>& shared, RingPlace place) {
  shared.empty[place.stage].wait(place.parity ^ 1);  // in the first round: empty from the start
  shared.full[place.stage].expect(sizeof(Stage));
  return shared.stages[place.stage];
}

// A consumer's part: begins to multiply its 64 rows of a complete stage; `add`: to the sums.
template <bool kAcrossA = false, bool kAcrossB = true, class T>
__device__ __forceinline__ void multiply_stage(float (&sums)[128], const SpecializedStage<T>& stage,
                                               int consumer, bool add) {
  constexpr unsigned kBoxBytes = sizeof stage.b[0];
  const T* const a = stage.a + consumer * 64 * SpecializedTile::kDepth;  // its rows, or its box
  begin_wgmma();
  GPU_UNROLL
  for (int step = 0; step < SpecializedTile::kSteps; ++step)
    multiply_64x256<T, kAcrossA, kAcrossB>(sums, describe_either<kAcrossA>(a, kBoxBytes, step),
                                           describe_either<kAcrossB>(stage.b, kBoxBytes, step),
                                           add || step > 0);
  end_wgmma();
}

}  // namespace gemm_mixed

#endif
