// What step 6.1 computes, in plain C++: a problem's sizes, the references in double, and what a
// float version may be off.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/rounding.h"
#include "stage2_matrix/03_gemm/reference.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage4_forward/01_dense/reference.h"

namespace conv2d {

using dense::Values;

// ---- Sizes ------------------------------------------------------------------------------------

// N images of C channels with H rows and W columns; K filters of C channels with R rows and S
// columns, moved by stride_h rows or stride_w columns, over images with pad_h rows and pad_w
// columns of zeros on each side.
struct Problem {
  size_t N, C, H, W, K, R, S;
  size_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
};

struct Extent {
  size_t height, width;
};

// P and Q. Throws std::invalid_argument where no window fits, or an image has too many elements.
inline Extent output_of(const Problem& p) {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument("conv2d: " + why); };
  const auto by = [](size_t a, size_t b) { return std::to_string(a) + "x" + std::to_string(b); };
  constexpr size_t kMost = size_t{1} << 30;  // place in an image, stride and all, is an int
  for (const size_t size : {p.C, p.H, p.W, p.K, p.R, p.S, p.stride_h, p.stride_w, p.pad_h, p.pad_w})
    if (size >= kMost) refuse("a size of " + std::to_string(size) + " is not below 2^30");
  if (p.R == 0 || p.S == 0) refuse("a filter of " + by(p.R, p.S) + " has no elements");
  if (p.stride_h == 0 || p.stride_w == 0) refuse("a stride of " + by(p.stride_h, p.stride_w));
  const size_t height = p.H + 2 * p.pad_h, width = p.W + 2 * p.pad_w;
  if (height < p.R || width < p.S)
    refuse("a filter of " + by(p.R, p.S) + " does not fit an image of " + by(p.H, p.W) +
           " with padding " + by(p.pad_h, p.pad_w));
  const Extent out{(height - p.R) / p.stride_h + 1, (width - p.S) / p.stride_w + 1};
  const auto is_large = [](size_t a, size_t b, size_t c) {
    return a != 0 && b != 0 && c != 0 && (a >= kMost / b || a * b >= kMost / c);
  };
  if (height >= kMost || width >= kMost || is_large(std::max(p.C, size_t{1}), p.H, p.W) ||
      is_large(std::max(p.K, size_t{1}), out.height, out.width) ||
      is_large(std::max(p.C, size_t{1}), p.R, p.S) || is_large(p.K, p.C * p.R, p.S))
    refuse("an image or the filters have 2^30 or more elements");
  return out;
}

inline size_t window_of(const Problem& p) { return p.C * p.R * p.S; }  // products of a sum
inline size_t size_of_x(const Problem& p) { return p.N * p.C * p.H * p.W; }
inline size_t size_of_w(const Problem& p) { return p.K * window_of(p); }
inline size_t size_of_y(const Problem& p) {
  const Extent out = output_of(p);
  return p.N * p.K * out.height * out.width;
}

// ---- References and bounds --------------------------------------------------------------------
// A plane is an array's part that its last two dimensions number; the references compute the ones
// that are asked for, one behind the other.

inline std::vector<size_t> all_planes(size_t planes) {
  std::vector<size_t> numbers(planes);
  for (size_t plane = 0; plane < planes; ++plane) numbers[plane] = plane;
  return numbers;
}

// Calls visit(p, q, r, s, h, w) for every element [h, w] of the image that some window [p, q]
// covers with its element [r, s]: all that a convolution and its gradients multiply.
template <class Visit>
void for_each_meeting(const Problem& problem, Visit&& visit) {
  const Extent out = output_of(problem);
  for (size_t p = 0; p < out.height; ++p)
    for (size_t r = 0; r < problem.R; ++r) {
      const size_t h = p * problem.stride_h + r - problem.pad_h;  // wraps around above the image
      if (h >= problem.H) continue;
      for (size_t q = 0; q < out.width; ++q)
        for (size_t s = 0; s < problem.S; ++s) {
          const size_t w = q * problem.stride_w + s - problem.pad_w;
          if (w < problem.W) visit(p, q, r, s, h, w);
        }
    }
}

