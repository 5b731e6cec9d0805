#include "stage6_cnn/01_conv2d/reference.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "common/rounding.h"
#include "stage6_cnn/01_conv2d/winograd_sizes.h"

namespace conv2d {

std::vector<size_t> all_planes(size_t planes) {
  std::vector<size_t> numbers(planes);
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  return numbers;
}

Values sums_cpu(const std::vector<float>& x, const std::vector<float>& w,
                const std::vector<float>& bias, const Problem& problem,
                const std::vector<size_t>& planes, Terms terms) {
  const Extent out = output_of(problem);
  const size_t pixels = out.height * out.width, area = problem.H * problem.W;
  const double products = static_cast<double>(window_of(problem));
  Values y;
  for (const size_t plane : planes) {
    const size_t n = plane / problem.K, k = plane % problem.K;
    rounding::Sums sums(pixels);
    for (size_t c = 0; c < problem.C; ++c) {
      const float* const image = x.data() + (n * problem.C + c) * area;
      const float* const filter = w.data() + (k * problem.C + c) * problem.R * problem.S;
      for_each_meeting(problem, [&](size_t p, size_t q, size_t r, size_t s, size_t h, size_t col) {
        sums.add(p * out.width + q, static_cast<double>(filter[r * problem.S + s]) *
                                        static_cast<double>(image[h * problem.W + col]));
      });
    }
    const double b = bias.empty() ? 0 : static_cast<double>(bias[k]);
    for (size_t i = 0; i < pixels; ++i) {
      rounding::Sum sum = sums[i];
      if (terms == Terms::mean_zero) {
        sum.add(b);
        y.value.push_back(sum.value);
        y.error.push_back(sum.mean_zero_bound(products + 2));  // products, additions, the bias
      } else {
        const double off = sum.worst_case(products, products);
        y.value.push_back(sum.value + b);  // one more rounding
        y.error.push_back(off + kFloatRoundoff * (std::fabs(y.value.back()) + off));
      }
    }
  }
  return y;
}

// ---- What transformed tiles may be off --------------------------------------------------------

namespace {

// |B|, |G| and |A|, or their squares.
struct Transforms {
  explicit Transforms(bool squared) {
    if (!squared) return;
    const auto square = [](auto& matrix) {
      for (auto& row : matrix)
        for (double& element : row) element *= element;
    };
    square(b), square(g), square(a);
  }
  double b[kSideIn][kSideIn] = {{4, 0, 5, 0, 1, 0}, {0, 4, 4, 1, 1, 0}, {0, 4, 4, 1, 1, 0},
                                {0, 2, 1, 2, 1, 0}, {0, 2, 1, 2, 1, 0}, {0, 4, 0, 5, 0, 1}};
  double g[kSideIn][3] = {{1 / 4.0, 0, 0},
                          {1 / 6.0, 1 / 6.0, 1 / 6.0},
                          {1 / 6.0, 1 / 6.0, 1 / 6.0},
                          {1 / 24.0, 1 / 12.0, 1 / 6.0},
                          {1 / 24.0, 1 / 12.0, 1 / 6.0},
                          {0, 0, 1}};
  double a[kSideOut][kSideIn] = {
      {1, 1, 1, 1, 1, 0}, {0, 1, 1, 2, 2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, 1, 8, 8, 1}};
};

// to (side, side) = M from M^T, with M (side, inner) and from (inner, inner).
template <int kSide, int kInner>
void both_sides(const double (&matrix)[kSide][kInner], const double* from, double* to) {
  double half[kSide][kInner] = {};
  for (int i = 0; i < kSide; ++i)
    for (int j = 0; j < kInner; ++j)
      for (int k = 0; k < kInner; ++k) half[i][j] += matrix[i][k] * from[k * kInner + j];
  for (int i = 0; i < kSide; ++i)
    for (int j = 0; j < kSide; ++j) {
      to[i * kSide + j] = 0;
      for (int k = 0; k < kInner; ++k) to[i * kSide + j] += half[i][k] * matrix[j][k];
    }
}

}  // namespace

void add_winograd_error(Values& values, size_t channels, size_t maps, const Extent& out,
                        const std::vector<size_t>& planes, const Number& number,
                        const FilterElement& filter, Terms terms) {
  const bool squared = terms == Terms::mean_zero;
  const Transforms of(squared);
  const auto size = [&](double v) { return squared ? v * v : std::fabs(v); };
  const double depth = 20 + static_cast<double>(channels);
  const auto error = [&](double sum) {
    if (squared) return rounding::random_bound(depth, std::sqrt(sum));
    return rounding::worst_case(depth, std::numeric_limits<double>::infinity(), sum);
  };
  std::vector<double> filters(channels * kPlaces);
  for (size_t plane = 0; plane < planes.size(); ++plane) {
    const size_t n = planes[plane] / maps, map = planes[plane] % maps;
    for (size_t c = 0; c < channels; ++c) {
      double g[9];
      for (size_t i = 0; i < 9; ++i) g[i] = size(filter(map, c, i));
      both_sides(of.g, g, filters.data() + c * kPlaces);
    }
    for (size_t row = 0; row < out.height; row += kSideOut)
      for (size_t col = 0; col < out.width; col += kSideOut) {
        double sums[kPlaces] = {}, outputs[kSideOut * kSideOut];
        for (size_t c = 0; c < channels; ++c) {
          double d[kPlaces], transformed[kPlaces];
          for (size_t i = 0; i < kPlaces; ++i)
            d[i] = size(number(n, c, row + i / kSideIn, col + i % kSideIn));
          both_sides(of.b, d, transformed);
          for (size_t i = 0; i < kPlaces; ++i) sums[i] += transformed[i] * filters[c * kPlaces + i];
        }
        both_sides(of.a, sums, outputs);
        for (size_t i = 0; i < kSideOut * kSideOut; ++i) {
          const size_t r = row + i / kSideOut, s = col + i % kSideOut;
          if (r < out.height && s < out.width)
            values.error[(plane * out.height + r) * out.width + s] +=
                dense::kSteepest * error(outputs[i]);
        }
      }
  }
}

void add_winograd_error_of_y(Values& y, const std::vector<float>& x, const std::vector<float>& w,
                             const Problem& p, const std::vector<size_t>& planes, Terms terms) {
  add_winograd_error(
      y, p.C, p.K, output_of(p), planes,
      [&](size_t n, size_t c, size_t row, size_t col) {
        const size_t h = row - p.pad_h, v = col - p.pad_w;  // wrap around above and left of x
        return h < p.H && v < p.W ? static_cast<double>(x[((n * p.C + c) * p.H + h) * p.W + v])
                                  : 0.0;
      },
      [&](size_t k, size_t c, size_t i) { return static_cast<double>(w[(k * p.C + c) * 9 + i]); },
      terms);
}

}  // namespace conv2d
