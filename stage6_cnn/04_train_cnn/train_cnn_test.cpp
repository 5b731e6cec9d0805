// Every version trains alike: against NumPy, against double, and against itself after a resume.
#include "stage6_cnn/04_train_cnn/train_cnn.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "common/npy.h"
#include "common/testing.h"
#include "common/tests/moved.h"
#include "common/training.h"
#include "stage5_training/05_sequential/reference.h"
#include "stage6_cnn/04_train_cnn/detail/sizes.h"
#include "stage6_cnn/04_train_cnn/training_for_tests.h"

namespace {

using namespace train_cnn;
using namespace cnn_test;
using mnist::accuracy;
using mnist::guess;
using mnist::Sampler;
using sequential::DoubleModel;

// The training in double, from these parameters: steps one after the other.
class Double {
 public:
  Double(const Training& training, const mnist::Digits& digits)
      : training_(training), digits_(digits), model_(training.model, parameters_of(training)) {}

  // Forward and backward of step number `step`, the first being 0, with pixels that are off by so
  // many roundings.
  void differentiate(std::uint64_t step, double roundings = 0) {
    const Sampler& sampler = training_.sampler;
    Values x = mnist::images_of(digits_, sampler, step);
    for (size_t i = 0; i < x.value.size(); ++i)
      x.error[i] = roundings * kFloatRoundoff * x.value[i];
    const Values& logits = model_.forward(std::move(x), sampler.batch);
    const std::vector<int> labels = mnist::labels_of(digits_, sampler, step);
    model_.backward(sequential::cross_entropy_cpu(logits, labels, kClasses).grad);
  }
  void step(std::uint64_t step) {
    differentiate(step);
    model_.step(training_.settings.kind, training_.settings.hyper, step + 1);
    model_.forget_errors();
  }

  const std::vector<Values>& gradients() const { return model_.gradients(); }
  double parameter(size_t k, size_t i) const { return model_.parameter(k)[i].w; }

 private:
  const Training& training_;
  const mnist::Digits& digits_;
  DoubleModel model_;
};

// What Adam's first step makes of a gradient: almost its sign.
double first_step(double grad) { return grad / (std::fabs(grad) + static_cast<double>(1e-8f)); }

// NumPy's training, and the same one here.
struct NumpyTraining {
  NumpyTraining()
      : pixels(read_npy(reference_path("train_cnn_pixels.npy"))),
        labels(read_npy(reference_path("train_cnn_labels.npy"))),
        digits{{pixels.values.begin(), pixels.values.end()},
               {labels.values.begin(), labels.values.end()}},
        images(digits) {
    settings.hidden = 8, settings.batch = 6, settings.seed = (std::uint64_t{1} << 33) + 6;
  }
  static std::vector<double> array(const std::string& name) {
    return read_npy(reference_path("train_cnn_" + name + ".npy")).values;
  }

  NpyArray pixels, labels;
  mnist::Digits digits;
  DeviceDigits images;
  Settings settings;
};

}  // namespace

