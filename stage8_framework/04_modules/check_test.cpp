// The program's check refuses trainings that are not the reference's.
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "stage5_training/08_train_mnist/reference.h"
#include "stage5_training/08_train_mnist/train_mnist.h"
#include "stage8_framework/04_modules/models.h"
#include "stage8_framework/04_modules/modules_for_tests.h"
#include "stage8_framework/04_modules/precision.h"
#include "stage8_framework/04_modules/problem.h"

using namespace modules_test;
using modules::Task;
using modules::Training;

TEST_CASE("of each step a training keeps some numbers, not its images") {
  Options options;
  options.sizes = {10'000'000, 128, 3, 16};  // epochs of two steps
  REQUIRE_NOTHROW(modules::require_memory(options));
  options.sizes[0] *= 1'000'000;
  REQUIRE_THROWS_AS(modules::require_memory(options), UsageError);
  options.sizes = {1, 128, 10'000'000'000'000, 16};
  REQUIRE_THROWS_AS(modules::require_memory(options), UsageError);
}

namespace {

constexpr std::int64_t kImages = 64, kBatch = 8, kHidden = 6;
constexpr size_t kSteps = 6;

// A perceptron of 6 hidden units that reads a few digits, against 5.8's reference.
Training small_training() {
  const mnist::Digits digits = mnist::draw(kImages, 1);
  const mnist::DeviceDigits images(digits);
  mnist::Settings settings;
  settings.hidden = kHidden, settings.batch = kBatch;
  const train_mnist::Training like(settings, images.samples());
  Floats pixels(digits.pixels.size());
  for (size_t i = 0; i < pixels.size(); ++i)
    pixels[i] = mnist::kPixelScale * static_cast<float>(digits.pixels[i]);
  const Integers labels(digits.labels.begin(), digits.labels.end());
  const auto columns = [&](Device& on) {
    return std::vector<Tensor>{Tensor::from_host(on, pixels, {kImages, 784}),
                               Tensor::from_host(on, labels, {kImages})};
  };
  const Floats first = like.parameters();
  OptimizerRule rule{kAdam};
  rule.beta1 = static_cast<double>(settings.hyper.beta1);
  rule.beta2 = static_cast<double>(settings.hyper.beta2);
  rule.epsilon = static_cast<double>(settings.hyper.epsilon);
  const double rate = static_cast<double>(settings.hyper.learning_rate);
  return {"small",
          "small.safetensors",
          0,
          [first](Device& on) {
            auto model = make_perceptron(on, kHidden);
            const float* next = first.data();
            for (const NamedTensor& named : model->parameters()) {
              named.tensor->detach().copy_from(
                  Tensor::from_host(on, next, named.tensor->shape(), Dtype::f32));
              next += named.tensor->elements();
            }
            return model;
          },
          {own(), columns(reference()), columns(own()), kBatch,
           shuffled(kImages, kBatch, settings.seed),
           [](Module& model, const std::vector<Tensor>& batch) {
             return cross_entropy(model(batch[0]), batch[1]);
           },
           rule, [rate](std::uint64_t) { return rate; }},
          kSteps,
          mnist::trajectory_cpu(like, digits, kSteps),
          {}};
}

// A version with places for mistakes. A launch is a plain function: these are what it reads.
struct Mistakes {
  size_t parameters_left_out = 0;
  double rate = 1, gradient = 1;
  std::uint64_t later = 0;
};
Mistakes mistakes;

Floats train_with_mistakes(Module& model, const Task& task, std::uint64_t steps) {
  std::vector<NamedTensor> updated = model.parameters();
  updated.resize(updated.size() - mistakes.parameters_left_out);
  PerTensorOptimizer optimizer(updated, task.rule);
  HostLoader batches(
      task.host_columns, task.batch,
      [&](std::uint64_t step, std::int32_t* rows) { task.order(step + mistakes.later, rows); },
      task.device);
  Floats losses;
  for (std::uint64_t step = 0; step < steps; ++step) {
    for (const NamedTensor& named : model.parameters()) named.tensor->set_grad({});
    const Tensor loss = task.loss(model, batches.next());
    loss.backward();
    losses.push_back(host(loss)[0]);
    for (const NamedTensor& named : model.parameters())
      named.tensor->set_grad(named.tensor->grad() * full(task.device, {}, mistakes.gradient));
    optimizer.step(mistakes.rate * task.rate(step));
  }
  return losses;
}

}  // namespace

