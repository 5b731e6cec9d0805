// The program: what it refuses, what it saves, how it stops.
#include <cmath>
#include <filesystem>
#include <string>

#include "common/gpu_runtime.h"
#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage5_training/08_train_mnist/mnist_program.h"

namespace {

namespace fs = std::filesystem;
using tests::Folder;
using tests::read_file;
using tests::write_file;

Outcome run_shell(const std::string& command) { return tests::run_shell("train_mnist", command); }
Outcome run_program_with(const std::string& arguments) {
  return run_shell("\"$PROGRAM\" " + arguments);
}

// The one line of a refusal.
void require_refusal(const Outcome& outcome, const std::string& words) {
  CAPTURE(outcome.text);
  REQUIRE(tests::is_refusal("train_mnist", outcome, words));
}

}  // namespace

TEST_CASE("the program refuses what it can't use, in one line", "[harness]") {
  const Folder folder;
  const std::string data = folder / "data";
  fs::create_directories(data + "/mnist");
  require_refusal(run_program_with("--quick --data " + data), "train-images-idx3-ubyte.gz");
  const mnist::Digits train = mnist::draw(80, 1), test = mnist::draw(20, 2);
  tests::write_digits(data, "train", train.pixels, train.labels);
  tests::write_digits(data, "t10k", test.pixels, test.labels);
  const std::string images = data + "/mnist/t10k-images-idx3-ubyte", whole = read_file(images);
  write_file(images, whole.substr(0, whole.size() - 1));
  require_refusal(run_program_with("--quick --data " + data),
                  "t10k-images-idx3-ubyte is truncated");
  write_file(images, whole);
  const std::string with_data = "--quick --data " + data + " ";
  require_refusal(run_program_with(with_data + "--batch 81"), "81 of 80 images");
  write_file(folder / "garbage", "no checkpoint");
  require_refusal(run_program_with(with_data + "--evaluate " + (folder / "garbage")), "garbage");
  require_refusal(run_program_with(with_data + "--resume --checkpoint " + (folder / "garbage")),
                  "garbage");
  require_refusal(run_program_with(with_data + "--size 0x10"), "at least 1");
}

TEST_CASE("the program saves, resumes with the same bits, and evaluates", "[harness]") {
  const Folder folder;
  const std::string whole = folder / "whole", parts = folder / "parts";
  const std::string common = "--quick --version operations --size 6x200 --batch 32 --seed 3 ";
  const Outcome once = run_program_with(common + "--epochs 3 --checkpoint " + whole);
  CAPTURE(once.text);
  REQUIRE(once.exit_code == 0);
  REQUIRE(once.says("drawn digits"));
  REQUIRE(once.says("epoch 3/3"));
  REQUIRE(run_program_with(common + "--epochs 1 --checkpoint " + parts).exit_code == 0);
  const Outcome rest = run_program_with(common + "--epochs 3 --resume --checkpoint " + parts);
  CAPTURE(rest.text);
  REQUIRE(rest.exit_code == 0);
  REQUIRE(!rest.says("epoch 1/3"));
  if (std::string(gpu::kBackend) == "cpu") REQUIRE(read_file(parts) == read_file(whole));

  const Outcome test = run_program_with("--quick --size 6x200 --evaluate " + whole);
  CAPTURE(test.text);
  REQUIRE(test.exit_code == 0);
  REQUIRE(test.says("test accuracy"));
  require_refusal(run_program_with("--quick --size 7x200 --evaluate " + whole), "Linear(784, 6)");
  require_refusal(run_program_with(common + "--epochs 3 --resume --checkpoint " + parts), "epochs");
}

TEST_CASE("what a training was promised to reach: after enough images, of MNIST, by its defaults",
          "[harness]") {
  const TrainingDefaults defaults{2, 1, 1, 10, 0.5, "adam", true};
  const mnist::Promised promised{defaults, {{100, 0.5}, {200, 0.9}}};
  const mnist::Data data{{mnist::draw(100, 1), mnist::draw(20, 2)}, "MNIST"};
  Options options;
  options.training.epochs = 2, options.training.batch = 10;
  options.training.learning_rate = 0.5, options.training.optimizer = "adam";
  const auto missed = [&](double accuracy) {
    return mnist::missed(promised, options, data, accuracy);
  };
  CHECK(missed(0.9).empty());
  CHECK(missed(0.8999) == "test 89.99%, promised 90.00%");
  CHECK(!missed(std::nan("")).empty());
  options.training.epochs = 1;
  CHECK(missed(0.5).empty());
  CHECK(missed(0.49) == "test 49.00%, promised 50.00%");
  const auto nothing_with = [&](auto change) {
    const Options before = options;
    change(options);
    CHECK(missed(0).empty());
    options = before;
  };
  nothing_with([](Options& o) { o.quick = true; });
  nothing_with([](Options& o) { o.sizes_given = true; });
  nothing_with([](Options& o) { o.training.optimizer = "sgd"; });
  nothing_with([](Options& o) { o.training.learning_rate = 0.4; });
  nothing_with([](Options& o) { o.training.batch = 11; });
  nothing_with([](Options& o) { o.training.data = "elsewhere"; });
  CHECK(mnist::missed(promised, options, {data.digits, "drawn digits"}, 0).empty());
}

TEST_CASE("Ctrl-C saves the checkpoint and ends with 130", "[harness]") {
  const Folder folder;
  const std::string path = folder / "model";
  // The signal comes when the first epoch has been saved.
  const Outcome outcome =
      run_shell("\"$PROGRAM\" --quick --version graph --epochs 20000 --checkpoint " + path +
                " & training=$!; while kill -0 $training && [ ! -e " + path +
                " ]; do sleep 0.1; done; kill -INT $training; wait $training");
  CAPTURE(outcome.text);
  REQUIRE(outcome.exit_code == 130);
  REQUIRE(outcome.says("saved in " + path));
  REQUIRE(outcome.says("--resume"));
  REQUIRE(run_program_with("--quick --evaluate " + path).exit_code == 0);
}
