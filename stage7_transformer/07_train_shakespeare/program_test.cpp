// The program: what it refuses, saves and writes, how it stops, and what its training promises.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "common/testing.h"
#include "common/tests/programs.h"
#include "common/training.h"
#include "stage7_transformer/07_train_shakespeare/program.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"
#include "stage7_transformer/07_train_shakespeare/training_for_tests.h"
#include "stage7_transformer/07_train_shakespeare/writer.h"

using namespace train_shakespeare;
using namespace shakespeare_test;
using tests::Folder;
using tests::write_file;

static const tests::Program program("train_shakespeare");

TEST_CASE("the program refuses what it can't use, in one line", "[harness]") {
  const Folder folder;
  program.require_refusal("--config large", "neither small nor medium");
  program.require_refusal("--config small --size 1x1x4x4x1", "leave one away");
  program.require_refusal("--precision half", "none of fp32, bf16 and both");
  program.require_refusal("--quick --precision bf16 --size 1x1x130x4x1", "in bf16 up to 128");
  program.require_refusal("--size 1x3x8x4x1", "multiple of 3 heads");
  program.require_refusal("--size 1x2x1024x8x1", "heads of 512 channels");
  program.require_refusal("--size 1x0x8x4x1", "at least 1");
  program.require_refusal("--quick --steps 0", "--steps: '0'");
  program.require_refusal("--quick --temperature x", "--temperature: 'x'");
  program.require_refusal("--quick --temperature -1", "from 0 to 100");
  program.require_refusal("--quick --top-k 1.5", "--top-k: '1.5'");
  program.require_refusal("--quick --prompt ''", "--prompt: the text is empty");
  program.require_refusal("--quick --prompt 'caf\xC3\xA9'", "'\xC3\xA9' at position 4");
  program.require_refusal("--quick --data " + (folder / ""), "tiny_shakespeare.txt");
  write_file(folder / "tiny_shakespeare.txt", "too short");
  program.require_refusal("--quick --data " + (folder / ""), "a longer text");
  program.require_refusal("--generate 5", "add --checkpoint");
  write_file(folder / "garbage", "no checkpoint");
  program.require_refusal("--generate 5 --checkpoint " + (folder / "garbage"), "garbage");
  program.require_refusal("--generate 5 --checkpoint " + (folder / "none"), "none");
  program.require_refusal("--quick --evaluate " + (folder / "garbage"), "garbage");
}

TEST_CASE("the program saves, resumes with the same bits, evaluates and writes", "[harness]") {
  const Folder folder;
  const std::string whole = folder / "whole", parts = folder / "parts";
  const std::string common =
      "--quick --version fused --size 1x2x8x9x3 --seed 3 --steps 4000 --checkpoint ";
  const Outcome once =
      program("--quick --version fused --size 1x2x8x9x3 --seed 3 --steps 30 --checkpoint " + whole);
  CAPTURE(once.text);
  REQUIRE(once.exit_code == 0);
  REQUIRE(once.says("the course's own play"));
  REQUIRE(once.says("step 30/30"));
  REQUIRE(once.says("the model writes:"));
  program.require_refusal(
      "--quick --size 1x2x8x9x3 --seed 3 --steps 30 --resume "
      "--checkpoint " +
          whole,
      "all of its 30 steps");

  const Outcome stopped = program.interrupted(common + parts, parts);
  CAPTURE(stopped.text);
  REQUIRE(stopped.exit_code == 130);
  REQUIRE(stopped.says("saved in " + parts));
  REQUIRE(stopped.says("--resume"));

  const Outcome test = program("--quick --evaluate " + whole);
  CAPTURE(test.text);
  REQUIRE(test.exit_code == 0);
  REQUIRE(test.says("validation loss"));
  write_file(folder / "tiny_shakespeare.txt", shakespeare::compose(3000, 1) + "#");
  program.require_refusal("--quick --data " + (folder / "") + " --evaluate " + whole,
                          "other characters");

  const std::string write = "--generate 40 --prompt 'WAVE:' --top-k 5 --checkpoint " + whole;
  const Outcome text = program(write + " --seed 4"), again = program(write + " --seed 4");
  CAPTURE(text.text);
  REQUIRE(text.exit_code == 0);
  REQUIRE(text.says("behind 30 steps"));
  REQUIRE(text.says("\nWAVE:"));
  const auto without_time = [](const std::string& all) {
    return all.substr(0, all.rfind("written"));
  };
  REQUIRE(without_time(text.text) == without_time(again.text));
  REQUIRE(without_time(program(write + " --seed 5").text) != without_time(text.text));
  program.require_refusal("--generate 4 --prompt '#' --checkpoint " + whole, "'#' at position 1");
}

