#include "stage8_framework/03_autograd/problem.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "common/random.h"
#include "common/rounding.h"
#include "common/sample.h"
#include "common/timer.h"

namespace autograd {

using framework::Activation;
using framework::Device;
using framework::Shape;
using framework::Tensor;
using rounding::Approximate;
using rounding::ApproximateSum;

std::vector<Size> sizes() {
  // As many samples as neurons: saved results, parameters and the gradients of both are as large.
  return {{"batch", 128, 48, 9}, {"width", 128, 48, 9}, {"layers", 64, 24, 7}};
}

std::string Case::name() const {
  return "gradients of a perceptron   batch=" + size_text(batch) + " width=" + size_text(width) +
         " layers=" + size_text(layers) + " tanh float32";
}

// ---- On a device --------------------------------------------------------------------------------

Tensor Perceptron::forward() const {
  Tensor y = x;
  for (size_t layer = 0; layer < w.size(); ++layer)
    y = linear(y, w[layer], bias[layer], activation);
  return y;
}

std::vector<float> gradient_of(const Tensor& leaf) {
  if (leaf.grad().is_defined()) return leaf.grad().to_host<float>();
  std::vector<float> poison(static_cast<size_t>(leaf.elements()));
  std::memset(poison.data(), 0xFF, sizeof(float) * poison.size());
  return poison;
}

std::vector<float> Perceptron::gradients() const {
  std::vector<float> all = gradient_of(x);
  for (size_t layer = 0; layer < w.size(); ++layer)
    for (const Tensor& leaf : {w[layer], bias[layer]}) {
      const std::vector<float> grad = gradient_of(leaf);
      all.insert(all.end(), grad.begin(), grad.end());
    }
  return all;
}

void Perceptron::forget_gradients() const {
  x.set_grad({});
  for (const Tensor& leaf : w) leaf.set_grad({});
  for (const Tensor& leaf : bias) leaf.set_grad({});
}

Perceptron Values::on(Device& device) const {
  const auto rows = static_cast<std::int64_t>(size.batch);
  const auto cols = static_cast<std::int64_t>(size.width);
  const auto leaf = [&](const std::vector<float>& values, const Shape& shape) {
    Tensor tensor = Tensor::from_host(device, values, shape);
    tensor.set_requires_grad();
    return tensor;
  };
  Perceptron p{leaf(x, {rows, cols}), {}, {}, activation};
  for (size_t layer = 0; layer < size.layers; ++layer) {
    p.w.push_back(leaf(w[layer], {cols, cols}));
    p.bias.push_back(leaf(bias[layer], {cols}));
  }
  return p;
}

Tensor Values::seed_on(Device& device) const {
  return Tensor::from_host(
      device, seed, {static_cast<std::int64_t>(size.batch), static_cast<std::int64_t>(size.width)});
}

Comparison Values::compare(const std::vector<float>& gradients) const {
  return ::compare(
      want.size(), [&](size_t i) { return gradients[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return error[i]; });
}

// ---- The reference ------------------------------------------------------------------------------

namespace {

using Matrix = std::vector<Approximate>;  // (batch, width), each number with its error

// The result of float operations: off by so many roundings more.
Approximate rounded(double value, double error, double roundings) {
  return {value, error + roundings * kFloatRoundoff * std::fabs(value)};
}

// z = x w^T + bias, off by what its terms are off and by its own sum; then tanh, whose slope is 1
// at most.
Matrix forward(const Values& v, const Matrix& x, size_t layer) {
  constexpr double kOfTanh = 10;
  const size_t n = v.size.width;
  Matrix y(x.size());
  for (size_t i = 0; i < y.size(); ++i) {
    ApproximateSum z;
    z.add({static_cast<double>(v.bias[layer][i % n])});
    for (size_t k = 0; k < n; ++k)
      z.add({static_cast<double>(v.w[layer][i % n * n + k])}, x[i / n * n + k]);
    y[i] = z.mean_zero_bound(static_cast<double>(n + 1));
    if (v.activation == Activation::tanh)
      y[i] = rounded(std::tanh(y[i].value), y[i].error, kOfTanh);
  }
  return y;
}

// Through tanh: g (1 - y^2).
void backward_of_tanh(Matrix& g, const Matrix& y) {
  for (size_t i = 0; i < g.size(); ++i) {
    const double slope = 1 - y[i].value * y[i].value;
    const double off_by_y = 2 * std::fabs(g[i].value * y[i].value) * y[i].error;
    constexpr double kOfSlope = 5;
    g[i] = rounded(
        g[i].value * slope,
        slope * g[i].error + off_by_y + kOfSlope * kFloatRoundoff * std::fabs(g[i].value), 0);
  }
}

// The gradients of a layer's w and bias: sums over the batch.
std::vector<Approximate> of_parameters(const Values& v, const Matrix& g, const Matrix& x) {
  const size_t n = v.size.width, batch = v.size.batch;
  std::vector<ApproximateSum> sums(n * n + n);  // w, then bias
  for (size_t b = 0; b < batch; ++b)
    for (size_t row = 0; row < n; ++row) {
      for (size_t k = 0; k < n; ++k) sums[row * n + k].add(g[b * n + row], x[b * n + k]);
      sums[n * n + row].add(g[b * n + row]);
    }
  std::vector<Approximate> result;
  for (const ApproximateSum& sum : sums)
    result.push_back(sum.mean_zero_bound(static_cast<double>(batch)));
  return result;
}

// The gradient of a layer's x: g w.
Matrix of_input(const Values& v, const Matrix& g, size_t layer) {
  const size_t n = v.size.width;
  Matrix result(g.size());
  for (size_t i = 0; i < g.size(); ++i) {
    ApproximateSum sum;
    for (size_t k = 0; k < n; ++k)
      sum.add(g[i / n * n + k], {static_cast<double>(v.w[layer][k * n + i % n])});
    result[i] = sum.mean_zero_bound(static_cast<double>(n));
  }
  return result;
}

void differentiate(Values& v) {
  // A gradient that fades through very many layers may become 0.
  constexpr double kUnderflow = std::numeric_limits<float>::min();
  std::vector<Matrix> x(1, Matrix(v.x.size()));
  Matrix g(v.seed.size());
  for (size_t i = 0; i < g.size(); ++i) x[0][i].value = static_cast<double>(v.x[i]);
  for (size_t i = 0; i < g.size(); ++i) g[i].value = static_cast<double>(v.seed[i]);
  for (size_t layer = 0; layer < v.size.layers; ++layer) x.push_back(forward(v, x[layer], layer));
  std::vector<std::vector<Approximate>> parts(v.size.layers + 1);  // of x, then of each layer
  for (size_t layer = v.size.layers; layer-- > 0;) {
    if (v.activation == Activation::tanh) backward_of_tanh(g, x[layer + 1]);
    parts[layer + 1] = of_parameters(v, g, x[layer]);
    g = of_input(v, g, layer);
  }
  parts[0] = std::move(g);
  for (const auto& part : parts)
    for (const Approximate& gradient : part) {
      v.want.push_back(gradient.value);
      v.error.push_back(v.activation == Activation::tanh ? gradient.error + kUnderflow : 0);
    }
}

std::vector<float> numbers(bool with_integers, std::uint64_t seed, size_t stream, size_t count,
                           float scale = 1) {
  const auto number = with_integers ? random_numbers::integer : random_numbers::uniform;
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = (with_integers ? 1 : scale) * number(seed, static_cast<std::uint32_t>(stream), i);
  return values;
}

// A weight of 1 or -1 in each row, in columns that are all different.
std::vector<float> signs(size_t n, std::uint64_t seed, size_t stream) {
  std::vector<float> w(n * n);
  for (size_t row = 0; row < n; ++row)
    w[row * n + (row + stream) % n] =
        random_numbers::uniform(seed, static_cast<std::uint32_t>(stream), row) < 0 ? -1.0f : 1.0f;
  return w;
}

}  // namespace

Values::Values(const Case& c, bool with_integers, std::uint64_t seed_of_all)
    : size(c), activation(with_integers ? Activation::none : Activation::tanh) {
  HostTimer timer;
  const size_t n = c.width;
  x = numbers(with_integers, seed_of_all, 0, c.batch * n);
  seed = numbers(with_integers, seed_of_all, 1, c.batch * n);
  for (size_t layer = 0; layer < c.layers; ++layer) {
    // So large that what passes a layer neither fades nor grows, but for the slope of tanh.
    const float scale = std::sqrt(3 / static_cast<float>(n));
    w.push_back(with_integers ? signs(n, seed_of_all, 2 * layer + 2)
                              : numbers(false, seed_of_all, 2 * layer + 2, n * n, scale));
    bias.push_back(numbers(with_integers, seed_of_all, 2 * layer + 3, n, 0.1f));
  }
  differentiate(*this);
  reference_ms = timer.ms();
}

}  // namespace autograd
