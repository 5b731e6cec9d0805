// The program: what it refuses, saves and writes, how it stops, and what its training promises.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage7_transformer/07_train_shakespeare/program.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"
#include "stage7_transformer/07_train_shakespeare/training_for_tests.h"
#include "stage7_transformer/07_train_shakespeare/writer.h"

using namespace train_shakespeare;
using namespace shakespeare_test;
using tests::Folder;
using tests::write_file;

namespace {

Outcome run_shell(const std::string& command) {
  return tests::run_shell("train_shakespeare", command);
}
Outcome run_program_with(const std::string& arguments) {
  return run_shell("\"$PROGRAM\" " + arguments);
}

// The one line of a refusal.
void require_refusal(const Outcome& outcome, const std::string& words) {
  CAPTURE(outcome.text);
  REQUIRE(tests::is_refusal("train_shakespeare", outcome, words));
}

}  // namespace

TEST_CASE("the program refuses what it can't use, in one line", "[harness]") {
  const Folder folder;
  require_refusal(run_program_with("--config large"), "neither small nor medium");
  require_refusal(run_program_with("--config small --size 1x1x4x4x1"), "leave one away");
  require_refusal(run_program_with("--size 1x3x8x4x1"), "multiple of 3 heads");
  require_refusal(run_program_with("--size 1x2x1024x8x1"), "heads of 512 channels");
  require_refusal(run_program_with("--size 1x0x8x4x1"), "at least 1");
  require_refusal(run_program_with("--quick --steps 0"), "--steps: '0'");
  require_refusal(run_program_with("--quick --temperature x"), "--temperature: 'x'");
  require_refusal(run_program_with("--quick --temperature -1"), "from 0 to 100");
  require_refusal(run_program_with("--quick --top-k 1.5"), "--top-k: '1.5'");
  require_refusal(run_program_with("--quick --prompt ''"), "--prompt: the text is empty");
  require_refusal(run_program_with("--quick --prompt 'caf\xC3\xA9'"), "'\xC3\xA9' at position 4");
  require_refusal(run_program_with("--quick --data " + (folder / "")), "tiny_shakespeare.txt");
  write_file(folder / "tiny_shakespeare.txt", "too short");
  require_refusal(run_program_with("--quick --data " + (folder / "")), "a longer text");
  require_refusal(run_program_with("--generate 5"), "add --checkpoint");
  write_file(folder / "garbage", "no checkpoint");
  require_refusal(run_program_with("--generate 5 --checkpoint " + (folder / "garbage")), "garbage");
  require_refusal(run_program_with("--generate 5 --checkpoint " + (folder / "none")), "none");
  require_refusal(run_program_with("--quick --evaluate " + (folder / "garbage")), "garbage");
}

TEST_CASE("the program saves, resumes with the same bits, evaluates and writes", "[harness]") {
  const Folder folder;
  const std::string whole = folder / "whole", parts = folder / "parts";
  const std::string common =
      "--quick --version fused --size 1x2x8x9x3 --seed 3 --steps 4000 --checkpoint ";
  const Outcome once = run_program_with(
      "--quick --version fused --size 1x2x8x9x3 --seed 3 --steps 30 --checkpoint " + whole);
  CAPTURE(once.text);
  REQUIRE(once.exit_code == 0);
  REQUIRE(once.says("the course's own play"));
  REQUIRE(once.says("step 30/30"));
  REQUIRE(once.says("the model writes:"));
  require_refusal(run_program_with("--quick --size 1x2x8x9x3 --seed 3 --steps 30 --resume "
                                   "--checkpoint " +
                                   whole),
                  "all of its 30 steps");

  // The signal comes when there is a first checkpoint.
  const Outcome stopped = run_shell("\"$PROGRAM\" " + common + parts +
                                    " & training=$!; while kill -0 $training && [ ! -e " + parts +
                                    " ]; do sleep 0.05; done; kill -INT $training; wait $training");
  CAPTURE(stopped.text);
  REQUIRE(stopped.exit_code == 130);
  REQUIRE(stopped.says("saved in " + parts));
  REQUIRE(stopped.says("--resume"));

  const Outcome test = run_program_with("--quick --evaluate " + whole);
  CAPTURE(test.text);
  REQUIRE(test.exit_code == 0);
  REQUIRE(test.says("validation loss"));
  write_file(folder / "tiny_shakespeare.txt", shakespeare::compose(3000, 1) + "#");
  require_refusal(run_program_with("--quick --data " + (folder / "") + " --evaluate " + whole),
                  "other characters");

  const std::string write = "--generate 40 --prompt 'WAVE:' --top-k 5 --checkpoint " + whole;
  const Outcome text = run_program_with(write + " --seed 4"),
                again = run_program_with(write + " --seed 4");
  CAPTURE(text.text);
  REQUIRE(text.exit_code == 0);
  REQUIRE(text.says("behind 30 steps"));
  REQUIRE(text.says("\nWAVE:"));
  const auto without_time = [](const std::string& all) {
    return all.substr(0, all.rfind("written"));
  };
  REQUIRE(without_time(text.text) == without_time(again.text));
  REQUIRE(without_time(run_program_with(write + " --seed 5").text) != without_time(text.text));
  require_refusal(run_program_with("--generate 4 --prompt '#' --checkpoint " + whole),
                  "'#' at position 1");
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

// ---- The real text ----------------------------------------------------------------------------

TEST_CASE("a hundred steps on Tiny Shakespeare", "[.shakespeare]") {
  const char* variable = std::getenv("COURSE_DATA");
  const std::string folder = variable != nullptr && *variable != '\0' ? variable : "data";
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
  Training training(settings_of(kConfigs[0].sizes, kPromises[0].steps, 1), text);
  train(training, best().launch, 100);
  const std::vector<float> losses = losses_of(training);
  double last = 0;
  for (size_t step = 80; step < 100; ++step) last += static_cast<double>(losses[step]) / 20;
  const double validation = validation_loss(training);
  CAPTURE(last, validation);
  REQUIRE(last < kPromises[0].loss);
  REQUIRE(validation < kPromises[0].loss);
  REQUIRE(validation < guessing);
  const std::string written = write(training.model, training.vocabulary, "\n", 200, {});
  for (const char c : written) REQUIRE(text.vocabulary.characters().find(c) != std::string::npos);
}