// The planes [n, k] of f(x * w + bias), numbered n K + k; without a bias where it is empty. The
// bound is made as that of step 4.1: what comes in wrong by x.error comes out of the sum wrong by
// sum |w| x.error, the sum itself is off by rounding::worst_case, the bias rounds once more, and f
// passes that on and adds its own.
template <class Activation>
Values conv2d_cpu(const Values& x, const std::vector<float>& w, const std::vector<float>& bias,
                  const Problem& problem, const std::vector<size_t>& planes) {
  const Extent out = output_of(problem);
  const size_t pixels = out.height * out.width, area = problem.H * problem.W;
  const double products = static_cast<double>(window_of(problem));
  Values y;
  std::vector<double> sum(pixels), absolute(pixels), inherited(pixels);
  for (const size_t plane : planes) {
    const size_t n = plane / problem.K, k = plane % problem.K;
    for (std::vector<double>* values : {&sum, &absolute, &inherited}) values->assign(pixels, 0);
    for (size_t c = 0; c < problem.C; ++c) {
      const double* const value = x.value.data() + (n * problem.C + c) * area;
      const double* const error = x.error.data() + (n * problem.C + c) * area;
      const float* const filter = w.data() + (k * problem.C + c) * problem.R * problem.S;
      for_each_meeting(problem, [&](size_t p, size_t q, size_t r, size_t s, size_t h, size_t col) {
        const double weight = static_cast<double>(filter[r * problem.S + s]);
        const size_t to = p * out.width + q, from = h * problem.W + col;
        sum[to] += weight * value[from];
        absolute[to] += std::fabs(weight) * (std::fabs(value[from]) + error[from]);
        inherited[to] += std::fabs(weight) * error[from];
      });
    }
    for (size_t i = 0; i < pixels; ++i) {
      const double biased = sum[i] + (bias.empty() ? 0 : static_cast<double>(bias[k]));
      double off = inherited[i] + rounding::worst_case(products, products, absolute[i]);
      off += kFloatRoundoff * (std::fabs(biased) + off);
      y.value.push_back(Activation::cpu(biased));
      y.error.push_back(dense::kSteepest * off +
                        std::max(Activation::bound(biased - off), Activation::bound(biased + off)));
    }
  }
  return y;
}

// Sums of `products` products each, added to what was there before: bounded as step 2.3's are.
inline void append(Values& to, const gemm::Reference& sums, size_t products) {
  gemm::Product p;
  p.K = products;
  for (size_t i = 0; i < sums.c.size(); ++i) {
    to.value.push_back(sums.c[i] + sums.before[i]);
    to.error.push_back(gemm::bound(p, sums, i));
  }
}

inline gemm::Reference no_sums(size_t size) {
  return {std::vector<double>(size), std::vector<double>(size), std::vector<double>(size)};
}

inline void add_product(gemm::Reference& sums, size_t i, float a, float b) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  sums.c[i] += product, sums.absolute[i] += std::fabs(product);
}

// The planes [n, c] of the gradient of x, numbered n C + c.
inline Values grad_x_cpu(const std::vector<float>& grad_y, const std::vector<float>& w,
                         const Problem& problem, const std::vector<size_t>& planes) {
  const Extent out = output_of(problem);
  Values grad;
  for (const size_t plane : planes) {
    const size_t n = plane / problem.C, c = plane % problem.C;
    gemm::Reference sums = no_sums(problem.H * problem.W);
    for (size_t k = 0; k < problem.K; ++k) {
      const float* const from = grad_y.data() + (n * problem.K + k) * out.height * out.width;
      const float* const filter = w.data() + (k * problem.C + c) * problem.R * problem.S;
      for_each_meeting(problem, [&](size_t p, size_t q, size_t r, size_t s, size_t h, size_t col) {
        add_product(sums, h * problem.W + col, filter[r * problem.S + s], from[p * out.width + q]);
      });
    }
    append(grad, sums, problem.K * problem.R * problem.S);
  }
  return grad;
}

