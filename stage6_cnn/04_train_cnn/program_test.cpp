// Checkpoints, and the program: what it refuses, what it saves, how it stops, what it draws.
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>

#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage5_training/05_sequential/layers.h"
#include "stage5_training/08_train_mnist/program_for_tests.h"
#include "stage6_cnn/04_train_cnn/training_for_tests.h"

using namespace train_cnn;
using namespace cnn_test;
using tests::Folder;
using tests::read_file;

static const tests::Program program("train_cnn");

TEST_CASE("a resumed training goes on with the same bits", "[long]") {
  const DeviceDigits images(mnist::draw(50, 5));
  Settings settings;
  settings.hidden = 6, settings.batch = 8;
  const auto make = [&] { return std::make_unique<Training>(settings, images.samples()); };
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const auto queue = [&](Training& t, size_t steps) { train(t, version.launch, steps); };
    require_resumes(9, 5, make, queue);  // an epoch has 6 steps
  }
}

TEST_CASE("what is not this training's checkpoint is refused, and changes nothing", "[harness]") {
  const Folder folder;
  const std::string path = folder / "model.safetensors", dense = folder / "dense";
  const DeviceDigits images(mnist::draw(40, 6)), fewer(mnist::draw(30, 6));
  Settings settings;
  settings.hidden = 4, settings.batch = 8;
  Training training(settings, images.samples());
  train(training, kVersions[1].launch, 3);
  training.save(path);
  train(training, kVersions[1].launch, 1);
  require_others_refused(settings, path, images.samples(), fewer.samples(),
                         [](const mnist::Settings& of, const Samples& samples) {
                           return std::make_unique<Training>(of, samples);
                         });
  require_damage_refused(training, path);
  // Another network's, of the same training.
  mnist::Training(settings, images.samples(),
                  Sequential(sequential::Linear(kPixels, 4), sequential::ReLU(),
                             sequential::Linear(4, kClasses)))
      .save(dense);
  require_refused(training, dense, "holds a \"Sequential{Linear(784, 4)");
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
  const std::string with_data = mnist_test::require_bad_data_refused(program, folder);
  program.require_refusal(with_data + "--show /no/such/folder/cnn.png", "--show");
}

TEST_CASE("the program saves, resumes with the same bits, evaluates and draws", "[harness]") {
  const Folder folder;
  const std::string whole = folder / "whole", parts = folder / "parts";
  const std::string common = "--quick --version fused --size 6x60 --batch 20 --seed 3 ";
  const Outcome once = program(common + "--epochs 3 --checkpoint " + whole);
  CAPTURE(once.text);
  REQUIRE(once.exit_code == 0);
  REQUIRE(once.says("drawn digits"));
  REQUIRE(once.says("epoch 3/3"));
  REQUIRE(once.says("parameters, gradients, m and v"));
  REQUIRE(program(common + "--epochs 1 --checkpoint " + parts).exit_code == 0);
  const std::string learnt = folder / "learnt.png", read = folder / "read.png";
  const Outcome rest =
      program(common + "--epochs 3 --resume --checkpoint " + parts + " --show " + learnt);
  CAPTURE(rest.text);
  REQUIRE(rest.exit_code == 0);
  REQUIRE(!rest.says("epoch 1/3"));
  if (std::string(gpu::kBackend) == "cpu") REQUIRE(read_file(parts) == read_file(whole));

  const Outcome test = program("--quick --size 6x60 --evaluate " + parts + " --show " + read);
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
  program.require_refusal("--quick --size 7x60 --evaluate " + whole, "Linear(784, 7)");
  program.require_refusal(common + "--epochs 3 --resume --checkpoint " + parts, "epochs");
}

TEST_CASE("the program trains until it reads enough, or says that it does not", "[harness]") {
  const std::string common = "--quick --version fused --size 16x200 --batch 20 --lr 0.003 ";
  const Outcome reached = program(common + "--epochs 40 --until 40");
  CAPTURE(reached.text);
  REQUIRE(reached.exit_code == 0);
  REQUIRE(reached.says("epochs=40   until 40% of the tests"));
  REQUIRE(reached.says("epoch  1/40"));
  REQUIRE(!reached.says("epoch 40/40"));
  const Outcome missed = program(common + "--epochs 1 --until 100");
  CAPTURE(missed.text);
  REQUIRE(missed.exit_code == 1);
  REQUIRE(missed.says("% is not 100%"));
  for (const std::string value : {"0", "-1", "100.5", "99%", "nan", "x"})
    program.require_refusal("--quick --until " + value, "--until: '" + value + "'");
}

TEST_CASE("Ctrl-C saves the checkpoint and ends with 130", "[harness]") {
  mnist_test::require_interrupt_saves(program, "--size 6x60 --batch 20 ");
}
