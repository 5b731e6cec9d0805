// The transforms of Winograd's F(4 x 4, 3 x 3). Four neighbouring sums of three products, of a
// row's numbers d0 ... d5 and a filter's g0 g1 g2, can be computed with six multiplications in
// place of twelve (Winograd: Arithmetic complexity of computations, 1980):
//
//   y = A ((G g) * (B d))      B d: 6 sums of d     G g: 6 sums of g     A: 4 sums of 6 products
//
// Down and across, a tile of 6 x 6 numbers makes 4 x 4 outputs with 36 multiplications in place of
// 144 (Lavin and Gray: Fast algorithms for convolutional neural networks, arXiv:1509.09308). A, B
// and G are linear, so A is applied once, to the sums over all channels. Each of the 36 places is a
// matrix product of its own, filters times channels times tiles:
//
//   x  ->  B d B^T  ->  36 x (channels, tiles)  --+
//                                                 +--  36 products  ->  A m A^T  ->  bias, f  -> y
//   w  ->  G g G^T  ->  36 x (maps, channels)  ---+
//
// The price is accuracy. On the way to an output a number of x is multiplied by up to 100 and a
// product by up to 64. The results nearly cancel; their rounding errors do not.
//
//       |  4  0 -5  0  1  0 |      |  1/4    0     0  |      | 1  1  1  1  1  0 |
//       |  0 -4 -4  1  1  0 |      | -1/6  -1/6  -1/6 |      | 0  1 -1  2 -2  0 |
//   B = |  0  4 -4 -1  1  0 |  G = | -1/6   1/6  -1/6 |  A = | 0  1  1  4  4  0 |
//       |  0 -2 -1  2  1  0 |      |  1/24  1/12  1/6 |      | 0  1 -1  8 -8  1 |
//       |  0  2 -1 -2  1  0 |      |  1/24 -1/12  1/6 |
//       |  0  4  0 -5  0  1 |      |   0     0     1  |
#pragma once

#include "common/gpu_runtime.h"
#include "stage6_cnn/01_conv2d/detail/windows.h"
#include "stage6_cnn/01_conv2d/winograd_sizes.h"

namespace conv2d {

// B, G and A, applied to a row in registers.
__host__ __device__ inline void transform_numbers(float (&d)[kSideIn]) {
  const float d4_4d2 = d[4] - 4 * d[2], d3_4d1 = d[3] - 4 * d[1];
  const float d4_d2 = d[4] - d[2], d3_d1 = 2 * (d[3] - d[1]);
  d[0] = 4 * d[0] - 5 * d[2] + d[4];
  d[5] = 4 * d[1] - 5 * d[3] + d[5];
  d[1] = d4_4d2 + d3_4d1, d[2] = d4_4d2 - d3_4d1;
  d[3] = d4_d2 + d3_d1, d[4] = d4_d2 - d3_d1;
}
__host__ __device__ inline void transform_filter(const float (&g)[3], float (&u)[kSideIn]) {
  const float even = g[0] + g[2], even4 = g[0] + 4 * g[2];
  u[0] = g[0] / 4;
  u[1] = (even + g[1]) * (-1 / 6.0f), u[2] = (even - g[1]) * (-1 / 6.0f);
  u[3] = (even4 + 2 * g[1]) * (1 / 24.0f), u[4] = (even4 - 2 * g[1]) * (1 / 24.0f);
  u[5] = g[2];
}
__host__ __device__ inline void transform_products(const float (&m)[kSideIn],
                                                   float (&y)[kSideOut]) {
  const float sum = m[1] + m[2], difference = m[1] - m[2];
  const float sum2 = m[3] + m[4], difference2 = m[3] - m[4];
  y[0] = m[0] + sum + sum2;
  y[1] = difference + 2 * difference2;
  y[2] = sum + 4 * sum2;
  y[3] = difference + 8 * difference2 + m[5];
}

// The tiles of some images, numbered image by image and row by row. `count` is their number rounded
// up to a multiple of 4; the tiles behind the last one are zeros.
struct TransformedTiles {
  int tiles, count;
  Divisor by_image, by_row, by_count;

  TransformedTiles(const Windows& p, int images) {
    const int down = static_cast<int>(gpu::ceil_div(p.rows, kSideOut));
    const int across = static_cast<int>(gpu::ceil_div(p.cols, kSideOut));
    tiles = images * down * across, count = static_cast<int>(gpu::ceil_div(tiles, 4)) * 4;
    by_image = Divisor(down * across), by_row = Divisor(across), by_count = Divisor(count);
  }
  struct Tile {
    int image, row, col;  // of its first output
  };
  __device__ Tile tile(int number) const {
    const int image = by_image.quotient(number), place = by_image.remainder(number, image);
    const int i = by_row.quotient(place);
    return {image, i * kSideOut, by_row.remainder(place, i) * kSideOut};
  }
};

}  // namespace conv2d
