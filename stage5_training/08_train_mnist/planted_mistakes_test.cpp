// What the checks of the first steps must catch, and what becomes of a version that they catch.
#include <cstddef>
#include <string>
#include <vector>

#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage5_training/08_train_mnist/mnist_program.h"
#include "stage5_training/08_train_mnist/reference.h"
#include "stage5_training/08_train_mnist/train_mnist.h"
#include "stage5_training/08_train_mnist/training_for_tests.h"

using namespace train_mnist;
using namespace mnist_test;
using tests::Folder;
using tests::read_file;
using tests::write_file;

namespace {

// A graph that begins where another training was.
void run_from_a_wrong_place(Training& t, size_t steps) {
  const std::uint64_t wrong = 1;
  t.position.to_device(&wrong, 1);
  t.replay(steps, "from a wrong place", [&] { queue_fused(t); });
}

// The optimizer without its counter.
void run_without_counting(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    t.run_operations(1);
    Schedule schedule;
    schedule.hyper = t.settings.hyper, schedule.step = i;
    HIP_CHECK(hipStreamSynchronize(t.stream));
    t.schedule.to_device(&schedule, 1);
  }
}

// The biases of the classes are forgotten after each step.
void run_without_biases(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    run_fused(t, 1);
    HIP_CHECK(hipStreamSynchronize(t.stream));
    HIP_CHECK(hipMemset(t.model.tensors()[3].w, 0, kClasses * sizeof(float)));
  }
}

}  // namespace

TEST_CASE("steps from a wrong place, uncounted ones and a forgotten bias are caught", "[harness]") {
  const mnist::Digits digits = mnist::draw(200, 3);
  const DeviceDigits images(digits);
  Settings settings;
  settings.hidden = 8;
  Training training(settings, images.samples());
  const size_t steps = training.steps_per_epoch();
  const Trajectory want = trajectory_cpu(training, digits, steps);
  for (const auto queue : {run_from_a_wrong_place, run_without_counting, run_without_biases}) {
    training.restart();
    queue(training, steps);
    HIP_CHECK(hipDeviceSynchronize());
    REQUIRE(!compare_losses(training.losses(), want).ok);
  }
}

namespace {

// A gradient that is off by a factor, in all tensors (-1) or in one.
float g_factor = 1;
int g_tensor = -1;

void multiply(float* values, size_t n, float factor) {
  std::vector<float> host(n);
  HIP_CHECK(hipMemcpy(host.data(), values, n * sizeof(float), hipMemcpyDeviceToHost));
  for (float& value : host) value *= factor;
  HIP_CHECK(hipMemcpy(values, host.data(), n * sizeof(float), hipMemcpyHostToDevice));
}

void run_with_gradient_off(Training& t, size_t steps) {
  const Sampler sampler = t.sampler;
  for (size_t i = 0; i < steps; ++i) {
    const std::uint64_t step = t.steps++;
    const auto order = sampler.order(step);
    for (size_t sample = 0; sample < sampler.batch; ++sample)
      mnist::launch_gather_in_order(t.x.data() + sample * kPixels, t.labels.data() + sample,
                                    t.samples, order(sampler.place(step, sample)), 1);
    const float* logits = t.model.forward(t.x.data(), sampler.batch, t.stream);
    losses::cross_entropy(t.loss.data(), t.grad_y.data(), logits,
                          {t.labels.data(), sampler.batch, kClasses}, t.loss_buffers.workspace(),
                          t.stream);
    t.model.backward(t.grad_y.data(), t.stream);
    HIP_CHECK(hipStreamSynchronize(t.stream));
    for (size_t k = 0; k < t.model.tensors().size(); ++k) {
      const sequential::NamedTensor& tensor = t.model.tensors()[k];
      if (g_tensor < 0 || k == static_cast<size_t>(g_tensor))
        multiply(tensor.grad, tensor.n, g_factor);
    }
    HIP_CHECK(hipMemcpy(t.curve.data() + step % sampler.steps_per_epoch(), t.loss.data(),
                        sizeof(float), hipMemcpyDeviceToDevice));
    optimizers::step(t.settings.kind, t.model.arena(), t.schedule.data(), t.stream);
  }
}

}  // namespace

TEST_CASE("a large learning rate makes no right version wrong, and hides no wrong gradient",
          "[harness]") {
  const mnist::Digits digits = mnist::draw(200, 3);
  const DeviceDigits images(digits);
  for (const optimizers::Kind kind : optimizers::kKinds)
    for (const float rate : {1e-3f, 0.03f, 0.2f, 10.0f, 1e3f}) {
      Settings settings;
      settings.hidden = 8, settings.batch = 20, settings.kind = kind, settings.seed = 11;
      settings.hyper.learning_rate = rate;
      Training training(settings, images.samples());
      const Trajectory want = trajectory_cpu(training, digits, 10);
      REQUIRE(!want.losses.empty());
      CAPTURE(optimizers::name(kind), rate);
      for (const auto& version : kVersions)
        if (version.launch.obstacle(training).empty())
          REQUIRE_OK(train_toy::check_first_steps(
              training, [&](size_t count) { version.launch.queue(training, count); }, want));
      const auto check = [&](float factor, int tensor) {
        g_factor = factor, g_tensor = tensor;
        return train_toy::check_first_steps(
            training, [&](size_t count) { run_with_gradient_off(training, count); }, want);
      };
      REQUIRE_OK(check(1, -1));
      for (const float factor : {1.2f, 1.05f, 0.95f, -1.0f})
        for (int tensor = -1; tensor < 4; ++tensor) {
          CAPTURE(factor, tensor);
          REQUIRE_FALSE(check(factor, tensor).ok);
        }
    }
}

TEST_CASE("a version whose first steps are wrong is not trained, and writes no checkpoint",
          "[harness]") {
  const Folder folder;
  const std::string path = folder / "model";
  write_file(path, "an older model");
  const mnist::Data data{{mnist::draw(100, 3), mnist::draw(20, 4)}, "drawn digits"};
  const DeviceDigits images(data.digits.train);
  Settings settings;
  settings.hidden = 8, settings.batch = 20;
  Training training(settings, images.samples());
  const Trajectory want = trajectory_cpu(training, data.digits.train, 5);
  constexpr Version<Launch> wrong[] = {{"wrong", {run_with_gradient_off, takes_any}, "is wrong"}};
  Options options;
  options.training.epochs = 1, options.training.checkpoint = path;
  const auto run = [&](float factor) {
    g_factor = factor, g_tensor = -1;
    Report report({"5.8", "train_mnist", "", {}, {}}, options, describe_device());
    mnist::run_versions(training, wrong, wrong[0], want, data, {kDefaults, {}}, options, report,
                        [](double) { return Work{}; });
    return report.finish();
  };
  REQUIRE(run(1.05f) == 1);
  REQUIRE(read_file(path) == "an older model");
  if (!kTimes) return;
  REQUIRE(run(1) == 0);
  REQUIRE(read_file(path) != "an older model");
}