TEST_CASE("what a training was promised to reach: after enough steps, of the text, by its defaults",
          "[harness]") {
  const Data data{corpus(), kRealText};
  Settings settings;
  Options options;
  options.training.optimizer = kDefaults.optimizer;
  options.training.learning_rate = kDefaults.learning_rate;
  const double bar = kPromises[1].loss;
  settings.steps = kPromises[1].steps;
  const auto said = [&](double loss, double validation) {
    return missed(options, settings, data, loss, validation);
  };
  CHECK(said(bar, bar).empty());
  CHECK(said(2.25, 2.1) == "loss 2.250, validation 2.100, promised 2.200");
  CHECK(!said(2.1, 2.25).empty());
  CHECK(!said(std::nan(""), 2).empty());
  CHECK(!said(2, std::nan("")).empty());
  settings.steps = kPromises[1].steps - 1;
  CHECK(said(2.7, 2.7).empty());
  CHECK(!said(2.9, 2.9).empty());
  settings.steps = kPromises[0].steps - 1;
  CHECK(said(9, 9).empty());
  settings.steps = kPromises[1].steps;
  const auto nothing_with = [&](auto change) {
    const Options before = options;
    change(options);
    CHECK(said(9, 9).empty());
    options = before;
  };
  nothing_with([](Options& o) { o.quick = true; });
  nothing_with([](Options& o) { o.sizes_given = true; });
  nothing_with([](Options& o) { o.training.optimizer = "sgd"; });
  nothing_with([](Options& o) { o.training.learning_rate = 0.4; });
  nothing_with([](Options& o) { o.training.data = "elsewhere"; });
  nothing_with([](Options& o) { o.extra["--config"] = "medium"; });
  options.extra["--config"] = "small";
  CHECK(!said(9, 9).empty());
  CHECK(missed(options, settings, {corpus(), "the course's own play"}, 9, 9).empty());
}

TEST_CASE("which versions run, of which precision", "[harness]") {
  const auto names = [](const Options& options) {
    std::string all;
    for (const ChosenVersion& chosen : versions_of(options))
      all += std::string(all.empty() ? "" : " ") + chosen.version.name;
    return all;
  };
  const std::string floats = "operations fused rows graph", halves = "bf16 bf16_graph";
  Options options;
  CHECK(names(options) == floats);
  options.extra["--config"] = "medium";
  CHECK(names(options) == floats + " " + halves);
  options.training.checkpoint = "file";
  CHECK(names(options) == best().name);
  options.extra["--precision"] = "bf16";
  CHECK(names(options) == best_bf16().name);
  options.training.checkpoint = "", options.extra["--precision"] = "fp32";
  CHECK(names(options) == floats);
  options = {};
  options.versions = {"bf16"};
  CHECK(names(options) == "bf16");
}

TEST_CASE("the medium model in bf16 must be as good as in float, but for a percent", "[harness]") {
  const Data data{corpus(), kRealText};
  Settings settings;
  settings.steps = kConfigs[1].steps;
  Options options;
  options.training.optimizer = kDefaults.optimizer;
  options.extra["--config"] = "medium";
  const auto said = [&](double validation, double of_fp32) {
    return missed_beside(options, settings, data, validation, of_fp32);
  };
  CHECK(said(2.36, 2.34).empty());
  CHECK(said(2.38, 2.34) == "validation 2.380, promised within 1% of 2.340");
  CHECK(!said(std::nan(""), 2.34).empty());
  CHECK(said(2.38, 0).empty());
  settings.steps -= 1;
  CHECK(said(9, 2.34).empty());
}

// ---- The real text ----------------------------------------------------------------------------

TEST_CASE("Tiny Shakespeare is learnt as was promised, on a GPU from three seeds",
          "[.shakespeare]") {
  const std::string folder = training::data_folder({});
  const std::string path = shakespeare::path_in(folder);
  if (!std::filesystem::exists(path)) {
    std::printf("skipped: no Tiny Shakespeare in %s (python3 scripts/data.py gets it)\n",
                folder.c_str());
    return;
  }
  const Corpus text(shakespeare::read(path));
  REQUIRE(text.vocabulary.size() == 65);
  const double guessing = shakespeare::unigram_loss(text);
  REQUIRE((guessing > 3.2 && guessing < 3.4));
  // A processor takes minutes for a hundred steps: it trains one version, from one seed.
  const bool is_cpu = std::string(gpu::kBackend) == "cpu";
  const Promise promise = kPromises[is_cpu ? 0 : 1];
  for (std::uint64_t seed = 1; seed <= (is_cpu ? 1 : 3); ++seed) {
    Training training(settings_of(kConfigs[0].sizes, promise.steps, seed), text);
    for (const auto& version : testing::chosen(kVersions)) {
      if (is_cpu && &version != &best()) continue;
      training.restart();
      train(training, version.launch, promise.steps);
      const std::vector<float> losses = training.losses();
      constexpr size_t kLast = 20;
      const double last = training::mean_of(losses, losses.size() - kLast, losses.size());
      const double validation = validation_loss(training);
      CAPTURE(version.name, seed, last, validation);
      REQUIRE(last <= promise.loss);
      REQUIRE(validation <= promise.loss);
    }
    const std::string written = write(training.model, training.vocabulary, "\n", 200, {});
    for (const char c : written) REQUIRE(text.vocabulary.characters().find(c) != std::string::npos);
  }
}
