// Every version trains alike: against NumPy, against double, and against itself after a resume.
#include "stage5_training/08_train_mnist/train_mnist.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "common/npy.h"
#include "common/testing.h"
#include "common/tests/programs.h"
#include "common/training.h"
#include "stage5_training/08_train_mnist/reference.h"
#include "stage5_training/08_train_mnist/training_for_tests.h"

namespace {

using namespace train_mnist;
using namespace mnist_test;
using mnist::accuracy;
using mnist::compare_losses;
using mnist::Guess;
using mnist::guess;
using mnist::kEvaluationBatch;
using tests::Folder;

}  // namespace

TEST_CASE("the losses of 20 steps agree with NumPy's", "[numpy]") {
  const NpyArray pixels = read_npy(reference_path("train_mnist_pixels.npy"));
  const NpyArray labels = read_npy(reference_path("train_mnist_labels.npy"));
  std::vector<double> want = read_npy(reference_path("train_mnist_losses.npy")).values;
  REQUIRE(want.size() == 20);
#if defined(COURSE_SANITIZE_THREAD)  // which makes a thread of every thread, seconds for each step
  want.resize(2);
#endif
  const mnist::Digits digits{{pixels.values.begin(), pixels.values.end()},
                             {labels.values.begin(), labels.values.end()}};
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 8, settings.batch = 20, settings.seed = (std::uint64_t{1} << 33) + 5;
  Training training(settings, images.samples());
  const Trajectory host = trajectory_cpu(training, digits, want.size());
  REQUIRE(host.losses.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i)
    REQUIRE(std::fabs(host.losses[i] - want[i]) <= 1e-6 * want[i]);  // its gradients are floats
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    if (!version.launch.obstacle(training).empty()) continue;
    training.restart();
    REQUIRE_OK(
        compare_losses(losses_of(training, version.launch, want.size()), {want, host.bounds}));
  }
}

TEST_CASE("every version trains every shape as the reference does") {
  struct Shape {
    size_t hidden, batch, images, steps;
  };
  constexpr Shape kShapes[] = {{1, 1, 3, 7},   {3, 33, 70, 5},   {5, 64, 130, 5}, {8, 7, 50, 9},
                               {8, 64, 64, 3}, {21, 63, 200, 4}, {135, 64, 70, 2}};
  for (const Shape& shape : kShapes) {
    const mnist::Digits digits = mnist::draw(shape.images, 3);
    const DeviceDigits images(digits);
    Settings settings;
    settings.hidden = shape.hidden, settings.batch = shape.batch, settings.seed = 17;
    Training training(settings, images.samples());
    const Trajectory want = trajectory_cpu(training, digits, shape.steps);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, shape.hidden, shape.batch, shape.images);
      if (const std::string why = version.launch.obstacle(training); !why.empty()) {
        REQUIRE((shape.hidden > kMostUnits && contains_text(why, "blocks do not fit")));
        continue;
      }
      training.restart();
      REQUIRE_OK(compare_losses(losses_of(training, version.launch, shape.steps), want));
    }
  }
}

// Exponentials of these logits overflow, or are all 0, unless the largest logit is taken away.
TEST_CASE("logits of any size make finite losses and gradients") {
  const mnist::Digits digits = mnist::draw(40, 10);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 5, settings.batch = 20;
  std::vector<float> biases;  // of the classes
  for (size_t c = 0; c < kClasses; ++c) biases.push_back(c % 2 == 0 ? 1e4f : -1e4f);
  Training training(settings, images.samples());
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    if (!version.launch.obstacle(training).empty()) continue;
    training.restart();
    HIP_CHECK(hipMemcpy(training.model.tensors()[3].w, biases.data(), kClasses * sizeof(float),
                        hipMemcpyHostToDevice));
    const Trajectory want = trajectory_cpu(training, digits, 4);
    REQUIRE_OK(compare_losses(losses_of(training, version.launch, 4), want));
  }
}

TEST_CASE("the versions agree on the parameters, by every optimizer") {
  const DeviceDigits images(mnist::draw(150, 4));
  for (const optimizers::Kind kind : optimizers::kKinds) {
    Settings settings;
    settings.hidden = 7, settings.batch = 24, settings.kind = kind;
    settings.hyper.learning_rate = kind == optimizers::Kind::Adam ? 1e-3f : 1e-2f;
    Training training(settings, images.samples());
    const std::vector<float> want =
        parameters_after(training, [&] { train(training, kVersions[0].launch, 8); });
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, optimizers::name(kind));
      if (!version.launch.obstacle(training).empty()) continue;
      require_agrees(training, want, 200, [&] { train(training, version.launch, 8); });
    }
  }
}

