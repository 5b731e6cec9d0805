// Every mode of a model on awkward shapes: against the reference, against NumPy, bit for bit
// against the others, in graphs; models and checkpoints that are wrong; and mistakes that must be
// caught.
#include "stage5_training/05_sequential/sequential.h"

#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace {

using namespace sequential;
using optimizers::Kind;
using Shape = std::vector<size_t>;

constexpr Mode kFused = kVersions[2].launch;

std::vector<float> random_floats(size_t n, std::uint32_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = 2 * random_numbers::uniform(3, stream, i) + 0.25f;
  return values;
}

std::vector<float> to_host(const float* values, size_t n) {
  std::vector<float> host(n);
  if (n > 0) HIP_CHECK(hipMemcpy(host.data(), values, n * sizeof(float), hipMemcpyDeviceToHost));
  return host;
}
void to_device(float* values, const std::vector<float>& host) {
  HIP_CHECK(hipMemcpy(values, host.data(), host.size() * sizeof(float), hipMemcpyHostToDevice));
}

// All bits of w, m and v.
std::vector<float> state(const Sequential& model) {
  const optimizers::ParameterArena& arena = model.arena();
  std::vector<float> all = to_host(arena.w, arena.n);
  for (const float* array : {arena.m, arena.v})
    for (const float value : to_host(array, arena.n)) all.push_back(value);
  return all;
}
std::vector<float> gradients(const Sequential& model) {
  std::vector<float> all;
  for (const NamedTensor& tensor : model.tensors())
    for (const float value : to_host(tensor.grad, tensor.n)) all.push_back(value);
  return all;
}
using testing::same_bits;

void poison_gradients(const Sequential& model) {
  for (const NamedTensor& tensor : model.tensors())
    gpu::poison(tensor.grad, tensor.n * sizeof(float));
}

Comparison against(const std::vector<float>& got, const Values& want) {
  REQUIRE(got.size() == want.value.size());
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return want.error[i]; });
}

// A step's inputs, and what the reference makes of them.
struct Step {
  Step(const Sequential& model, size_t samples)
      : batch(samples),
        x(random_floats(batch * model.inputs(), 100)),
        grad_y(random_floats(batch * model.outputs(), 101)),
        want(step_cpu(model, x, grad_y, batch)) {}

  size_t batch;
  std::vector<float> x, grad_y;
  Reference want;
};

// What a step of the model has made, or the first of its results that is out of bound.
Comparison run(Sequential& model, const Step& step, size_t offset = 0) {
  Guarded<float> d_x(step.x, offset), d_grad_y(step.grad_y, offset);
  Guarded<float> d_grad_x(step.x.size(), offset);
  poison_gradients(model);
  const float* y = model.forward(d_x.data(), step.batch);
  const std::vector<float> got_y = to_host(y, step.grad_y.size());
  model.backward(d_grad_y.data(), d_grad_x.data(), nullptr);
  REQUIRE(d_grad_x.intact());
  REQUIRE(same_bits(d_x.to_host(), step.x));
  REQUIRE(same_bits(d_grad_y.to_host(), step.grad_y));
  Comparison verdict = against(got_y, step.want.y);
  for (size_t k = 0; verdict.ok && k < model.tensors().size(); ++k) {
    const NamedTensor& tensor = model.tensors()[k];
    verdict = against(to_host(tensor.grad, tensor.n), step.want.gradients[k]);
  }
  return verdict.ok ? against(d_grad_x.to_host(), step.want.grad_x) : verdict;
}

// Biases that are not 0, which would hide where they are added.
void randomize_biases(Sequential& model) {
  std::uint32_t stream = 200;
  for (const NamedTensor& tensor : model.tensors())
    if (tensor.shape.size() == 1) to_device(tensor.w, random_floats(tensor.n, stream++));
}

template <class... Layers>
Sequential make(Layers... layers) {
  Sequential model{std::move(layers)...};
  model.initialize(5);
  randomize_biases(model);
  return model;
}

