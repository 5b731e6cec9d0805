// best(): the product with the tile that suits its shape, and with any epilogue.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/few_results.h"
#include "stage2_matrix/03_gemm/detail/product.h"
#include "stage2_matrix/03_gemm/detail/product_loop.h"
#include "stage2_matrix/03_gemm/detail/row_sums.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// Large tiles need the fewest loads per product. Smaller matrices get smaller tiles, so that every
// multiprocessor has some, and slices of K, so that each tile has threads enough. Short sums are
// done in a few steps of 32, where the slices of a block would get next to nothing each.
using Large = Shape<128, 128, 8, 8, 8, 2>;
using Medium = Shape<64, 64, 8, 8, 8, 2, 4>;
using Half = Shape<64, 32, 8, 8, 4, 2, 4>;
using Small = Shape<32, 32, 32, 4, 4, 2, 2>;
using Short = Shape<32, 64, 32, 4, 4, 2>;
inline constexpr size_t kShortDepth = 192;  // up to this K

// A tile to choose. `speed` is how fast a multiprocessor gets through many of them, relative to the
// first candidate. It is for sums of up to `most_k` terms.
template <class Epilogue>
struct Candidate {
  size_t tile_m, tile_n;
  double speed;
  size_t most_k;
  void (*launch)(const Product& product, const Epilogue& epilogue, hipStream_t stream);
};
template <class Shape, class Layouts, class Epilogue>
constexpr Candidate<Epilogue> candidate(double speed, size_t most_k = ~size_t{0}) {
#if defined(GPU_BACKEND_CPU)
  constexpr auto launch = launch_single_buffered<Shape, Layouts, Epilogue>;
#else
  constexpr auto launch = launch_product<Shape, Layouts, Epilogue>;
#endif
  return {Shape::kTileM, Shape::kTileN, speed, most_k, launch};
}

template <class Layouts, class Epilogue>
inline constexpr Candidate<Epilogue> kCandidates[] = {
#if defined(GPU_BACKEND_CPU)
    candidate<Shape<64, 128, 32, 16, 16>, Layouts, Epilogue>(1.0),
    candidate<Shape<32, 64, 32, 8, 16>, Layouts, Epilogue>(0.35),
    candidate<Shape<32, 32, 32, 8, 8>, Layouts, Epilogue>(0.2),
#else
    candidate<Large, Layouts, Epilogue>(1.0),
    candidate<Medium, Layouts, Epilogue>(0.8),
    candidate<Half, Layouts, Epilogue>(0.55),
    candidate<Small, Layouts, Epilogue>(0.4),
    candidate<Short, Layouts, Epilogue>(0.85, kShortDepth),
#endif
};

// The candidate with which the multiprocessor that has the most tiles is done first.
template <class Layouts, class Epilogue>
inline const Candidate<Epilogue>& choose(const Product& p) {
  const unsigned multiprocessors = gpu::multiprocessors();
  const auto cost = [&](const Candidate<Epilogue>& c) {
    if (p.K > c.most_k) return std::numeric_limits<double>::infinity();
    const double tiles = static_cast<double>(gpu::ceil_div(p.M, c.tile_m)) *
                         static_cast<double>(gpu::ceil_div(p.N, c.tile_n)) *
                         static_cast<double>(p.batch);
    return std::ceil(tiles / multiprocessors) * static_cast<double>(c.tile_m * c.tile_n) / c.speed;
  };
  return *std::min_element(std::begin(kCandidates<Layouts, Epilogue>),
                           std::end(kCandidates<Layouts, Epilogue>),
                           [&](const auto& x, const auto& y) { return cost(x) < cost(y); });
}

// C[row, col] = epilogue(sum over k of op(A)[row, k] op(B)[k, col], row, col, C + ...). Only the
// epilogue reads alpha and beta, but p.alpha = 0 makes every sum 0 and does not read A and B.
// best<Layouts<Layout::NT>>(p, epilogue) compiles the tiles of that layout only, and refuses
// others.
template <class Layouts = AllLayouts, class Epilogue>
void best(const Product& p, const Epilogue& epilogue, hipStream_t stream = nullptr) {
  check_layout(p, Layouts{});
#if !defined(GPU_BACKEND_CPU)  // there no thread waits for memory, and a shuffle takes long
  if constexpr (!kTakesRowSums<Epilogue>) {  // which are a by-product of tiles
    if (has_few_short_sums(p)) return launch_short_sums(p, epilogue, stream);
    if (has_few_long_sums(p)) return launch_long_sums(p, epilogue, stream);
  }
#endif
  choose<Layouts, Epilogue>(p).launch(p, epilogue, stream);
}

// Compiled once, in versions/best.hip: what best() has without an epilogue.
extern template void best<AllLayouts>(const Product&, const AlphaBeta&, hipStream_t);
extern template void launch_product<Large, AllLayouts>(const Product&, const AlphaBeta&,
                                                       hipStream_t);
extern template void launch_product<Medium, AllLayouts>(const Product&, const AlphaBeta&,
                                                        hipStream_t);
extern template void launch_product<Half, AllLayouts>(const Product&, const AlphaBeta&,
                                                      hipStream_t);
extern template void launch_product<Small, AllLayouts>(const Product&, const AlphaBeta&,
                                                       hipStream_t);
extern template void launch_product<Short, AllLayouts>(const Product&, const AlphaBeta&,
                                                       hipStream_t);

}  // namespace gemm
