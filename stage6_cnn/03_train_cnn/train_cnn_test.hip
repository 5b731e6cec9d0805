// Every version trains alike: against NumPy, against double, and against itself after a resume. The
// program: what it refuses, what it saves, how it stops, what it draws. At the end the layers
// alone.
#include "stage5_training/06_train_toy/reference.h"
#include "stage6_cnn/03_train_cnn/train_cnn.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/safetensors.h"
#include "common/testing.h"
#include "common/tests/moved.h"
#include "common/tests/programs.h"
#include "stage5_training/03_gradient_check/gradient_check.h"

// ---- The training -----------------------------------------------------------------------------

namespace {

namespace fs = std::filesystem;
using namespace train_cnn;
using mnist::accuracy;
using mnist::compare_losses;
using mnist::guess;
using mnist::train;
using tests::Folder;
using tests::read_file;
using tests::write_file;

// Tensor by tensor.
std::vector<std::vector<float>> parameters_of(const mnist::Training& t) {
  return train_toy::by_tensor(t.model, t.parameters());
}

// The losses of `steps` steps, epoch by epoch.
std::vector<float> losses_of(Training& training, const Launch& version, size_t steps) {
  const size_t per_epoch = training.steps_per_epoch();
  std::vector<float> losses;
  while (steps > 0) {
    const size_t first = training.steps % per_epoch, part = std::min(steps, per_epoch - first);
    train(training, version, part);
    const std::vector<float> curve = training.losses();
    losses.insert(losses.end(), curve.begin() + static_cast<std::ptrdiff_t>(first),
                  curve.begin() + static_cast<std::ptrdiff_t>(first + part));
    steps -= part;
  }
  return losses;
}

using testing::same_bits;

// The gradient of the mean cross-entropy by logits that may be off by their errors: e in all of
// them moves a probability by a factor of exp(2 e). The float version rounds the differences to the
// largest logit, which exp amplifies by their size, and less than 32 times in exp, sum, quotient,
// and the product with 1 / rows.
Values cross_entropy_gradient(const Values& logits, const std::vector<std::uint8_t>& labels) {
  Values grad = logits;
  for (size_t row = 0; row < labels.size(); ++row) {
    const size_t first = row * kClasses;
    double max = logits.value[first], min = max, sum = 0, error = 0;
    for (size_t i = first; i < first + kClasses; ++i) {
      max = std::fmax(max, logits.value[i]), min = std::fmin(min, logits.value[i]);
      error = std::fmax(error, logits.error[i]);
    }
    for (size_t i = first; i < first + kClasses; ++i) sum += std::exp(logits.value[i] - max);
    const double moved = std::expm1(2 * error) + (2 * (max - min) + 32) * kFloatRoundoff;
    for (size_t i = first; i < first + kClasses; ++i) {
      const double p = std::exp(logits.value[i] - max) / sum,
                   rows = static_cast<double>(labels.size());
      grad.value[i] = (p - (i - first == labels[row] ? 1 : 0)) / rows;
      grad.error[i] = moved * p / rows + 4 * kFloatRoundoff * std::fabs(grad.value[i]);
    }
  }
  return grad;
}

// All gradients of a batch by the layers' own references, with what float versions may be off. No
// order of additions is off by more.
std::vector<Values> gradients_cpu(const Sequential& model,
                                  const std::vector<std::vector<float>>& parameters,
                                  const mnist::Digits& batch) {
  std::vector<std::vector<std::vector<float>>> of_layers(kLayers);
  for (size_t i = 0, k = 0; i < kLayers; ++i)
    for (size_t left = model.layer(i).parameters().size(); left > 0; --left, ++k)
      of_layers[i].push_back(parameters[k]);
  Values x;  // pixels times a rounded 1 / 255
  for (const std::uint8_t pixel : batch.pixels) {
    x.value.push_back(pixel / 255.0);
    x.error.push_back(2 * kFloatRoundoff * x.value.back());
  }
  std::vector<Values> inputs{x};
  for (size_t i = 0; i < kLayers; ++i)
    inputs.push_back(model.layer(i).forward_cpu(inputs[i], of_layers[i], batch.count()));
  Values grad = cross_entropy_gradient(inputs.back(), batch.labels);
  std::vector<Values> gradients;
  for (size_t i = kLayers; i-- > 0;) {
    std::vector<Values> of_layer;
    grad = model.layer(i).backward_cpu(of_layer, grad, inputs[i], of_layers[i], batch.count());
    gradients.insert(gradients.begin(), of_layer.begin(), of_layer.end());
  }
  return gradients;
}

// What Adam's first step makes of a gradient: almost its sign.
double first_step(double grad) { return grad / (std::fabs(grad) + static_cast<double>(1e-8f)); }

void write_digits(const std::string& folder, const std::string& part, const mnist::Digits& digits) {
  tests::write_digits(folder, part, digits.pixels, digits.labels);
}
Outcome run_shell(const std::string& command) { return tests::run_shell("train_cnn", command); }
Outcome run_program_with(const std::string& arguments) {
  return run_shell("\"$PROGRAM\" " + arguments);
}
void require_refusal(const Outcome& outcome, const std::string& words) {
  CAPTURE(outcome.text, words);
  REQUIRE(tests::is_refusal("train_cnn", outcome, words));
}

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
  // The images of the first step.
  mnist::Digits batch() const {
    mnist::Digits chosen;
    for (const size_t row : rows_of({digits.count(), settings.batch, settings.seed}, 0)) {
      const auto first = digits.pixels.begin() + static_cast<std::ptrdiff_t>(row * kPixels);
      chosen.pixels.insert(chosen.pixels.end(), first, first + kPixels);
      chosen.labels.push_back(digits.labels[row]);
    }
    return chosen;
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
  const auto bounds = gradients_cpu(sgd.model, begin, numpy.batch());
  Reference reference(begin);
  reference.differentiate(numpy.digits, rows_of(sgd.sampler, 0));
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
          grad.size(), [&](size_t i) { return reference.gradients()[k][i]; },
          [&](size_t i) { return grad[i]; }, [&](size_t) { return 1e-12 * largest; }));
      REQUIRE_OK(compare(
          grad.size(), [&](size_t i) { return moved[k][i]; },
          [&](size_t i) { return before(i) - grad[i]; },
          [&](size_t i) {
            return bounds[k].error[i] + kFloatRoundoff * std::fabs(before(i) - grad[i]);
          }));
      REQUIRE_OK(compare(
          grad.size(), [&](size_t i) { return stepped[k][i]; }, [&](size_t i) { return next[i]; },
          [&](size_t i) {
            const double error = bounds[k].error[i], step = first_step(grad[i]);
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
  const Trajectory host =
      trajectory_cpu(numpy.settings, numpy.digits, parameters_of(training), want.size());
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

TEST_CASE("every version trains every shape as the reference does") {
  struct Shape {
    size_t hidden, batch, images, steps;
  };
  constexpr Shape kShapes[] = {{1, 1, 3, 7},   {3, 33, 70, 3}, {24, 64, 64, 2},
                               {65, 7, 30, 5}, {256, 2, 5, 3}, {257, 3, 6, 2}};
  for (const Shape& shape : kShapes) {
    const mnist::Digits digits = mnist::draw(shape.images, 3);
    const DeviceDigits images(digits);
    Settings settings;
    settings.hidden = shape.hidden, settings.batch = shape.batch, settings.seed = 17;
    Training training(settings, images.samples());
    const Trajectory want = trajectory_cpu(settings, digits, parameters_of(training), shape.steps);
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
    Reference reference(start);
    const Sampler sampler{digits.count(), settings.batch, settings.seed};
    for (std::uint64_t step = 0; step < 2; ++step) {
      reference.differentiate(digits, rows_of(sampler, step));
      reference.update(settings, step + 1);
    }
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, optimizers::name(kind));
      training.restart();
      train(training, version.launch, 2);
      REQUIRE_OK(tests::compare_moved(parameters_of(training), start, [&](size_t k, size_t i) {
        return reference.parameters()[k][i].w;
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
    Reference reference(start);
    reference.differentiate(digits, rows_of(training.sampler, 0));
    reference.update(settings, 1);
    train(training, version.launch, 1);
    REQUIRE_OK(tests::compare_moved(parameters_of(training), start, [&](size_t k, size_t i) {
      return reference.parameters()[k][i].w;
    }));
  }
}

TEST_CASE("the bound of the losses is small, and knows where float may decide otherwise",
          "[harness]") {
  const mnist::Digits digits = mnist::draw(128, 4);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 12, settings.batch = 16;
  const Training training(settings, images.samples());
  const Trajectory want = trajectory_cpu(settings, digits, parameters_of(training), 8);
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
    std::vector<std::vector<float>> want;
    for (const auto& version : kVersions) {
      CAPTURE(version.name, optimizers::name(kind));
      training.restart();
      train(training, version.launch, 6);
      const auto got = parameters_of(training);
      if (want.empty()) want = got;
      // Adam makes a full step even of a gradient that is nothing but rounding.
      size_t count = 0, apart = 0;
      for (size_t k = 0; k < want.size(); ++k)
        for (size_t i = 0; i < want[k].size(); ++i, ++count)
          if (!(std::fabs(got[k][i] - want[k][i]) <= 2e-5f)) ++apart;
      REQUIRE(apart <= (optimizers::states(kind) == 2 ? count / 200 : 0));
      training.restart();
      train(training, version.launch, 6);
      REQUIRE(same_bits(parameters_of(training), got));  // deterministic
    }
  }
}

TEST_CASE("a resumed training goes on with the same bits", "[long]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  const DeviceDigits images(mnist::draw(50, 5));
  Settings settings;
  settings.hidden = 6, settings.batch = 8;
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    Training whole(settings, images.samples());
    train(whole, version.launch, 9);  // an epoch has 6 steps
    whole.save(path);
    train(whole, version.launch, 5);
    Training resumed(settings, images.samples());
    train(resumed, version.launch, 3);  // what is resumed must not depend on what was before
    resumed.resume(path);
    REQUIRE(resumed.steps == 9);
    train(resumed, version.launch, 5);
    REQUIRE(same_bits(parameters_of(resumed), parameters_of(whole)));
    resumed.save(path);
    const std::string saved = read_file(path);
    whole.save(path);
    REQUIRE(saved == read_file(path));
  }
}

TEST_CASE("versions may take turns in one training") {
  const mnist::Digits digits = mnist::draw(96, 6);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 9, settings.batch = 8;
  Training training(settings, images.samples());
  const Trajectory want = trajectory_cpu(settings, digits, parameters_of(training), 10);
  for (const size_t version : {3, 0, 2, 1, 3, 2, 0, 3, 1, 2})
    train(training, kVersions[version].launch, 1);
  REQUIRE_OK(compare_losses(training.losses(), want));
}

TEST_CASE("what is not this training's checkpoint is refused, and changes nothing", "[harness]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors", damaged = folder / "damaged";
  const DeviceDigits images(mnist::draw(40, 6)), fewer(mnist::draw(30, 6));
  Settings settings;
  settings.hidden = 4, settings.batch = 8;
  Training training(settings, images.samples());
  train(training, kVersions[1].launch, 3);
  training.save(path);
  train(training, kVersions[1].launch, 1);
  const auto before = parameters_of(training);

  const auto refuses = [&](Training& to, const std::string& file, const std::string& words) {
    const auto parameters = parameters_of(to);
    const std::uint64_t steps = to.steps;
    try {
      to.resume(file);
      FAIL("resumed from " + file);
    } catch (const std::runtime_error& error) {
      const std::string text = error.what();
      REQUIRE(contains_text(text, words));
      REQUIRE(contains_text(text, file));
      REQUIRE(text.find('\n') == std::string::npos);
    }
    REQUIRE(to.steps == steps);
    REQUIRE(same_bits(parameters_of(to), parameters));
  };
  const auto refuses_with = [&](const Settings& other, const Samples& samples,
                                const std::string& words) {
    Training to(other, samples);
    refuses(to, path, words);
  };
  Settings other = settings;
  other.seed = 2;
  refuses_with(other, images.samples(), "seed 1, not 2");
  other = settings, other.batch = 5;
  refuses_with(other, images.samples(), "batch 8, not 5");
  other = settings, other.kind = optimizers::Kind::Sgd;
  refuses_with(other, images.samples(), "optimizer adam, not sgd");
  other = settings, other.hidden = 5;
  refuses_with(other, images.samples(), "Linear(784, 5)");
  refuses_with(settings, fewer.samples(), "images 40, not 30");

  // Another network's, of the same training.
  mnist::Training dense(settings, images.samples(),
                        Sequential(sequential::Linear(kPixels, 4), sequential::ReLU(),
                                   sequential::Linear(4, kClasses)));
  dense.save(damaged);
  refuses(training, damaged, "holds a \"Sequential{Linear(784, 4)");

  refuses(training, folder / "missing", "");
  const std::string whole = read_file(path);
  for (size_t length = 0; length < whole.size(); length += 1 + length / 8) {
    write_file(damaged, whole.substr(0, length));
    refuses(training, damaged, "");
  }
  REQUIRE(same_bits(parameters_of(training), before));
}

TEST_CASE("batches that can't be are refused", "[harness]") {
  const DeviceDigits images(mnist::draw(10, 7));
  Settings settings;
  settings.hidden = 2, settings.batch = 0;
  REQUIRE_THROWS_AS(Training(settings, images.samples()), std::invalid_argument);
  settings.batch = 11;
  REQUIRE_THROWS_AS(Training(settings, images.samples()), std::invalid_argument);
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

// ---- The program ------------------------------------------------------------------------------

TEST_CASE("the program refuses what it can't use, in one line", "[harness]") {
  const Folder folder;
  const std::string data = folder / "data";
  fs::create_directories(data + "/mnist");
  require_refusal(run_program_with("--quick --data " + data), "train-images-idx3-ubyte.gz");
  write_digits(data, "train", mnist::draw(70, 1));
  write_digits(data, "t10k", mnist::draw(20, 2));
  const std::string images = data + "/mnist/t10k-images-idx3-ubyte", whole = read_file(images);
  write_file(images, whole.substr(0, whole.size() - 1));
  require_refusal(run_program_with("--quick --data " + data),
                  "t10k-images-idx3-ubyte is truncated");
  write_file(images, whole);
  const std::string with_data = "--quick --data " + data + " ";
  require_refusal(run_program_with(with_data + "--batch 71"), "71 of 70 images");
  write_file(folder / "garbage", "no checkpoint");
  require_refusal(run_program_with(with_data + "--evaluate " + (folder / "garbage")), "garbage");
  require_refusal(run_program_with(with_data + "--resume --checkpoint " + (folder / "garbage")),
                  "garbage");
  require_refusal(run_program_with(with_data + "--size 0x10"), "at least 1");
  require_refusal(run_program_with(with_data + "--show /no/such/folder/cnn.png"), "--show");
}

TEST_CASE("the program saves, resumes with the same bits, evaluates and draws", "[harness]") {
  const Folder folder;
  const std::string whole = folder / "whole", parts = folder / "parts";
  const std::string common = "--quick --version fused --size 6x60 --batch 20 --seed 3 ";
  const Outcome once = run_program_with(common + "--epochs 3 --checkpoint " + whole);
  CAPTURE(once.text);
  REQUIRE(once.exit_code == 0);
  REQUIRE(once.says("drawn digits"));
  REQUIRE(once.says("epoch 3/3"));
  REQUIRE(once.says("parameters, gradients, m and v"));
  REQUIRE(run_program_with(common + "--epochs 1 --checkpoint " + parts).exit_code == 0);
  const std::string learnt = folder / "learnt.png", read = folder / "read.png";
  const Outcome rest =
      run_program_with(common + "--epochs 3 --resume --checkpoint " + parts + " --show " + learnt);
  CAPTURE(rest.text);
  REQUIRE(rest.exit_code == 0);
  REQUIRE(!rest.says("epoch 1/3"));
  if (std::string(gpu::kBackend) == "cpu") REQUIRE(read_file(parts) == read_file(whole));

  const Outcome test =
      run_program_with("--quick --size 6x60 --evaluate " + parts + " --show " + read);
  CAPTURE(test.text);
  REQUIRE(test.exit_code == 0);
  REQUIRE(test.says("test accuracy"));
  REQUIRE(test.says("drawn in " + read));
  // The same model draws the same picture, a PNG of 1136 x 1196.
  const std::string picture = read_file(read);
  REQUIRE(picture.size() > 5000);
  REQUIRE(picture.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  REQUIRE(picture.substr(16, 8) == std::string("\0\0\4\x70\0\0\4\xac", 8));
  REQUIRE(picture == read_file(learnt));
  require_refusal(run_program_with("--quick --size 7x60 --evaluate " + whole), "Linear(784, 7)");
  require_refusal(run_program_with(common + "--epochs 3 --resume --checkpoint " + parts), "epochs");
}

TEST_CASE("Ctrl-C saves the checkpoint and ends with 130", "[harness]") {
  const Folder folder;
  const std::string path = folder / "model";
  // The signal comes when the first epoch has been saved.
  const Outcome outcome = run_shell(
      "\"$PROGRAM\" --quick --version graph --size 6x60 --batch 20 --epochs 20000 --checkpoint " +
      path + " & training=$!; while kill -0 $training && [ ! -e " + path +
      " ]; do sleep 0.1; done; kill -INT $training; wait $training");
  CAPTURE(outcome.text);
  REQUIRE(outcome.exit_code == 130);
  REQUIRE(outcome.says("saved in " + path));
  REQUIRE(outcome.says("--resume"));
  REQUIRE(run_program_with("--quick --size 6x60 --evaluate " + path).exit_code == 0);
}

// ---- The real data ----------------------------------------------------------------------------

TEST_CASE("MNIST is read as well as was promised, from three seeds", "[.mnist]") {
  const char* variable = std::getenv("COURSE_DATA");
  const std::string folder = variable != nullptr && *variable != '\0' ? variable : "data";
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

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// A graph that begins with the images of another step.
void run_from_a_wrong_place(Training& t, size_t steps) {
  const std::vector<unsigned> wrong(t.batch, 1);
  t.rows.to_device(wrong.data(), wrong.size());
  gpu::allow_shared_bytes(differentiate_images, sizeof(ImageMemory));
  t.replay(steps, "from a wrong place", [&] { queue_per_image(t); });
}

// The optimizer without its counter.
void run_without_counting(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    run_operations(t, 1);
    optimizers::Hyperparameters hyper;
    hyper.learning_rate = t.settings.hyper.learning_rate;
    Schedule schedule;
    schedule.hyper = hyper, schedule.step = i;
    HIP_CHECK(hipStreamSynchronize(t.stream));
    t.schedule.to_device(&schedule, 1);
  }
}

// A parameter that does not learn: the biases of the second convolution.
void run_with_a_forgotten_bias(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    run_fused(t, 1);
    HIP_CHECK(hipStreamSynchronize(t.stream));
    HIP_CHECK(hipMemset(t.model.tensors()[3].w, 0, kChannels2 * sizeof(float)));
  }
}

// The filters of the second convolution, turned around.
void run_with_turned_filters(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    run_fused(t, 1);
    std::vector<float> w = parameters_of(t)[2];
    for (size_t first = 0; first < w.size(); first += kTaps)
      std::reverse(w.begin() + static_cast<std::ptrdiff_t>(first),
                   w.begin() + static_cast<std::ptrdiff_t>(first + kTaps));
    HIP_CHECK(hipStreamSynchronize(t.stream));
    HIP_CHECK(hipMemcpy(t.model.tensors()[2].w, w.data(), w.size() * sizeof(float),
                        hipMemcpyHostToDevice));
  }
}

}  // namespace

TEST_CASE("wrong images, uncounted steps, a forgotten bias and turned filters are caught",
          "[harness]") {
  const mnist::Digits digits = mnist::draw(320, 3);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 8, settings.batch = 32;
  Training training(settings, images.samples());
  const size_t steps = training.steps_per_epoch();
  const Trajectory want = trajectory_cpu(settings, digits, parameters_of(training), steps);
  // With these images no decision of these steps is in doubt.
  REQUIRE(want.bounds.back() <= 2e-5 * want.losses.back());
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    training.restart();
    train(training, version.launch, steps);
    REQUIRE_OK(compare_losses(training.losses(), want));
  }
  for (const auto queue : {run_from_a_wrong_place, run_without_counting, run_with_a_forgotten_bias,
                           run_with_turned_filters}) {
    training.restart();
    queue(training, steps);
    HIP_CHECK(hipDeviceSynchronize());
    REQUIRE(!compare_losses(training.losses(), want).ok);
  }
}

// ---- The layers -------------------------------------------------------------------------------

// In a namespace of their own: these cases have helpers with the names of those above.
namespace layers_test {
namespace {

using namespace train_cnn;
using sequential::Linear;
using sequential::Mode;
using sequential::NamedTensor;
using sequential::Reference;
using sequential::ReLU;
using sequential::Sequential;

std::vector<float> random_floats(size_t n, std::uint32_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = random_numbers::uniform(6, stream, i) + 0.125f;
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
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

Comparison against(const std::vector<float>& got, const Values& want) {
  REQUIRE(got.size() == want.value.size());
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
      [&](size_t i) { return want.error[i]; });
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

// Weights from a seed, and biases that are not 0, which would hide where they are added.
template <class... Layers>
Sequential make(Layers... layers) {
  Sequential model{std::move(layers)...};
  model.initialize(5);
  std::uint32_t stream = 200;
  for (const NamedTensor& tensor : model.tensors())
    if (tensor.shape.size() == 1) to_device(tensor.w, random_floats(tensor.n, stream++));
  return model;
}

// The roadmap's network, on small images.
Sequential small_cnn() {
  return make(Conv2d({1, 12, 12}, 3, 3, {1, 1}), ReLU(), MaxPool2d({3, 12, 12}, 2),
              Conv2d({3, 6, 6}, 5, 3, {1, 1}), ReLU(), MaxPool2d({5, 6, 6}, 2), Flatten(),
              Linear(5 * 3 * 3, 7), ReLU(), Linear(7, 4));
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

// What a step has made: y, all gradients, and that of x.
struct Made {
  std::vector<float> y, grad_x;
  std::vector<std::vector<float>> gradients;
};
Made run(Sequential& model, const Step& step, size_t offset = 0) {
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
        REQUIRE_OK(verdict_on(run(model, step, offset), step.want));
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
    REQUIRE_OK(verdict_on(run(model, step), step.want));
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
    REQUIRE_OK(verdict_on(run(model, step), step.want));
  }
}

TEST_CASE("the reference of the pooling's gradient knows where it can't be sure", "[harness]") {
  const MaxPool2d pool({1, 2, 4}, 2);
  const Values grad_y{{3, 5}, {0, 0}};
  std::vector<Values> none;
  // Left: 2 and 2.5, far apart. Right: 4 and 4.1, which may be the other way round.
  const Values x{{2, 1, 4, 0, 2.5, 0, 4.1, 0}, {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1}};
  const Values grad_x = pool.backward_cpu(none, grad_y, x, {}, 1);
  CHECK(grad_x.value == std::vector<double>{0, 0, 0, 0, 3, 0, 5, 0});
  CHECK(grad_x.error == std::vector<double>{0, 0, 5, 0, 0, 0, 5, 0});
  const Values ties{{2, 2, 0, 0, 2, 2, 0, 0}, std::vector<double>(8)};
  const Values of_ties = pool.backward_cpu(none, grad_y, ties, {}, 1);
  CHECK(of_ties.value == std::vector<double>{3, 0, 5, 0, 0, 0, 0, 0});
  CHECK(of_ties.error == std::vector<double>(8));
}

// In which order nothing is summed that was not summed before: the modes differ in no bit.
TEST_CASE("a fused network of images makes the same bits with less") {
  Sequential model = small_cnn();
  const Step step(model, 4);
  std::vector<Made> made;
  std::vector<size_t> bytes;
  for (const auto& version : sequential::kVersions) {
    model.set_mode(version.launch);
    made.push_back(run(model, step));
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
      REQUIRE_OK(verdict_on(run(model, step), step.want));
    }
  }
  Sequential moved = std::move(model);
  const Step step(moved, 3);
  REQUIRE_OK(verdict_on(run(moved, step), step.want));
}

TEST_CASE("a captured step of images is the plain one, bit for bit", "[graph]") {
  Sequential model = small_cnn();
  const Step step(model, 4);
  const Made want = run(model, step);
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

// ---- Their gradients by step 5.3 --------------------------------------------------------------

namespace {

using gradient_check::Argument;
using gradient_check::Case;

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

}  // namespace layers_test
