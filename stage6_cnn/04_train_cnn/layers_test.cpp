// The layers alone: what they say of themselves, and what they make in every mode.
#include "stage6_cnn/04_train_cnn/layers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/guarded.h"
#include "common/random.h"
#include "common/safetensors.h"
#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/05_sequential/layers.h"
#include "stage5_training/05_sequential/reference.h"
#include "stage5_training/05_sequential/sequential.h"
#include "stage5_training/05_sequential/training_for_tests.h"

namespace {

using namespace train_cnn;
using gpu::DeviceBuffer;
using sequential::Linear;
using sequential::Mode;
using sequential::NamedTensor;
using sequential::Reference;
using sequential::ReLU;
using sequential::Sequential;
using sequential_test::against;
using sequential_test::complaint;
using sequential_test::make;
using sequential_test::Step;
using sequential_test::to_device;
using sequential_test::to_host;
using testing::same_bits;

// The roadmap's network, on small images.
Sequential small_cnn() {
  return make(Conv2d({1, 12, 12}, 3, 3, {1, 1}), ReLU(), MaxPool2d({3, 12, 12}, 2),
              Conv2d({3, 6, 6}, 5, 3, {1, 1}), ReLU(), MaxPool2d({5, 6, 6}, 2), Flatten(),
              Linear(5 * 3 * 3, 7), ReLU(), Linear(7, 4));
}

// What a step has made: y, all gradients, and that of x.
struct Made {
  std::vector<float> y, grad_x;
  std::vector<std::vector<float>> gradients;
};
Made outcome_of(Sequential& model, const Step& step, size_t offset = 0) {
  Guarded<float> d_x(step.x, offset), d_grad_y(step.grad_y, offset);
  Guarded<float> d_grad_x(step.x.size(), offset);
  for (const NamedTensor& tensor : model.tensors())
    gpu::poison(tensor.grad, tensor.n * sizeof(float));
  Made made;
  made.y = to_host(model.forward(d_x.data(), step.batch), step.grad_y.size());
  model.backward(d_grad_y.data(), d_grad_x.data(), nullptr);
  REQUIRE(d_grad_x.intact());
  REQUIRE(same_bits(d_x.to_host(), step.x));
  REQUIRE(same_bits(d_grad_y.to_host(), step.grad_y));
  made.grad_x = d_grad_x.to_host();
  for (const NamedTensor& tensor : model.tensors())
    made.gradients.push_back(to_host(tensor.grad, tensor.n));
  return made;
}

// The first of its results that is out of bound.
Comparison verdict_on(const Made& made, const Reference& want) {
  Comparison verdict = against(made.y, want.y);
  for (size_t k = 0; verdict.ok && k < made.gradients.size(); ++k)
    verdict = against(made.gradients[k], want.gradients[k]);
  return verdict.ok ? against(made.grad_x, want.grad_x) : verdict;
}

Values exactly(Values values) {
  for (double& error : values.error) error = 0;
  return values;
}
// The reference with bounds of 0, for numbers that round nowhere.
Reference exactly(Reference reference) {
  reference.y = exactly(reference.y), reference.grad_x = exactly(reference.grad_x);
  for (Values& gradient : reference.gradients) gradient = exactly(gradient);
  return reference;
}

// Small integers, from -2 to 2.
std::vector<float> integers(size_t n, std::uint32_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = std::floor(random_numbers::uniform(9, stream, i) * 2.499f + 0.5f);
  return values;
}

}  // namespace

TEST_CASE("layers of images say what they are, and what their parameters are") {
  const Sequential model = small_cnn();
  CHECK(model.description() ==
        "Sequential{Conv2d({1, 12, 12}, 3, 3, {1, 1}), ReLU(), MaxPool2d({3, 12, 12}, 2), "
        "Conv2d({3, 6, 6}, 5, 3, {1, 1}), ReLU(), MaxPool2d({5, 6, 6}, 2), Flatten(), "
        "Linear(45, 7), ReLU(), Linear(7, 4)}");
  CHECK(Conv2d({2, 9, 8}, 4, 3).description() == "Conv2d({2, 9, 8}, 4, 3)");
  CHECK(MaxPool2d({2, 9, 8}, 3, {2, 1}).description() == "MaxPool2d({2, 9, 8}, 3, {2, 1})");
  CHECK(model.inputs() == 144);
  CHECK(model.outputs() == 4);
  CHECK(model.width(2) == 3 * 6 * 6);
  const std::vector<std::pair<std::string, std::vector<size_t>>> want{
      {"0.weight", {3, 1, 3, 3}}, {"0.bias", {3}}, {"3.weight", {5, 3, 3, 3}}, {"3.bias", {5}},
      {"7.weight", {7, 45}},      {"7.bias", {7}}, {"9.weight", {4, 7}},       {"9.bias", {4}}};
  REQUIRE(model.tensors().size() == want.size());
  for (size_t k = 0; k < want.size(); ++k) {
    CHECK(model.tensors()[k].name == want[k].first);
    CHECK(model.tensors()[k].shape == want[k].second);
  }
  const Image out = Conv2d({2, 9, 8}, 4, 3, {2, 1}).image();
  CHECK((out.channels == 4 && out.height == 5 && out.width == 4));
  const Image pooled = MaxPool2d({2, 9, 8}, 3, {2, 1}).image();
  CHECK((pooled.channels == 2 && pooled.height == 5 && pooled.width == 4));
}

