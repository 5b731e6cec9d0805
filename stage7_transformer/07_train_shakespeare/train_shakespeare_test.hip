// Every version trains alike: against NumPy, against double, and against itself after a resume.
// What the cache remembers, what is chosen, what the text's characters are. And the program: what
// it refuses, saves and writes, how it stops.
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/npy.h"
#include "common/testing.h"
#include "common/tests/child.h"
#include "common/tests/moved.h"
#include "common/tests/programs.h"

using namespace train_shakespeare;

namespace {

namespace fs = std::filesystem;

Settings settings_of(const Sizes& sizes, size_t steps, std::uint64_t seed = 17) {
  Settings settings;
  settings.sizes = sizes, settings.steps = steps, settings.seed = seed;
  return settings;
}

const Corpus& corpus() {
  static const Corpus play(shakespeare::compose(3000, 5));
  return play;
}

std::vector<float> first_losses(Training& training, Launch version, size_t steps) {
  train(training, version, steps);
  std::vector<float> losses = losses_of(training);
  losses.resize(steps);
  return losses;
}

using testing::same_bits;
using tests::Folder;
using tests::read_file;
using tests::write_file;

std::vector<std::vector<float>> parameters_of(const Training& training) {
  return train_shakespeare::parameters_of(training.model);
}

// The words of the exception that `work` throws, "" where it throws none.
template <class Work>
std::string complaint(Work&& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

// ---- Training ---------------------------------------------------------------------------------

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
    const std::vector<float> got = first_losses(training, version.launch, want.size());
    REQUIRE_OK(compare(
        want.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
        [&](size_t i) { return 1e-4 * want[i]; }));
  }
}

TEST_CASE("every version trains every model as the reference does") {
  const Sizes shapes[] = {{1, 1, 4, 1, 1},  {1, 2, 6, 7, 2},  {2, 1, 5, 9, 3},
                          {3, 3, 12, 5, 4}, {4, 2, 8, 33, 1}, {1, 4, 64, 20, 2}};
  for (const Sizes& sizes : shapes) {
    const Settings settings = settings_of(sizes, 30);
    Training training(settings, corpus());
    const Trajectory want =
        trajectory_cpu(settings, corpus().train, parameters_of(training), kCheckedSteps);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, sizes.layers, sizes.heads, sizes.width, sizes.context, sizes.batch);
      training.restart();
      REQUIRE_OK(compare_losses(first_losses(training, version.launch, kCheckedSteps), want));
    }
  }
}

// AdamW hardly cares how large a gradient is: a wrong factor shows where the rule does not divide
// by it. The second step has momentum.
TEST_CASE("every parameter goes as far as the reference's") {
  for (const optimizers::Kind kind : {optimizers::Kind::Sgd, optimizers::Kind::Momentum}) {
    Settings settings = settings_of({2, 2, 8, 5, 2}, 10);
    settings.optimizer = kind, settings.learning_rate = 0.1f;
    Training training(settings, corpus());
    const std::vector<Schedule> list = schedules(settings);
    const auto start = parameters_of(training);
    shakespeare::Reference reference(settings.sizes, start);
    for (size_t step = 0; step < 2; ++step)
      reference.step(batch_of(settings, corpus().train, step), kind, list[step].hyper, step + 1,
                     true);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, optimizers::name(kind));
      training.restart();
      train(training, version.launch, 2);
      REQUIRE_OK(tests::compare_moved(parameters_of(training), start, [&](size_t k, size_t i) {
        return reference.parameters()[k][i];
      }));
    }
  }
}

TEST_CASE("the versions agree on the parameters, by every optimizer, and repeat themselves") {
  for (const optimizers::Kind kind : optimizers::kKinds) {
    Settings settings = settings_of({3, 2, 8, 10, 2}, 40);
    settings.optimizer = kind;
    Training training(settings, corpus());
    std::vector<std::vector<float>> want;
    for (const auto& version : kVersions) {
      CAPTURE(version.name, optimizers::name(kind));
      training.restart();
      train(training, version.launch, 6);
      const auto got = parameters_of(training);
      if (want.empty()) want = got;
      // Adam makes a full step even of a gradient that is nothing but rounding.
      size_t count = 0, apart = 0;
      for (size_t k = 0; k < want.size(); ++k)
        for (size_t i = 0; i < want[k].size(); ++i, ++count)
          if (!(std::fabs(got[k][i] - want[k][i]) <= 2e-5f)) ++apart;
      REQUIRE(apart <= (optimizers::states(kind) == 2 ? count / 50 : 0));
      training.restart();
      train(training, version.launch, 6);
      REQUIRE(same_bits(parameters_of(training), got));  // deterministic
    }
  }
}

