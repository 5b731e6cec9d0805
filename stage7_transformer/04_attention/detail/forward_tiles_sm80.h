// The tiles that flash_bf16 chooses from.
#pragma once

#include <type_traits>

#include "stage7_transformer/04_attention/detail/tiles_sm80.h"

#if !defined(GPU_BACKEND_HIP)

namespace attention {

// What a block does: kQueries queries of one head against tiles of kKeys keys; each warp
// kWarpQueries of them. In shared memory there is room for all its queries and for kStages tiles of
// K or V. kHoldQueries: the fragments of Q stay in registers. kBlocks shall fit a multiprocessor.
template <int kDepth_, int kQueries_, int kKeys_, int kWarpQueries_, int kStages_, int kBlocks_,
          bool kHoldQueries_>
struct ForwardTile {
  static constexpr int kDepth = kDepth_, kQueries = kQueries_, kKeys = kKeys_;
  static constexpr int kWarpQueries = kWarpQueries_, kStages = kStages_, kBlocks = kBlocks_;
  static constexpr bool kHoldQueries = kHoldQueries_;
  static constexpr int kThreads = kQueries / kWarpQueries * kLanes;
  static constexpr int kChunks = kDepth / kPerChunk;
  static constexpr size_t kSharedBytes =
      size_t{kQueries + kStages * kKeys} * kChunks * sizeof(uint4);
};

// The tiles of each depth: where every row is aligned, there is a block for each multiprocessor and
// shared memory enough, and otherwise.
template <int kDepth>
struct Bf16Tiles {
  using Large = ForwardTile<kDepth, 128, 64, 32, 2, 2, true>;
  using Small = ForwardTile<kDepth, 64, 64, 16, 2, 2, true>;
};
template <>
struct Bf16Tiles<128> {
  using Large = ForwardTile<128, 128, 64, 32, 2, 2, false>;
  using Small = ForwardTile<128, 64, 64, 16, 2, 2, true>;
};
template <>
struct Bf16Tiles<256> {
  using Large = ForwardTile<256, 64, 64, 16, 2, 2, false>;
  using Small = ForwardTile<256, 64, 32, 16, 2, 2, false>;
};

// Calls launch(depth) with the smallest depth of a tile, a compile-time constant, that holds D.
template <size_t kMost, class Run>
inline void with_depth(size_t D, Run&& launch) {
  if (D <= 16)
    launch(std::integral_constant<int, 16>{});
  else if (D <= 32)
    launch(std::integral_constant<int, 32>{});
  else if (D <= 64)
    launch(std::integral_constant<int, 64>{});
  else if (D <= 128)
    launch(std::integral_constant<int, 128>{});
  else if constexpr (kMost > 128)
    launch(std::integral_constant<int, 256>{});
}

}  // namespace attention

#endif
