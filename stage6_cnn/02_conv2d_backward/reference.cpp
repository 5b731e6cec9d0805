#include "stage6_cnn/02_conv2d_backward/reference.h"

#include <cmath>

#include "stage2_matrix/03_gemm/reference.h"

namespace conv2d_backward {
namespace {

gemm::Reference no_sums(size_t size) {
  const std::vector<double> zeros(size);
  return {zeros, zeros, zeros, zeros};
}

void add_product(gemm::Reference& sums, size_t i, float a, float b) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  sums.c[i] += product, sums.absolute[i] += std::fabs(product);
  sums.squares[i] += product * product;
}

// Sums of `products` products each, added to what was there before.
void append(Values& to, gemm::Reference& sums, size_t products, Terms terms) {
  gemm::Product p;
  p.K = products;
  for (size_t i = 0; i < sums.c.size(); ++i) {
    sums.c[i] += sums.before[i];
    to.value.push_back(sums.c[i]);
    to.error.push_back(terms == Terms::mean_zero ? gemm::bound_of_mean_zero(p, sums, i)
                                                 : gemm::bound(p, sums, i));
  }
}

}  // namespace

Values grad_x_cpu(const std::vector<float>& grad_y, const std::vector<float>& w,
                  const Problem& problem, const std::vector<size_t>& planes, Terms terms) {
  const conv2d::Extent out = output_of(problem);
  Values grad;
  for (const size_t plane : planes) {
    const size_t n = plane / problem.C, c = plane % problem.C;
    gemm::Reference sums = no_sums(problem.H * problem.W);
    for (size_t k = 0; k < problem.K; ++k) {
      const float* const from = grad_y.data() + (n * problem.K + k) * out.height * out.width;
      const float* const filter = w.data() + (k * problem.C + c) * problem.R * problem.S;
      conv2d::for_each_meeting(problem, [&](size_t p, size_t q, size_t r, size_t s, size_t h,
                                            size_t col) {
        add_product(sums, h * problem.W + col, filter[r * problem.S + s], from[p * out.width + q]);
      });
    }
    append(grad, sums, problem.K * problem.R * problem.S, terms);
  }
  return grad;
}

Values grad_w_cpu(const std::vector<float>& grad_y, const std::vector<float>& x,
                  const Problem& problem, float beta, const std::vector<float>& before,
                  const std::vector<size_t>& planes, Terms terms) {
  const conv2d::Extent out = output_of(problem);
  const size_t taps = problem.R * problem.S, pixels = out.height * out.width;
  Values grad;
  for (const size_t plane : planes) {
    const size_t k = plane / problem.C, c = plane % problem.C;
    gemm::Reference sums = no_sums(taps);
    for (size_t n = 0; n < problem.N; ++n) {
      const float* const of_y = grad_y.data() + (n * problem.K + k) * pixels;
      const float* const of_x = x.data() + (n * problem.C + c) * problem.H * problem.W;
      conv2d::for_each_meeting(problem, [&](size_t p, size_t q, size_t r, size_t s, size_t h,
                                            size_t col) {
        add_product(sums, r * problem.S + s, of_y[p * out.width + q], of_x[h * problem.W + col]);
      });
    }
    for (size_t i = 0; beta != 0 && i < taps; ++i)
      sums.before[i] = static_cast<double>(beta) * static_cast<double>(before[plane * taps + i]);
    append(grad, sums, problem.N * pixels, terms);
  }
  return grad;
}

Values grad_bias_cpu(const std::vector<float>& grad_y, const Problem& problem, float beta,
                     const std::vector<float>& before, Terms terms) {
  const conv2d::Extent out = output_of(problem);
  const size_t pixels = out.height * out.width;
  gemm::Reference sums = no_sums(problem.K);
  for (size_t i = 0; i < grad_y.size(); ++i)
    add_product(sums, i / pixels % problem.K, grad_y[i], 1);
  for (size_t k = 0; beta != 0 && k < problem.K; ++k)
    sums.before[k] = static_cast<double>(beta) * static_cast<double>(before[k]);
  Values grad;
  append(grad, sums, problem.N * pixels, terms);
  return grad;
}

// grad_x is a convolution of grad_y with filters that are turned by 180 degrees.
void add_winograd_error_of_x(Values& grad_x, const std::vector<float>& grad_y,
                             const std::vector<float>& w, const Problem& p,
                             const std::vector<size_t>& planes, Terms terms) {
  const conv2d::Extent out = output_of(p);
  conv2d::add_winograd_error(
      grad_x, p.K, p.C, {p.H, p.W}, planes,
      [&](size_t n, size_t k, size_t row, size_t col) {
        const size_t i = row + p.pad_h - 2, j = col + p.pad_w - 2;  // wrap around above and left
        return i < out.height && j < out.width
                   ? static_cast<double>(grad_y[((n * p.K + k) * out.height + i) * out.width + j])
                   : 0.0;
      },
      [&](size_t c, size_t k, size_t i) {
        return static_cast<double>(w[(k * p.C + c) * 9 + 8 - i]);
      },
      terms);
}

}  // namespace conv2d_backward