TEST_CASE("filters begin with He's bound before ReLU, and with PyTorch's where that is asked for") {
  Sequential model{Conv2d({6, 8, 8}, 40, 3), ReLU(),
                   Conv2d({40, 6, 6}, 9, 2, {1, 0}, Initial::Torch)};
  model.initialize(3);
  const auto largest = [&](size_t k) {
    float most = 0;
    for (const float value : to_host(model.tensors()[k].w, model.tensors()[k].n))
      most = std::max(most, std::fabs(value));
    return static_cast<double>(most);
  };
  const double he = std::sqrt(6.0 / (6 * 9)), torch = 1 / std::sqrt(40.0 * 4);
  CHECK((largest(0) <= he * (1 + 1e-6) && largest(0) > 0.98 * he));
  CHECK(largest(1) == 0);
  CHECK((largest(2) <= torch * (1 + 1e-6) && largest(2) > 0.98 * torch));
  CHECK((largest(3) <= torch * (1 + 1e-6) && largest(3) > 0));
}

TEST_CASE("images that do not fit are refused, naming the layer") {
  const auto says = [](auto&& build) { return complaint<std::invalid_argument>(build); };
  CHECK(says([] {
          Sequential{Conv2d({1, 12, 12}, 3, 3), Conv2d({3, 9, 9}, 3, 3)};
        }) ==
        "Sequential: layer 1, Conv2d({3, 9, 9}, 3, 3), takes 243 values and layer 0, "
        "Conv2d({1, 12, 12}, 3, 3), makes 300");
  CHECK(says([] {
          Sequential{Linear(9, 10), MaxPool2d({1, 3, 3}, 2)};
        }) ==
        "Sequential: layer 1, MaxPool2d({1, 3, 3}, 2), takes 9 values and layer 0, Linear(9, 10), "
        "makes 10");
  CHECK(says([] {
          static_cast<void>(Conv2d({1, 3, 3}, 3, 3).outputs(8));
        }) == "Conv2d({1, 3, 3}, 3, 3) takes images of 9 values, not of 8");
  CHECK(contains_text(says([] { Conv2d({1, 3, 3}, 2, 5); }), "5x5 does not fit an image of 3x3"));
  CHECK(contains_text(says([] { Conv2d({1, 3, 3}, 0, 3); }), "every size must be at least 1"));
  CHECK(contains_text(says([] { Conv2d({0, 3, 3}, 1, 3); }), "every size must be at least 1"));
  CHECK(contains_text(says([] { Conv2d({1, 3, 3}, 1, 3, {0, 0}); }), "stride"));
  CHECK(contains_text(says([] { MaxPool2d({1, 3, 0}, 2); }), "every size must be at least 1"));
  CHECK(contains_text(says([] { MaxPool2d({1, 3, 3}, 4); }), "4x4 does not fit an image of 3x3"));
  CHECK(contains_text(says([] { MaxPool2d({1, 3, 3}, 0); }), "has no cell"));
  CHECK(contains_text(says([] { Sequential{Flatten(), Linear(4, 3)}; }), "Flatten() comes first"));
}

TEST_CASE("every layer in every mode agrees with the reference") {
  const auto check = [](Sequential model) {
    const Step step(model, 5);
    for (const auto& version : testing::chosen(sequential::kVersions)) {
      model.set_mode(version.launch);
      CAPTURE(model.description(), version.name);
      for (const size_t offset : {0, 3})
        REQUIRE_OK(verdict_on(outcome_of(model, step, offset), step.want));
    }
  };
  check(make(Conv2d({3, 7, 9}, 4, 3)));
  check(make(Conv2d({2, 8, 7}, 5, 3, {2, 1}), ReLU()));
  check(make(Conv2d({1, 6, 5}, 2, 1), Conv2d({2, 6, 5}, 3, 5, {1, 2}), ReLU(), Flatten()));
  check(make(MaxPool2d({3, 8, 12}, 2)));
  check(make(MaxPool2d({3, 7, 9}, 3, {2, 1}), Flatten(), Linear(3 * 4 * 5, 6)));
  check(make(Linear(10, 32), ReLU(), MaxPool2d({2, 4, 4}, 2), Flatten(), Linear(8, 3)));
}