// A training on fixed data: cross-entropy, and one optimizer.
struct Trainer {
  Trainer(Sequential& trained, Kind rule, const std::vector<float>& x,
          const std::vector<int>& labels, float rate, std::uint64_t steps = 0)
      : model(trained),
        kind(rule),
        batch(labels.size()),
        d_x(x),
        d_grad(batch * trained.outputs()),
        d_loss(1),
        d_labels(labels),
        buffers(batch) {
    optimizers::Hyperparameters hyper;
    hyper.learning_rate = rate;
    schedule = optimizers::make_schedule(hyper, steps);
  }
  void step(hipStream_t stream = nullptr) {
    const float* y = model.forward(d_x.data(), batch, stream);
    losses::cross_entropy(d_loss.data(), d_grad.data(), y,
                          {d_labels.data(), batch, model.outputs()}, buffers.workspace(), stream);
    model.backward(d_grad.data(), stream);
    optimizers::step(kind, model.arena(), schedule.data(), stream);
  }
  double loss() const { return static_cast<double>(d_loss.to_host()[0]); }

  Sequential& model;
  Kind kind;
  size_t batch;
  DeviceBuffer<float> d_x, d_grad, d_loss;
  DeviceBuffer<int> d_labels;
  losses::Buffers buffers;
  DeviceBuffer<optimizers::Schedule> schedule;
};

std::vector<int> some_labels(size_t batch, size_t classes) {
  std::vector<int> labels(batch);
  for (size_t i = 0; i < batch; ++i) labels[i] = static_cast<int>((i * i + 1) % classes);
  return labels;
}

// What a call throws as Exception, which must be one line.
template <class Exception, class Call>
std::string complaint(Call&& call) {
  try {
    call();
  } catch (const Exception& error) {
    const std::string text = error.what();
    CHECK(text.find('\n') == std::string::npos);
    return text;
  }
  return "no complaint";
}

// A folder of its own, gone when the object goes.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("sequential_test." + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  size_t files() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      count += entry.exists() ? 1 : 0;
    return count;
  }

 private:
  std::filesystem::path path_;
};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}
void write_content(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace

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
  const DeviceBuffer<float> d_x(random_floats(41 * 29, 1)), d_grad_y(random_floats(41 * 3, 2));
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
  std::vector<float> x = random_floats(4 * 5, 1);
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
  Scaling(float by, size_t* count) : factor(by), calls(count) {}
  std::string description() const override { return "Scaling"; }
  void connect(size_t inputs) override { width = inputs; }
  bool fuse_backward(Layer* before) override {
    const auto* scale = dynamic_cast<const Scaling*>(before);
    back_factor = scale == nullptr ? factor : factor * scale->back_factor;
    return scale != nullptr;
  }
  void forward(float* y, const float* x, size_t batch, hipStream_t) override {
    axpy::launch_vectorized_scale(y, factor, x, batch * width);
  }
  void backward(float* grad_x, const float* grad_y, const float*, const float*, size_t batch,
                hipStream_t) override {
    ++*calls;
    axpy::launch_vectorized_scale(grad_x, back_factor, grad_y, batch * width);
  }
  float factor, back_factor = 1;
  size_t* calls;
  size_t width = 0;
};

}  // namespace