TEST_CASE("a graph gives the bits of the launches that it has captured") {
  Training training(settings_of({3, 2, 8, 10, 4}, 40), corpus());
  train(training, run_fused, 23);
  const auto want = parameters_of(training);
  training.restart();
  train(training, run_graph, 1);
  train(training, run_graph, 22);  // two graphs of ten steps, and two single steps
  REQUIRE(same_bits(parameters_of(training), want));
}

TEST_CASE("the learning rate rises, falls, and ends at a tenth") {
  const Settings settings = settings_of(kConfigs[0].sizes, 1000);
  const double highest = static_cast<double>(settings.learning_rate);
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
  size_t matrices = 0;
  for (const NamedTensor& tensor : model.tensors()) {
    CAPTURE(tensor.name);
    std::vector<float> w(tensor.n);
    HIP_CHECK(hipMemcpy(w.data(), tensor.w, tensor.n * sizeof(float), hipMemcpyDeviceToHost));
    if (tensor.shape.size() == 1) {
      const bool is_gain = tensor.name == "norm.weight" ||
                           tensor.name.find("norm1.weight") != std::string::npos ||
                           tensor.name.find("norm2.weight") != std::string::npos;
      for (const float value : w) REQUIRE(value == (is_gain ? 1.0f : 0.0f));
      continue;
    }
    double sum = 0, squares = 0;
    for (const float value : w) {
      sum += static_cast<double>(value);
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const double n = static_cast<double>(tensor.n), deviation = std::sqrt(squares / n);
    const bool ends_box = tensor.name.find("proj") != std::string::npos ||
                          tensor.name.find("out") != std::string::npos;
    const double expected = ends_box ? 0.02 / 4 : 0.02;
    // Four standard errors of a mean and of a deviation.
    REQUIRE(std::fabs(sum / n) < 4 * expected / std::sqrt(n));
    REQUIRE(std::fabs(deviation / expected - 1) < 4 / std::sqrt(2 * n));
    ++matrices;
  }
  REQUIRE(matrices == 3 + 4 * 8);
}

TEST_CASE("a resumed training goes on with the same bits") {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  const Settings settings = settings_of({2, 2, 8, 9, 3}, 17);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    Training whole(settings, corpus());
    train(whole, version.launch, 5);
    whole.save(path);
    train(whole, version.launch, 12);
    Training resumed(settings, corpus());
    train(resumed, version.launch, 3);  // what is resumed must not depend on what was before
    resumed.resume(path);
    REQUIRE(resumed.steps == 5);
    train(resumed, version.launch, 12);
    REQUIRE(same_bits(parameters_of(resumed), parameters_of(whole)));
    const std::vector<float> got = losses_of(resumed), want = losses_of(whole);
    for (size_t step = 0; step < 17; ++step)
      REQUIRE((step < 5 ? std::isnan(got[step]) : got[step] == want[step]));
    resumed.save(path);
    const std::string saved = read_file(path);
    whole.save(path);
    REQUIRE(saved == read_file(path));
    REQUIRE_THROWS_AS(train(resumed, version.launch, 1), std::invalid_argument);
  }
}