TEST_CASE("the whole network in every mode agrees with the reference") {
  Sequential model = small_cnn();
  const Step step(model, 3);
  for (const auto& version : testing::chosen(sequential::kVersions)) {
    model.set_mode(version.launch);
    CAPTURE(version.name);
    REQUIRE_OK(verdict_on(outcome_of(model, step), step.want));
  }
}

// Every product and sum is exact in float, so that nothing hides in a bound, nor in which of two
// nearly equal values has been the larger one: equal ones there are, and the first has to be taken.
TEST_CASE("small integers through a network of images come out exactly") {
  Sequential model{Conv2d({2, 8, 8}, 3, 3, {1, 1}),
                   ReLU(),
                   MaxPool2d({3, 8, 8}, 2),
                   Conv2d({3, 4, 4}, 2, 3),
                   ReLU(),
                   MaxPool2d({2, 2, 2}, 2),
                   Flatten(),
                   Linear(2, 3)};
  std::uint32_t stream = 0;
  for (const NamedTensor& tensor : model.tensors())
    to_device(tensor.w, integers(tensor.n, stream++));
  Step step(model, 6);
  step.x = integers(step.x.size(), 50), step.grad_y = integers(step.grad_y.size(), 51);
  step.want = exactly(step_cpu(model, step.x, step.grad_y, step.batch));
  double largest = 0;
  for (const Values& gradient : step.want.gradients)
    for (const double value : gradient.value) largest = std::max(largest, std::fabs(value));
  REQUIRE(largest > 0);                // the gradients have not all died in a ReLU
  REQUIRE(largest < double{1 << 24});  // and no sum was too large to be exact
  for (const auto& version : testing::chosen(sequential::kVersions)) {
    model.set_mode(version.launch);
    CAPTURE(version.name);
    REQUIRE_OK(verdict_on(outcome_of(model, step), step.want));
  }
}

TEST_CASE("the reference of the pooling's gradient knows where it can't be sure", "[harness]") {
  const MaxPool2d pool({1, 2, 4}, 2);
  const Values grad_y{{3, 5}, {0, 0}};
  std::vector<Values> none;
  // Left: 2 and 2.5, far apart. Right: 4 and 4.1, which may be the other way round.
  const Values x{{2, 1, 4, 0, 2.5, 0, 4.1, 0}, {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1}};
  const Values grad_x = pool.backward_cpu(none, grad_y, {x, {}, 1});
  CHECK(grad_x.value == std::vector<double>{0, 0, 0, 0, 3, 0, 5, 0});
  CHECK(grad_x.error == std::vector<double>{0, 0, 5, 0, 0, 0, 5, 0});
  const Values ties{{2, 2, 0, 0, 2, 2, 0, 0}, std::vector<double>(8)};
  const Values of_ties = pool.backward_cpu(none, grad_y, {ties, {}, 1});
  CHECK(of_ties.value == std::vector<double>{3, 0, 5, 0, 0, 0, 0, 0});
  CHECK(of_ties.error == std::vector<double>(8));
}

TEST_CASE("a twin takes another cell of a window where both are as large as can be told") {
  const Sequential model{MaxPool2d({1, 2, 2}, 2)};
  const Values x{{0.5, 1, 1 - 1e-9, 1}, {1e-8, 1e-8, 1e-8, 1e-8}}, grad{{3}, {0}};
  sequential::DoubleModel plain(model), twin(model, sequential::Deviation{false, 0, 1});
  CHECK(plain.forward(x, 1).value == std::vector<double>{1});
  CHECK(plain.backward(grad).value == std::vector<double>{0, 3, 0, 0});
  CHECK(twin.forward(x, 1).value == std::vector<double>{1});
  CHECK(twin.backward(grad).value == std::vector<double>{0, 0, 3, 0});  // of equal ones the first
  const Values far{{0.5, 1, 0.9, 0}, {1e-8, 1e-8, 1e-8, 1e-8}};
  CHECK(twin.forward(far, 1).value == std::vector<double>{1});
  CHECK(twin.backward(grad).value == std::vector<double>{0, 3, 0, 0});
}

