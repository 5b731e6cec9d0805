// Every mode of a model on awkward shapes: against the reference, and bit for bit against the
// others; models that are wrong; and mistakes that must be caught. (Parts: training_test.cpp,
// reference_test.cpp, checkpoint_test.cpp.)
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stage1_vector/02_axpy/axpy.h"
#include "stage5_training/05_sequential/training_for_tests.h"

using namespace sequential_test;

// ---- Building a model -------------------------------------------------------------------------

TEST_CASE("a model says what it is made of") {
  const Sequential model{Linear(4, 16), ReLU(), Linear(16, 3)};
  CHECK(model.description() == "Sequential{Linear(4, 16), ReLU(), Linear(16, 3)}");
  CHECK(model.inputs() == 4);
  CHECK(model.outputs() == 3);
  CHECK(model.layers() == 3);
  CHECK(model.width(1) == 16);
  CHECK(model.parameter_count() == 4 * 16 + 16 + 16 * 3 + 3);
  const std::vector<std::pair<std::string, Shape>> want{
      {"0.weight", {16, 4}}, {"0.bias", {16}}, {"2.weight", {3, 16}}, {"2.bias", {3}}};
  REQUIRE(model.tensors().size() == want.size());
  for (size_t k = 0; k < want.size(); ++k) {
    CHECK(model.tensors()[k].name == want[k].first);
    CHECK(model.tensors()[k].shape == want[k].second);
  }
  CHECK(Sequential{Linear(1, 1), Sigmoid(), Tanh(), GELU(), Softplus()}.description() ==
        "Sequential{Linear(1, 1), Sigmoid(), Tanh(), GELU(), Softplus()}");
}

TEST_CASE("tensors lie in the arena, at multiples of 16 bytes, with zeros between") {
  const Sequential model = make(Linear(3, 5), ReLU(), Linear(5, 1));
  const optimizers::ParameterArena& arena = model.arena();
  const float* end = arena.w;
  for (const NamedTensor& tensor : model.tensors()) {
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.w) % 16 == 0);
    CHECK(tensor.w >= end);
    CHECK(tensor.grad - arena.grad_w == tensor.w - arena.w);
    CHECK(tensor.m - arena.m == tensor.w - arena.w);
    CHECK(tensor.v - arena.v == tensor.w - arena.w);
    end = tensor.w + tensor.n;
  }
  CHECK(end <= arena.w + arena.n);
  CHECK(arena.n == 16 + 8 + 8 + 4);
  const std::vector<float> w = to_host(arena.w, arena.n);
  for (const size_t gap : {15, 21, 22, 23, 29, 30, 31, 33, 34, 35}) CHECK(w[gap] == 0);
}

TEST_CASE("models that can't be are refused, naming the layers") {
  const auto says = [](auto&& build) { return complaint<std::invalid_argument>(build); };
  CHECK(says([] {
          Sequential{Linear(4, 16), Linear(15, 3)};
        }) ==
        "Sequential: layer 1, Linear(15, 3), takes 15 values and layer 0, Linear(4, 16), makes 16");
  CHECK(says([] {
          Sequential{Linear(4, 16), ReLU(), Linear(15, 3)};
        }) ==
        "Sequential: layer 2, Linear(15, 3), takes 15 values and layer 0, Linear(4, 16), makes 16");
  CHECK(contains_text(says([] { Sequential{ReLU(), Linear(4, 3)}; }), "ReLU() comes first"));
  CHECK(contains_text(says([] { Sequential{}; }), "at least one layer"));
  CHECK(contains_text(says([] { Linear(0, 3); }), "Linear(0, 3): every size must be at least 1"));
  CHECK(contains_text(says([] { Linear(3, 0); }), "Linear(3, 0): every size"));
  constexpr size_t kHuge = size_t{1} << 40;
  CHECK(contains_text(says([] { Linear(kHuge, kHuge); }), "needs more memory than can be"));
  CHECK(contains_text(says([] { Linear(std::numeric_limits<size_t>::max(), 1); }), "more memory"));
  Sequential model{Linear(2, 3)};
  CHECK(contains_text(says([&] { model.reserve(std::numeric_limits<size_t>::max() / 2); }),
                      "a batch of 9223372036854775807 for Sequential{Linear(2, 3)} needs more"));
  // What can be addressed, but is not there.
  CHECK_THROWS_AS(Sequential{Linear(size_t{1} << 27, size_t{1} << 27)}, gpu::Error);
  CHECK_THROWS_AS(model.reserve(size_t{1} << 50), gpu::Error);
  const Step step(model, 3);  // and the model is still good
  REQUIRE_OK(run(model, step));
}

