// What the programs that train on digits must do: 5.8's, and 6.4's.
#pragma once

#include <filesystem>
#include <string>

#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage5_training/08_train_mnist/mnist_data.h"

namespace mnist_test {

using tests::Program;

// It refuses data that are missing or damaged, or do not fill a batch, and checkpoints that are
// none. Returns what the arguments of a run on 80 images begin with.
inline std::string require_bad_data_refused(const Program& program, const tests::Folder& folder) {
  const std::string data = folder / "data", garbage = folder / "garbage";
  std::filesystem::create_directories(data + "/mnist");
  const std::string with_data = "--quick --data " + data + " ";
  program.require_refusal(with_data, "train-images-idx3-ubyte.gz");
  const mnist::Digits train = mnist::draw(80, 1), test = mnist::draw(20, 2);
  tests::write_digits(data, "train", train.pixels, train.labels);
  tests::write_digits(data, "t10k", test.pixels, test.labels);
  const std::string images = data + "/mnist/t10k-images-idx3-ubyte";
  const std::string whole = tests::read_file(images);
  tests::write_file(images, whole.substr(0, whole.size() - 1));
  program.require_refusal(with_data, "t10k-images-idx3-ubyte is truncated");
  tests::write_file(images, whole);
  program.require_refusal(with_data + "--batch 81", "81 of 80 images");
  tests::write_file(garbage, "no checkpoint");
  program.require_refusal(with_data + "--evaluate " + garbage, "garbage");
  program.require_refusal(with_data + "--resume --checkpoint " + garbage, "garbage");
  program.require_refusal(with_data + "--size 0x10", "at least 1");
  return with_data;
}

// Ctrl-C, when the first epoch has been saved, leaves a checkpoint that can be tested.
inline void require_interrupt_saves(const Program& program, const std::string& size) {
  const tests::Folder folder;
  const std::string path = folder / "model";
  const Outcome outcome = program.interrupted(
      "--quick --version graph " + size + "--epochs 20000 --checkpoint " + path, path);
  CAPTURE(outcome.text);
  REQUIRE(outcome.exit_code == 130);
  REQUIRE(outcome.says("saved in " + path));
  REQUIRE(outcome.says("--resume"));
  REQUIRE(program("--quick " + size + "--evaluate " + path).exit_code == 0);
}

}  // namespace mnist_test