// In which order nothing is summed that was not summed before: the modes differ in no bit.
TEST_CASE("a fused network of images makes the same bits with less") {
  Sequential model = small_cnn();
  const Step step(model, 4);
  std::vector<Made> made;
  std::vector<size_t> bytes;
  for (const auto& version : sequential::kVersions) {
    model.set_mode(version.launch);
    made.push_back(outcome_of(model, step));
    bytes.push_back(model.step_bytes());
    CAPTURE(version.name);
    REQUIRE(same_bits(made.back().y, made[0].y));
    REQUIRE(same_bits(made.back().grad_x, made[0].grad_x));
    for (size_t k = 0; k < made[0].gradients.size(); ++k) {
      const bool bias_of_linear = k == 5 || k == 7;  // which step 5.2 sums in its own order
      CAPTURE(k);
      REQUIRE((same_bits(made.back().gradients[k], made[0].gradients[k]) ||
               (bias_of_linear && version.launch.fuse)));
    }
  }
  const size_t saved = 4 * (3 * 12 * 12 + 5 * 6 * 6 + 5 * 3 * 3 + 7 + 1);  // 1: rounded to 16 bytes
  CHECK(bytes[0] == bytes[1]);
  CHECK(bytes[1] - bytes[2] <= saved * sizeof(float));
  CHECK(bytes[1] - bytes[2] >= (saved - 8) * sizeof(float));
}

TEST_CASE("an empty batch of images has gradients of 0, and batches may grow") {
  Sequential model = small_cnn();
  for (const auto& version : testing::chosen(sequential::kVersions)) {
    model.set_mode(version.launch);
    for (const NamedTensor& tensor : model.tensors())
      gpu::poison(tensor.grad, tensor.n * sizeof(float));
    model.forward(nullptr, 0);
    model.backward(nullptr);
    CAPTURE(version.name);
    for (const NamedTensor& tensor : model.tensors())
      for (const float value : to_host(tensor.grad, tensor.n)) REQUIRE(value == 0);
    for (const size_t batch : {1, 6, 2}) {
      const Step step(model, batch);
      REQUIRE_OK(verdict_on(outcome_of(model, step), step.want));
    }
  }
  Sequential moved = std::move(model);
  const Step step(moved, 3);
  REQUIRE_OK(verdict_on(outcome_of(moved, step), step.want));
}

TEST_CASE("a captured step of images is the plain one, bit for bit", "[graph]") {
  Sequential model = small_cnn();
  const Step step(model, 4);
  const Made want = outcome_of(model, step);
  const DeviceBuffer<float> d_x(step.x), d_grad_y(step.grad_y);
  for (const NamedTensor& tensor : model.tensors())
    gpu::poison(tensor.grad, tensor.n * sizeof(float));
  const float* y = nullptr;
  testing::run_captured(
      [&](hipStream_t stream) {
        y = model.forward(d_x.data(), step.batch, stream);
        model.backward(d_grad_y.data(), stream);
      },
      2);
  CHECK(same_bits(to_host(y, want.y.size()), want.y));
  for (size_t k = 0; k < want.gradients.size(); ++k)
    CHECK(same_bits(to_host(model.tensors()[k].grad, model.tensors()[k].n), want.gradients[k]));
}

TEST_CASE("a checkpoint brings back every bit of a network of images") {
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("cnn_layers_test." + std::to_string(getpid()) + ".safetensors"))
                               .string();
  const Sequential model = small_cnn();
  sequential::save(path, model);
  Sequential other = small_cnn();
  other.initialize(77);
  sequential::load(path, other);
  for (size_t k = 0; k < model.tensors().size(); ++k) {
    const NamedTensor &a = model.tensors()[k], &b = other.tensors()[k];
    CHECK(same_bits(to_host(a.w, a.n), to_host(b.w, b.n)));
  }
  const safetensors::File file = safetensors::read(path);
  const safetensors::Tensor* filters = file.find("3.weight");
  REQUIRE(filters != nullptr);
  CHECK(filters->shape == std::vector<size_t>{5, 3, 3, 3});
  Sequential wider{Conv2d({1, 12, 12}, 3, 3, {1, 2}), ReLU()};
  const std::string refusal = complaint<std::runtime_error>([&] { sequential::load(path, wider); });
  CHECK(contains_text(refusal, "not a Sequential{Conv2d({1, 12, 12}, 3, 3, {1, 2})"));
  std::filesystem::remove(path);
}
