// Every version trains alike: against NumPy, against double, and against itself.
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"
#include "common/tests/moved.h"
#include "stage7_transformer/07_train_shakespeare/reference.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"
#include "stage7_transformer/07_train_shakespeare/training_for_tests.h"

using namespace train_shakespeare;
using namespace shakespeare_test;
using testing::same_bits;
using train_toy::compare_losses;
using train_toy::Trajectory;

TEST_CASE("the losses of 20 steps agree with NumPy's", "[numpy]") {
  const NpyArray text = read_npy(reference_path("train_shakespeare_text.npy"));
  std::vector<double> want = read_npy(reference_path("train_shakespeare_losses.npy")).values;
  REQUIRE(want.size() == 20);
  const Settings settings = settings_of({2, 2, 8, 6, 3}, want.size(), (std::uint64_t{1} << 33) + 5);
#if defined(COURSE_SANITIZE_THREAD)  // which makes a thread of every thread, seconds for each step
  want.resize(2);
#endif
  const Corpus letters(std::string(text.values.begin(), text.values.end()));
  REQUIRE(letters.vocabulary.size() == 11);
  Training training(settings, letters);
  const Trajectory host =
      trajectory_cpu(settings, letters.train, parameters_of(training), want.size());
  REQUIRE(host.losses.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i)
    REQUIRE(std::fabs(host.losses[i] - want[i]) <= 1e-6 * want[i]);  // its gradients are floats
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    training.restart();
    const std::vector<float> got = losses_of(training, version.launch, want.size());
    REQUIRE_OK(compare(
        want.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
        [&](size_t i) { return 1e-4 * want[i]; }));
  }
}

TEST_CASE("every version trains every model as the reference does") {
  const ModelSizes shapes[] = {{1, 1, 4, 1, 1},  {1, 2, 6, 7, 2},  {2, 1, 5, 9, 3},
                               {3, 3, 12, 5, 4}, {4, 2, 8, 33, 1}, {1, 4, 64, 20, 2}};
  for (const ModelSizes& sizes : shapes) {
    const Settings settings = settings_of(sizes, 30);
    Training training(settings, corpus());
    const Trajectory want =
        trajectory_cpu(settings, corpus().train, parameters_of(training), kCheckedSteps);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, sizes.layers, sizes.heads, sizes.width, sizes.context, sizes.batch);
      training.restart();
      REQUIRE_OK(compare_losses(losses_of(training, version.launch, kCheckedSteps), want));
    }
  }
}

// The logits of `rows` are two tiles beyond 64 characters, and three would be beyond 128.
TEST_CASE("vocabularies of all sizes are trained on as the reference does") {
  for (const size_t characters : {1, 2, 63, 64, 65, 127, 128, 129}) {
    std::string text;
    for (size_t i = 0; i < 900; ++i)
      text += static_cast<char>(random_numbers::word(3, 1, i) % characters + 1);
    for (size_t i = 0; i < characters; ++i) text += static_cast<char>(i + 1);
    const Corpus letters(text);
    REQUIRE(letters.vocabulary.size() == characters);
    const Settings settings = settings_of({2, 2, 12, 11, 4}, 30);
    Training training(settings, letters);
    const Trajectory want =
        trajectory_cpu(settings, letters.train, parameters_of(training), kCheckedSteps);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, characters);
      training.restart();
      REQUIRE_OK(compare_losses(losses_of(training, version.launch, kCheckedSteps), want));
    }
  }
}

// AdamW hardly cares how large a gradient is: a wrong factor shows where the rule does not divide
// by it. The second step has momentum.
TEST_CASE("every parameter goes as far as the reference's") {
  for (const optimizers::Kind kind : {optimizers::Kind::Sgd, optimizers::Kind::Momentum}) {
    Settings settings = settings_of({2, 2, 8, 5, 2}, 10);
    settings.kind = kind, settings.hyper.learning_rate = 0.1f;
    Training training(settings, corpus());
    const std::vector<Schedule> list = schedules(settings);
    const auto start = parameters_of(training);
    const Layers layers(settings.sizes, training.model.vocabulary());
    sequential::DoubleModel reference(layers.network(), start, {false, 0, 0, true});
    for (size_t step = 0; step < 2; ++step) {
      const Batch batch = batch_of(settings, corpus().train, step);
      const Values& logits = reference.forward(tokens_of(batch.tokens), settings.sizes.batch);
      reference.backward(loss_cpu(logits, batch.labels).grad);
      reference.step(kind, list[step].hyper, step + 1);
    }
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, optimizers::name(kind));
      training.restart();
      train(training, version.launch, 2);
      REQUIRE_OK(tests::compare_moved(parameters_of(training), start, [&](size_t k, size_t i) {
        return reference.parameter(k)[i].w;
      }));
    }
  }
}

TEST_CASE("the versions agree on the parameters, by every optimizer, and repeat themselves") {
  for (const optimizers::Kind kind : optimizers::kKinds) {
    Settings settings = settings_of({3, 2, 8, 10, 2}, 40);
    settings.kind = kind;
    Training training(settings, corpus());
    const std::vector<float> want =
        parameters_after(training, [&] { train(training, kVersions[0].launch, 6); });
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, optimizers::name(kind));
      require_agrees(training, want, 50, [&] { train(training, version.launch, 6); });
    }
  }
}

TEST_CASE("a graph gives the bits of the launches that it has captured") {
  Training training(settings_of({3, 2, 8, 10, 4}, 40), corpus());
  train(training, run_rows, 23);
  const auto want = parameters_of(training);
  training.restart();
  size_t queued = 0;
  const auto replay = [&](size_t steps) {
    training.replay(steps, "counted", [&] {
      ++queued;
      queue_rows(training);
    });
  };
  replay(1);
  replay(22);                          // two graphs of ten steps, and two single steps
  REQUIRE(queued == kGraphSteps + 1);  // captured once
  REQUIRE(same_bits(parameters_of(training), want));
  training.restart();
  train(training, run_graph, 23);
  REQUIRE(same_bits(parameters_of(training), want));
}

TEST_CASE("pieces of the text are drawn from everywhere, and others in every step") {
  constexpr size_t kPlaces = 97, kBatch = 8;
  std::set<size_t> seen;
  for (std::uint64_t step = 0; step < 200; ++step)
    for (size_t b = 0; b < kBatch; ++b) {
      const size_t place = Drawn::place(4, step, kBatch, b, kPlaces);
      REQUIRE(place < kPlaces);
      seen.insert(place);
    }
  REQUIRE(seen.size() == kPlaces);

  // What the device gathers is what the host says.
  const Settings settings = settings_of({1, 1, 4, 5, 3}, 4);
  Training training(settings, corpus());
  train(training, run_fused, 3);
  const Batch want = batch_of(settings, corpus().train, 2);
  const std::vector<std::int32_t> tokens = training.fused.tokens.to_host();
  const std::vector<int> labels = training.fused.labels.to_host();
  REQUIRE(tokens.size() == 15);
  for (size_t i = 0; i < tokens.size(); ++i)
    REQUIRE((tokens[i] == want.tokens[i] && labels[i] == want.labels[i]));
}
