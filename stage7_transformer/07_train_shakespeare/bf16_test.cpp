// The versions in bf16: against the reference that rounds what they round, against the versions in
// float, and bit for bit against themselves; and mistakes that must be caught.
#include <cmath>
#include <string>
#include <vector>

#include "common/program.h"
#include "common/testing.h"
#include "stage7_transformer/07_train_shakespeare/reference.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"
#include "stage7_transformer/07_train_shakespeare/training_for_tests.h"

using namespace train_shakespeare;
using namespace shakespeare_test;
using testing::same_bits;
using train_toy::compare_losses;
using train_toy::Trajectory;

namespace {

bool has_bf16() { return missing(kBf16Versions[0].needs).empty(); }

Trajectory reference(Training& training, const Settings& settings) {
  return trajectory_cpu(settings, corpus().train, parameters_of(training), kCheckedSteps,
                        Precision::bf16);
}

}  // namespace

TEST_CASE("bf16 trains every model as the reference does that rounds alike") {
  if (!has_bf16()) return;
  const ModelSizes shapes[] = {{1, 1, 4, 1, 1},  {1, 2, 6, 7, 2},   {2, 1, 5, 9, 3},
                               {3, 3, 24, 5, 4}, {4, 2, 16, 33, 1}, {1, 4, 64, 20, 2}};
  for (const ModelSizes& sizes : shapes) {
    const Settings settings = settings_of(sizes, 30);
    Training training(settings, corpus());
    const Trajectory want = reference(training, settings);
    for (const auto& version : testing::chosen(kBf16Versions)) {
      CAPTURE(version.name, sizes.layers, sizes.heads, sizes.width, sizes.context, sizes.batch);
      training.restart();
      REQUIRE_OK(compare_losses(losses_of(training, version.launch, kCheckedSteps), want));
    }
  }
}

TEST_CASE("a graph of bf16 gives the bits of the launches, and a run those of the run before") {
  if (!has_bf16()) return;
  constexpr size_t kSteps = kGraphSteps + 2;
  Training training(settings_of({2, 2, 8, 7, 2}, 20), corpus());
  train(training, run_bf16, kSteps);
  const auto want = parameters_of(training);
  for (const auto& version : testing::chosen(kBf16Versions)) {
    CAPTURE(version.name);
    training.restart();
    train(training, version.launch, kSteps);
    REQUIRE(same_bits(parameters_of(training), want));
  }
}

TEST_CASE("a training in bf16 goes on from its checkpoint with the same bits") {
  if (!has_bf16()) return;
  const Settings settings = settings_of({2, 2, 16, 9, 3}, 17);
  const auto make = [&] { return std::make_unique<Training>(settings, corpus()); };
  for (const auto& version : testing::chosen(kBf16Versions)) {
    CAPTURE(version.name);
    require_resumes(2, 5, make,
                    [&](Training& t, size_t steps) { train(t, version.launch, steps); });
  }
}
