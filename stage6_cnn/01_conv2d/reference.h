// The reference of 6.1 in double, and how far a correct float result may be from it. Plain C++.
//
// A plane is what the last two dimensions of an array number. The references compute the planes
// that they are asked for, one behind the other.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "stage4_forward/01_dense/reference.h"
#include "stage6_cnn/01_conv2d/conv2d.h"

namespace conv2d {

using dense::Terms;
using dense::Values;

// The numbers 0 ... planes - 1.
std::vector<size_t> all_planes(size_t planes);

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

// The planes [n, k] of x * w + bias, numbered n K + k; without a bias where it is empty. `terms`
// decides the bound, as in step 4.1: rounding::worst_case, or rounding::mean_zero_bound where the
// signs of x or of w are random.
Values sums_cpu(const std::vector<float>& x, const std::vector<float>& w,
                const std::vector<float>& bias, const Problem& problem,
                const std::vector<size_t>& planes, Terms terms = Terms::any);

// The planes of f(x * w + bias).
template <class Activation>
Values conv2d_cpu(const std::vector<float>& x, const std::vector<float>& w,
                  const std::vector<float>& bias, const Problem& problem,
                  const std::vector<size_t>& planes, Terms terms = Terms::any) {
  return dense::activated_cpu<Activation>(sums_cpu(x, w, bias, problem, planes, terms));
}

// ---- What transformed tiles may be off --------------------------------------------------------

// What a version that computes as `winograd` does may be off beyond that, added to the errors of
// the planes [n, map] of a convolution with windows of 3 x 3. Each term of an output goes through
// at most 3 roundings per row and as many per column of the numbers, 4 of the filter and 3 of the
// output, and those of the sum over the channels. Added up, the terms' absolute values are what the
// transforms make with the absolute values of A, B and G (detail/winograd_transforms.h):
//
//   any        gamma(20 + channels) |A| (sum over c of (|G| |g| |G|^T) * (|B| |d| |B|^T)) |A|^T
//   mean_zero  8 sqrt(20 + channels) u times the root of the same with every number squared
//
// number(n, c, row, col) is d where the first window begins at row 0 and column 0, 0 outside, and
// filter(map, c, i) is element i of 9 of g. No activation makes more of an error than
// dense::kSteepest.
using Number = std::function<double(size_t n, size_t c, size_t row, size_t col)>;
using FilterElement = std::function<double(size_t map, size_t c, size_t i)>;
void add_winograd_error(Values& values, size_t channels, size_t maps, const Extent& out,
                        const std::vector<size_t>& planes, const Number& number,
                        const FilterElement& filter, Terms terms);

// The same for planes of y: those that conv2d_cpu was asked for.
void add_winograd_error_of_y(Values& y, const std::vector<float>& x, const std::vector<float>& w,
                             const Problem& p, const std::vector<size_t>& planes,
                             Terms terms = Terms::any);

}  // namespace conv2d
