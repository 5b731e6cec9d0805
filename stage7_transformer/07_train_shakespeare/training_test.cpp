// A training: its learning rate, its first weights, and where it goes on from a checkpoint.
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/random.h"
#include "common/safetensors.h"
#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage7_transformer/07_train_shakespeare/checkpoint.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"
#include "stage7_transformer/07_train_shakespeare/training_for_tests.h"

using namespace train_shakespeare;
using namespace shakespeare_test;
using tests::Folder;

TEST_CASE("the learning rate rises, falls, and ends at a tenth") {
  const Settings settings = settings_of(kConfigs[0].sizes, 1000);
  const double highest = static_cast<double>(settings.hyper.learning_rate);
  REQUIRE(learning_rate(settings, 0) == highest / 100);
  REQUIRE(std::fabs(learning_rate(settings, 99) - highest) < 1e-12);
  REQUIRE(learning_rate(settings, 100) == highest);
  for (size_t t = 100; t < 999; ++t)
    REQUIRE(learning_rate(settings, t + 1) < learning_rate(settings, t));
  REQUIRE(std::fabs(learning_rate(settings, 1000) - 0.1 * highest) < 1e-12);
  const std::vector<Schedule> list = schedules(settings);
  REQUIRE(list.size() == 1000);
  REQUIRE(list[41].step == 42);
  REQUIRE(list[41].hyper.learning_rate == static_cast<float>(learning_rate(settings, 41)));
  REQUIRE(learning_rate(settings_of(kConfigs[0].sizes, 1), 0) == highest);
}

TEST_CASE("the first weights have the deviation they should have") {
  const Model small({2, 4, 64, 128, 32}, 65);
  REQUIRE(small.parameter_count() ==
          65 * 64 + 128 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 128 + 65 * 64);
  Model model({8, 2, 48, 12, 1}, 40);
  model.initialize(3);
  const std::vector<std::vector<float>> values = train_shakespeare::parameters_of(model);
  size_t matrices = 0;
  for (size_t k = 0; k < values.size(); ++k) {
    const NamedTensor& tensor = model.tensors()[k];
    const std::vector<float>& w = values[k];
    CAPTURE(tensor.name);
    if (tensor.shape.size() == 1) {
      const bool is_gain = tensor.name == "norm.weight" ||
                           tensor.name.find("norm1.weight") != std::string::npos ||
                           tensor.name.find("norm2.weight") != std::string::npos;
      for (const float value : w) REQUIRE(value == (is_gain ? 1.0f : 0.0f));
      continue;
    }
    const bool ends_box = tensor.name.find("proj") != std::string::npos ||
                          tensor.name.find("out") != std::string::npos;
    const double expected = ends_box ? 0.02 / 4 : 0.02;
    for (size_t i = 0; i < w.size(); ++i)
      REQUIRE(w[i] == static_cast<float>(expected) *
                          random_numbers::bell(3, static_cast<std::uint32_t>(k), i));
    double sum = 0, squares = 0;
    for (const float value : w) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const double n = static_cast<double>(tensor.n), deviation = std::sqrt(squares / n);
    // Four standard errors of a mean and of a deviation.
    REQUIRE(std::fabs(sum / n) < 4 * expected / std::sqrt(n));
    REQUIRE(std::fabs(deviation / expected - 1) < 4 / std::sqrt(2 * n));
    ++matrices;
  }
  REQUIRE(matrices == 3 + 4 * 8);
}

TEST_CASE("a resumed training goes on with the same bits, and ends with its schedule") {
  const Settings settings = settings_of({2, 2, 8, 9, 3}, 17);
  const auto make = [&] { return std::make_unique<Training>(settings, corpus()); };
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const auto queue = [&](Training& t, size_t steps) { train(t, version.launch, steps); };
    require_resumes(5, 12, make, queue);
  }
  const auto whole = make();
  train(*whole, run_fused, 17);
  REQUIRE_THROWS_AS(train(*whole, run_fused, 1), std::invalid_argument);
}

TEST_CASE("what is not this training's checkpoint is refused, and changes nothing", "[harness]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors", damaged = folder / "damaged";
  const Settings settings = settings_of({1, 2, 4, 6, 2}, 20);
  Training training(settings, corpus());
  train(training, run_fused, 3);
  training.save(path);
  train(training, run_fused, 1);

  const auto refuses_with = [&](const Settings& other, const Corpus& text,
                                const std::string& words) {
    Training to(other, text);
    require_refused(to, path, words);
  };
  Settings other = settings;
  other.seed = 2;
  refuses_with(other, corpus(), "seed 17, not 2");
  other = settings, other.steps = 21;
  refuses_with(other, corpus(), "schedule 20 steps");
  other = settings, other.kind = optimizers::Kind::Sgd;
  refuses_with(other, corpus(), "optimizer adamw, not sgd");
  other = settings, other.sizes.width = 8;
  refuses_with(other, corpus(), "width 4, not 8");
  other = settings, other.sizes.batch = 3;
  refuses_with(other, corpus(), "batch 2, not 3");
  refuses_with(settings, Corpus(shakespeare::compose(2000, 5)), "characters");
  std::string foreign = shakespeare::compose(3000, 5);
  foreign.back() = '#';
  refuses_with(settings, Corpus(foreign), "vocabulary");

  require_damage_refused(training, path, [](const std::string& file) {
    REQUIRE(contains_text(complaint([&] { checkpoint_of(file, safetensors::read(file)); }), file));
  });

  // A claim that is larger than the file is refused before there is a model.
  safetensors::File claims;
  claims.metadata = safetensors::read(path).metadata;
  claims.metadata["training.more.layers"] = "999999999";
  safetensors::write(damaged, claims);
  REQUIRE(contains_text(complaint([&] { checkpoint_of(damaged, safetensors::read(damaged)); }),
                        "claims 999999999 layers"));
}

TEST_CASE("models and texts that can't be are refused") {
  REQUIRE(contains_text(complaint([] { Model({1, 3, 8, 4, 1}, 5); }), "multiple of 3 heads"));
  REQUIRE(contains_text(complaint([] { Model({1, 1, 257, 4, 1}, 5); }), "heads of 257 channels"));
  REQUIRE_THROWS_AS(Model({0, 1, 8, 4, 1}, 5), std::invalid_argument);
  REQUIRE_THROWS_AS(Model({1, 1, 8, 0, 1}, 5), std::invalid_argument);
  REQUIRE_THROWS_AS(Model({1, 1, 8, 4, 0}, 5), std::invalid_argument);
  const Corpus tiny(std::string(79, 'a') + "b");
  REQUIRE(tiny.validation.size() == 8);
  REQUIRE(contains_text(complaint([&] {
                          Training(settings_of({1, 1, 4, 8, 1}, 2), tiny);
                        }),
                        "has 8"));
  Training fits(settings_of({1, 1, 4, 7, 1}, 2), tiny);
  train(fits, run_graph, 2);
  REQUIRE(validation_loss(fits) > 0);
}

#if defined(GPU_BACKEND_CPU)

#include "common/cpu/internal.h"

// One for the chain; beside it two branches for what follows from the loss, and two for the weights
// of even and of odd blocks each.
TEST_CASE("cpu: a training makes seven streams, however many blocks it has, and takes them away") {
  const size_t before = cpu::live_streams();
  for (const size_t layers : {1, 5}) {
    Training training(settings_of({layers, 1, 4, 5, 1}, 9), corpus());
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, layers);
      train(training, version.launch, 2);
      REQUIRE(cpu::live_streams() == before + 7);
    }
  }
  REQUIRE(cpu::live_streams() == before);
}

#endif