TEST_CASE("what is not this training's checkpoint is refused, and changes nothing", "[harness]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors", damaged = folder / "damaged";
  const Settings settings = settings_of({1, 2, 4, 6, 2}, 20);
  Training training(settings, corpus());
  train(training, run_fused, 3);
  training.save(path);
  train(training, run_fused, 1);
  const auto before = parameters_of(training);

  const auto refuses = [&](Training& to, const std::string& file, const std::string& words) {
    const auto parameters = parameters_of(to);
    const std::uint64_t steps = to.steps;
    const std::string said = complaint([&] { to.resume(file); });
    REQUIRE(contains_text(said, words));
    REQUIRE(contains_text(said, file));
    REQUIRE(to.steps == steps);
    REQUIRE(same_bits(parameters_of(to), parameters));
  };
  const auto refuses_with = [&](const Settings& other, const Corpus& text,
                                const std::string& words) {
    Training to(other, text);
    refuses(to, path, words);
  };
  Settings other = settings;
  other.seed = 2;
  refuses_with(other, corpus(), "seed 17, not 2");
  other = settings, other.steps = 21;
  refuses_with(other, corpus(), "schedule 20 steps");
  other = settings, other.optimizer = optimizers::Kind::Sgd;
  refuses_with(other, corpus(), "optimizer adamw, not sgd");
  other = settings, other.sizes.width = 8;
  refuses_with(other, corpus(), "width 4, not 8");
  other = settings, other.sizes.batch = 3;
  refuses_with(other, corpus(), "batch 2, not 3");
  refuses_with(settings, Corpus(shakespeare::compose(2000, 5)), "characters");
  std::string foreign = shakespeare::compose(3000, 5);
  foreign.back() = '#';
  refuses_with(settings, Corpus(foreign), "vocabulary");

  refuses(training, folder / "missing", "");
  const std::string whole = read_file(path);
  for (size_t length = 0; length < whole.size(); length += 1 + length / 12) {
    write_file(damaged, whole.substr(0, length));
    refuses(training, damaged, "");
    REQUIRE(contains_text(complaint([&] { read_checkpoint(damaged); }), damaged));
  }
  REQUIRE(same_bits(parameters_of(training), before));

  // A claim that is larger than the file is refused before there is a model.
  safetensors::File claims;
  claims.metadata = safetensors::read(path).metadata;
  claims.metadata["training.more.layers"] = "999999999";
  safetensors::write(damaged, claims);
  REQUIRE(contains_text(complaint([&] { read_checkpoint(damaged); }), "claims 999999999 layers"));
}

