// The gradient of the filters as a matrix product.
#pragma once

#include <array>
#include <cstddef>

#include "common/gpu_runtime.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage6_cnn/01_conv2d/detail/divisor.h"
#include "stage6_cnn/01_conv2d/detail/geometry.h"

namespace conv2d_backward {

// grad_w = grad_y columns^T, with the columns of step 6.1. As a matrix product it has a row for
// each filter and a column for each element (c, r, s) of a filter, and sums over the pixels (n, p,
// q) of all images. The blocks of slice z of the pixels leave their sums in a matrix of their own.
struct FilterSums {
  const float* grad_y;
  const float* x;
  conv2d::Geometry g;
  gemm::Product sums;  // M, N, c, ldc, stride_c: where a slice's sums go
  bool with_bias;      // behind them the slice's sums of grad_y, one per filter
  int pixels, share;   // of all images; of a slice
  conv2d::Divisor by_pixels, by_cols;
};

// A tile of filters and of their elements to choose. `speed` is how fast a multiprocessor gets
// through many of them, relative to the first one.
struct FilterTile {
  size_t filters, elements;
  int pixels;    // that a block brings at a time
  int resident;  // blocks that a multiprocessor runs at the same time
  double speed;
  void (*launch)(const FilterSums& sums, size_t slices, hipStream_t stream);
};
const std::array<FilterTile, 4>& filter_tiles();  // versions/implicit_gemm.hip has them

// The tile that has the least to do, with zeros counted. How many there are depends on the slices.
const FilterTile& choose_tile(size_t filters, size_t elements);

}  // namespace conv2d_backward