// Factors of 2 round nothing, so that all modes agree in every bit.
TEST_CASE("a layer may do the backward pass of those before it") {
  size_t calls = 0;
  for (const size_t scales : {1, 2, 3, 4}) {
    std::vector<std::unique_ptr<Layer>> layers;
    layers.push_back(std::make_unique<Linear>(5, 8));
    for (size_t i = 0; i < scales; ++i)
      layers.push_back(std::make_unique<Scaling>(i == 1 ? -0.5f : 2.0f, &calls));
    layers.push_back(std::make_unique<Linear>(8, 3));
    Sequential model(std::move(layers));
    model.initialize(6);
    randomize_biases(model);
    const DeviceBuffer<float> d_x(random_floats(7 * 5, 1)), d_grad_y(random_floats(7 * 3, 2));
    std::vector<float> first, first_x;
    for (const auto& version : testing::chosen(kVersions)) {
      model.set_mode(version.launch);
      poison_gradients(model);
      DeviceBuffer<float> d_grad_x(7 * 5);
      d_grad_x.poison();
      calls = 0;
      model.forward(d_x.data(), 7);
      model.backward(d_grad_y.data(), d_grad_x.data(), nullptr);
      CAPTURE(version.name, scales);
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
}

// ---- Memory and graphs ------------------------------------------------------------------------

TEST_CASE("a fused model keeps one output less for each ReLU") {
  Sequential model{Linear(8, 16), ReLU(), Linear(16, 4)};
  size_t bytes[3], i = 0;
  for (const auto& version : kVersions) {
    model.set_mode(version.launch);
    CHECK(model.step_bytes() == 0);
    model.reserve(10);
    bytes[i++] = model.step_bytes();
  }
  CHECK(bytes[0] == (160 + 160 + 40 + 2 * 160) * sizeof(float));
  CHECK(bytes[1] == bytes[0]);
  CHECK(bytes[2] == bytes[1] - 160 * sizeof(float));
  CHECK(model.parameter_bytes() == 4 * (128 + 16 + 64 + 4) * sizeof(float));
}

// An allocation while a stream captures is an error on every backend, so a step that can be
// captured allocates nothing.
TEST_CASE("a captured step allocates nothing and trains as the plain one, bit for bit", "[graph]") {
  const std::vector<float> x = random_floats(21 * 6, 1);
  const std::vector<int> labels = some_labels(21, 4);
  for (const auto& version : testing::chosen(kVersions)) {
    Sequential plain = make(Linear(6, 10), ReLU(), Linear(10, 4));
    Sequential replayed = make(Linear(6, 10), ReLU(), Linear(10, 4));
    plain.set_mode(version.launch), replayed.set_mode(version.launch);
    Trainer plainly(plain, Kind::AdamW, x, labels, 0.01f);
    Trainer by_graph(replayed, Kind::AdamW, x, labels, 0.01f);
    if (version.launch.keep_memory) replayed.reserve(21);
    const gpu::Stream stream;
    const auto capture = [&] { return gpu::Graph(stream, [&] { by_graph.step(stream); }); };
    CAPTURE(version.name);
    if (!version.launch.keep_memory) {
      CHECK_THROWS_AS(capture(), gpu::Error);
      continue;
    }
    const gpu::Graph graph = capture();
    for (int t = 0; t < 5; ++t) {
      plainly.step();
      graph.launch(stream);
    }
    stream.wait();
    CHECK(same_bits(state(plain), state(replayed)));
    CHECK(plainly.loss() == by_graph.loss());
  }
}

// ---- NumPy ------------------------------------------------------------------------------------

namespace {

std::vector<double> doubles(const std::string& array) {
  return read_npy(reference_path("sequential_" + array + ".npy")).values;
}
std::vector<float> floats(const std::string& array) {
  const std::vector<double> values = doubles(array);
  return std::vector<float>(values.begin(), values.end());
}

// The model of the references, as it begins there.
Sequential numpy_model(const Mode& mode) {
  Sequential model{Linear(5, 7), ReLU(), Linear(7, 3)};
  model.set_mode(mode);
  model.initialize((std::uint64_t{1} << 40) + 7);
  return model;
}

}  // namespace

TEST_CASE("the first numbers are NumPy's, bit for bit", "[numpy]") {
  const Sequential model = numpy_model(kFused);
  CHECK(same_bits(to_host(model.tensors()[0].w, 35), floats("w1")));
  CHECK(same_bits(to_host(model.tensors()[2].w, 21), floats("w2")));
}

TEST_CASE("forward and backward agree with NumPy", "[numpy]") {
  for (const auto& version : testing::chosen(kVersions)) {
    Sequential model = numpy_model(version.launch);
    Step step(model, 37);
    step.x = floats("x"), step.grad_y = floats("grad_y");
    step.want = step_cpu(model, step.x, step.grad_y, step.batch);  // for its bounds
    step.want.y.value = doubles("y");
    for (size_t k = 0; k < model.tensors().size(); ++k)
      step.want.gradients[k].value = doubles("grad_" + model.tensors()[k].name);
    CAPTURE(version.name);
    REQUIRE_OK(run(model, step));
  }
}

TEST_CASE("twenty steps of training agree with NumPy", "[numpy]") {
#if defined(COURSE_SANITIZE_THREAD)
  constexpr size_t kSteps = 2;  // a block takes ThreadSanitizer milliseconds
#else
  constexpr size_t kSteps = 20;
#endif
  const std::vector<double> wide_labels = doubles("labels");
  std::vector<int> labels;
  for (const double label : wide_labels) labels.push_back(static_cast<int>(label));
  for (const auto& version : testing::chosen(kVersions))
    for (const Kind kind : {Kind::Sgd, Kind::Adam}) {
      const std::string name = optimizers::name(kind);
      const std::vector<double> losses = doubles(name + "_loss");
      Sequential model = numpy_model(version.launch);
      Trainer trainer(model, kind, floats("x"), labels, kind == Kind::Sgd ? 0.1f : 0.01f);
      for (size_t t = 0; t < kSteps; ++t) {
        trainer.step();
        CAPTURE(version.name, name, t);
        REQUIRE(std::fabs(trainer.loss() - losses[t]) <= 1e-5 * losses[t]);
      }
      if (kSteps < 20) continue;
      for (const NamedTensor& tensor : model.tensors()) {
        const std::vector<double> want = doubles(name + "_" + tensor.name);
        const std::vector<float> got = to_host(tensor.w, tensor.n);
        CAPTURE(version.name, name, tensor.name);
        REQUIRE_OK(compare(
            got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
            [](size_t) { return 1e-5; }));
      }
    }
}

// ---- Checkpoints ------------------------------------------------------------------------------

TEST_CASE("a checkpoint brings back every bit, and says where the training was") {
  const Folder folder;
  const std::string path = folder.file("model.safetensors");
  for (const Kind kind : optimizers::kKinds) {
    Sequential model = make(Linear(6, 5), ReLU(), Linear(5, 3));
    Trainer trainer(model, kind, random_floats(12 * 6, 1), some_labels(12, 3), 0.01f);
    for (int t = 0; t < 4; ++t) trainer.step();
    const TrainingState saved{4,
                              2,
                              0xFFFFFFFFFFFFFFFFu,
                              optimizers::name(kind),
                              {{"batch", "12"}, {"note", "\"\n\xC3\xA4"}}};
    save(path, model, &saved);
    CHECK(folder.files() == 1);
    Sequential other{Linear(6, 5), ReLU(), Linear(5, 3)};
    other.initialize(77);
    HIP_CHECK(hipMemset(other.arena().m, 0, 2 * other.arena().n * sizeof(float)));
    const TrainingState loaded = load(path, other);
    CAPTURE(optimizers::name(kind));
    CHECK(same_bits(state(other), state(model)));
    CHECK(loaded.steps == saved.steps);
    CHECK(loaded.epochs == saved.epochs);
    CHECK(loaded.seed == saved.seed);
    CHECK(loaded.optimizer == saved.optimizer);
    CHECK(loaded.more == saved.more);
    CHECK(safetensors::read(path).tensors.size() ==
          4 * (1 + static_cast<size_t>(optimizers::states(kind))));
  }
}

TEST_CASE("parameters alone are a checkpoint, too") {
  const Folder folder;
  const std::string path = folder.file("model.safetensors");
  Sequential model = make(Linear(6, 5), ReLU(), Linear(5, 3));
  save(path, model);
  Sequential other{Linear(6, 5), ReLU(), Linear(5, 3)};
  HIP_CHECK(hipMemset(other.arena().m, 0x3F, 2 * other.arena().n * sizeof(float)));
  const TrainingState state_of_none = load(path, other);
  CHECK(state_of_none.optimizer.empty());
  CHECK(state_of_none.steps == 0);
  CHECK(same_bits(state(other), state(model)));
}

TEST_CASE("ten steps are five, a checkpoint, and five more, bit for bit") {
  const Folder folder;
  const std::string path = folder.file("model.safetensors");
  const std::vector<float> x = random_floats(12 * 6, 1);
  const std::vector<int> labels = some_labels(12, 3);
  for (const Kind kind : optimizers::kKinds) {
    Sequential whole = make(Linear(6, 5), ReLU(), Linear(5, 3));
    Trainer at_once(whole, kind, x, labels, 0.02f);
    for (int t = 0; t < 10; ++t) at_once.step();

    {
      Sequential model = make(Linear(6, 5), ReLU(), Linear(5, 3));
      Trainer trainer(model, kind, x, labels, 0.02f);
      for (int t = 0; t < 5; ++t) trainer.step();
      const TrainingState saved{5, 0, 5, optimizers::name(kind), {}};
      save(path, model, &saved);
    }
    Sequential resumed{Linear(6, 5), ReLU(), Linear(5, 3)};
    const TrainingState loaded = load(path, resumed);
    Trainer trainer(resumed, kind, x, labels, 0.02f, loaded.steps);
    for (int t = 0; t < 5; ++t) trainer.step();
    CAPTURE(optimizers::name(kind));
    CHECK(same_bits(state(resumed), state(whole)));
    CHECK(trainer.loss() == at_once.loss());
  }
}

namespace {

// Loads the file into a model, which must stay as it was; what load() says, less the file's name.
std::string refusal(const std::string& path, Sequential& model) {
  const std::vector<float> before = state(model);
  const std::string text = complaint<std::runtime_error>([&] { load(path, model); });
  CHECK(same_bits(state(model), before));
  CHECK(text.rfind(path + " ", 0) == 0);
  return text.substr(std::min(text.size(), path.size() + 1));
}

}  // namespace

TEST_CASE("checkpoints of other models are refused and leave the model as it was", "[harness]") {
  const Folder folder;
  const std::string path = folder.file("model.safetensors");
  Sequential model = make(Linear(6, 5), ReLU(), Linear(5, 3));
  const TrainingState adam{4, 2, 1, "adam", {}};
  save(path, model, &adam);

  Sequential wider = make(Linear(6, 8), ReLU(), Linear(8, 3));
  CHECK(refusal(path, wider) ==
        "holds a \"Sequential{Linear(6, 5), ReLU(), Linear(5, 3)}\", not a "
        "Sequential{Linear(6, 8), ReLU(), Linear(8, 3)}");
  Sequential other = make(Linear(6, 5), Tanh(), Linear(5, 3));
  CHECK(contains_text(refusal(path, other), "not a Sequential{Linear(6, 5), Tanh()"));

  // Files that do not say of which model they are, or say it wrongly.
  const safetensors::File good = safetensors::read(path);
  const auto refuses = [&](const std::function<void(safetensors::File&)>& change) {
    safetensors::File file = good;
    change(file);
    safetensors::write(path, file);
    return refusal(path, model);
  };
  const auto at = [](safetensors::File& file, const std::string& name) -> safetensors::Tensor& {
    for (safetensors::Tensor& tensor : file.tensors)
      if (tensor.name == name) return tensor;
    throw std::logic_error("no tensor " + name);
  };
  CHECK(refuses([&](auto& file) {
          at(file, "2.weight").shape = {5, 3};
        }) == "has a tensor \"2.weight\" of shape [5, 3]; the model's is [3, 5]");
  CHECK(refuses([&](auto& file) { at(file, "0.weight").name = "1.weight"; }) ==
        "has no tensor \"0.weight\"");
  CHECK(refuses([&](auto& file) { at(file, "optimizer.v.2.bias").name = "x"; }) ==
        "has no tensor \"optimizer.v.2.bias\"");
  CHECK(refuses([&](auto& file) {
          at(file, "optimizer.m.0.bias").shape = {5, 1};
        }) == "has a tensor \"optimizer.m.0.bias\" of shape [5, 1]; the model's is [5]");
  CHECK(refuses([&](auto& file) {
          file.tensors.push_back({"3.weight", {1}, {0}});
        }) == "has a tensor \"3.weight\" that the model does not have");
  CHECK(refuses([&](auto& file) {
          file.metadata["training.optimizer"] = "sgd";
        }).rfind("has a tensor \"optimizer.m.", 0) == 0);
  CHECK(refuses([&](auto& file) { file.metadata["training.optimizer"] = "adagrad"; }) ==
        "holds no training that could go on: there is no optimizer \"adagrad\"");
  CHECK(refuses([&](auto& file) { file.metadata.erase("training.steps"); }) ==
        "holds no training that could go on: it has no \"steps\"");
  for (const std::string number : {"", "-1", "1.5", "7x", " 7", "18446744073709551616"})
    CHECK(contains_text(refuses([&](auto& file) { file.metadata["training.epochs"] = number; }),
                        "its \"epochs\" is \"" + number + "\""));
  CHECK(contains_text(refusal(folder.file("none"), model), "cannot be opened"));

  const TrainingState unknown{0, 0, 0, "adagrad", {}};
  CHECK_THROWS_AS(save(path, model, &unknown), std::invalid_argument);
  CHECK_THROWS_AS(save(folder.file("no/folder"), model), std::runtime_error);
}

TEST_CASE("what a checkpoint says of another training is one short line") {
  const auto complaint_of = [](const std::string& has) {
    return complaint<std::runtime_error>(
        [&] { sequential::require_same("F", "sales", has, "file 1"); });
  };
  CHECK(complaint_of("file 2") == "F is of a training with sales file 2, not file 1");
  CHECK(complaint_of("") == "F is of a training with sales unknown, not file 1");
  CHECK(complaint_of("\x1b[2J\n") == R"(F is of a training with sales "\u001b[2J\n", not file 1)");
  CHECK(complaint_of(std::string(100000, 'x')).size() < 120);
}

TEST_CASE("a truncated or damaged checkpoint never crashes and never half loads", "[harness]") {
  const Folder folder;
  const std::string path = folder.file("model.safetensors"), bad = folder.file("bad");
  Sequential saved = make(Linear(2, 2), ReLU(), Linear(2, 1));
  const TrainingState state_of_training{4, 2, 1, "momentum", {}};
  save(path, saved, &state_of_training);
  const std::string whole = content_of(path);

  Sequential model{Linear(2, 2), ReLU(), Linear(2, 1)};
  model.initialize(9);
  for (size_t length = 0; length < whole.size(); ++length) {
    write_content(bad, whole.substr(0, length));
    CAPTURE(length);
    REQUIRE(contains_text(refusal(bad, model), "is truncated"));
  }
  write_content(bad, whole + '\0');
  CHECK(contains_text(refusal(bad, model), "left over"));

  // A flipped bit in the header is found, or changes a text that nobody can know: that of the
  // metadata. Then everything is loaded.
  const std::vector<float> before = state(model), after = state(saved);
  size_t header = 0;
  for (size_t i = 0; i < 8; ++i) header |= size_t{static_cast<unsigned char>(whole[i])} << (8 * i);
  size_t refused = 0, loaded = 0;
  for (size_t i = 0; i < 8 + header; ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      write_content(bad, damaged);
      CAPTURE(i, bit);
      try {
        load(bad, model);
        ++loaded;
        REQUIRE(same_bits(state(model), after));
        model.initialize(9);
      } catch (const std::runtime_error& error) {
        ++refused;
        REQUIRE(same_bits(state(model), before));
        REQUIRE(std::string(error.what()).find('\n') == std::string::npos);
      }
    }
  CHECK(refused > 10 * loaded);
}

// tests/python/test_checkpoint.py runs this one: other programs shall read what is written here,
// and write what is read here.
TEST_CASE("a checkpoint goes to $COURSE_CHECKPOINT", "[.checkpoint]") {
  const char *to = std::getenv("COURSE_CHECKPOINT"), *from = std::getenv("COURSE_CHECKPOINT_FROM");
  REQUIRE(to != nullptr);
  Sequential model{Linear(4, 16), ReLU(), Linear(16, 3)};
  model.initialize(7);
  TrainingState training{5, 1, 7, "adam", {{"note", "\xC3\xA4"}}};
  for (const NamedTensor& tensor : model.tensors()) {
    random_numbers::launch_fill_uniform(tensor.m, tensor.n, 7, 10);
    random_numbers::launch_fill_uniform(tensor.v, tensor.n, 7, 11);
  }
  if (from != nullptr) training = load(from, model);
  save(to, model, training.optimizer.empty() ? nullptr : &training);
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