TEST_CASE("wrong calls are refused") {
  Sequential model{Linear(2, 3), ReLU(), Linear(3, 1)};
  const DeviceBuffer<float> d_x(std::vector<float>(8, 1));
  CHECK(contains_text(complaint<std::logic_error>([&] { model.backward(d_x.data()); }),
                      "no forward pass"));
  CHECK(contains_text(complaint<std::invalid_argument>([&] { model.forward(nullptr, 4); }),
                      "x is null"));
  model.forward(d_x.data(), 4);
  CHECK(contains_text(complaint<std::invalid_argument>([&] { model.backward(nullptr); }),
                      "grad_y is null"));
  model.set_mode(kFused);  // drops the forward pass
  CHECK_THROWS_AS(model.backward(d_x.data()), std::logic_error);
}

// ---- What it begins with ----------------------------------------------------------------------

TEST_CASE("He where a layer rectifies, Xavier elsewhere, biases 0") {
  Sequential model{Linear(300, 400), ReLU(), Linear(400, 200), Tanh(),
                   Linear(200, 100), GELU(), Linear(100, 50)};
  model.initialize(11);
  const std::vector<NamedTensor>& tensors = model.tensors();
  const double bounds[] = {std::sqrt(6.0 / 300), std::sqrt(6.0 / 600), std::sqrt(6.0 / 200),
                           std::sqrt(6.0 / 150)};
  for (size_t k = 0; k < tensors.size(); ++k) {
    CAPTURE(tensors[k].name);
    const std::vector<float> values = to_host(tensors[k].w, tensors[k].n);
    if (k % 2 == 1) {
      CHECK(same_bits(values, std::vector<float>(values.size(), 0.0f)));
      continue;
    }
    const double n = static_cast<double>(values.size()), bound = bounds[k / 2];
    double largest = 0, sum = 0, squares = 0;
    for (const float value : values) {
      const double w = static_cast<double>(value);
      largest = std::fmax(largest, std::fabs(w)), sum += w, squares += w * w;
    }
    CHECK(largest <= bound * (1 + 1e-6));
    CHECK(largest >= bound * 0.99);
    // Mean and variance of a uniform distribution, within five standard deviations of theirs.
    CHECK(std::fabs(sum / n) < 5 * bound / std::sqrt(3 * n));
    const double variance = bound * bound / 3;
    CHECK(std::fabs(squares / n - variance) < 5 * variance * std::sqrt(0.8 / n));
  }
}

TEST_CASE("another seed is another model, the same seed the same one, and m and v begin at 0") {
  Sequential model{Linear(7, 5), ReLU(), Linear(5, 3)};
  model.initialize(1);
  const std::vector<float> first = state(model);
  HIP_CHECK(hipMemset(model.arena().m, 0x3F, 2 * model.arena().n * sizeof(float)));
  model.initialize(2);
  CHECK_FALSE(same_bits(state(model), first));
  model.initialize(1);
  CHECK(same_bits(state(model), first));
}

TEST_CASE("PyTorch's own bounds, and a layer of ones") {
  struct Scale : Layer {  // y = x, with a parameter nobody uses
    std::string description() const override { return "Scale"; }
    std::vector<Parameter> parameters() const override { return {{"gain", {5}, Initial::Ones}}; }
    void forward(float* y, const float* x, size_t batch, hipStream_t stream) override {
      HIP_CHECK(hipMemcpyAsync(y, x, 5 * batch * sizeof(float), hipMemcpyDeviceToDevice, stream));
    }
    void backward(float*, const float*, const float*, const float*, size_t, hipStream_t) override {}
  };
  Sequential model{Linear(64, 5, Initial::Torch), Scale()};
  model.initialize(3);
  for (const size_t k : {0, 1})
    for (const float value : to_host(model.tensors()[k].w, model.tensors()[k].n))
      CHECK(std::fabs(value) <= 0.125f);
  CHECK(to_host(model.tensors()[1].w, 1)[0] != 0);
  CHECK(model.tensors()[2].name == "1.gain");
  CHECK(to_host(model.tensors()[2].w, 5) == std::vector<float>(5, 1));
}

// ---- One step ---------------------------------------------------------------------------------

