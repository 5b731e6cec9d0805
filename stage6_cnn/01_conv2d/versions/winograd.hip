// winograd: 3 x 3 windows with a quarter of the multiplications.
#include <stdexcept>

#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/detail/winograd_kernels.h"
#include "stage6_cnn/01_conv2d/detail/winograd_transforms.h"
#include "stage6_cnn/01_conv2d/problem.h"

namespace conv2d {

// numbers[place, c, tile] = (B d B^T)[place] of tile's 6 x 6 numbers d of channel c, 0 outside.
// Fixes : every version before needs 9 multiplications per channel for an output.
// Idea  : transformed tiles and filters need 36 multiplications for 16 outputs. Neighbouring
//         threads take neighbouring tiles, so that each of their 36 stores is to one piece of
//         memory.
// Thread: t owns tile t % count of channel t / count.
// Costs : writes 36/16 of the image; the border that tiles share is read twice, from the cache.
static __global__ void __launch_bounds__(kBlock)
    winograd_transform_numbers(float* numbers, Windows p, TransformedTiles tiles) {
  const int t = static_cast<int>(blockIdx.x * kBlock + threadIdx.x);
  const int c = tiles.by_count.quotient(t), number = tiles.by_count.remainder(t, c);
  if (c >= p.channels) return;
  const TransformedTiles::Tile tile = tiles.tile(number < tiles.tiles ? number : 0);
  const int h0 = number < tiles.tiles ? tile.row + p.first_h : kOutside, w0 = tile.col + p.first_w;
  const float* const from = p.from + (size_t(tile.image) * p.channels + c) * p.height * p.width;
  float d[kSideIn][kSideIn];
  GPU_UNROLL
  for (int r = 0; r < kSideIn; ++r) {
    GPU_UNROLL
    for (int s = 0; s < kSideIn; ++s)
      d[r][s] =
          is_inside(h0 + r, p.height, w0 + s, p.width) ? from[(h0 + r) * p.width + w0 + s] : 0;
  }
  // exercise: apply B to the columns and to the rows of d (about 8 lines)
  GPU_UNROLL
  for (int s = 0; s < kSideIn; ++s) {
    float column[kSideIn];
    GPU_UNROLL
    for (int r = 0; r < kSideIn; ++r) column[r] = d[r][s];
    transform_numbers(column);
    GPU_UNROLL
    for (int r = 0; r < kSideIn; ++r) d[r][s] = column[r];
  }
  GPU_UNROLL
  for (int r = 0; r < kSideIn; ++r) transform_numbers(d[r]);
  // end exercise
  GPU_UNROLL
  for (int place = 0; place < kPlaces; ++place)
    numbers[(size_t(place) * p.channels + c) * tiles.count + number] =
        d[place / kSideIn][place % kSideIn];
}

// Of the product of one place: few filters, many tiles.
using WinogradTile = gemm::Shape<64, 128, 8, 8, 8, 4>;

// The filters first. Then tiles, products and outputs: three launches for as many images as there
// is memory for.
template <class Epilogue>
void launch_winograd(Windows windows, size_t images, const Epilogue& epilogue, float* memory,
                     size_t room, hipStream_t stream) {
  if (images == 0 || windows.maps == 0 || windows.rows == 0 || windows.cols == 0) return;
  const size_t channels = static_cast<size_t>(windows.channels);
  const size_t maps = static_cast<size_t>(windows.maps);
  const size_t of_filters = transformed_filters(channels, maps);
  const size_t per_image =
      tiles_per_image(channels, maps, static_cast<size_t>(windows.rows), size_t(windows.cols));
  if (room < of_filters + per_image)
    throw std::invalid_argument("conv2d: no memory for the transformed tiles of an image");
  float* const filters = memory;
  float* const numbers = filters + of_filters;
  if (maps * channels > 0)
    LAUNCH_ON(stream, winograd_transform_filters, grid_of(maps * channels), kBlock, 0, filters,
              windows);
  const size_t at_a_time = images_at_a_time(images, per_image, room - of_filters);
  for (size_t n = 0; n < images; n += at_a_time) {
    windows.prepare(static_cast<int>(std::min(at_a_time, images - n)));
    const TransformedTiles tiles(windows, windows.images);
    const size_t count = static_cast<size_t>(tiles.count);
    float* const products = numbers + kPlaces * channels * count;
    if (channels * count > 0)
      LAUNCH_ON(stream, winograd_transform_numbers, grid_of(channels * count), kBlock, 0, numbers,
                windows, tiles);
    gemm::Product p;
    p.M = maps, p.N = count, p.K = channels;
    p.a = filters, p.lda = channels, p.stride_a = maps * channels;
    p.b = numbers, p.ldb = count, p.stride_b = channels * count;
    p.c = products, p.ldc = count, p.stride_c = maps * count;
    p.batch = kPlaces;
#if defined(GPU_BACKEND_CPU)
    gemm::best<gemm::Layouts<gemm::Layout::NN>>(p, gemm::alpha_beta(p), stream);
#else
    gemm::launch_product<WinogradTile, gemm::Layouts<gemm::Layout::NN>>(p, gemm::alpha_beta(p),
                                                                        stream);
#endif
    LAUNCH_ON(stream, (winograd_transform_products<Epilogue>), grid_of(maps * count), kBlock, 0,
              products, windows, tiles, epilogue);
    windows.from += static_cast<size_t>(windows.images) * windows.image_of_from();
    windows.to += static_cast<size_t>(windows.images) * maps * static_cast<size_t>(windows.to_map);
  }
}

template <class Activation>
void launch_winograd(float* y, const float* x, const float* w, const float* bias,
                     const Problem& problem, Workspace& workspace, hipStream_t stream) {
  check_forward(y, x, w, problem);
  const Windows windows = windows_of(y, x, w, problem);
  const BiasActivation<Activation> epilogue{bias};
  if (fits_winograd(windows))
    launch_winograd(windows, problem.N, epilogue, workspace.tiles.data(), workspace.tiles.size(),
                    stream);
  else
    launch_right_tile(windows, problem.N, epilogue, stream);
}

template void launch_winograd(Windows, size_t, const BiasLinear&, float*, size_t, hipStream_t);
template void launch_winograd(Windows, size_t, const BiasRelu&, float*, size_t, hipStream_t);
template void launch_winograd<dense::Linear>(float*, const float*, const float*, const float*,
                                             const Problem&, Workspace&, hipStream_t);
template void launch_winograd<activations::Relu>(float*, const float*, const float*, const float*,
                                                 const Problem&, Workspace&, hipStream_t);

}  // namespace conv2d
