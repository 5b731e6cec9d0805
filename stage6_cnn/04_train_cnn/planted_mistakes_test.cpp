// What the checks of the first steps must catch.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/testing.h"
#include "stage6_cnn/04_train_cnn/detail/sizes.h"
#include "stage6_cnn/04_train_cnn/training_for_tests.h"

using namespace train_cnn;
using namespace cnn_test;
using optimizers::Schedule;

namespace {

// A graph that begins with the images of another step.
void run_from_a_wrong_place(Training& t, size_t steps) {
  const std::vector<unsigned> wrong(t.batch, 1);
  t.rows.to_device(wrong.data(), wrong.size());
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
  const Trajectory want = mnist::trajectory_cpu(training, digits, steps, kDrift);
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
