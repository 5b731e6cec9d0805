// The gradients of the filters and of the bias: a matrix product in slices of the pixels, and the
// sum of the slices.
#include <algorithm>
#include <stdexcept>

#include "stage5_training/01_dense_backward/slices.h"
#include "stage6_cnn/02_conv2d_backward/detail/filter_sums.h"
#include "stage6_cnn/02_conv2d_backward/problem.h"

namespace conv2d_backward {

const FilterTile& choose_tile(size_t filters, size_t elements) {
  const auto cost = [&](const FilterTile& c) {
    return static_cast<double>(gpu::ceil_div(filters, c.filters) * c.filters) *
           static_cast<double>(gpu::ceil_div(elements, c.elements) * c.elements) / c.speed;
  };
  return *std::min_element(filter_tiles().begin(), filter_tiles().end(),
                           [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
}

size_t count_slices(const Problem& p, unsigned multiprocessors) {
  constexpr size_t kLeastTiles = 4;  // of a slice: fewer do not pay for storing its sums
  const conv2d::Extent out = output_of(p);
  const size_t elements = window_of(p), pixels = p.N * out.height * out.width;
  if (p.K == 0 || elements == 0) return 1;
  const FilterTile& c = choose_tile(p.K, elements);
  const size_t tiles = gpu::ceil_div(p.K, c.filters) * gpu::ceil_div(elements, c.elements);
  const size_t wanted = size_t{multiprocessors} * static_cast<size_t>(c.resident) / tiles;
  const size_t most = pixels / (kLeastTiles * static_cast<size_t>(c.pixels));
  return std::clamp(std::min(wanted, most), size_t{1}, gpu::kMaxGridY);
}

void launch_grad_w(const Gradients& to, const float* grad_y, const float* x, const Problem& problem,
                   float beta, Workspace& workspace, size_t most_slices, hipStream_t stream,
                   size_t most) {
  const size_t weights = size_of_w(problem), stride = weights + problem.K;
  if (to.w == nullptr || weights == 0) {
    if (to.bias != nullptr) launch_grad_bias(to.bias, grad_y, problem, beta, stream);
    return;
  }
  if (workspace.slices.size() < stride)
    throw std::invalid_argument("conv2d_backward: the workspace was made for another problem");
  const FilterTile& tile = choose_tile(problem.K, window_of(problem));
  FilterSums p{};
  p.g = conv2d::geometry_of(problem), p.with_bias = to.bias != nullptr;
  p.by_pixels = conv2d::Divisor(p.g.pixels()), p.by_cols = conv2d::Divisor(p.g.Q);
  p.sums.M = problem.K, p.sums.N = window_of(problem);
  p.sums.c = workspace.slices.data(), p.sums.ldc = p.sums.N, p.sums.stride_c = stride;
  const size_t at_a_time = conv2d::images_of_launch(static_cast<size_t>(p.g.pixels()), most);
  size_t n = 0;
  do {  // once even without images: there is beta
    Problem part = problem;
    part.N = std::min(at_a_time, problem.N - n);
    p.grad_y = grad_y + n * p.g.image_of_y(), p.x = x + n * p.g.image_of_x();
    p.pixels = static_cast<int>(part.N) * p.g.pixels();
    const size_t room = workspace.slices.size() / stride;
    const size_t slices = std::min({count_slices(part), room, most_slices});
    const size_t tiles = gpu::ceil_div(static_cast<size_t>(p.pixels), tile.pixels);
    p.share = static_cast<int>(gpu::ceil_div(tiles, slices)) * tile.pixels;
    tile.launch(p, slices, stream);
    const size_t columns = weights + (p.with_bias ? problem.K : 0);
    dense_backward::launch_add_slices<dense_backward::kSumGroups>(
        to.w, to.bias, workspace.slices.data(), stride, slices, weights, columns, beta, stream);
    beta = 1;
    n += part.N;
  } while (n < problem.N);
}

}  // namespace conv2d_backward