TEST_CASE("the program's check takes all versions, in f32 and in bf16") {
  const Training in_f32 = small_training();
  REQUIRE(in_f32.want.losses.size() == kSteps);
  for (const Training& training : {in_f32, modules::in_bf16(in_f32)})
    for (const auto& version : testing::chosen(modules::kVersions)) {
      INFO(version.name << ", " << training.name);
      REQUIRE_OK(check(training, version.launch));
    }
}

TEST_CASE("the program's check refuses mistakes", "[harness]") {
  Training in_f32 = small_training();
  in_f32.steps = 20;  // of which bf16 is checked on all
  for (const Training& training : {in_f32, modules::in_bf16(in_f32)}) {
    INFO(training.name);
    const auto is_refused = [&](const Mistakes& these) {
      mistakes = these;
      return !check(training, train_with_mistakes).ok;
    };
    REQUIRE(!is_refused({}));
    REQUIRE(is_refused({1, 1, 1, 0}));    // 2.bias is never updated
    REQUIRE(is_refused({0, 1.1, 1, 0}));  // a rate that is 10% too large
    REQUIRE(is_refused({0, 1, 1.1, 0}));  // gradients that are: Adam takes the same steps from them
    REQUIRE(is_refused({0, 1, 1, 1}));    // the samples of the step after
    REQUIRE(!check(training, [](Module& model, const Task& task, std::uint64_t steps) {
               Floats losses = modules::best().launch(model, task, steps);
               model.parameters()[1].tensor->set_grad({});  // a gradient that is gone
               return losses;
             }).ok);
    REQUIRE(!check(training, [](Module& model, const Task& task, std::uint64_t steps) {
               Floats losses = modules::best().launch(model, task, steps);
               losses.pop_back();
               return losses;
             }).ok);
  }
}

TEST_CASE("a training in bf16 has products in bf16, and is held against f32") {
  Training in_f32 = small_training();
  static double share = 1;              // of the last loss, which is what is reached
  static std::vector<Floats> products;  // 257 is no number of bf16
  in_f32.judge = [](Module&, const Floats& losses) {
    products.push_back(host(matmul(full(own(), {1, 1}, 257), full(own(), {1, 1}, 1))));
    const double last = losses.empty() ? 0 : static_cast<double>(losses.back());
    return Training::Result{"", "", {share * last}};
  };
  const auto losses_of = [](const Training& of) {
    return modules::best().launch(*of.make(own()), of.task, of.steps);
  };
  const Training training = modules::in_bf16(in_f32);
  const Floats losses = losses_of(training);
  REQUIRE(losses != losses_of(in_f32));

  const auto model = training.make(own());
  REQUIRE(training.judge(*model, losses).missed.empty());
  REQUIRE(products == std::vector<Floats>{{256}, {257}});
  REQUIRE(training.judge(*model, {}).missed.empty());  // of no training there is nothing to compare
  for (const double less_or_more : {1.005, 0.98, 1.02, std::nan("")}) {
    share = less_or_more;  // f32 has been asked before
    const std::string missed = training.judge(*model, losses).missed;
    if (share == 1.005)
      REQUIRE(missed.empty());
    else
      REQUIRE(contains_text(missed, "% of f32's, promised 1%"));
  }
  share = 1;

  Training wrong = in_f32;
  wrong.task.rate = [](std::uint64_t) { return 0.1; };
  REQUIRE(error_of<std::runtime_error>([&] { modules::in_bf16(wrong); }) ==
          "small: in f32 it is not what its reference says");
}

TEST_CASE("--precision takes fp32 and bf16") {
  Options options;
  REQUIRE(!modules::wants_bf16(options));
  options.extra["--precision"] = "fp32";
  REQUIRE(!modules::wants_bf16(options));
  options.extra["--precision"] = "bf16";
  REQUIRE(modules::wants_bf16(options));
  options.extra["--precision"] = "fp16";
  REQUIRE(error_of<UsageError>([&] { modules::wants_bf16(options); }) ==
          "--precision: fp16 is neither fp32 nor bf16");
}