TEST_CASE("models and texts that can't be are refused") {
  REQUIRE(contains_text(complaint([] { Model({1, 3, 8, 4, 1}, 5); }), "multiple of 3 heads"));
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

// ---- The text ---------------------------------------------------------------------------------

TEST_CASE("characters become numbers and come back", "[harness]") {
  const std::string text = "to be, or\nnot to be";
  const Vocabulary vocabulary(text);
  REQUIRE(vocabulary.characters() == "\n ,benort");
  std::string again;
  for (const std::uint8_t token : vocabulary.encode(text)) again += vocabulary.decode(token);
  REQUIRE(again == text);
  REQUIRE(Vocabulary::from_text(vocabulary.to_text()).characters() == vocabulary.characters());
  std::string bytes;
  for (int byte = 255; byte >= 0; --byte) bytes += static_cast<char>(byte);
  const Vocabulary all(bytes);
  REQUIRE(all.size() == 256);
  REQUIRE(Vocabulary::from_text(all.to_text()).encode(bytes) == all.encode(bytes));
  for (const char* wrong : {"", "10 9", "10 10", "256", "1 x", "-1", "1 99999999999"})
    REQUIRE_THROWS_AS(Vocabulary::from_text(wrong), std::invalid_argument);
}

TEST_CASE("a character outside the vocabulary is named", "[harness]") {
  const Vocabulary vocabulary("to be");
  const auto said = [&](const std::string& text) {
    return complaint([&] { vocabulary.encode(text); });
  };
  REQUIRE(said("to be") == "");
  REQUIRE(said("to see") == "'s' at position 4 is none of the 5 characters that the model knows");
  REQUIRE(contains_text(said("b\n"), "character number 10 at position 2"));
  REQUIRE(contains_text(said("b\xC3\xA9t"), "'\xC3\xA9' at position 2"));
  REQUIRE(contains_text(said("\xA9"), "byte number 169 at position 1"));
}

TEST_CASE("a text is split, and its shares say what guessing loses", "[harness]") {
  const Corpus split(std::string(90, 'a') + std::string(10, 'b'));
  REQUIRE((split.train.size() == 90 && split.validation.size() == 10));
  REQUIRE(std::fabs(shakespeare::unigram_loss(split) - std::log(92.0)) < 1e-12);
  const Corpus play(shakespeare::compose(20000, 1));
  REQUIRE(shakespeare::unigram_loss(play) < std::log(static_cast<double>(play.vocabulary.size())));
}

TEST_CASE("the play is the same in any length, and another for another seed", "[harness]") {
  const std::string few = shakespeare::compose(500, 1), many = shakespeare::compose(5000, 1);
  REQUIRE((few.size() >= 500 && many.size() >= 5000));
  REQUIRE(many.compare(0, few.size(), few) == 0);
  REQUIRE(shakespeare::compose(500, 2) != few);
  for (const char c : many) REQUIRE((c == '\n' || (c >= ' ' && c <= '~')));
}

TEST_CASE("a file of text: there, missing, empty", "[harness]") {
  const Folder folder;
  const std::string path = shakespeare::path_in(folder / "");
  REQUIRE(contains_text(complaint([&] { shakespeare::read(path); }), "scripts/data.py"));
  write_file(path, "");
  REQUIRE(contains_text(complaint([&] { shakespeare::read(path); }), "is empty"));
  write_file(path, "Speak, speak.\n");
  REQUIRE(shakespeare::read(path) == "Speak, speak.\n");
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
  const shakespeare::Batch want = batch_of(settings, corpus().train, 2);
  const std::vector<std::int32_t> tokens = training.fused.tokens.to_host();
  const std::vector<int> labels = training.fused.labels.to_host();
  REQUIRE(tokens.size() == 15);
  for (size_t i = 0; i < tokens.size(); ++i)
    REQUIRE((tokens[i] == want.tokens[i] && labels[i] == want.labels[i]));
}

// ---- Writing ----------------------------------------------------------------------------------

namespace {

// The logits behind all of these tokens in double, with what a float version may be off.
dense::Values logits_cpu(const Model& model, const std::vector<std::uint8_t>& tokens) {
  using transformer_block::operator+;
  const auto p = train_shakespeare::parameters_of(model);
  const Sizes& sizes = model.sizes();
  const size_t C = sizes.width, T = tokens.size(), last = p.size() - 3;
  dense::Values x = transformer_block::zeros(T * C);
  for (size_t i = 0; i < T * C; ++i)
    transformer_block::put(x, i,
                           transformer_block::exactly(p[0][tokens[i / C] * C + i % C]) +
                               transformer_block::exactly(p[1][i]));
  for (size_t layer = 0; layer < sizes.layers; ++layer) {
    const auto first = p.begin() + static_cast<std::ptrdiff_t>(2 + 12 * layer);
    x = transformer_block::forward_cpu(x, {first, first + 12}, {1, T, C, sizes.heads}).y;
  }
  const dense::Values norm = transformer_block::scaled_cpu(
      transformer_block::normalized_cpu(x, T, C), p[last], p[last + 1]);
  return transformer_block::bounded(
      transformer_block::linear_cpu(norm, p[last + 2], std::vector<float>(model.vocabulary()), T));
}

// Row `row` of `want`.
Comparison compare_row(const std::vector<float>& got, const dense::Values& want, size_t row) {
  const size_t begin = row * got.size();
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[begin + i]; },
      [&](size_t i) { return want.error[begin + i]; });
}

// A model that has learnt a little, so that its logits are not nearly 0.
struct Trained {
  explicit Trained(const Sizes& sizes) : training(settings_of(sizes, 60), corpus()) {
    train(training, run_fused, 60);
  }
  const Model& model() const { return training.model; }
  Training training;
};

}  // namespace