TEST_CASE("one training step is NumPy's: all gradients, and what Adam makes of them", "[numpy]") {
  const NumpyTraining numpy;
  Settings settings = numpy.settings;
  Training adam(settings, numpy.images.samples());
  // The plainest rule with a rate of 1 subtracts the gradient itself, and so shows it.
  settings.kind = optimizers::Kind::Sgd, settings.hyper.learning_rate = 1;
  Training sgd(settings, numpy.images.samples());
  const auto begin = parameters_of(sgd);
  Double reference(sgd, numpy.digits);
  reference.differentiate(0, 2);  // pixels are multiplied by a rounded 1 / 255
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    sgd.restart(), adam.restart();
    train(sgd, version.launch, 1);
    train(adam, version.launch, 1);
    const auto moved = parameters_of(sgd), stepped = parameters_of(adam);
    REQUIRE(moved.size() == 8);
    for (size_t k = 0; k < moved.size(); ++k) {
      const std::string& name = sgd.model.tensors()[k].name;
      CAPTURE(name);
      const auto grad = NumpyTraining::array("grad_" + name);
      const auto next = NumpyTraining::array("first_" + name);
      REQUIRE((grad.size() == moved[k].size() && next.size() == grad.size()));
      const double largest =
          std::fabs(*std::max_element(grad.begin(), grad.end(), [](double a, double b) {
            return std::fabs(a) < std::fabs(b);
          }));
      REQUIRE(largest > 1e-3);  // there is something to compare
      const auto before = [&](size_t i) { return static_cast<double>(begin[k][i]); };
      // Two sums of some thousand terms in double.
      REQUIRE_OK(compare(
          grad.size(), [&](size_t i) { return reference.gradients()[k].value[i]; },
          [&](size_t i) { return grad[i]; }, [&](size_t) { return 1e-12 * largest; }));
      REQUIRE_OK(compare(
          grad.size(), [&](size_t i) { return moved[k][i]; },
          [&](size_t i) { return before(i) - grad[i]; },
          [&](size_t i) {
            return reference.gradients()[k].error[i] +
                   kFloatRoundoff * std::fabs(before(i) - grad[i]);
          }));
      REQUIRE_OK(compare(
          grad.size(), [&](size_t i) { return stepped[k][i]; }, [&](size_t i) { return next[i]; },
          [&](size_t i) {
            const double error = reference.gradients()[k].error[i], step = first_step(grad[i]);
            const double off = std::fmax(std::fabs(first_step(grad[i] + error) - step),
                                         std::fabs(first_step(grad[i] - error) - step));
            return 1e-3 * (off + 16 * kFloatRoundoff) + kFloatRoundoff * std::fabs(next[i]);
          }));
    }
  }
}

TEST_CASE("the losses of 20 steps agree with NumPy's", "[numpy]") {
  const NumpyTraining numpy;
  std::vector<double> want = NumpyTraining::array("losses");
  REQUIRE(want.size() == 20);
#if defined(COURSE_SANITIZE_THREAD)  // which makes a thread of every thread, seconds for each step
  want.resize(1);
#endif
  Training training(numpy.settings, numpy.images.samples());
  const Trajectory host = mnist::trajectory_cpu(training, numpy.digits, want.size(), kDrift);
  for (size_t i = 0; i < want.size(); ++i)
    REQUIRE(std::fabs(host.losses[i] - want[i]) <= 1e-6 * want[i]);  // its gradients are floats
  std::vector<float> first;
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    training.restart();
    const std::vector<float> losses = losses_of(training, version.launch, want.size());
    REQUIRE_OK(compare_losses(losses, {want, host.bounds}));
    // And with the first version: each of the two may be off by the bound.
    if (first.empty()) first = losses;
    REQUIRE_OK(compare(
        losses.size(), [&](size_t i) { return losses[i]; },
        [&](size_t i) { return static_cast<double>(first[i]); },
        [&](size_t i) { return 2 * host.bounds[i]; }));
  }
}

namespace {

struct Shape {
  size_t hidden, batch, images, steps;
};

void check_shapes(const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes) {
    const mnist::Digits digits = mnist::draw(shape.images, 3);
    const DeviceDigits images(digits);
    Settings settings;
    settings.hidden = shape.hidden, settings.batch = shape.batch, settings.seed = 17;
    Training training(settings, images.samples());
    const Trajectory want = mnist::trajectory_cpu(training, digits, shape.steps, kDrift);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, shape.hidden, shape.batch, shape.images);
      if (const std::string why = version.launch.obstacle(training); !why.empty()) {
        REQUIRE((shape.hidden > kMostHidden && why == "takes up to 256 units"));
        continue;
      }
      training.restart();
      REQUIRE_OK(compare_losses(losses_of(training, version.launch, shape.steps), want));
    }
  }
}

}  // namespace

TEST_CASE("every version trains every shape as the reference does") {
  check_shapes({{1, 1, 3, 7}, {3, 17, 20, 2}, {65, 7, 10, 2}, {256, 2, 5, 3}, {257, 3, 6, 2}});
}

TEST_CASE("every version trains with large batches as the reference does", "[long]") {
  check_shapes({{3, 33, 70, 3}, {24, 64, 64, 2}, {65, 7, 30, 5}});
}

