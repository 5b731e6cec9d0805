// Writing: what the cache holds, what is chosen from the logits, and what a text is made of.
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/testing.h"
#include "stage7_transformer/07_train_shakespeare/reference.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"
#include "stage7_transformer/07_train_shakespeare/training_for_tests.h"
#include "stage7_transformer/07_train_shakespeare/writer.h"

using namespace train_shakespeare;
using namespace shakespeare_test;

namespace {

// The logits behind all of these tokens in double, with what a float version may be off.
Values logits_cpu(const Model& model, const std::vector<std::uint8_t>& tokens) {
  const Layers layers(model.sizes(), model.vocabulary(), tokens.size());
  sequential::DoubleModel run(layers.network(), train_shakespeare::parameters_of(model));
  return run.forward(tokens_of(tokens), 1);
}

// Row `row` of `want`.
Comparison compare_row(const std::vector<float>& got, const Values& want, size_t row) {
  const size_t begin = row * got.size();
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[begin + i]; },
      [&](size_t i) { return want.error[begin + i]; });
}

// A model that has learnt a little, so that its logits are not nearly 0.
struct Trained {
  explicit Trained(const ModelSizes& sizes) : training(settings_of(sizes, 60), corpus()) {
    train(training, run_fused, 60);
  }
  const Model& model() const { return training.model; }
  Training training;
};

}  // namespace

TEST_CASE("logits with the cache are those without it") {
  for (const ModelSizes& sizes : {ModelSizes{2, 2, 16, 24, 4}, ModelSizes{1, 3, 12, 7, 2}}) {
    Trained trained(sizes);
    const Model& model = trained.model();
    const size_t T = sizes.context, V = model.vocabulary();
    const std::vector<std::uint8_t> text(
        corpus().validation.begin(), corpus().validation.begin() + static_cast<std::ptrdiff_t>(T));
    const Values want = logits_cpu(model, text);

    // Without: a whole piece at once.
    Pass& pass = trained.training.fused;
    const std::vector<std::int32_t> tokens(text.begin(), text.end());
    pass.tokens.to_device(tokens.data(), T);
    forward(model, pass, 1, nullptr);
    const std::vector<float> all = pass.logits.to_host();
    for (size_t t = 0; t < T; ++t) {
      const auto row = all.begin() + static_cast<std::ptrdiff_t>(t * V);
      REQUIRE_OK(compare_row({row, row + static_cast<std::ptrdiff_t>(V)}, want, t));
    }

    // With: one by one, and a few at a time.
    for (const size_t at_a_time : {size_t{1}, size_t{2}, size_t{5}, T}) {
      Writer writer(model);
      for (size_t t = 0; t < T; t += at_a_time) {
        const size_t end = std::min(t + at_a_time, T);
        CAPTURE(sizes.width, at_a_time, t);
        const auto first = text.begin();
        const std::vector<float> got = writer.read(
            {first + static_cast<std::ptrdiff_t>(t), first + static_cast<std::ptrdiff_t>(end)});
        REQUIRE_OK(compare_row(got, want, end - 1));
        REQUIRE(writer.cached() == end);
      }
    }
  }
}

TEST_CASE("a full context goes on from its last half") {
  Trained trained({1, 2, 8, 10, 3});
  const std::vector<std::uint8_t>& text = corpus().validation;
  Writer writer(trained.model());
  const auto part = [&](size_t first, size_t count) {
    const auto begin = text.begin() + static_cast<std::ptrdiff_t>(first);
    return std::vector<std::uint8_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
  };
  writer.read(part(0, 10));
  REQUIRE(writer.cached() == 10);
  const std::vector<float> got = writer.read(part(10, 1));
  REQUIRE(writer.cached() == 5);
  REQUIRE_OK(compare_row(got, logits_cpu(trained.model(), part(6, 5)), 4));
  writer.restart();
  REQUIRE_OK(compare_row(writer.read(part(3, 2)), logits_cpu(trained.model(), part(3, 2)), 1));
  writer.read(part(0, 40));  // longer than the context
  REQUIRE(writer.cached() == 5);
  REQUIRE_THROWS_AS(writer.read({}), std::invalid_argument);
  REQUIRE_THROWS_AS(writer.read({255}), std::invalid_argument);
}

TEST_CASE("what is chosen: the most probable, of the k most probable, by their shares",
          "[harness]") {
  const std::vector<float> logits{1, 3, -1, 3, 2};
  REQUIRE(choose(logits, {0, 0, 1}, 0) == 1);  // the first of two alike
  std::vector<double> counts(5);
  constexpr size_t kDraws = 20000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    REQUIRE(choose(logits, {1, 1, 9}, i) == 1);
    const size_t of_two = choose(logits, {1, 2, 9}, i);
    REQUIRE((of_two == 1 || of_two == 3));
    ++counts[choose(logits, {2, 0, 9}, i)];
  }
  double total = 0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) / 2);
  for (size_t token = 0; token < 5; ++token) {
    const double p = std::exp(static_cast<double>(logits[token]) / 2) / total;
    // Five standard deviations of a share.
    REQUIRE(std::fabs(counts[token] / kDraws - p) < 5 * std::sqrt(p * (1 - p) / kDraws));
  }
  REQUIRE(choose(logits, {1, 0, 9}, 3) == choose(logits, {1, 0, 9}, 3));
}

TEST_CASE("what is written: only known characters, the same for a seed", "[harness]") {
  Trained trained({1, 2, 16, 20, 8});
  const Vocabulary& vocabulary = trained.training.vocabulary;
  const auto written = [&](const Sampling& sampling, const std::string& prompt = "\n") {
    return write(trained.model(), vocabulary, prompt, 70, sampling);
  };
  const std::string text = written({0.8, 0, 3});
  REQUIRE(text.size() == 70);
  for (const char c : text) REQUIRE(vocabulary.characters().find(c) != std::string::npos);
  REQUIRE(written({0.8, 0, 3}) == text);
  REQUIRE(written({0.8, 0, 4}) != text);
  REQUIRE(written({0, 0, 3}) == written({5, 1, 8}));  // the most probable one, by both ways
  REQUIRE(written({0.8, 0, 3}, "WAVE:\n") != text);
  REQUIRE_THROWS_AS(written({}, ""), std::invalid_argument);
  REQUIRE_THROWS_AS(written({}, "\xC3\xA9"), std::invalid_argument);
}
