// The transforms of the filters and of the products: kernels around the 36 matrix products.
#pragma once

#include "common/gpu.h"
#include "stage6_cnn/01_conv2d/detail/winograd_transforms.h"

namespace conv2d {

// filters[place, m, c] = (G g G^T)[place] of the filter g of map m and channel c.
// Fixes : a filter's 9 numbers lie together; each product wants one number of every filter.
// Idea  : a filter of 9 numbers becomes one of 36, once for all images.
// Thread: t owns channel t % channels of map t / channels.
// Costs : 4 times the filters written.
static __global__ void __launch_bounds__(kBlock)
    winograd_transform_filters(float* filters, Windows p) {
  const int t = static_cast<int>(blockIdx.x * kBlock + threadIdx.x), size = p.maps * p.channels;
  if (t >= size) return;
  const float* const g =
      p.filter + ((t / p.channels) * p.filter_map + (t % p.channels) * p.filter_channel);
  float rows[3][kSideIn];
  GPU_UNROLL
  for (int r = 0; r < 3; ++r) {
    const float row[3] = {g[r * p.filter_row], g[r * p.filter_row + p.filter_col],
                          g[r * p.filter_row + 2 * p.filter_col]};
    transform_filter(row, rows[r]);
  }
  GPU_UNROLL
  for (int s = 0; s < kSideIn; ++s) {
    const float column[3] = {rows[0][s], rows[1][s], rows[2][s]};
    float transformed[kSideIn];
    transform_filter(column, transformed);
    GPU_UNROLL
    for (int r = 0; r < kSideIn; ++r) filters[size_t(r * kSideIn + s) * size + t] = transformed[r];
  }
}

// to = epilogue(A m A^T) of the 36 sums m = products[.., map, tile], where that lies in the image.
// Fixes : the 36 products have left their sums in 36 matrices.
// Idea  : neighbouring threads take neighbouring tiles, as in winograd_transform_numbers. The sums
//         are complete here: bias and f are applied before they are stored.
// Thread: t owns tile t % count of map t / count: 4 x 4 outputs, a float4 each row.
// Costs : 36/16 of the output read.
template <class Epilogue>
static __global__ void __launch_bounds__(kBlock)
    winograd_transform_products(const float* products, Windows p, TransformedTiles tiles,
                                Epilogue epilogue) {
  const int t = static_cast<int>(blockIdx.x * kBlock + threadIdx.x);
  const int map = tiles.by_count.quotient(t), number = tiles.by_count.remainder(t, map);
  if (map >= p.maps || number >= tiles.tiles) return;
  float m[kSideIn][kSideIn];
  GPU_UNROLL
  for (int place = 0; place < kPlaces; ++place)
    m[place / kSideIn][place % kSideIn] =
        products[(size_t(place) * p.maps + map) * tiles.count + number];
  float columns[kSideOut][kSideIn];
  GPU_UNROLL
  for (int s = 0; s < kSideIn; ++s) {
    const float column[kSideIn] = {m[0][s], m[1][s], m[2][s], m[3][s], m[4][s], m[5][s]};
    float sums[kSideOut];
    transform_products(column, sums);
    GPU_UNROLL
    for (int r = 0; r < kSideOut; ++r) columns[r][s] = sums[r];
  }
  const TransformedTiles::Tile tile = tiles.tile(number);
  float* const to = p.to + (size_t(tile.image) * p.maps + map) * p.to_map;
  GPU_UNROLL
  for (int r = 0; r < kSideOut; ++r) {
    float y[kSideOut];
    transform_products(columns[r], y);
    GPU_UNROLL
    for (int s = 0; s < kSideOut; ++s) y[s] = epilogue(y[s], map);
    if (tile.row + r >= p.rows) continue;
    float* const row = to + ((tile.row + r) * p.cols + tile.col);
    if (p.whole && p.cols % kSideOut == 0) {
      *reinterpret_cast<float4*>(row) = make_float4(y[0], y[1], y[2], y[3]);
    } else {
      for (int s = 0; s < kSideOut; ++s)
        if (tile.col + s < p.cols) row[s] = y[s];
    }
  }
}

}  // namespace conv2d