TEST_CASE("a resumed training goes on with the same bits") {
  const DeviceDigits images(mnist::draw(100, 5));
  Settings settings;
  settings.hidden = 6, settings.batch = 16;
  const auto make = [&] { return std::make_unique<Training>(settings, images.samples()); };
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    if (!version.launch.obstacle(*make()).empty()) continue;
    const auto queue = [&](Training& t, size_t steps) { train(t, version.launch, steps); };
    require_resumes(9, 8, make, queue);  // an epoch has 6 steps
  }
}

TEST_CASE("what is not this training's checkpoint is refused, and changes nothing", "[harness]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  const DeviceDigits images(mnist::draw(40, 6)), fewer(mnist::draw(30, 6));
  Settings settings;
  settings.hidden = 4, settings.batch = 8;
  Training training(settings, images.samples());
  train(training, kVersions[0].launch, 3);
  training.save(path);
  train(training, kVersions[0].launch, 1);
  require_others_refused(settings, path, images.samples(), fewer.samples(),
                         [](const Settings& of, const Samples& samples) {
                           return std::make_unique<Training>(of, samples);
                         });
  require_damage_refused(training, path);
}

TEST_CASE("batches that can't be are refused", "[harness]") {
  const DeviceDigits images(mnist::draw(10, 7));
  Settings settings;
  settings.hidden = 2, settings.batch = 0;
  REQUIRE_THROWS_AS(Training(settings, images.samples()), std::invalid_argument);
  settings.batch = 11;
  REQUIRE_THROWS_AS(Training(settings, images.samples()), std::invalid_argument);
  settings.batch = 10;
  Training training(settings, images.samples());
  REQUIRE(training.steps_per_epoch() == 1);
}

TEST_CASE("an epoch takes every image at most once, and every epoch in another order") {
  constexpr Sampler kCourse{1003, 64, 9};
  std::vector<size_t> first;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> taken(kCourse.samples);
    std::vector<size_t> order;
    for (size_t i = 0; i < kCourse.steps_per_epoch(); ++i) {
      const std::uint64_t step = epoch * kCourse.steps_per_epoch() + i;
      for (size_t sample = 0; sample < kCourse.batch; ++sample)
        order.push_back(kCourse.order(step)(kCourse.place(step, sample)));
    }
    REQUIRE(order.size() == 15 * 64);
    for (const size_t row : order) REQUIRE(++taken.at(row) == 1);
    if (epoch == 0) first = order;
    REQUIRE((epoch == 0) == (order == first));
  }
}

TEST_CASE("what a model says to images, in whole batches and parts of them") {
  const mnist::Digits digits = mnist::draw(kEvaluationBatch + 77, 8);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 32, settings.hyper.learning_rate = 3e-3f;
  Training training(settings, images.samples());
  train(training, kVersions[0].launch, 96);
  const std::vector<Guess> guesses = guess(training.model, images.samples(), digits.labels);
  REQUIRE(guesses.size() == digits.count());
  REQUIRE(accuracy(guesses) > 0.9);
  for (size_t i = 0; i < guesses.size(); ++i) {
    REQUIRE(guesses[i].label == digits.labels[i]);
    REQUIRE((guesses[i].confidence > 0.1 && guesses[i].confidence <= 1));
  }
  // The same images from another place.
  mnist::Digits last{{digits.pixels.end() - 77 * kPixels, digits.pixels.end()},
                     {digits.labels.end() - 77, digits.labels.end()}};
  const DeviceDigits some(last);
  const std::vector<Guess> again = guess(training.model, some.samples(), last.labels);
  for (size_t i = 0; i < again.size(); ++i)
    REQUIRE(again[i].prediction == guesses[kEvaluationBatch + i].prediction);
}

// ---- The real data ----------------------------------------------------------------------------

TEST_CASE("MNIST is read as well as was promised, from three seeds", "[.mnist]") {
  const std::string folder = training::data_folder({});
  if (!mnist::missing_files(folder).empty()) {
    std::printf("skipped: no MNIST in %s/mnist (python3 scripts/data.py gets it)\n",
                folder.c_str());
    return;
  }
  const mnist::DataSet data = mnist::read(folder);
  REQUIRE(data.train.count() == 60000);
  REQUIRE(data.test.count() == 10000);
  const DeviceDigits images(data.train), tests(data.test);
  // A processor does the first version only, by far the fastest there, and one epoch.
  const bool is_cpu = std::string(gpu::kBackend) == "cpu";
  const mnist::Promise promise = kPromises[is_cpu ? 1 : 2];
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    Settings settings;
    settings.seed = seed;
    Training training(settings, images.samples());
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, seed);
      if (!version.launch.obstacle(training).empty() || (is_cpu && &version != kVersions)) continue;
      training.restart();
      train(training, version.launch, promise.images / settings.batch);
      REQUIRE(accuracy(guess(training.model, tests.samples(), data.test.labels)) >=
              promise.accuracy);
    }
  }
}
