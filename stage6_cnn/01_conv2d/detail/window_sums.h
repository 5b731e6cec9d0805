// The implicit matrix product for any tile, window and epilogue: versions/implicit_gemm.hip has its
// loop for one of them.
#pragma once

#include <type_traits>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage2_matrix/03_gemm/detail/tile_loop.h"
#include "stage6_cnn/01_conv2d/detail/known_window.h"
#include "stage6_cnn/01_conv2d/detail/windows.h"

namespace conv2d {

// Stores epilogue(sum) for each of a thread's sums that has a map and a pixel, 16 bytes at a time
// where four neighbours do.
template <class Shape, class Epilogue>
__device__ inline void store_sums(const Windows& p, const Epilogue& epilogue, int first_map,
                                  int first_pixel, const gemm::ThreadTile& own,
                                  const float (&sums)[Shape::kThreadM][Shape::kThreadN]) {
  const auto map_of = [&](int i) { return first_map + own.row + i / 4 * own.row_step + i % 4; };
  GPU_UNROLL
  for (int j = 0; j < Shape::kThreadN; j += 4) {
    const int pixel = first_pixel + own.col + j / 4 * own.col_step;
    if (p.whole && pixel < p.pixels) {
      float* const to = p.sum_of(pixel);
      GPU_UNROLL
      for (int i = 0; i < Shape::kThreadM; ++i) {
        const int map = map_of(i);
        if (map < p.maps)
          *reinterpret_cast<float4*>(to + size_t(map) * p.to_map) =
              make_float4(epilogue(sums[i][j], map), epilogue(sums[i][j + 1], map),
                          epilogue(sums[i][j + 2], map), epilogue(sums[i][j + 3], map));
      }
    } else {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) {
        if (pixel + e >= p.pixels) continue;
        float* const to = p.sum_of(pixel + e);
        GPU_UNROLL
        for (int i = 0; i < Shape::kThreadM; ++i) {
          const int map = map_of(i);
          if (map < p.maps) to[size_t(map) * p.to_map] = epilogue(sums[i][j + e], map);
        }
      }
    }
  }
}

// to = epilogue(sums over windows of from)    any sizes.
// Fixes : implicit_gemm computes a place for each element that it loads and compares it with the
//         borders. Its tile is too high for few maps.
// Idea  : the same loop, for a tile that suits the maps, and with a loader that knows the window.
// Thread: brings the lines of kTileN / kThreads pixels; owns the kThreadM x kThreadN sums (map,
//         pixel) that Places::of(t) names.
// Costs : 1 barrier per tile; two of them in shared memory.
template <class Shape, class Places, class Window, class Epilogue>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    conv2d_sum_windows(Windows p, Epilogue epilogue) {
  __shared__ gemm::Tiles<Shape> tiles[2];
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned down = static_cast<unsigned>(gpu::ceil_div(p.maps, Shape::kTileM));
  const int first_map = static_cast<int>(blockIdx.x % down) * Shape::kTileM;
  const int first_pixel = static_cast<int>(blockIdx.x / down) * Shape::kTileN;
  const gemm::ThreadTile own = Places::of(thread);
  Loader<Shape, Window> loader(p, first_map, first_pixel, thread);
  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  gemm::add_tiles<Shape>(
      sums, tiles, loader.tiles(), own, [&] { loader.load(); },
      [&](gemm::Tiles<Shape>& to) { loader.store(to, thread); }, [](const gemm::Tiles<Shape>&) {});
  store_sums<Shape>(p, epilogue, first_map, first_pixel, own, sums);
}

// Calls launch(part, blocks) for as many images at a time as an int can count the pixels of, fewer
// than `most`: once, unless there are very many.
template <class Shape, class Launch>
inline void for_images(Windows windows, size_t images, const Launch& launch,
                       size_t most = kMostPlaces) {
  const size_t pixels = static_cast<size_t>(windows.rows) * static_cast<size_t>(windows.cols);
  if (images == 0 || pixels == 0 || windows.maps == 0) return;
  for (size_t n = 0, at_a_time = images_of_launch(pixels, most); n < images; n += at_a_time) {
    windows.prepare(static_cast<int>(std::min(at_a_time, images - n)));
    const size_t blocks =
        gpu::ceil_div(windows.maps, Shape::kTileM) * gpu::ceil_div(windows.pixels, Shape::kTileN);
    launch(windows, static_cast<unsigned>(blocks));
    windows.from += static_cast<size_t>(windows.images) * windows.image_of_from();
    windows.to += static_cast<size_t>(windows.images) * size_t(windows.maps) * windows.to_map;
  }
}

// How a block divides its maps and pixels among its threads. For any window a tile is 8 lines; for
// one of 3 x 3 it is the 9 lines of one channel.
template <int tile_maps, int tile_pixels, int thread_maps, int thread_pixels, int resident_blocks>
struct SumTile {
  static constexpr int kMaps = tile_maps, kPixels = tile_pixels;
  template <int kLines>
  using Shape =
      gemm::Shape<tile_maps, tile_pixels, kLines, thread_maps, thread_pixels, resident_blocks>;
};

// Where waves have no tiles of their own to read (step 2.3), a thread's sums are one rectangle.
#if defined(GPU_BACKEND_CPU)
template <class Shape>
using Places = gemm::BlockedTiles<Shape>;
using Large = SumTile<32, 128, 8, 16, 1>;
#else
template <class Shape>
using Places = std::conditional_t<Shape::kTileM % (gemm::kLanesM * Shape::kThreadM) == 0,
                                  gemm::WaveTiles<Shape>, gemm::BlockedTiles<Shape> >;
using Large = SumTile<64, 128, 8, 8, 4>;
#endif

template <class Shape, class Window, class Epilogue>
inline void launch_window(const Windows& windows, size_t images, const Epilogue& epilogue,
                          hipStream_t stream) {
  for_images<Shape>(windows, images, [&](const Windows& part, unsigned blocks) {
    LAUNCH_ON(stream, (conv2d_sum_windows<Shape, Places<Shape>, Window, Epilogue>), blocks,
              Shape::kThreads, 0, part, epilogue);
  });
}

// Windows of 3 x 3 as such, others as any window.
template <class Tile, class Epilogue>
inline void launch_known(const Windows& windows, size_t images, const Epilogue& epilogue,
                         hipStream_t stream) {
  using ThreeByThree = Window<3, 3>;
  if (windows.taps_h == 3 && windows.taps_w == 3)
    launch_window<typename Tile::template Shape<ThreeByThree::kTaps>, ThreeByThree>(
        windows, images, epilogue, stream);
  else
    launch_window<typename Tile::template Shape<8>, AnyWindow>(windows, images, epilogue, stream);
}

}  // namespace conv2d
