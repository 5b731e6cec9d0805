// Checkpoints, and the program: what it refuses, what it saves, how it stops, what it draws.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage5_training/05_sequential/layers.h"
#include "stage6_cnn/04_train_cnn/training_for_tests.h"

namespace {

namespace fs = std::filesystem;
using namespace train_cnn;
using namespace cnn_test;
using testing::same_bits;
using tests::Folder;
using tests::read_file;
using tests::write_file;

void write_digits(const std::string& folder, const std::string& part, const mnist::Digits& digits) {
  tests::write_digits(folder, part, digits.pixels, digits.labels);
}
Outcome run_shell(const std::string& command) { return tests::run_shell("train_cnn", command); }
Outcome run_program_with(const std::string& arguments) {
  return run_shell("\"$PROGRAM\" " + arguments);
}
void require_refusal(const Outcome& outcome, const std::string& words) {
  CAPTURE(outcome.text, words);
  REQUIRE(tests::is_refusal("train_cnn", outcome, words));
}

}  // namespace

TEST_CASE("a resumed training goes on with the same bits", "[long]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors";
  const DeviceDigits images(mnist::draw(50, 5));
  Settings settings;
  settings.hidden = 6, settings.batch = 8;
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    Training whole(settings, images.samples());
    train(whole, version.launch, 9);  // an epoch has 6 steps
    whole.save(path);
    train(whole, version.launch, 5);
    Training resumed(settings, images.samples());
    train(resumed, version.launch, 3);  // what is resumed must not depend on what was before
    resumed.resume(path);
    REQUIRE(resumed.steps == 9);
    train(resumed, version.launch, 5);
    REQUIRE(same_bits(parameters_of(resumed), parameters_of(whole)));
    resumed.save(path);
    const std::string saved = read_file(path);
    whole.save(path);
    REQUIRE(saved == read_file(path));
  }
}

TEST_CASE("what is not this training's checkpoint is refused, and changes nothing", "[harness]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors", damaged = folder / "damaged";
  const DeviceDigits images(mnist::draw(40, 6)), fewer(mnist::draw(30, 6));
  Settings settings;
  settings.hidden = 4, settings.batch = 8;
  Training training(settings, images.samples());
  train(training, kVersions[1].launch, 3);
  training.save(path);
  train(training, kVersions[1].launch, 1);
  const auto before = parameters_of(training);

  const auto refuses = [&](Training& to, const std::string& file, const std::string& words) {
    const auto parameters = parameters_of(to);
    const std::uint64_t steps = to.steps;
    try {
      to.resume(file);
      FAIL("resumed from " + file);
    } catch (const std::runtime_error& error) {
      const std::string text = error.what();
      REQUIRE(contains_text(text, words));
      REQUIRE(contains_text(text, file));
      REQUIRE(text.find('\n') == std::string::npos);
    }
    REQUIRE(to.steps == steps);
    REQUIRE(same_bits(parameters_of(to), parameters));
  };
  const auto refuses_with = [&](const Settings& other, const Samples& samples,
                                const std::string& words) {
    Training to(other, samples);
    refuses(to, path, words);
  };
  Settings other = settings;
  other.seed = 2;
  refuses_with(other, images.samples(), "seed 1, not 2");
  other = settings, other.batch = 5;
  refuses_with(other, images.samples(), "batch 8, not 5");
  other = settings, other.kind = optimizers::Kind::Sgd;
  refuses_with(other, images.samples(), "optimizer adam, not sgd");
  other = settings, other.hidden = 5;
  refuses_with(other, images.samples(), "Linear(784, 5)");
  refuses_with(settings, fewer.samples(), "images 40, not 30");

  // Another network's, of the same training.
  mnist::Training dense(settings, images.samples(),
                        Sequential(sequential::Linear(kPixels, 4), sequential::ReLU(),
                                   sequential::Linear(4, kClasses)));
  dense.save(damaged);
  refuses(training, damaged, "holds a \"Sequential{Linear(784, 4)");

  refuses(training, folder / "missing", "");
  const std::string whole = read_file(path);
  for (size_t length = 0; length < whole.size(); length += 1 + length / 8) {
    write_file(damaged, whole.substr(0, length));
    refuses(training, damaged, "");
  }
  REQUIRE(same_bits(parameters_of(training), before));
}

