// The program: what it refuses, what it saves, how it stops.
#include <cmath>
#include <string>
#include <utility>

#include "common/gpu_runtime.h"
#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage5_training/08_train_mnist/mnist_program.h"
#include "stage5_training/08_train_mnist/program_for_tests.h"
#include "stage5_training/08_train_mnist/training_for_tests.h"

using tests::Folder;
using tests::read_file;

static const tests::Program program("train_mnist");

TEST_CASE("the program refuses what it can't use, in one line", "[harness]") {
  const Folder folder;
  mnist_test::require_bad_data_refused(program, folder);
}

TEST_CASE("the program saves, resumes with the same bits, and evaluates", "[harness]") {
  const Folder folder;
  const std::string whole = folder / "whole", parts = folder / "parts";
  const std::string common = "--quick --version operations --size 6x200 --batch 32 --seed 3 ";
  const Outcome once = program(common + "--epochs 3 --checkpoint " + whole);
  CAPTURE(once.text);
  REQUIRE(once.exit_code == 0);
  REQUIRE(once.says("drawn digits"));
  REQUIRE(once.says("epoch 3/3"));
  REQUIRE(program(common + "--epochs 1 --checkpoint " + parts).exit_code == 0);
  const Outcome rest = program(common + "--epochs 3 --resume --checkpoint " + parts);
  CAPTURE(rest.text);
  REQUIRE(rest.exit_code == 0);
  REQUIRE(!rest.says("epoch 1/3"));
  if (std::string(gpu::kBackend) == "cpu") REQUIRE(read_file(parts) == read_file(whole));

  const Outcome test = program("--quick --size 6x200 --evaluate " + whole);
  CAPTURE(test.text);
  REQUIRE(test.exit_code == 0);
  REQUIRE(test.says("test accuracy"));
  program.require_refusal("--quick --size 7x200 --evaluate " + whole, "Linear(784, 6)");
  program.require_refusal(common + "--epochs 3 --resume --checkpoint " + parts, "epochs");
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

TEST_CASE("the learning rate of a goal falls from epoch to epoch, wherever it begins",
          "[harness]") {
  const mnist::DeviceDigits images(mnist::draw(40, 1));
  mnist::Settings settings;
  settings.hidden = 4, settings.batch = 8;  // 5 steps in an epoch
  mnist_test::Training training(settings, images.samples());
  const auto rate = [&] { return training.schedule.to_host()[0].hyper.learning_rate; };
  const float usual = rate();
  TrainingOptions options;
  options.epochs = 4, options.learning_rate = 0.5;
  const auto begin = [&] {
    return mnist::with_falling_rate(
        training, [&](size_t steps) { train_mnist::run_operations(training, steps); }, options);
  };
  train_toy::QueueSteps queue = begin();
  for (const auto& [steps, wanted] :
       {std::pair{5, 0.5f}, std::pair{2, 0.375f}, std::pair{3, 0.375f}, std::pair{5, 0.25f}}) {
    queue(static_cast<size_t>(steps));
    CHECK(rate() == wanted);
  }
  training.go_on(17);
  queue = begin();
  queue(1);
  CHECK(rate() == 0.125f);
  training.restart();
  CHECK(rate() == usual);
}

TEST_CASE("a goal is reached or missed", "[harness]") {
  CHECK(mnist::missed(mnist::Goal{0.99}, 0.99).empty());
  CHECK(mnist::missed(mnist::Goal{0.99}, 0.989) == "test 98.90% is not 99%");
  CHECK(!mnist::missed(mnist::Goal{0.99}, std::nan("")).empty());
  CHECK(mnist::goal_text({0.985}) == "   until 98.5% of the tests");
  CHECK(mnist::goal_text({}).empty());
}

TEST_CASE("Ctrl-C saves the checkpoint and ends with 130", "[harness]") {
  mnist_test::require_interrupt_saves(program, "");
}
