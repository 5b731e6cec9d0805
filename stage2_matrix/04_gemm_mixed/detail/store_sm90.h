// Stores the sums of a warp group to C through shared memory and the TMA.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/chunk.h"
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
// It ends with the stores of the buffer: store(column, box) begins that of a box, whose first
// column is so far from the one where C begins to be stored.
template <class C, class Store>
__device__ __forceinline__ void end_store_pass(const Store& store, int column,
                                               const StoreBuffer& buffer, int thread, int group) {
  fence_for_tma();
  sync_warp_group(group);  // the buffer is complete, for the TMA too
  if (thread == 0) {
    for (int box = 0; box < kStoreBoxes; ++box)
      store(column + box * kBoxColumns<C>, buffer.boxes[box]);
    end_stores();
  }
}
// To C from (row, column) on. A and B are read again and C is not: it leaves the L2 cache first.
struct StoreAt {
  const CUtensorMap& map_c;
  int row, column;
  __device__ __forceinline__ void operator()(int begin, const float* box) const {
    stream_box(map_c, row, column + begin, box);
  }
};
__device__ inline void end_store_pass(const CUtensorMap& map_c, int row, int column,
                                      const StoreBuffer& buffer, int thread, int group) {
  end_store_pass<float>(StoreAt{map_c, row, column}, 0, buffer, thread, group);
}

// The columns of C that go through the buffer in one pass.
template <class C>
inline constexpr int kColumnsOfPass = kStoreBoxes* kBoxColumns<C>;

// Writes pass `pass` of the 64 x 256 sums that multiply_64x256 left in a warp group to its buffer.
//
// Thread t holds columns 8 j + t%4*2 and the next one of rows t/32*16 + t%32/4 and 8 further. Its
// two floats are one half of a chunk. The swizzle makes the eight rows of a warp use different
// banks.
//
// finish(first, second, row, column) is what is stored of two neighbouring sums, two Cs; row and
// column are counted from those of the 64 x 256 sums on.
template <class C, class Finish>
__device__ __forceinline__ void write_pass(const float (&sums)[128], StoreBuffer& buffer, int pass,
                                           const Finish& finish) {
  constexpr int kBox = kBoxColumns<C>, kBoxes = kBox / 8, kPass = kColumnsOfPass<C>;
  const int thread = static_cast<int>(threadIdx.x) % kWarpGroup, lane = thread % kLanes;
  const int own_row = thread / kLanes * 16 + lane / 4, in_eight = lane % 4 * 2;
  const size_t row = own_row, first_column = in_eight;  // sums with constants fit into an address
  GPU_UNROLL
  for (int j = 0; j < kPass / 8; ++j) {
    const size_t column = first_column + (pass * kPass + j * 8);
    const int chunk = (j % kBoxes * 8 / kPerChunk<C> + in_eight / kPerChunk<C>)^own_row % 8;
    C* to = reinterpret_cast<C*>(buffer.boxes[j / kBoxes]) + own_row * kBox + chunk * kPerChunk<C> +
            in_eight % kPerChunk<C>;
    const float* sum = sums + pass * (kPass / 2) + j * 4;
    *reinterpret_cast<TwoOf<C>*>(to) = finish(sum[0], sum[1], row, column);
    *reinterpret_cast<TwoOf<C>*>(to + 8 * kBox) = finish(sum[2], sum[3], row + 8, column);
  }
}

// Stores the first `columns` columns of 64 x 256 sums to C. The warp group has `buffer` and the
// barrier `group` for itself. It does not wait for the last stores: they run while it multiplies
// the next tile, and its thread 0 calls wait_for_stores() at the end.
//
//   registers --> buffer --> C       four times, 64 columns each; or twice, 128 of 16-bit numbers
//
// write(pass) writes that pass to the buffer. store(column, from) begins the store of the box of
// that column.
template <class C, class Write, class Store>
__device__ __forceinline__ void store_passes(StoreBuffer& buffer, int group, int columns,
                                             const Write& write, const Store& store) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpGroup;
  GPU_UNROLL
  for (int pass = 0; pass < 256 / kColumnsOfPass<C>; ++pass) {
    const int column = pass * kColumnsOfPass<C>;
    if (column >= columns) break;
    begin_store_pass(thread, group);
    write(pass);
    end_store_pass<C>(store, column, buffer, thread, group);
  }
}

// The sums as they are.
struct SumItself {
  __device__ __forceinline__ TwoOf<float> operator()(float first, float second, size_t,
                                                     size_t) const {
    return {first, second};
  }
};
struct WriteSums {
  const float (&sums)[128];
  StoreBuffer& buffer;
  __device__ __forceinline__ void operator()(int pass) const {
    write_pass<float>(sums, buffer, pass, SumItself{});
  }
};
// To C from (row, column) on. The map of C has boxes of kStoreRows rows, and leaves out what lies
// beyond the edges.
__device__ __forceinline__ void store_64x256(const CUtensorMap& map_c, int row, int column,
                                             const float (&sums)[128], StoreBuffer& buffer,
                                             int group) {
  store_passes<float>(buffer, group, 256, WriteSums{sums, buffer}, StoreAt{map_c, row, column});
}

}  // namespace gemm_mixed

#endif