// The planes [k, c] of the gradient of w plus beta times what was there before, numbered k C + c.
inline Values grad_w_cpu(const std::vector<float>& grad_y, const std::vector<float>& x,
                         const Problem& problem, float beta, const std::vector<float>& before,
                         const std::vector<size_t>& planes) {
  const Extent out = output_of(problem);
  const size_t taps = problem.R * problem.S, pixels = out.height * out.width;
  Values grad;
  for (const size_t plane : planes) {
    const size_t k = plane / problem.C, c = plane % problem.C;
    gemm::Reference sums = no_sums(taps);
    for (size_t n = 0; n < problem.N; ++n) {
      const float* const of_y = grad_y.data() + (n * problem.K + k) * pixels;
      const float* const of_x = x.data() + (n * problem.C + c) * problem.H * problem.W;
      for_each_meeting(problem, [&](size_t p, size_t q, size_t r, size_t s, size_t h, size_t col) {
        add_product(sums, r * problem.S + s, of_y[p * out.width + q], of_x[h * problem.W + col]);
      });
    }
    for (size_t i = 0; beta != 0 && i < taps; ++i)
      sums.before[i] = static_cast<double>(beta) * static_cast<double>(before[plane * taps + i]);
    append(grad, sums, problem.N * pixels);
  }
  return grad;
}

inline Values grad_bias_cpu(const std::vector<float>& grad_y, const Problem& problem, float beta,
                            const std::vector<float>& before) {
  const Extent out = output_of(problem);
  const size_t pixels = out.height * out.width;
  gemm::Reference sums = no_sums(problem.K);
  for (size_t i = 0; i < grad_y.size(); ++i)
    add_product(sums, i / pixels % problem.K, grad_y[i], 1);
  for (size_t k = 0; beta != 0 && k < problem.K; ++k)
    sums.before[k] = static_cast<double>(beta) * static_cast<double>(before[k]);
  Values grad;
  append(grad, sums, problem.N * pixels);
  return grad;
}

// ---- What transformed tiles may be off --------------------------------------------------------

