// Checkpoints: every bit comes back, a training goes on as if nothing had been, and files that are
// damaged or of another model are refused and leave the model as it was.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/safetensors.h"
#include "common/tests/programs.h"
#include "stage5_training/05_sequential/training_for_tests.h"

using namespace sequential_test;

namespace {

void write_content(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace

// ---- Checkpoints ------------------------------------------------------------------------------

TEST_CASE("a checkpoint brings back every bit, and says where the training was") {
  const tests::Folder folder;
  const std::string path = folder / "model.safetensors";
  for (const Kind kind : optimizers::kKinds) {
    Sequential model = make(Linear(6, 5), ReLU(), Linear(5, 3));
    Trainer trainer(model, kind, some_floats(12 * 6, 1), some_labels(12, 3), 0.01f);
    for (int t = 0; t < 4; ++t) trainer.step();
    const TrainingState saved{4,
                              2,
                              0xFFFFFFFFFFFFFFFFu,
                              optimizers::name(kind),
                              {{"batch", "12"}, {"note", "\"\n\xC3\xA4"}}};
    save(path, model, &saved);
    CHECK(folder.files().size() == 1);
    Sequential other{Linear(6, 5), ReLU(), Linear(5, 3)};
    other.initialize(77);
    HIP_CHECK(hipMemset(other.arena().m, 0, 2 * other.arena().n * sizeof(float)));
    const TrainingState loaded = load(path, other);
    CAPTURE(optimizers::name(kind));
    CHECK(same_bits(state(other), state(model)));
    CHECK(loaded.steps == saved.steps);
    CHECK(loaded.epochs == saved.epochs);
    CHECK(loaded.seed == saved.seed);
    CHECK(loaded.optimizer == saved.optimizer);
    CHECK(loaded.more == saved.more);
    CHECK(safetensors::read(path).tensors.size() ==
          4 * (1 + static_cast<size_t>(optimizers::states(kind))));
  }
}

TEST_CASE("parameters alone are a checkpoint, too") {
  const tests::Folder folder;
  const std::string path = folder / "model.safetensors";
  Sequential model = make(Linear(6, 5), ReLU(), Linear(5, 3));
  save(path, model);
  Sequential other{Linear(6, 5), ReLU(), Linear(5, 3)};
  HIP_CHECK(hipMemset(other.arena().m, 0x3F, 2 * other.arena().n * sizeof(float)));
  const TrainingState state_of_none = load(path, other);
  CHECK(state_of_none.optimizer.empty());
  CHECK(state_of_none.steps == 0);
  CHECK(same_bits(state(other), state(model)));
}

TEST_CASE("ten steps are five, a checkpoint, and five more, bit for bit") {
  const tests::Folder folder;
  const std::string path = folder / "model.safetensors";
  const std::vector<float> x = some_floats(12 * 6, 1);
  const std::vector<int> labels = some_labels(12, 3);
  for (const Kind kind : optimizers::kKinds) {
    Sequential whole = make(Linear(6, 5), ReLU(), Linear(5, 3));
    Trainer at_once(whole, kind, x, labels, 0.02f);
    for (int t = 0; t < 10; ++t) at_once.step();

    {
      Sequential model = make(Linear(6, 5), ReLU(), Linear(5, 3));
      Trainer trainer(model, kind, x, labels, 0.02f);
      for (int t = 0; t < 5; ++t) trainer.step();
      const TrainingState saved{5, 0, 5, optimizers::name(kind), {}};
      save(path, model, &saved);
    }
    Sequential resumed{Linear(6, 5), ReLU(), Linear(5, 3)};
    const TrainingState loaded = load(path, resumed);
    Trainer trainer(resumed, kind, x, labels, 0.02f, loaded.steps);
    for (int t = 0; t < 5; ++t) trainer.step();
    CAPTURE(optimizers::name(kind));
    CHECK(same_bits(state(resumed), state(whole)));
    CHECK(trainer.loss() == at_once.loss());
  }
}

namespace {

// Loads the file into a model, which must stay as it was; what load() says, less the file's name.
std::string refusal(const std::string& path, Sequential& model) {
  const std::vector<float> before = state(model);
  const std::string text = complaint<std::runtime_error>([&] { load(path, model); });
  CHECK(same_bits(state(model), before));
  CHECK(text.rfind(path + " ", 0) == 0);
  return text.substr(std::min(text.size(), path.size() + 1));
}

}  // namespace

TEST_CASE("checkpoints of other models are refused and leave the model as it was", "[harness]") {
  const tests::Folder folder;
  const std::string path = folder / "model.safetensors";
  Sequential model = make(Linear(6, 5), ReLU(), Linear(5, 3));
  const TrainingState adam{4, 2, 1, "adam", {}};
  save(path, model, &adam);

  Sequential wider = make(Linear(6, 8), ReLU(), Linear(8, 3));
  CHECK(refusal(path, wider) ==
        "holds a \"Sequential{Linear(6, 5), ReLU(), Linear(5, 3)}\", not a "
        "Sequential{Linear(6, 8), ReLU(), Linear(8, 3)}");
  Sequential other = make(Linear(6, 5), Tanh(), Linear(5, 3));
  CHECK(contains_text(refusal(path, other), "not a Sequential{Linear(6, 5), Tanh()"));

  // Files that do not say of which model they are, or say it wrongly.
  const safetensors::File good = safetensors::read(path);
  const auto refuses = [&](const std::function<void(safetensors::File&)>& change) {
    safetensors::File file = good;
    change(file);
    safetensors::write(path, file);
    return refusal(path, model);
  };
  const auto at = [](safetensors::File& file, const std::string& name) -> safetensors::Tensor& {
    for (safetensors::Tensor& tensor : file.tensors)
      if (tensor.name == name) return tensor;
    throw std::logic_error("no tensor " + name);
  };
  CHECK(refuses([&](auto& file) {
          at(file, "2.weight").shape = {5, 3};
        }) == "has a tensor \"2.weight\" of shape [5, 3]; the model's is [3, 5]");
  CHECK(refuses([&](auto& file) { at(file, "0.weight").name = "1.weight"; }) ==
        "has no tensor \"0.weight\"");
  CHECK(refuses([&](auto& file) { at(file, "optimizer.v.2.bias").name = "x"; }) ==
        "has no tensor \"optimizer.v.2.bias\"");
  CHECK(refuses([&](auto& file) {
          at(file, "optimizer.m.0.bias").shape = {5, 1};
        }) == "has a tensor \"optimizer.m.0.bias\" of shape [5, 1]; the model's is [5]");
  CHECK(refuses([&](auto& file) {
          file.tensors.push_back({"3.weight", {1}, {0}});
        }) == "has a tensor \"3.weight\" that the model does not have");
  CHECK(refuses([&](auto& file) {
          file.metadata["training.optimizer"] = "sgd";
        }).rfind("has a tensor \"optimizer.m.", 0) == 0);
  CHECK(refuses([&](auto& file) { file.metadata["training.optimizer"] = "adagrad"; }) ==
        "holds no training that could go on: there is no optimizer \"adagrad\"");
  CHECK(refuses([&](auto& file) { file.metadata.erase("training.steps"); }) ==
        "holds no training that could go on: it has no \"steps\"");
  for (const std::string number : {"", "-1", "1.5", "7x", " 7", "18446744073709551616"})
    CHECK(contains_text(refuses([&](auto& file) { file.metadata["training.epochs"] = number; }),
                        "its \"epochs\" is \"" + number + "\""));
  CHECK(contains_text(refusal(folder / "none", model), "cannot be opened"));

  const TrainingState unknown{0, 0, 0, "adagrad", {}};
  CHECK_THROWS_AS(save(path, model, &unknown), std::invalid_argument);
  CHECK_THROWS_AS(save(folder / "no/folder", model), std::runtime_error);
}

TEST_CASE("what a checkpoint says of another training is one short line") {
  const auto complaint_of = [](const std::string& has) {
    return complaint<std::runtime_error>(
        [&] { sequential::require_same("F", "sales", has, "file 1"); });
  };
  CHECK(complaint_of("file 2") == "F is of a training with sales file 2, not file 1");
  CHECK(complaint_of("") == "F is of a training with sales unknown, not file 1");
  CHECK(complaint_of("\x1b[2J\n") == R"(F is of a training with sales "\u001b[2J\n", not file 1)");
  CHECK(complaint_of(std::string(100000, 'x')).size() < 120);
}

TEST_CASE("a truncated or damaged checkpoint never crashes and never half loads", "[harness]") {
  const tests::Folder folder;
  const std::string path = folder / "model.safetensors", bad = folder / "bad";
  Sequential saved = make(Linear(2, 2), ReLU(), Linear(2, 1));
  const TrainingState state_of_training{4, 2, 1, "momentum", {}};
  save(path, saved, &state_of_training);
  const std::string whole = tests::read_file(path);

  Sequential model{Linear(2, 2), ReLU(), Linear(2, 1)};
  model.initialize(9);
  for (size_t length = 0; length < whole.size(); ++length) {
    write_content(bad, whole.substr(0, length));
    CAPTURE(length);
    REQUIRE(contains_text(refusal(bad, model), "is truncated"));
  }
  write_content(bad, whole + '\0');
  CHECK(contains_text(refusal(bad, model), "left over"));

  // A flipped bit in the header is found, or changes a text that nobody can know: that of the
  // metadata. Then everything is loaded.
  const std::vector<float> before = state(model), after = state(saved);
  size_t header = 0;
  for (size_t i = 0; i < 8; ++i) header |= size_t{static_cast<unsigned char>(whole[i])} << (8 * i);
  size_t refused = 0, loaded = 0;
  for (size_t i = 0; i < 8 + header; ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      write_content(bad, damaged);
      CAPTURE(i, bit);
      try {
        load(bad, model);
        ++loaded;
        REQUIRE(same_bits(state(model), after));
        model.initialize(9);
      } catch (const std::runtime_error& error) {
        ++refused;
        REQUIRE(same_bits(state(model), before));
        REQUIRE(std::string(error.what()).find('\n') == std::string::npos);
      }
    }
  CHECK(refused > 10 * loaded);
}

// tests/python/test_checkpoint.py runs this one: other programs shall read what is written here,
// and write what is read here.
TEST_CASE("a checkpoint goes to $COURSE_CHECKPOINT", "[.checkpoint]") {
  const char *to = std::getenv("COURSE_CHECKPOINT"), *from = std::getenv("COURSE_CHECKPOINT_FROM");
  REQUIRE(to != nullptr);
  Sequential model{Linear(4, 16), ReLU(), Linear(16, 3)};
  model.initialize(7);
  TrainingState training{5, 1, 7, "adam", {{"note", "\xC3\xA4"}}};
  for (const NamedTensor& tensor : model.tensors()) {
    random_numbers::launch_fill_uniform(tensor.m, tensor.n, 7, 10);
    random_numbers::launch_fill_uniform(tensor.v, tensor.n, 7, 11);
  }
  if (from != nullptr) training = load(from, model);
  save(to, model, training.optimizer.empty() ? nullptr : &training);
}
