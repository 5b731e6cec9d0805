// How the product of a few rows is divided among the blocks of clusters. Plain C++ and device code.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "common/gpu_runtime.h"

namespace gemm_mixed {

// A cluster computes `sharers` neighbouring tiles of C, each in `slices` slices of K: a block for
// each. Those of a slice share A. Block slice * sharers + sharer:
//
//                tile 0    tile 1
//     slice 0   block 0   block 1    each copies half of the slice of A to both
//     slice 1   block 2   block 3
//               then 0, 2   1, 3     add their sums, and store half of the tile each
struct ClusterShape {
  unsigned slices, sharers;
};
inline constexpr unsigned kMostBlocks = 8, kMostSharers = 2;  // of a cluster

// The first of `steps` steps along K that slice `slice` has.
__host__ __device__ inline int slice_begin(int steps, unsigned slice, ClusterShape shape) {
  return steps * static_cast<int>(slice) / static_cast<int>(shape.slices);
}

// The shape that takes the least time, counted in stages of a multiprocessor; of equal ones, one
// that shares A. at_once[blocks]: how many clusters of so many blocks run at the same time.
inline ClusterShape choose_cluster(unsigned tiles, unsigned steps,
                                   const std::array<unsigned, kMostBlocks + 1>& at_once) {
  constexpr unsigned kBeginAndEnd = 8;  // what a block needs beside its stages, in stages
  ClusterShape best{1, 1};
  size_t least = ~size_t{0};
  for (unsigned sharers = std::min(kMostSharers, tiles); sharers > 0; --sharers)
    for (unsigned slices = 1; slices <= std::min(kMostBlocks / sharers, steps); ++slices) {
      const size_t clusters = gpu::ceil_div(tiles, sharers);
      const size_t rounds = gpu::ceil_div(clusters, std::max(1u, at_once[slices * sharers]));
      const size_t stages = rounds * (gpu::ceil_div(steps, slices) + kBeginAndEnd);
      if (stages < least) least = stages, best = {slices, sharers};
    }
  return best;
}

}  // namespace gemm_mixed