TEST_CASE("every mode, shapes and alignments") {
  for (const auto& version : testing::chosen(kVersions))
    for (const size_t batch : {1, 3, 67})
      for (const size_t width : {1, 5, 33}) {
        Sequential model = make(Linear(width, 2 * width + 1), ReLU(), Linear(2 * width + 1, 4),
                                ReLU(), Linear(4, width));
        model.set_mode(version.launch);
        const Step step(model, batch);
        CAPTURE(version.name, batch, width);
        for (const size_t offset : {0, 3}) REQUIRE_OK(run(model, step, offset));
      }
}

TEST_CASE("every activation, first and last layers of either kind") {
  const auto check = [](Sequential model) {
    const Step step(model, 19);
    for (const auto& version : testing::chosen(kVersions)) {
      model.set_mode(version.launch);
      CAPTURE(model.description(), version.name);
      REQUIRE_OK(run(model, step));
    }
  };
  check(make(Linear(6, 9), ReLU(), Linear(9, 2)));
  check(make(Linear(6, 9), Sigmoid(), Linear(9, 2)));
  check(make(Linear(6, 9), Tanh(), Linear(9, 2)));
  check(make(Linear(6, 9), GELU(), Linear(9, 2)));
  check(make(Linear(6, 9), Softplus(), Linear(9, 2)));
  check(make(Linear(6, 9)));
  check(make(Linear(6, 9), ReLU()));
  check(make(Linear(6, 9), ReLU(), ReLU(), Tanh(), ReLU(), Linear(9, 7), Sigmoid()));
  check(make(Linear(6, 9), Linear(9, 4), Linear(4, 2), ReLU()));
}

// Small integers: every product and sum is exact in float, so that nothing hides in a bound.
TEST_CASE("small integers come out exactly") {
  Sequential model{Linear(7, 12), ReLU(), Linear(12, 5), ReLU(), Linear(5, 3)};
  std::uint32_t stream = 0;
  const auto integers = [&](size_t n) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i)
      values[i] = std::floor(random_numbers::uniform(9, stream, i) * 3.999f);
    ++stream;
    return values;
  };
  for (const NamedTensor& tensor : model.tensors()) to_device(tensor.w, integers(tensor.n));
  Step step(model, 13);
  step.x = integers(step.x.size()), step.grad_y = integers(step.grad_y.size());
  step.want = step_cpu(model, step.x, step.grad_y, step.batch);
  const auto exactly = [](Values& values) {
    for (double& error : values.error) error = 0;
  };
  exactly(step.want.y), exactly(step.want.grad_x);
  for (Values& gradient : step.want.gradients) exactly(gradient);
  for (const auto& version : testing::chosen(kVersions)) {
    model.set_mode(version.launch);
    CAPTURE(version.name);
    REQUIRE_OK(run(model, step));
  }
}

TEST_CASE("all modes give the same bits, but for sums in another order") {
  Sequential model = make(Linear(29, 31), ReLU(), Linear(31, 17), ReLU(), Linear(17, 3), Tanh());
  const DeviceBuffer<float> d_x(some_floats(41 * 29, 1)), d_grad_y(some_floats(41 * 3, 2));
  std::vector<float> first, first_biases;
  for (const auto& version : kVersions) {
    model.set_mode(version.launch);
    std::vector<float> bits = to_host(model.forward(d_x.data(), 41), 41 * 3), biases;
    model.backward(d_grad_y.data());
    for (const NamedTensor& tensor : model.tensors())
      for (const float value : to_host(tensor.grad, tensor.n))
        (tensor.shape.size() == 1 ? biases : bits).push_back(value);
    if (first.empty()) first = bits, first_biases = biases;
    CAPTURE(version.name);
    REQUIRE(same_bits(bits, first));
    REQUIRE((version.launch.fuse || same_bits(biases, first_biases)));  // 5.2 sums in its own order
  }
}

TEST_CASE("NaN and infinity in one sample reach its own output and no other") {
  Sequential model = make(Linear(5, 9), ReLU(), Linear(9, 2));
  std::vector<float> x = some_floats(4 * 5, 1);
  x[1 * 5 + 2] = std::numeric_limits<float>::quiet_NaN();
  x[2 * 5 + 0] = std::numeric_limits<float>::infinity();
  const DeviceBuffer<float> d_x(x);
  for (const auto& version : testing::chosen(kVersions)) {
    model.set_mode(version.launch);
    const std::vector<float> y = to_host(model.forward(d_x.data(), 4), 4 * 2);
    CAPTURE(version.name);
    for (size_t i = 0; i < y.size(); ++i) CHECK(std::isfinite(y[i]) == (i / 2 == 0 || i / 2 == 3));
  }
}

