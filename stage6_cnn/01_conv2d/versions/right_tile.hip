// right_tile: the tile that suits the shape.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/detail/window_sums.h"
#include "stage6_cnn/01_conv2d/problem.h"

namespace conv2d {

template <class Tile, class Epilogue>
constexpr WindowTile<Epilogue> window_tile(double speed) {
  return {Tile::kMaps, Tile::kPixels, speed, launch_known<Tile, Epilogue>};
}

template <class Epilogue>
constexpr WindowTile<Epilogue> kWindowTiles[] = {
#if defined(GPU_BACKEND_CPU)
    window_tile<Large, Epilogue>(1.0),
    window_tile<SumTile<8, 128, 8, 16, 1>, Epilogue>(0.9),
#else
    window_tile<Large, Epilogue>(1.0),
    window_tile<SumTile<32, 128, 4, 8, 4>, Epilogue>(0.75),
    window_tile<SumTile<16, 128, 4, 4, 6>, Epilogue>(0.45),
    window_tile<SumTile<8, 128, 4, 4, 8>, Epilogue>(0.25),
#endif
};

template <class Epilogue>
std::vector<WindowTile<Epilogue>> window_tiles() {
  return {std::begin(kWindowTiles<Epilogue>), std::end(kWindowTiles<Epilogue>)};
}

// Fixes : known_window's tile has 64 maps. A layer with 16 filters multiplies 48 rows of zeros, and
//         a small one has fewer tiles than there are multiprocessors.
// Idea  : lower tiles to choose from. The best one is that with which the multiprocessor that has
//         the most tiles is done first.
template <class Epilogue>
void launch_right_tile(const Windows& p, size_t images, const Epilogue& epilogue,
                       hipStream_t stream) {
  const double multiprocessors = gpu::multiprocessors();
  const double pixels =
      static_cast<double>(images) * static_cast<double>(p.rows) * static_cast<double>(p.cols);
  const auto cost = [&](const WindowTile<Epilogue>& c) {
    const double tiles = static_cast<double>(gpu::ceil_div(p.maps, c.maps)) *
                         std::ceil(pixels / static_cast<double>(c.pixels));
    return std::ceil(tiles / multiprocessors) * static_cast<double>(c.maps * c.pixels) / c.speed;
  };
  const auto* const best =
      std::min_element(std::begin(kWindowTiles<Epilogue>), std::end(kWindowTiles<Epilogue>),
                       [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
  best->launch(p, images, epilogue, stream);
}

template <class Activation>
void launch_right_tile(float* y, const float* x, const float* w, const float* bias,
                       const Problem& problem, Workspace&, hipStream_t stream) {
  check_forward(y, x, w, problem);
  launch_right_tile(windows_of(y, x, w, problem), problem.N, BiasActivation<Activation>{bias},
                    stream);
}

template std::vector<WindowTile<BiasLinear>> window_tiles();
template std::vector<WindowTile<BiasRelu>> window_tiles();
template void launch_right_tile(const Windows&, size_t, const BiasLinear&, hipStream_t);
template void launch_right_tile(const Windows&, size_t, const BiasRelu&, hipStream_t);
template void launch_right_tile<dense::Linear>(float*, const float*, const float*, const float*,
                                               const Problem&, Workspace&, hipStream_t);
template void launch_right_tile<activations::Relu>(float*, const float*, const float*, const float*,
                                                   const Problem&, Workspace&, hipStream_t);

}  // namespace conv2d
