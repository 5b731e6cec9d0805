// The gradients of the layers against difference quotients, by step 5.3.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/testing.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage5_training/03_gradient_check/gradient_check.h"
#include "stage5_training/05_sequential/layers.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/05_sequential/training_for_tests.h"
#include "stage6_cnn/04_train_cnn/layers.h"

namespace {

using namespace train_cnn;
using gpu::DeviceBuffer;
using gradient_check::Argument;
using gradient_check::Case;
using sequential::NamedTensor;
using sequential::ReLU;
using sequential::Sequential;
using sequential_test::to_device;
using sequential_test::to_host;

// The sum of weights * y, where y is what a model of one step makes of x and its parameters. `y` is
// written without the references of the layers.
template <class Y>
Case case_of(const std::shared_ptr<Sequential>& model, size_t batch,
             std::vector<Argument> arguments, Y y) {
  const std::vector<float> grad_y = gradient_check::uniform_values(batch * model->outputs(), 3, 70);
  Case c;
  c.arguments = std::move(arguments);
  c.loss = [=](const auto& v) { return gradient_check::weighted_sum(y(v), grad_y); };
  c.backward = [=](const auto& gradients, const auto& values) {
    const DeviceBuffer<float> d_grad_y(grad_y);
    for (size_t k = 0; k < model->tensors().size(); ++k) {
      const NamedTensor& tensor = model->tensors()[k];
      to_device(tensor.w, to_host(values[k + 1], tensor.n));
    }
    model->forward(values[0], batch);
    model->backward(d_grad_y.data(), gradients[0], nullptr);
    for (size_t k = 0; k < model->tensors().size(); ++k) {
      const NamedTensor& tensor = model->tensors()[k];
      to_device(gradients[k + 1], to_host(tensor.grad, tensor.n));
    }
  };
  return c;
}

// x * w + bias for images (batch, C, H, W), one output after the other.
std::vector<double> convolved(const std::vector<double>& x, const std::vector<double>& w,
                              const std::vector<double>& bias, size_t batch, const Image& in,
                              size_t kernel, const Sliding& sliding) {
  const size_t height = (in.height + 2 * sliding.padding - kernel) / sliding.stride + 1;
  const size_t width = (in.width + 2 * sliding.padding - kernel) / sliding.stride + 1;
  std::vector<double> y;
  for (size_t n = 0; n < batch; ++n)
    for (size_t k = 0; k < bias.size(); ++k)
      for (size_t i = 0; i < height * width; ++i) {
        double sum = bias[k];
        for (size_t c = 0; c < in.channels; ++c)
          for (size_t tap = 0; tap < kernel * kernel; ++tap) {
            const size_t row = i / width * sliding.stride + tap / kernel;
            const size_t column = i % width * sliding.stride + tap % kernel;
            if (row < sliding.padding || row >= in.height + sliding.padding ||
                column < sliding.padding || column >= in.width + sliding.padding)
              continue;
            sum += w[(k * in.channels + c) * kernel * kernel + tap] *
                   x[((n * in.channels + c) * in.height + row - sliding.padding) * in.width +
                     column - sliding.padding];
          }
        y.push_back(sum);
      }
  return y;
}

// The largest of 2x2 values that lie side by side, and by how much the others are smaller at least.
std::vector<double> pooled(const std::vector<double>& x, size_t planes, size_t height, size_t width,
                           double* margin = nullptr) {
  std::vector<double> y;
  for (size_t plane = 0; plane < planes; ++plane)
    for (size_t p = 0; p < height / 2; ++p)
      for (size_t q = 0; q < width / 2; ++q) {
        std::vector<double> cells;
        for (size_t cell = 0; cell < 4; ++cell)
          cells.push_back(x[(plane * height + 2 * p + cell / 2) * width + 2 * q + cell % 2]);
        std::sort(cells.begin(), cells.end());
        y.push_back(cells[3]);
        if (margin != nullptr) *margin = std::min(*margin, cells[3] - cells[2]);
      }
  return y;
}

std::string finding_text(const Case& c, const gradient_check::Finding& finding) {
  return gradient_check::name_of(c.arguments[finding.argument], finding.index) + ": " +
         std::to_string(finding.analytic) + " by the kernels, " + std::to_string(finding.numeric) +
         " by differences" + (finding.kink ? ", at a kink" : "");
}

}  // namespace

TEST_CASE("the gradients of a convolution are its slopes") {
  const Image in{2, 6, 5};
  const Sliding sliding{2, 1};
  const auto model = std::make_shared<Sequential>(Conv2d(in, 3, 3, sliding));
  const Case c =
      case_of(model, 2,
              {gradient_check::argument("x", {2, 2, 6, 5}, 1, 71),
               gradient_check::argument("w", {3, 2, 3, 3}, 1, 72),
               gradient_check::argument("bias", {3}, 1, 73)},
              [=](const auto& v) { return convolved(v[0], v[1], v[2], 2, in, 3, sliding); });
  const gradient_check::Finding finding = gradient_check::check(c);
  const std::string found = finding_text(c, finding);
  CAPTURE(found);
  REQUIRE(finding.ok);
  REQUIRE(finding.checked == 2 * 60 + 54 + 3);
}

// Convolution, ReLU and pooling fused, away from their kinks: numbers are drawn until no sum lies
// so near to 0, and no two of a window so near to each other, that a step could change which is
// larger.
TEST_CASE("the gradients of a fused convolution, ReLU and pooling are its slopes") {
  const Image in{1, 6, 6};
  const auto model = std::make_shared<Sequential>(Conv2d(in, 2, 3, {1, 1}), ReLU(),
                                                  MaxPool2d({2, 6, 6}, 2), Flatten());
  const auto sums_of = [=](const auto& v) { return convolved(v[0], v[1], v[2], 2, in, 3, {1, 1}); };
  const auto y_of = [=](const auto& v) {
    return pooled(gradient_check::activated<activations::Relu>(sums_of(v)), 4, 6, 6);
  };
  for (std::uint32_t attempt = 0; attempt < 1000; ++attempt) {
    const std::vector<Argument> arguments = {
        gradient_check::argument("x", {2, 1, 6, 6}, 2, 100 + 3 * attempt),
        gradient_check::argument("w", {2, 1, 3, 3}, 2, 101 + 3 * attempt),
        gradient_check::argument("bias", {2}, 2, 102 + 3 * attempt)};
    const std::vector<double> sums = sums_of(gradient_check::wide(arguments));
    double margin = 1;
    pooled(sums, 4, 6, 6, &margin);
    for (const double sum : sums) margin = std::min(margin, std::fabs(sum));
    if (margin < 10 * gradient_check::kStep) continue;
    const Case c = case_of(model, 2, arguments, y_of);
    const gradient_check::Finding finding = gradient_check::check(c);
    const std::string found = finding_text(c, finding);
    CAPTURE(found);
    REQUIRE(finding.ok);
    REQUIRE(finding.checked == 72 + 18 + 2);
    return;
  }
  FAIL("no numbers without a kink nearby");
}