TEST_CASE("an empty batch has no output, and gradients of 0") {
  Sequential model = make(Linear(3, 4), ReLU(), Linear(4, 2));
  for (const auto& version : testing::chosen(kVersions)) {
    model.set_mode(version.launch);
    poison_gradients(model);
    model.forward(nullptr, 0);
    model.backward(nullptr);
    CAPTURE(version.name);
    for (const float value : gradients(model)) REQUIRE(value == 0);
  }
}

TEST_CASE("batches may grow and shrink, and a model may move") {
  Sequential first = make(Linear(5, 8), ReLU(), Linear(8, 3));
  for (const size_t batch : {2, 50, 7}) REQUIRE_OK(run(first, Step(first, batch)));
  Sequential second = std::move(first);
  REQUIRE_OK(run(second, Step(second, 9)));
  Sequential third{Linear(1, 1)};
  third = std::move(second);
  REQUIRE_OK(run(third, Step(third, 60)));
}

TEST_CASE("layers chosen at run time") {
  std::vector<std::unique_ptr<Layer>> layers;
  for (size_t width = 3; width < 6; ++width) {
    layers.push_back(std::make_unique<Linear>(width, width + 1));
    layers.push_back(std::make_unique<ReLU>());
  }
  Sequential model(std::move(layers));
  model.initialize(4);
  REQUIRE_OK(run(model, Step(model, 11)));
}

namespace {

// y = factor x. Its backward pass does that of a Scaling before it.
struct Scaling : Layer {
  Scaling(float by, size_t* count, size_t width) : factor(by), calls(count), in(width) {}
  std::string description() const override { return "Scaling"; }
  size_t inputs() const override { return in; }
  bool fuse_backward(Layer* before) override {
    const auto* scale = dynamic_cast<const Scaling*>(before);
    back_factor = scale == nullptr ? factor : factor * scale->back_factor;
    return scale != nullptr;
  }
  void forward(float* y, const float* x, size_t batch, hipStream_t) override {
    axpy::launch_vectorized_scale(y, factor, x, batch * in);
  }
  void backward(float* grad_x, const float* grad_y, const float*, const float*, size_t batch,
                hipStream_t) override {
    ++*calls;
    axpy::launch_vectorized_scale(grad_x, back_factor, grad_y, batch * in);
  }
  float factor, back_factor = 1;
  size_t *calls, in;
};

// Counts how often it is asked for the gradient of its input.
struct Asked : Linear {
  Asked(size_t in, size_t out, size_t* count) : Linear(in, out), asked(count) {}
  void backward(float* grad_x, const float* grad_y, const float* x, const float* y, size_t batch,
                hipStream_t stream) override {
    *asked += grad_x != nullptr;
    Linear::backward(grad_x, grad_y, x, y, batch, stream);
  }
  size_t* asked;
};

}  // namespace

// Factors of 2 round nothing, so that all modes agree in every bit.
TEST_CASE("a layer may do the backward pass of those before it") {
  size_t calls = 0;
  const auto model_of = [&](size_t scales, bool they_come_first) {
    std::vector<std::unique_ptr<Layer>> layers;
    if (!they_come_first) layers.push_back(std::make_unique<Linear>(5, 8));
    const size_t width = they_come_first ? 5 : 8;
    for (size_t i = 0; i < scales; ++i)
      layers.push_back(std::make_unique<Scaling>(i == 1 ? -0.5f : 2.0f, &calls, width));
    layers.push_back(std::make_unique<Linear>(width, 3));
    return Sequential(std::move(layers));
  };
  for (const auto& [scales, they_come_first] : std::initializer_list<std::pair<size_t, bool>>{
           {1, false}, {2, false}, {3, false}, {4, false}, {1, true}, {2, true}, {3, true}}) {
    Sequential model = model_of(scales, they_come_first);
    model.initialize(6);
    randomize_biases(model);
    const DeviceBuffer<float> d_x(some_floats(7 * 5, 1)), d_grad_y(some_floats(7 * 3, 2));
    std::vector<float> first, first_x;
    for (const auto& version : testing::chosen(kVersions)) {
      model.set_mode(version.launch);
      poison_gradients(model);
      DeviceBuffer<float> d_grad_x(7 * 5);
      d_grad_x.poison();
      calls = 0;
      model.forward(d_x.data(), 7);
      model.backward(d_grad_y.data(), d_grad_x.data(), nullptr);
      CAPTURE(version.name, scales, they_come_first);
      CHECK(calls == (version.launch.fuse ? 1 : scales));
      if (first.empty()) first = gradients(model), first_x = d_grad_x.to_host();
      REQUIRE(same_bits(gradients(model), first));
      REQUIRE(same_bits(d_grad_x.to_host(), first_x));
    }
  }
}