// Winograd's F(4x4, 3x3), as conv2d.h has it: an output is a sum of products of transformed numbers
// and transformed filters. Each of its terms goes through at most 3 roundings per row and as many
// per column of the numbers, 4 of the filter and 3 of the output, beside those of a sum over the
// channels (rounding::worst_case); added up, their absolute values are what the transforms make
// with the absolute values of A, B and G:
//
//   gamma(20 + channels) |A| (sum over c of (|G| |g| |G|^T) * (|B| |d| |B|^T)) |A|^T
//
// Adds that to the errors of the planes [n, map] of a convolution with windows of 3 x 3: number(n,
// c, row, col) is |d| where the first window begins at row 0 and column 0, and filter(map, c, i) is
// |g| of element i of 9. No activation makes more of it than kSteepest.
template <class Number, class Filter>
void add_winograd_error(Values& values, size_t channels, size_t maps, const Extent& out,
                        const std::vector<size_t>& planes, Number&& number, Filter&& filter) {
  constexpr size_t kIn = 6, kOut = 4;
  constexpr double kB[kIn][kIn] = {{4, 0, 5, 0, 1, 0}, {0, 4, 4, 1, 1, 0}, {0, 4, 4, 1, 1, 0},
                                   {0, 2, 1, 2, 1, 0}, {0, 2, 1, 2, 1, 0}, {0, 4, 0, 5, 0, 1}};
  constexpr double kG[kIn][3] = {{1 / 4.0, 0, 0},
                                 {1 / 6.0, 1 / 6.0, 1 / 6.0},
                                 {1 / 6.0, 1 / 6.0, 1 / 6.0},
                                 {1 / 24.0, 1 / 12.0, 1 / 6.0},
                                 {1 / 24.0, 1 / 12.0, 1 / 6.0},
                                 {0, 0, 1}};
  constexpr double kA[kOut][kIn] = {
      {1, 1, 1, 1, 1, 0}, {0, 1, 1, 2, 2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, 1, 8, 8, 1}};
  // to (side, side) = M from M^T, with M (side, inner).
  const auto both_sides = [](const auto& matrix, size_t side, size_t inner, const double* from,
                             double* to) {
    double half[kIn][kIn] = {};
    for (size_t i = 0; i < side; ++i)
      for (size_t j = 0; j < inner; ++j)
        for (size_t k = 0; k < inner; ++k) half[i][j] += matrix[i][k] * from[k * inner + j];
    for (size_t i = 0; i < side; ++i)
      for (size_t j = 0; j < side; ++j) {
        to[i * side + j] = 0;
        for (size_t k = 0; k < inner; ++k) to[i * side + j] += half[i][k] * matrix[j][k];
      }
  };
  std::vector<double> filters(channels * kIn * kIn);
  for (size_t plane = 0; plane < planes.size(); ++plane) {
    const size_t n = planes[plane] / maps, map = planes[plane] % maps;
    for (size_t c = 0; c < channels; ++c) {
      double g[9];
      for (size_t i = 0; i < 9; ++i) g[i] = filter(map, c, i);
      both_sides(kG, kIn, 3, g, filters.data() + c * kIn * kIn);
    }
    for (size_t row = 0; row < out.height; row += kOut)
      for (size_t col = 0; col < out.width; col += kOut) {
        double sums[kIn * kIn] = {}, outputs[kOut * kOut];
        for (size_t c = 0; c < channels; ++c) {
          double d[kIn * kIn], transformed[kIn * kIn];
          for (size_t i = 0; i < kIn * kIn; ++i) d[i] = number(n, c, row + i / kIn, col + i % kIn);
          both_sides(kB, kIn, kIn, d, transformed);
          for (size_t i = 0; i < kIn * kIn; ++i)
            sums[i] += transformed[i] * filters[c * kIn * kIn + i];
        }
        both_sides(kA, kOut, kIn, sums, outputs);
        for (size_t i = 0; i < kOut * kOut; ++i) {
          const size_t r = row + i / kOut, s = col + i % kOut;
          if (r < out.height && s < out.width)
            values.error[(plane * out.height + r) * out.width + s] +=
                dense::kSteepest * rounding::worst_case(20 + static_cast<double>(channels),
                                                        std::numeric_limits<double>::infinity(),
                                                        outputs[i]);
        }
      }
  }
}

// Of planes of y: those that conv2d_cpu was asked for.
inline void add_winograd_error_of_y(Values& y, const std::vector<float>& x,
                                    const std::vector<float>& w, const Problem& p,
                                    const std::vector<size_t>& planes) {
  add_winograd_error(
      y, p.C, p.K, output_of(p), planes,
      [&](size_t n, size_t c, size_t row, size_t col) {
        const size_t h = row - p.pad_h, v = col - p.pad_w;  // wrap around above and left of x
        return h < p.H && v < p.W
                   ? std::fabs(static_cast<double>(x[((n * p.C + c) * p.H + h) * p.W + v]))
                   : 0.0;
      },
      [&](size_t k, size_t c, size_t i) {
        return std::fabs(static_cast<double>(w[(k * p.C + c) * 9 + i]));
      });
}

// Of planes of grad_x: a convolution of grad_y with filters that are turned by half a turn.
inline void add_winograd_error_of_x(Values& grad_x, const std::vector<float>& grad_y,
                                    const std::vector<float>& w, const Problem& p,
                                    const std::vector<size_t>& planes) {
  const Extent out = output_of(p);
  add_winograd_error(
      grad_x, p.K, p.C, {p.H, p.W}, planes,
      [&](size_t n, size_t k, size_t row, size_t col) {
        const size_t i = row + p.pad_h - 2, j = col + p.pad_w - 2;
        return i < out.height && j < out.width
                   ? std::fabs(static_cast<double>(
                         grad_y[((n * p.K + k) * out.height + i) * out.width + j]))
                   : 0.0;
      },
      [&](size_t c, size_t k, size_t i) {
        return std::fabs(static_cast<double>(w[(k * p.C + c) * 9 + 8 - i]));
      });
}

}  // namespace conv2d
