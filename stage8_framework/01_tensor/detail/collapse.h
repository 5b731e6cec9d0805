// What is left of a copy for its kernels: as few axes as possible, and pieces that 32 bits can
// count. Host code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "stage8_framework/01_tensor/tensor.h"

namespace tensor {

inline void remove_axis(Problem& p, unsigned axis) {
  --p.rank;
  for (unsigned d = axis; d + 1 < kMaxRank; ++d) {
    p.extent[d] = p.extent[d + 1];
    p.out_stride[d] = p.out_stride[d + 1], p.a_stride[d] = p.a_stride[d + 1];
  }
}

inline void swap_axes(Problem& p, unsigned one, unsigned other) {
  std::swap(p.extent[one], p.extent[other]);
  std::swap(p.out_stride[one], p.out_stride[other]);
  std::swap(p.a_stride[one], p.a_stride[other]);
}

// The same copy with the fewest axes, in the order in which out lies in memory, the last one with
// the smallest stride. Two neighbours are one axis where both sides go from the end of the inner
// one to the next step of the outer one:
//
//   (N,C,H,W) -> (N,H,W,C), out strides (HWC, WC, C, 1), a (CHW, W, 1, HW)     H, W are one: 3 axes
//   (N,C,H,W) contiguous on both sides                                         one axis
inline Problem collapse(Problem p) {
  for (unsigned axis = p.rank; axis-- > 0;)
    if (p.extent[axis] == 1) remove_axis(p, axis);
  for (unsigned end = p.rank; end > 1; --end)  // few axes: the simplest order of all
    for (unsigned axis = 1; axis < end; ++axis)
      if (std::abs(p.out_stride[axis - 1]) < std::abs(p.out_stride[axis]))
        swap_axes(p, axis - 1, axis);
  for (unsigned axis = p.rank; axis-- > 1;) {
    const std::int64_t inner = p.extent[axis];
    if (p.out_stride[axis - 1] != inner * p.out_stride[axis] ||
        p.a_stride[axis - 1] != inner * p.a_stride[axis])
      continue;
    p.extent[axis - 1] *= inner;
    p.out_stride[axis - 1] = p.out_stride[axis], p.a_stride[axis - 1] = p.a_stride[axis];
    remove_axis(p, axis);
  }
  return p;
}

// The most elements of one launch: what 32 bits and a Divisor can count. A test lowers it.
inline std::int64_t part_limit = (std::int64_t{1} << 31) - 1;

// Calls launch(part, out_offset, a_offset) for parts of at most `most` elements, which together are
// p; the offsets count elements. Nothing is called where p has no elements.
template <class LaunchPart>
void for_each_part(const Problem& p, LaunchPart&& launch, std::int64_t most = part_limit,
                   std::int64_t out_offset = 0, std::int64_t a_offset = 0) {
  const std::int64_t elements = p.elements();
  if (elements == 0) return;
  if (elements <= most) return launch(p, out_offset, a_offset);
  const std::int64_t together = std::max(std::int64_t{1}, most / (elements / p.extent[0]));
  for (std::int64_t first = 0; first < p.extent[0]; first += together) {
    Problem piece = p;
    piece.extent[0] = std::min(together, p.extent[0] - first);
    if (together == 1) remove_axis(piece, 0);
    for_each_part(piece, launch, most, out_offset + first * p.out_stride[0],
                  a_offset + first * p.a_stride[0]);
  }
}

// The axis along which a runs, if that is not the last one, along which out runs, and both are long
// enough for tiles; else p.rank. p is collapsed.
inline constexpr std::int64_t kLeastSide = 16;
inline unsigned turned_axis(const Problem& p) {
  unsigned best = p.rank;
  if (p.rank < 2 || p.extent[p.rank - 1] < kLeastSide) return best;
  const std::int64_t along_out = std::abs(p.a_stride[p.rank - 1]);
  for (unsigned axis = 0; axis + 1 < p.rank; ++axis) {
    const std::int64_t stride = std::abs(p.a_stride[axis]);
    if (stride == 0 || stride >= along_out || p.extent[axis] < kLeastSide) continue;
    if (best == p.rank || stride < std::abs(p.a_stride[best])) best = axis;
  }
  return best;
}

// Calls launch(Word{}) with an unsigned number of `bytes` bytes: 1, 2, 4 or 8.
template <class LaunchWords>
void with_word(size_t bytes, LaunchWords&& launch) {
  switch (bytes) {
    case 1:
      return launch(std::uint8_t{});
    case 2:
      return launch(std::uint16_t{});
    case 4:
      return launch(std::uint32_t{});
    default:
      return launch(std::uint64_t{});
  }
}

}  // namespace tensor