TEST_CASE("gradients on branches of the stream are the same bits, in a graph and without one") {
  Sequential model = make(Linear(5, 40), Tanh(), Linear(40, 33), ReLU(), Linear(33, 3));
  const Step step(model, 70);
  REQUIRE_OK(run(model, step));
  const std::vector<float> want = gradients(model);
  const dense_backward::Branches branches;
  model.use_branches(&branches);
  REQUIRE_OK(run(model, step));
  CHECK(same_bits(gradients(model), want));

  const DeviceBuffer<float> d_x(step.x), d_grad_y(step.grad_y);
  poison_gradients(model);
  testing::run_captured([&](hipStream_t stream) {
    model.forward(d_x.data(), step.batch, stream);
    model.backward(d_grad_y.data(), stream);
  });
  CHECK(same_bits(gradients(model), want));
}

TEST_CASE("the gradient of x is made only where it is wanted") {
  Sequential model = make(Linear(5, 8), ReLU(), Linear(8, 3));
  const Step step(model, 6);
  const DeviceBuffer<float> d_x(step.x), d_grad_y(step.grad_y);
  poison_gradients(model);
  model.forward(d_x.data(), step.batch);
  model.backward(d_grad_y.data());
  const std::vector<float> without = gradients(model);
  REQUIRE_OK(run(model, step));
  CHECK(same_bits(without, gradients(model)));

  size_t calls = 0, asked = 0;  // of a layer without parameters, and of the first one with some
  Sequential scaled{Scaling(2, &calls, 5), Asked(5, 8, &asked), ReLU(), Linear(8, 3)};
  scaled.initialize(6);
  DeviceBuffer<float> d_grad_x(6 * 5);
  for (const auto& version : testing::chosen(kVersions)) {
    scaled.set_mode(version.launch);
    for (float* grad_x : {static_cast<float*>(nullptr), d_grad_x.data()}) {
      calls = asked = 0;
      scaled.forward(d_x.data(), 6);
      scaled.backward(d_grad_y.data(), grad_x, nullptr);
      CAPTURE(version.name, grad_x);
      CHECK(calls == (grad_x == nullptr ? 0 : 1));
      CHECK(asked == (grad_x == nullptr ? 0 : 1));
    }
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

struct WrongSigmoid : Sigmoid {  // the slope at y, as if it were ReLU
  void backward(float* grad_x, const float* grad_y, const float*, const float* y, size_t batch,
                hipStream_t stream) override {
    Sigmoid::backward(grad_x, grad_y, y, y, batch, stream);
  }
};
struct ForgetsSample : Linear {  // leaves the last sample out of the gradients
  using Linear::Linear;
  void backward(float* grad_x, const float* grad_y, const float* x, const float* y, size_t batch,
                hipStream_t stream) override {
    Linear::backward(grad_x, grad_y, x, y, batch - 1, stream);
  }
};
struct EmptyPromise : Linear {  // says that it does ReLU's work, and does not
  using Linear::Linear;
  bool fuse(Layer* next) override {
    Linear::fuse(nullptr);
    return next != nullptr;
  }
};
struct ForgetsSums : ReLU {  // says that it sums the bias's gradient, and does not
  bool leave_sums(float*) override { return true; }
};
struct Silent : ReLU {  // passes no gradient on
  void backward(float*, const float*, const float*, const float*, size_t, hipStream_t) override {}
};

}  // namespace

TEST_CASE("wrong layers are caught", "[harness]") {
  const auto caught = [](Sequential model) { return !run(model, Step(model, 6)).ok; };
  CHECK_FALSE(caught(make(Linear(5, 4), Sigmoid(), Linear(4, 3))));
  CHECK_FALSE(caught(make(Linear(5, 4), ReLU(), Linear(4, 3))));
  CHECK(caught(make(Linear(5, 4), WrongSigmoid(), Linear(4, 3))));
  CHECK(caught(make(ForgetsSample(5, 4), Sigmoid(), Linear(4, 3))));
  CHECK(caught(make(EmptyPromise(5, 4), ReLU(), Linear(4, 3))));
  CHECK(caught(make(Linear(5, 4), ForgetsSums(), Linear(4, 3))));
  CHECK(caught(make(Linear(5, 4), Silent(), Linear(4, 3))));
}
