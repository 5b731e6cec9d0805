// The references of the gradients against finite differences, and whether their bounds are sharp.
#include "stage6_cnn/02_conv2d_backward/reference.h"

#include <cmath>
#include <vector>

#include "stage6_cnn/01_conv2d/layer_for_tests.h"
#include "stage6_cnn/01_conv2d/problem.h"

using namespace conv2d_backward;
using conv2d::all_planes;
using testing::random_floats;

// The loss is the sum of grad_y * y, so that its gradient by y is grad_y. It is a polynomial of
// degree 1 in each parameter: the central difference (L(p + e) - L(p - e)) / 2e has no error but
// that of rounding in double, for any e.
TEST_CASE("the gradients agree with finite differences in double", "[harness]") {
  const Problem p{2, 2, 5, 4, 3, 3, 2, 2, 1, 1, 1};
  const conv2d::Extent out = output_of(p);
  const std::vector<float> float_x = random_floats(size_of_x(p), 0);
  const std::vector<float> float_w = random_floats(size_of_w(p), 1);
  const std::vector<float> grad_y = random_floats(size_of_y(p), 3);
  std::vector<double> x(float_x.begin(), float_x.end()), w(float_w.begin(), float_w.end());
  std::vector<double> bias(p.K, 0.25);
  // The formula at the top of conv2d.h, as it is written there.
  const auto loss = [&] {
    double sum = 0;
    size_t i = 0;
    for (size_t n = 0; n < p.N; ++n)
      for (size_t k = 0; k < p.K; ++k)
        for (size_t row = 0; row < out.height; ++row)
          for (size_t col = 0; col < out.width; ++col, ++i) {
            double y = bias[k];
            for (size_t c = 0; c < p.C; ++c)
              for (size_t r = 0; r < p.R; ++r)
                for (size_t s = 0; s < p.S; ++s) {
                  const long h = static_cast<long>(row * p.stride_h + r) - long(p.pad_h);
                  const long v = static_cast<long>(col * p.stride_w + s) - long(p.pad_w);
                  if (h < 0 || v < 0 || h >= long(p.H) || v >= long(p.W)) continue;
                  y += w[((k * p.C + c) * p.R + r) * p.S + s] *
                       x[((n * p.C + c) * p.H + size_t(h)) * p.W + size_t(v)];
                }
            sum += static_cast<double>(grad_y[i]) * y;
          }
    return sum;
  };
  const auto require_near = [&](std::vector<double>& parameters, const Values& gradient) {
    constexpr double kStep = 1e-3;
    REQUIRE(parameters.size() == gradient.value.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const double value = parameters[i];
      parameters[i] = value + kStep;
      const double above = loss();
      parameters[i] = value - kStep;
      const double below = loss();
      parameters[i] = value;
      REQUIRE(std::fabs((above - below) / (2 * kStep) - gradient.value[i]) <= 1e-10);
    }
  };
  require_near(w, grad_w_cpu(grad_y, float_x, p, 0, {}, all_planes(p.K * p.C)));
  require_near(bias, grad_bias_cpu(grad_y, p, 0, {}));
  require_near(x, grad_x_cpu(grad_y, float_w, p, all_planes(p.N * p.C)));
}

// Of each element the term of median size is dropped, at every printed shape.
TEST_CASE("the program's check refuses one missing term", "[harness]") {
  for (const int column : {0, 1, 2}) {  // on a GPU, on the CPU backend, with --quick
    std::vector<size_t> numbers;
    for (const Size& size : conv2d::sizes())
      numbers.push_back(column == 0 ? size.gpu : column == 1 ? size.cpu : size.quick);
    std::vector<Problem> problems =
        conv2d::printed(conv2d::problem_of(numbers), false, column == 2);
    if (column == 0) problems.push_back({256, 8, 14, 14, 16, 3, 3, 1, 1, 1, 1});
    for (const Problem& p : problems) {
      CAPTURE(conv2d::text(p));
      const conv2d::Extent out = output_of(p);
      const size_t pixels = out.height * out.width, area = p.H * p.W, taps = p.R * p.S;
      const std::vector<float> x = random_floats(size_of_x(p), 0);
      const float scale = 1 / std::sqrt(static_cast<float>(window_of(p)));
      const std::vector<float> w = random_floats(size_of_w(p), 1, scale);
      const std::vector<float> grad_y = random_floats(size_of_y(p), 3);
      const auto few = [](RowSample sample) {
        if (sample.rows.size() > 4) sample.rows.resize(4);
        return sample.rows;
      };
      const std::vector<size_t> of_x = few(conv2d::choose_planes(p, p.N * p.C, area, 1));
      const std::vector<size_t> of_w = few(conv2d::choose_planes(p, p.K * p.C, taps, 1));
      // Random terms of an element's sum: the median of 64 of them stands for all.
      const auto median = [](float a_scale, float b_scale) {
        const std::vector<float> a = random_floats(64, 8, a_scale);
        const std::vector<float> b = random_floats(64, 9, b_scale);
        return testing::median_term(
            64, [&](size_t k) { return static_cast<double>(a[k]) * static_cast<double>(b[k]); });
      };
      const auto require_refusals = [](const Values& want, size_t row, double term) {
        testing::require_refusals(
            want.value, [&](size_t i) { return want.error[i]; }, row, [&](size_t) { return term; });
      };
      Values grad_x = grad_x_cpu(grad_y, w, p, of_x, Terms::mean_zero);
      require_refusals(grad_x, area, median(1, scale));
      if (fits_winograd(p)) {
        add_winograd_error_of_x(grad_x, grad_y, w, p, of_x, Terms::mean_zero);
        require_refusals(grad_x, area, median(1, scale));
      }
      require_refusals(grad_w_cpu(grad_y, x, p, 0, {}, of_w, Terms::mean_zero), taps, median(1, 1));
      require_refusals(grad_bias_cpu(grad_y, p, 0, {}, Terms::mean_zero), p.K, 0.5);
      CHECK(pixels > 0);
    }
  }
}
