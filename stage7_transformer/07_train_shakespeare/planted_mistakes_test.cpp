// What the checks of the first steps must catch.
#include <string>
#include <vector>

#include "common/program.h"
#include "common/testing.h"
#include "stage7_transformer/07_train_shakespeare/first_steps.h"
#include "stage7_transformer/07_train_shakespeare/reference.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"
#include "stage7_transformer/07_train_shakespeare/training_for_tests.h"

using namespace train_shakespeare;
using namespace shakespeare_test;
using train_toy::compare_losses;
using train_toy::Trajectory;

namespace {

// Every step reads the pieces of the first one.
template <Launch kRun>
void run_without_drawing(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    Schedule state;
    HIP_CHECK(hipDeviceSynchronize());
    t.schedule.to_device(&state, 1);
    kRun(t, 1);
  }
}

// The optimizer without its schedule: every step has the rate and the corrections of the first.
template <Launch kRun>
void run_without_schedule(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    HIP_CHECK(hipDeviceSynchronize());
    Schedule first = t.schedules.to_host()[0];
    std::vector<Schedule> list(t.schedules.size(), first);
    for (size_t k = 0; k < list.size(); ++k) list[k].step = k + 1;
    t.schedules.to_device(list.data(), list.size());
    kRun(t, 1);
  }
  HIP_CHECK(hipDeviceSynchronize());
  const std::vector<Schedule> list = schedules(t.wanted());
  t.schedules.to_device(list.data(), list.size());
}

// The head's gradient is forgotten.
template <Launch kRun>
void run_without_head(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    const NamedTensor& head = t.model.tensors().back();
    std::vector<float> before(head.n);
    HIP_CHECK(hipDeviceSynchronize());
    HIP_CHECK(hipMemcpy(before.data(), head.w, head.n * sizeof(float), hipMemcpyDeviceToHost));
    kRun(t, 1);
    HIP_CHECK(hipDeviceSynchronize());
    HIP_CHECK(hipMemcpy(head.w, before.data(), head.n * sizeof(float), hipMemcpyHostToDevice));
  }
}

}  // namespace

TEST_CASE("pieces drawn once, a schedule that stands still and a head that learns nothing are seen",
          "[harness]") {
  const Settings settings = settings_of({2, 2, 8, 9, 3}, 30);
  Training training(settings, corpus());
  const Trajectory want =
      trajectory_cpu(settings, corpus().train, parameters_of(training), kCheckedSteps);
  for (const Launch launch : {run_without_drawing<run_fused>, run_without_schedule<run_fused>,
                              run_without_head<run_fused>}) {
    training.restart();
    REQUIRE(!compare_losses(losses_of(training, launch, kCheckedSteps), want).ok);
  }
  training.restart();
  REQUIRE(compare_losses(losses_of(training, run_fused, kCheckedSteps), want).ok);
}

TEST_CASE("the program's check refuses the same mistakes, and no right version", "[harness]") {
  Settings settings = settings_of({2, 2, 8, 9, 3}, 30);
  const auto check = [&](const Version<Launch>& version) {
    Training training(settings, corpus());
    return FirstSteps(training, corpus()).check(version);
  };
  for (const auto& version : kVersions) REQUIRE_OK(check(version));
  for (const Launch launch : {run_without_drawing<run_fused>, run_without_schedule<run_fused>,
                              run_without_head<run_fused>})
    REQUIRE_FALSE(check({"wrong", launch, "is wrong"}).ok);
}

TEST_CASE("the check of bf16 refuses the same mistakes, and no right version", "[harness]") {
  if (!missing(kBf16Versions[0].needs).empty()) return;
  const Settings settings = settings_of({2, 2, 8, 9, 3}, 30);
  const auto check = [&](Launch launch) {
    Training training(settings, corpus());
    return FirstSteps(training, corpus(), Precision::bf16).check({"one", launch, "is checked"});
  };
  for (const auto& version : kBf16Versions) REQUIRE_OK(check(version.launch));
  for (const Launch launch :
       {run_without_drawing<run_bf16>, run_without_schedule<run_bf16>, run_without_head<run_bf16>})
    REQUIRE_FALSE(check(launch).ok);
}
