#include "stage6_cnn/03_maxpool/problem.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace maxpool {

// The first window reaches into the image, since the padding is smaller than it, and the last one,
// which begins before H + pad_h - R + 1, begins in it.
Extent output_of(const Problem& p) {
  constexpr size_t kMost = size_t{1} << 30;  // the kernels count rows and columns in 32 bits
  const auto refuse = [](const std::string& what) {
    throw std::invalid_argument("maxpool: " + what);
  };
  const auto pair = [](size_t a, size_t b) { return std::to_string(a) + "x" + std::to_string(b); };
  if (p.R == 0 || p.S == 0) refuse("a window of " + pair(p.R, p.S) + " has no cell");
  if (p.R > 65536 || p.S > 65536 || p.R * p.S > 65536)
    refuse("a window of " + pair(p.R, p.S) + " has more than the 65536 cells that 16 bits number");
  if (p.stride_h == 0 || p.stride_w == 0)
    refuse("a stride of " + pair(p.stride_h, p.stride_w) + " never moves on");
  if (p.pad_h >= p.R || p.pad_w >= p.S)
    refuse("with a padding of " + pair(p.pad_h, p.pad_w) + " some windows of " + pair(p.R, p.S) +
           " could have no cell");
  if (p.H == 0 || p.W == 0) refuse("an image of " + pair(p.H, p.W) + " has no cell");
  if (std::max({p.H, p.W, p.stride_h, p.stride_w}) > kMost)
    refuse("rows, columns and strides are at most 2^30");
  if (p.H + 2 * p.pad_h < p.R || p.W + 2 * p.pad_w < p.S)
    refuse("a window of " + pair(p.R, p.S) + " does not fit an image of " + pair(p.H, p.W) +
           " with a padding of " + pair(p.pad_h, p.pad_w));
  return {(p.H + 2 * p.pad_h - p.R) / p.stride_h + 1, (p.W + 2 * p.pad_w - p.S) / p.stride_w + 1};
}

std::vector<Size> sizes() {
  return {{"images", 256, 8, 2},
          {"channels", 64, 16, 3},
          {"height", 112, 56, 21},
          {"width", 112, 56, 30}};
}

std::vector<Problem> printed(const std::vector<size_t>& sizes) {
  std::vector<Problem> problems;
  for (const size_t size : {2, 3})
    problems.push_back(
        {sizes[0], sizes[1], sizes[2], sizes[3], size, size, 2, 2, size - 2, size - 2});
  for (const Problem& p : problems) output_of(p);
  return problems;
}

std::string name(const Problem& p, const char* pass) {
  const auto joined = [](std::initializer_list<size_t> numbers) {
    std::string text;
    for (const size_t n : numbers) text += (text.empty() ? "" : "x") + std::to_string(n);
    return text;
  };
  return joined({p.R, p.S}) + " every " + std::to_string(p.stride_h) + ", padding " +
         std::to_string(p.pad_h) + ", " + pass + "   " + joined({p.N, p.C, p.H, p.W}) + " float32";
}

bool is_row_pairs(const Problem& p) {
  return p.R == 2 && p.S == 2 && p.stride_h == 2 && p.stride_w == 2 && p.pad_h == 0 && p.pad_w == 0;
}

Planes choose_planes(const Problem& p, std::uint64_t seed) {
  constexpr size_t kWhole = size_t{1} << 22;  // cells up to which all planes are compared
  constexpr size_t kPlanes = 64;              // of a larger problem
  const size_t planes = p.N * p.C, cells = p.H * p.W;
  Planes chosen;
  chosen.of_x = choose_rows(planes, cells, planes * cells <= kWhole ? planes + 2 : kPlanes, seed);
  std::string& text = chosen.of_x.text;
  if (!text.empty()) text.replace(text.size() - 4, 4, "planes");  // choose_rows says "rows"
  chosen.of_y = chosen.of_x;
  const Extent out = output_of(p);
  chosen.of_y.cols = out.height * out.width;
  chosen.sampled = p;
  chosen.sampled.N = 1, chosen.sampled.C = chosen.of_x.rows.size();
  return chosen;
}

void forward(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t stream) {
  launch_vectorized(y, argmax, x, p, stream);
}

void backward(float* grad_x, const float* grad_y, const Index* argmax, const Problem& p,
              hipStream_t stream) {
  launch_gather_vectorized(grad_x, {grad_y}, argmax, p, stream);
}

void backward_through_relu(float* grad_x, const float* grad_y, const float* y, const Index* argmax,
                           const Problem& p, hipStream_t stream) {
  launch_gather_vectorized(grad_x, {grad_y, y}, argmax, p, stream);
}

}  // namespace maxpool
