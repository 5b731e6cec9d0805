// A grid of a matrix's shape, and where its rows can be read 16 bytes at a time. Host code: later
// steps launch their kernels with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "common/gpu_runtime.h"
#include "stage1_vector/01_vector_add/detail/grid.h"

namespace matrix_activations {

struct Grid {
  dim3 blocks, threads;
};

// kBlock threads as wide as `items` per row, and so many blocks that each has its thread. A grid's
// y ends at 65535: beyond that the threads go round.
inline Grid grid_2d(size_t rows, size_t items) {
  using vector_add::kBlock;
  unsigned width = 8;
  while (width < kBlock && width < items) width *= 2;
  const size_t most = vector_add::largest_grid(kBlock);
  const size_t across = std::min(gpu::ceil_div(items, width), most);
  const size_t down = std::min({gpu::ceil_div(rows, kBlock / width), gpu::kMaxGridY, most});
  return {dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)),
          dim3(width, kBlock / width)};
}

// True where the arrays lie at the same distance from a multiple of 16 bytes. Where they do not, no
// row has a place at which all of them could be read 16 bytes at a time.
inline bool aligned_alike(std::initializer_list<const float*> arrays) {
  return vector_add::split_vectors(7, arrays).vectors > 0;
}

}  // namespace matrix_activations