TEST_CASE("logits with the cache are those without it") {
  for (const Sizes& sizes : {Sizes{2, 2, 16, 24, 4}, Sizes{1, 3, 12, 7, 2}}) {
    Trained trained(sizes);
    const Model& model = trained.model();
    const size_t T = sizes.context, V = model.vocabulary();
    const std::vector<std::uint8_t> text(
        corpus().validation.begin(), corpus().validation.begin() + static_cast<std::ptrdiff_t>(T));
    const dense::Values want = logits_cpu(model, text);

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

TEST_CASE("what is chosen: the most probable, of the k most probable, by their shares") {
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

TEST_CASE("what is written: only known characters, the same for a seed") {
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

// ---- The program ------------------------------------------------------------------------------

namespace {

// The program beside this test.
std::string program_path() {
  char test[4096];
  const ssize_t length = readlink("/proc/self/exe", test, sizeof test);
  REQUIRE(length > 0);
  return fs::path(std::string(test, static_cast<size_t>(length))).parent_path() /
         "train_shakespeare";
}

// Its exit code, and what it prints. `command` is a shell's, $PROGRAM is the program. It finds no
// data but what it is told of.
Outcome run_shell(const std::string& command) {
  std::FILE* pipe = popen(("COURSE_DATA=/no/such/folder; export COURSE_DATA; PROGRAM='" +
                           program_path() + "'; { " + command + "; } 2>&1")
                              .c_str(),
                          "r");
  REQUIRE(pipe != nullptr);
  Outcome outcome{};
  char part[4096];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
    outcome.text.append(part, n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}
Outcome run_program_with(const std::string& arguments) {
  return run_shell("\"$PROGRAM\" " + arguments);
}

// The one line of a refusal.
void require_refusal(const Outcome& outcome, const std::string& words) {
  CAPTURE(outcome.text);
  REQUIRE(outcome.exit_code == 2);
  REQUIRE(contains_text(outcome.text, words));
  REQUIRE(contains_text(outcome.text, "train_shakespeare: "));
}

}  // namespace

TEST_CASE("the program refuses what it can't use, in one line", "[harness]") {
  const Folder folder;
  require_refusal(run_program_with("--config large"), "neither small nor medium");
  require_refusal(run_program_with("--config small --size 1x1x4x4x1"), "leave one away");
  require_refusal(run_program_with("--size 1x3x8x4x1"), "multiple of 3 heads");
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

// ---- The real text ----------------------------------------------------------------------------

TEST_CASE("a hundred steps on Tiny Shakespeare", "[.shakespeare]") {
  const char* variable = std::getenv("COURSE_DATA");
  const std::string folder = variable != nullptr && *variable != '\0' ? variable : "data";
  const std::string path = shakespeare::path_in(folder);
  if (!fs::exists(path)) {
    std::printf("skipped: no Tiny Shakespeare in %s (python3 scripts/data.py gets it)\n",
                folder.c_str());
    return;
  }
  const Corpus text(shakespeare::read(path));
  REQUIRE(text.vocabulary.size() == 65);
  const double guessing = shakespeare::unigram_loss(text);
  REQUIRE((guessing > 3.2 && guessing < 3.4));
  Training training(settings_of(kConfigs[0].sizes, 100, 1), text);
  train(training, best().launch, 100);
  const std::vector<float> losses = losses_of(training);
  double last = 0;
  for (size_t step = 80; step < 100; ++step) last += static_cast<double>(losses[step]) / 20;
  const double validation = validation_loss(training);
  CAPTURE(last, validation);
  REQUIRE(last < 2.8);
  REQUIRE(validation < guessing);
  const std::string written = write(training.model, training.vocabulary, "\n", 200, {});
  for (const char c : written) REQUIRE(text.vocabulary.characters().find(c) != std::string::npos);
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// Every step reads the pieces of the first one.
void run_without_drawing(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    Schedule state;
    HIP_CHECK(hipDeviceSynchronize());
    t.schedule.to_device(&state, 1);
    queue_fused(t);
  }
}

// The optimizer without its schedule: every step has the rate and the corrections of the first.
void run_without_schedule(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    HIP_CHECK(hipDeviceSynchronize());
    Schedule first = t.schedules.to_host()[0];
    std::vector<Schedule> list(t.settings.steps, first);
    for (size_t k = 0; k < list.size(); ++k) list[k].step = k + 1;
    t.schedules.to_device(list.data(), list.size());
    queue_fused(t);
  }
  HIP_CHECK(hipDeviceSynchronize());
  const std::vector<Schedule> list = schedules(t.settings);
  t.schedules.to_device(list.data(), list.size());
}

// The head's gradient is forgotten.
void run_without_head(Training& t, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    const NamedTensor& head = t.model.tensors().back();
    std::vector<float> before(head.n);
    HIP_CHECK(hipDeviceSynchronize());
    HIP_CHECK(hipMemcpy(before.data(), head.w, head.n * sizeof(float), hipMemcpyDeviceToHost));
    queue_fused(t);
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
  for (const Launch launch : {run_without_drawing, run_without_schedule, run_without_head}) {
    training.restart();
    REQUIRE(!compare_losses(first_losses(training, launch, kCheckedSteps), want).ok);
  }
  training.restart();
  REQUIRE(compare_losses(first_losses(training, run_fused, kCheckedSteps), want).ok);
}
