// Stores the sums of a warp group to C through shared memory and the TMA.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/wgmma_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

inline constexpr int kStoreRows = 64, kStoreBoxes = 2;

// 64 x 64 sums on their way to C: two boxes of 32 columns, swizzled like the tiles of A and B.
struct alignas(kBoxAlignment) StoreBuffer {
  float boxes[kStoreBoxes][kStoreRows * kBoxColumns<float>];
};

// A warp group's sums go through its buffer in passes. A pass begins when the stores of the last
// one have read the buffer.
__device__ inline void begin_store_pass(int thread, int group) {
  if (thread == 0) wait_until_stores_have_read();
  sync_warp_group(group);  // the buffer may be overwritten
}
// It ends with the stores of the buffer to C from (row, column) on.
__device__ inline void end_store_pass(const CUtensorMap& map_c, int row, int column,
                                      const StoreBuffer& buffer, int thread, int group) {
  fence_for_tma();
  sync_warp_group(group);  // the buffer is complete, for the TMA too
  if (thread == 0) {
    for (int box = 0; box < kStoreBoxes; ++box)
      store_box(map_c, row, column + box * kBoxColumns<float>, buffer.boxes[box]);
    end_stores();
  }
}

// Stores the 64 x 256 sums that multiply_64x256 left in a warp group to C from (row, column) on.
// The map of C has boxes of kStoreRows rows, and leaves out what lies beyond the edges. The warp
// group has `buffer` and the barrier `group` for itself. It does not wait for the last stores: they
// run while it multiplies the next tile, and its thread 0 calls wait_for_stores() at the end.
//
//   registers --> buffer --> C       four times, 64 columns each
//
// Thread t holds columns 8 j + t%4*2 and the next one of rows t/32*16 + t%32/4 and 8 further. Its
// two floats are one half of a chunk. The swizzle makes the eight rows of a warp use different
// banks.
__device__ __forceinline__ void store_64x256(const CUtensorMap& map_c, int row, int column,
                                             const float (&sums)[128], StoreBuffer& buffer,
                                             int group) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpGroup, lane = thread % kLanes;
  const int own_row = thread / kLanes * 16 + lane / 4;
  GPU_UNROLL
  for (int pass = 0; pass < 4; ++pass) {
    begin_store_pass(thread, group);
    GPU_UNROLL
    for (int j = 0; j < 8; ++j) {
      const int chunk = (j % 4 * 2 + lane % 4 / 2) ^ own_row % 8;
      float* to = buffer.boxes[j / 4] + own_row * kBoxColumns<float> + chunk * 4 + lane % 2 * 2;
      const float* sum = sums + pass * 32 + j * 4;
      *reinterpret_cast<float2*>(to) = make_float2(sum[0], sum[1]);
      *reinterpret_cast<float2*>(to + 8 * kBoxColumns<float>) = make_float2(sum[2], sum[3]);
    }
    end_store_pass(map_c, row, column + pass * 64, buffer, thread, group);
  }
}

}  // namespace gemm_mixed

#endif
