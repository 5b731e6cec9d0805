#include "stage8_framework/02_backends/network.h"

#include <algorithm>
#include <cmath>

#include "common/random.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage3_ml_ops/02_softmax/reference.h"
#include "stage4_forward/02_mlp_forward/reference.h"

namespace backends {
namespace {

std::vector<float> numbers(std::uint64_t seed, std::uint32_t stream, std::int64_t count,
                           std::int64_t terms) {
  std::vector<float> values(static_cast<size_t>(count));
  const float scale = 1 / std::sqrt(static_cast<float>(terms));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = scale * random_numbers::uniform(seed, stream, i);
  return values;
}

// (rows, cols) as step 4.1 stores weights: (cols, rows).
std::vector<float> turned(const std::vector<float>& a, std::int64_t rows, std::int64_t cols) {
  std::vector<float> result;
  for (std::int64_t c = 0; c < cols; ++c)
    for (std::int64_t r = 0; r < rows; ++r) result.push_back(a[static_cast<size_t>(r * cols + c)]);
  return result;
}

}  // namespace

std::string NetworkSizes::name() const {
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  return "softmax of " + text(inputs) + "-" + text(hidden) + "-" + text(outputs) +
         "   batch=" + text(batch) + " float32";
}

NetworkValues::NetworkValues(const NetworkSizes& s, std::uint64_t seed)
    : sizes(s),
      x(numbers(seed, 0, s.batch * s.inputs, 1)),
      w1(numbers(seed, 1, s.inputs * s.hidden, s.inputs)),
      bias(numbers(seed, 2, s.hidden, 1)),
      w2(numbers(seed, 3, s.hidden * s.outputs, s.hidden)) {
  const mlp_forward::Parameters parameters{turned(w1, s.inputs, s.hidden), bias,
                                           turned(w2, s.hidden, s.outputs),
                                           std::vector<float>(static_cast<size_t>(s.outputs))};
  const auto logits = mlp_forward::mlp_cpu<activations::Relu>(
      x, parameters, static_cast<size_t>(s.batch), mlp_forward::Terms::mean_zero);
  const auto cols = static_cast<size_t>(s.outputs);
  const std::vector<float> rounded(logits.value.begin(), logits.value.end());
  want = softmax::softmax_cpu(rounded, cols);
  error = softmax::bounds(rounded, want, cols, softmax::roundings_thread_per_row(cols));
  for (size_t i = 0; i < want.size(); ++i) {
    // Logits off by e each change a quotient of exponentials by a factor of exp(2 e) at most. The
    // reference's own are rounded once more.
    const size_t row = i / cols * cols;
    double off = 0;
    for (size_t c = row; c < row + cols; ++c)
      off = std::max(off, logits.error[c] + std::abs(logits.value[c] - rounded[c]));
    error[i] += want[i] * std::expm1(2 * off);
  }
}

TwoLayers NetworkValues::on(framework::Device& device) const {
  return {device,
          sizes.batch,
          sizes.inputs,
          sizes.hidden,
          sizes.outputs,
          w1,
          bias,
          w2,
          Tensor::from_host(device, w1, {sizes.inputs, sizes.hidden}),
          Tensor::from_host(device, bias, {sizes.hidden}),
          Tensor::from_host(device, w2, {sizes.hidden, sizes.outputs})};
}

Comparison NetworkValues::compare(const std::vector<float>& y) const {
  return ::compare(
      want.size(), [&](size_t i) { return y[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return error[i]; });
}

}  // namespace backends