TEST_CASE("batches that can't be are refused", "[harness]") {
  const DeviceDigits images(mnist::draw(10, 7));
  Settings settings;
  settings.hidden = 2, settings.batch = 0;
  REQUIRE_THROWS_AS(Training(settings, images.samples()), std::invalid_argument);
  settings.batch = 11;
  REQUIRE_THROWS_AS(Training(settings, images.samples()), std::invalid_argument);
}

TEST_CASE("the program refuses what it can't use, in one line", "[harness]") {
  const Folder folder;
  const std::string data = folder / "data";
  fs::create_directories(data + "/mnist");
  require_refusal(run_program_with("--quick --data " + data), "train-images-idx3-ubyte.gz");
  write_digits(data, "train", mnist::draw(70, 1));
  write_digits(data, "t10k", mnist::draw(20, 2));
  const std::string images = data + "/mnist/t10k-images-idx3-ubyte", whole = read_file(images);
  write_file(images, whole.substr(0, whole.size() - 1));
  require_refusal(run_program_with("--quick --data " + data),
                  "t10k-images-idx3-ubyte is truncated");
  write_file(images, whole);
  const std::string with_data = "--quick --data " + data + " ";
  require_refusal(run_program_with(with_data + "--batch 71"), "71 of 70 images");
  write_file(folder / "garbage", "no checkpoint");
  require_refusal(run_program_with(with_data + "--evaluate " + (folder / "garbage")), "garbage");
  require_refusal(run_program_with(with_data + "--resume --checkpoint " + (folder / "garbage")),
                  "garbage");
  require_refusal(run_program_with(with_data + "--size 0x10"), "at least 1");
  require_refusal(run_program_with(with_data + "--show /no/such/folder/cnn.png"), "--show");
}

TEST_CASE("the program saves, resumes with the same bits, evaluates and draws", "[harness]") {
  const Folder folder;
  const std::string whole = folder / "whole", parts = folder / "parts";
  const std::string common = "--quick --version fused --size 6x60 --batch 20 --seed 3 ";
  const Outcome once = run_program_with(common + "--epochs 3 --checkpoint " + whole);
  CAPTURE(once.text);
  REQUIRE(once.exit_code == 0);
  REQUIRE(once.says("drawn digits"));
  REQUIRE(once.says("epoch 3/3"));
  REQUIRE(once.says("parameters, gradients, m and v"));
  REQUIRE(run_program_with(common + "--epochs 1 --checkpoint " + parts).exit_code == 0);
  const std::string learnt = folder / "learnt.png", read = folder / "read.png";
  const Outcome rest =
      run_program_with(common + "--epochs 3 --resume --checkpoint " + parts + " --show " + learnt);
  CAPTURE(rest.text);
  REQUIRE(rest.exit_code == 0);
  REQUIRE(!rest.says("epoch 1/3"));
  if (std::string(gpu::kBackend) == "cpu") REQUIRE(read_file(parts) == read_file(whole));

  const Outcome test =
      run_program_with("--quick --size 6x60 --evaluate " + parts + " --show " + read);
  CAPTURE(test.text);
  REQUIRE(test.exit_code == 0);
  REQUIRE(test.says("test accuracy"));
  REQUIRE(test.says("drawn in " + read));
  // The same model draws the same picture, a PNG of 1136 x 1196.
  const std::string picture = read_file(read);
  REQUIRE(picture.size() > 5000);
  REQUIRE(picture.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  REQUIRE(picture.substr(16, 8) == std::string("\0\0\4\x70\0\0\4\xac", 8));
  REQUIRE(picture == read_file(learnt));
  require_refusal(run_program_with("--quick --size 7x60 --evaluate " + whole), "Linear(784, 7)");
  require_refusal(run_program_with(common + "--epochs 3 --resume --checkpoint " + parts), "epochs");
}

TEST_CASE("Ctrl-C saves the checkpoint and ends with 130", "[harness]") {
  const Folder folder;
  const std::string path = folder / "model";
  // The signal comes when the first epoch has been saved.
  const Outcome outcome = run_shell(
      "\"$PROGRAM\" --quick --version graph --size 6x60 --batch 20 --epochs 20000 --checkpoint " +
      path + " & training=$!; while kill -0 $training && [ ! -e " + path +
      " ]; do sleep 0.1; done; kill -INT $training; wait $training");
  CAPTURE(outcome.text);
  REQUIRE(outcome.exit_code == 130);
  REQUIRE(outcome.says("saved in " + path));
  REQUIRE(outcome.says("--resume"));
  REQUIRE(run_program_with("--quick --size 6x60 --evaluate " + path).exit_code == 0);
}