// A bound that allows for other decisions hides a gradient that is a little too small. Of these few
// images no decision is close. The second step has momentum.
TEST_CASE("every parameter goes as far as the reference's") {
  const mnist::Digits digits = mnist::draw(6, 3);
  const DeviceDigits images(digits);
  for (const optimizers::Kind kind : {optimizers::Kind::Sgd, optimizers::Kind::Momentum}) {
    Settings settings;
    settings.hidden = 5, settings.batch = 3, settings.seed = 17;
    settings.kind = kind, settings.hyper.learning_rate = 1e-2f;
    Training training(settings, images.samples());
    const auto start = parameters_of(training);
    Double reference(training, digits);
    for (std::uint64_t step = 0; step < 2; ++step) reference.step(step);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, optimizers::name(kind));
      training.restart();
      train(training, version.launch, 2);
      REQUIRE_OK(tests::compare_moved(parameters_of(training), start, [&](size_t k, size_t i) {
        return reference.parameter(k, i);
      }));
    }
  }
}

// exp() of such logits is infinite, unless the largest is subtracted first.
TEST_CASE("logits may lie hundreds apart") {
  constexpr size_t kBias = 7;  // tensors()[7]: the classes' biases
  const mnist::Digits digits = mnist::draw(6, 3);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 5, settings.batch = 3, settings.seed = 17;
  settings.kind = optimizers::Kind::Sgd, settings.hyper.learning_rate = 1e-2f;
  Training training(settings, images.samples());
  std::vector<float> biases(kClasses);
  for (size_t c = 0; c < kClasses; ++c) biases[c] = 100 * static_cast<float>(c);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    training.restart();
    const sequential::NamedTensor& tensor = training.model.tensors()[kBias];
    REQUIRE(tensor.n == kClasses);
    HIP_CHECK(hipMemcpy(tensor.w, biases.data(), kClasses * sizeof(float), hipMemcpyHostToDevice));
    const auto start = parameters_of(training);
    Double reference(training, digits);
    reference.step(0);
    train(training, version.launch, 1);
    REQUIRE_OK(tests::compare_moved(parameters_of(training), start,
                                    [&](size_t k, size_t i) { return reference.parameter(k, i); }));
  }
}

TEST_CASE("the bound of the losses is small, and knows where float may decide otherwise",
          "[harness]") {
  const mnist::Digits digits = mnist::draw(128, 4);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 12, settings.batch = 16;
  const Training training(settings, images.samples());
  const Trajectory want = mnist::trajectory_cpu(training, digits, 8, kDrift);
  for (size_t i = 0; i < 8; ++i) REQUIRE(want.bounds[i] <= 0.05 * want.losses[i]);
  REQUIRE(want.bounds[0] <= 2e-5 * want.losses[0]);  // before the first gradient nothing is decided
}

TEST_CASE("a probability that underflows makes no loss infinite") {
  const DeviceDigits images(mnist::draw(8, 4));
  Settings settings;
  settings.hidden = 8, settings.batch = 4;
  Training training(settings, images.samples());
  const std::vector<float> sure{300, 0, 0, 0, 0, 0, 0, 0, 0, 0};  // exp(-300) is 0 as a float
  for (const auto& version : testing::chosen(kVersions)) {
    training.restart();
    HIP_CHECK(hipMemcpy(training.model.tensors().back().w, sure.data(), sure.size() * sizeof(float),
                        hipMemcpyHostToDevice));
    train(training, version.launch, 1);
    CAPTURE(version.name, training.losses()[0]);
    REQUIRE(training.losses()[0] > 200);
    REQUIRE(training.losses()[0] < 400);
  }
}

TEST_CASE("the versions agree on the parameters, by every optimizer", "[long]") {
  const DeviceDigits images(mnist::draw(150, 4));
  for (const optimizers::Kind kind : optimizers::kKinds) {
    Settings settings;
    settings.hidden = 7, settings.batch = 12, settings.kind = kind;
    settings.hyper.learning_rate = kind == optimizers::Kind::Adam ? 1e-3f : 1e-2f;
    Training training(settings, images.samples());
    const std::vector<float> want =
        parameters_after(training, [&] { train(training, kVersions[0].launch, 6); });
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, optimizers::name(kind));
      require_agrees(training, want, 200, [&] { train(training, version.launch, 6); });
    }
  }
}

