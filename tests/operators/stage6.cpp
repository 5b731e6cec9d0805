// The operators of stage 6.
#include <cmath>
#include <stdexcept>

#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/conv2d.h"
#include "stage6_cnn/02_conv2d_backward/conv2d_backward.h"
#include "stage6_cnn/03_maxpool/maxpool.h"
#include "tests/operators/activations.h"
#include "tests/operators/operators.h"

namespace operators {
namespace {

// The steps' output_of() throws where a window does not fit, or a size is out of range.
template <class Problem>
auto output_of_or_refused(const Problem& p) {
  try {
    return output_of(p);
  } catch (const std::invalid_argument& why) {
    throw Refused(why.what());
  }
}

// Attributes stride_h, stride_w (default 1) and pad_h, pad_w (default 0) of x (N, C, H, W) and of
// windows of w (K, C, R, S).
conv2d::Problem conv2d_problem(const Case& c, const Array& x, const Array& w) {
  const conv2d::Problem p{x.extent(0),
                          x.extent(1),
                          x.extent(2),
                          x.extent(3),
                          w.extent(0),
                          w.extent(2),
                          w.extent(3),
                          c.integer("stride_h", 1),
                          c.integer("stride_w", 1),
                          c.integer("pad_h", 0),
                          c.integer("pad_w", 0)};
  c.input("w", {p.K, p.C, p.R, p.S});
  return p;
}

// y = f(x * w + bias): inputs x (N, C, H, W), w (K, C, R, S) and, unless there is none, bias (K);
// attributes as above, activation (linear or relu) and offset; output y (N, K, P, Q).
void run_conv2d(const Case& c, Outputs& outputs) {
  const Array &x = c.input("x", 4), &w = c.input("w", 4);
  const conv2d::Problem p = conv2d_problem(c, x, w);
  const conv2d::Extent out = output_of_or_refused(p);
  const std::size_t at = offset(c);
  const std::vector<float> bias =
      c.has("bias") ? c.input("bias", std::vector<std::size_t>{p.K}).values : std::vector<float>();
  conv2d::Workspace workspace = conv2d::Workspace::for_all_versions(p);
  visit_activation<dense::Linear, activations::Relu>(c, [&](auto function) {
    for (const auto& version : conv2d::kVersions<decltype(function)>) {
      Guarded<float> d_x(x.values, at), d_w(w.values, at), d_bias(bias, at);
      Guarded<float> d_y(conv2d::size_of_y(p), at);
      version.launch.run(d_y.data(), d_x.data(), d_w.data(),
                         c.has("bias") ? d_bias.data() : nullptr, p, workspace, nullptr);
      finish(version.name, d_x, d_w, d_bias, d_y);
      keep(outputs, version.name, "y", {p.N, p.K, out.height, out.width}, d_y);
    }
  });
}

// The gradients of x * w + bias: inputs grad_y (N, K, P, Q), x and w; attributes as above, beta (0
// or 1) and offset; outputs grad_w, grad_bias (K) and grad_x, of which the first two are inputs too
// where beta is 1.
void run_conv2d_backward(const Case& c, Outputs& outputs) {
  const Array &x = c.input("x", 4), &w = c.input("w", 4);
  const conv2d::Problem p = conv2d_problem(c, x, w);
  const conv2d::Extent out = output_of_or_refused(p);
  const Array& grad_y = c.input("grad_y", {p.N, p.K, out.height, out.width});
  const std::size_t at = offset(c), beta = c.integer("beta", 0);
  require(beta <= 1, "beta is neither 0 nor 1");
  conv2d_backward::Workspace workspace = conv2d_backward::Workspace::for_all_versions(p);
  for (const auto& version : conv2d_backward::kVersions) {
    Guarded<float> d_grad_y(grad_y.values, at), d_x(x.values, at), d_w(w.values, at);
    Guarded<float> grad_x(x.values.size(), at), grad_w(w.values.size(), at), grad_bias(p.K, at);
    if (beta == 1) {
      const auto begin_with = [](Guarded<float>& gradient, const Array& values) {
        if (gradient.size() > 0)
          HIP_CHECK(hipMemcpy(gradient.data(), values.values.data(),
                              gradient.size() * sizeof(float), hipMemcpyHostToDevice));
      };
      begin_with(grad_w, c.input("grad_w", w.shape));
      begin_with(grad_bias, c.input("grad_bias", std::vector<std::size_t>{p.K}));
    }
    version.launch.run({grad_w.data(), grad_bias.data(), grad_x.data()}, d_grad_y.data(),
                       d_x.data(), d_w.data(), p, static_cast<float>(beta), workspace, nullptr);
    finish(version.name, d_grad_y, d_x, d_w, grad_x, grad_w, grad_bias);
    keep(outputs, version.name, "grad_w", w.shape, grad_w);
    keep(outputs, version.name, "grad_bias", {p.K}, grad_bias);
    keep(outputs, version.name, "grad_x", x.shape, grad_x);
  }
}

// Attributes window_h, window_w (default 2), stride_h, stride_w (default: the window's), pad_h and
// pad_w (default 0) of images (N, C, H, W).
maxpool::Problem maxpool_problem(const Case& c, const std::vector<std::size_t>& x) {
  const std::size_t R = c.integer("window_h", 2), S = c.integer("window_w", 2);
  return {x[0],
          x[1],
          x[2],
          x[3],
          R,
          S,
          c.integer("stride_h", R),
          c.integer("stride_w", S),
          c.integer("pad_h", 0),
          c.integer("pad_w", 0)};
}

// The largest value of each window, and its place r S + s there: input x (N, C, H, W); attributes
// as above and offset; outputs y and argmax (N, C, P, Q).
void run_maxpool(const Case& c, Outputs& outputs) {
  const Array& x = c.input("x", 4);
  const maxpool::Problem p = maxpool_problem(c, x.shape);
  const maxpool::Extent out = output_of_or_refused(p);
  const std::vector<std::size_t> shape{p.N, p.C, out.height, out.width};
  const std::size_t at = offset(c);
  for (const auto& version : maxpool::kVersions) {
    Guarded<float> d_x(x.values, at), d_y(count(shape), at);
    Guarded<maxpool::Index> argmax(count(shape), at);
    version.launch.run(d_y.data(), argmax.data(), d_x.data(), p, nullptr);
    finish(version.name, d_x, d_y, argmax);
    keep(outputs, version.name, "y", shape, d_y);
    const std::vector<maxpool::Index> places = argmax.to_host();
    outputs[std::string(version.name) + "/argmax"] = {
        shape, std::vector<float>(places.begin(), places.end())};
  }
}

// grad_y goes to the cells that argmax names: inputs grad_y and argmax (N, C, P, Q); attributes as
// above, H and W of the image, and offset; output grad_x (N, C, H, W). With the input y
// (N, C, P, Q), the maxima, it goes on through the ReLU that made the image.
void run_maxpool_backward(const Case& c, Outputs& outputs) {
  const Array &grad_y = c.input("grad_y", 4), &argmax = c.input("argmax", grad_y.shape);
  const std::vector<std::size_t> shape{grad_y.extent(0), grad_y.extent(1), c.integer("H", 0),
                                       c.integer("W", 0)};
  const maxpool::Problem p = maxpool_problem(c, shape);
  const maxpool::Extent out = output_of_or_refused(p);
  c.input("grad_y", {p.N, p.C, out.height, out.width});
  std::vector<maxpool::Index> places;
  for (std::size_t i = 0; i < argmax.values.size(); ++i) {
    const float value = argmax.values[i];
    require(value >= 0 && value < static_cast<float>(p.R * p.S) && value == std::floor(value),
            "an argmax is no place of a window");
    const std::size_t place = static_cast<std::size_t>(value);
    const std::size_t row = i / out.width % out.height * p.stride_h + place / p.S;
    const std::size_t col = i % out.width * p.stride_w + place % p.S;
    require(row >= p.pad_h && row < p.H + p.pad_h && col >= p.pad_w && col < p.W + p.pad_w,
            "an argmax lies outside the image");
    places.push_back(static_cast<maxpool::Index>(place));
  }
  const std::size_t at = offset(c);
  const bool through_relu = c.has("y");
  const std::vector<float> y =
      through_relu ? c.input("y", grad_y.shape).values : std::vector<float>{};
  for (const auto& version : maxpool::kBackwardVersions) {
    Guarded<float> d_grad_y(grad_y.values, at), d_y(y, at), grad_x(count(shape), at);
    Guarded<maxpool::Index> d_argmax(places, at);
    version.launch.run(grad_x.data(), {d_grad_y.data(), through_relu ? d_y.data() : nullptr},
                       d_argmax.data(), p, nullptr);
    finish(version.name, d_grad_y, d_y, grad_x, d_argmax);
    keep(outputs, version.name, "grad_x", shape, grad_x);
  }
}

}  // namespace

std::vector<Operator> stage6() {
  return {{"conv2d", run_conv2d},
          {"conv2d_backward", run_conv2d_backward},
          {"maxpool", run_maxpool},
          {"maxpool_backward", run_maxpool_backward}};
}

}  // namespace operators