TEST_CASE("versions may take turns in one training") {
  const mnist::Digits digits = mnist::draw(36, 6);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 9, settings.batch = 3;
  Training training(settings, images.samples());
  const Trajectory want = mnist::trajectory_cpu(training, digits, 10, kDrift);
  for (const size_t version : {3, 0, 2, 1, 3, 2, 0, 3, 1, 2})
    train(training, kVersions[version].launch, 1);
  REQUIRE_OK(compare_losses(training.losses(), want));
}

TEST_CASE("what the layers see is what the model goes by") {
  const mnist::Digits digits = mnist::draw(3, 8);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 5, settings.batch = 3;
  Training training(settings, images.samples());
  train(training, kVersions[1].launch, 2);
  const std::vector<std::uint8_t> pixels(digits.pixels.begin() + kPixels,
                                         digits.pixels.begin() + 2 * kPixels);
  const auto outputs = [&](size_t count) {
    return outputs_of(training.model, settings.hidden, count, pixels);
  };
  const auto logits = mnist::logits_of(training.model, images.samples());
  const auto last = outputs(kLayers);
  REQUIRE(last.size() == kClasses);
  for (size_t c = 0; c < kClasses; ++c)  // a single image may go through other kernels
    REQUIRE(std::fabs(last[c] - logits[kClasses + c]) <= 1e-4f);
  // The first filter over the image, and the first pool of that.
  const auto w = parameters_of(training);
  const auto sums = outputs(1), rectified = outputs(2), pooled = outputs(3);
  REQUIRE((sums.size() == 6272 && rectified.size() == 6272 && pooled.size() == 1568));
  float sum = w[1][0];
  for (size_t r = 0; r < 3; ++r)
    for (size_t s = 0; s < 3; ++s)
      sum += w[0][3 * r + s] * static_cast<float>(pixels[(12 + r) * 28 + 13 + s]) / 255;
  REQUIRE(std::fabs(sums[13 * 28 + 14] - sum) <= 1e-5f);
  for (size_t i = 0; i < sums.size(); ++i) REQUIRE(rectified[i] == std::fmax(sums[i], 0.0f));
  const float* const corner = rectified.data() + 6 * 28 + 14;
  REQUIRE(pooled[3 * 14 + 7] == std::max({corner[0], corner[1], corner[28], corner[29]}));
}

// ---- The real data ----------------------------------------------------------------------------

TEST_CASE("MNIST is read as well as was promised, from three seeds", "[.mnist]") {
  const std::string folder = training::data_folder({});
  if (!mnist::missing_files(folder).empty()) {
    std::printf("skipped: no MNIST in %s/mnist (python3 scripts/data.py gets it)\n",
                folder.c_str());
    return;
  }
  mnist::DataSet data = mnist::read(folder);
  // A processor does one version: it does not care how kernels are launched.
  const bool is_cpu = std::string(gpu::kBackend) == "cpu";
  const mnist::Promise promise = kPromises[is_cpu ? 0 : 1];
  if (is_cpu) mnist::truncate(data.train, promise.images);
  const DeviceDigits images(data.train), tests(data.test);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Settings settings;
    settings.seed = seed;
    Training training(settings, images.samples());
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, seed);
      if (is_cpu && &version != &best(training)) continue;
      training.restart();
      train(training, version.launch, promise.images / settings.batch);
      REQUIRE(accuracy(guess(training.model, tests.samples(), data.test.labels)) >=
              promise.accuracy);
    }
  }
}

#if defined(GPU_BACKEND_CPU)

#include "common/cpu/internal.h"

TEST_CASE("cpu: a training of images makes three streams, as every Trainer does") {
  const size_t before = cpu::live_streams();
  {
    const DeviceDigits images(mnist::draw(16, 6));
    Settings settings;
    settings.hidden = 9, settings.batch = 8;
    Training training(settings, images.samples());
    for (const auto& version : kVersions) {
      CAPTURE(version.name);
      train(training, version.launch, 1);
      REQUIRE(cpu::live_streams() == before + 3);
    }
  }
  REQUIRE(cpu::live_streams() == before);
}

#endif
