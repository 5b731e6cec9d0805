// Trainings whose steps are replayed: the bits of eager for any number of steps, and checks that
// must refuse what is wrong.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/testing.h"
#include "stage8_framework/01_tensor/splitting.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/03_autograd/tape.h"
#include "stage8_framework/05_capture/problem.h"

using namespace framework;
using capturing::kVersions;
using modules::Task;
using Floats = std::vector<float>;

namespace {

constexpr std::int64_t kSamples = 24, kBatch = 5;

// A network with a Dropout, whose step counts in place, a transposed input and a cast.
class Net : public Module {
 public:
  explicit Net(Device& device) : first_(device, 6, 8, true, 3), last_(device, 8, 3, true, 4) {
    add_module("first", first_), add_module("drop", drop_), add_module("last", last_);
  }
  Tensor forward(const Tensor& x) override {
    return last_(drop_(tanh(first_(x.transpose(0, 1).contiguous().transpose(0, 1)))));
  }

 private:
  Linear first_;
  Dropout drop_{0.25, 7};
  Linear last_;
};

Task task_on(Device& device, int kind, Dtype products = Dtype::f32) {
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < kSamples; ++i) labels.push_back(static_cast<std::int32_t>(i % 3));
  const Floats x = testing::random_floats(kSamples * 6, 1, 1);
  const auto columns_on = [&](Device& on) {
    return std::vector<Tensor>{Tensor::from_host(on, x, {kSamples, 6}),
                               Tensor::from_host(on, labels, {kSamples})};
  };
  return {device,
          columns_on(framework::device("reference")),
          columns_on(device),
          kBatch,
          shuffled(kSamples, kBatch, 9),
          [products](Module& model, const std::vector<Tensor>& batch) {
            const Autocast guard(products);
            return cross_entropy(model(batch[0]), batch[1]);
          },
          {kind},
          [](std::uint64_t done) { return warm_cosine(0.1, done, 200, 5, 0.1); }};
}

Floats parameters_of(Module& model) {
  Floats all;
  for (const NamedTensor& parameter : model.parameters()) {
    const Floats values = parameter.tensor->detach().to_host<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("every version trains to the bits of eager") {
  Device& own = device("own");
  for (const int kind : {kSgd, kMomentum, kAdamW})
    for (const std::uint64_t steps : {1u, 2u, 3u, 4u, 11u, 160u}) {
      const Task task = task_on(own, kind);
      Net eager(own);
      const Floats want = capturing::train_eager(eager, task, steps);
      for (const auto& version : kVersions) {
        INFO(version.name << ", rule " << kind << ", " << steps << " steps");
        Net model(own);
        const Floats got = version.launch(model, task, steps);
        CHECK(testing::same_bits(got, want));
        CHECK(testing::same_bits(parameters_of(model), parameters_of(eager)));
        CHECK(capturing::difference(got, want).empty());
      }
    }
}

TEST_CASE("every version trains to the bits of eager with products in bf16") {
  Device& own = device("own");
  const Task task = task_on(own, kAdamW, Dtype::bf16);
  Net eager(own), in_f32(own);
  const Floats want = capturing::train_eager(eager, task, 11);
  CHECK(want != capturing::train_eager(in_f32, task_on(own, kAdamW), 11));
  for (const auto& version : kVersions) {
    INFO(version.name);
    Net model(own);
    CHECK(testing::same_bits(version.launch(model, task, 11), want));
    CHECK(testing::same_bits(parameters_of(model), parameters_of(eager)));
  }
}

TEST_CASE("how many steps a graph has") {
  for (const std::uint64_t few : {1u, 2u, 4u, 6u}) CHECK(capturing::steps_of_graph(few) == 1);
  CHECK(capturing::steps_of_graph(7) == 2);
  CHECK(capturing::steps_of_graph(20) == 6);
  CHECK(capturing::steps_of_graph(300) == 8);
  CHECK(capturing::steps_of_graph(1000) == 25);
  CHECK(capturing::steps_of_graph(1000000) == 50);
}

TEST_CASE("a planned step works in a block full of NaN") {
  Device& own = device("own");
  const Task task = task_on(own, kAdam);
  for (const auto planner : {plan_none, plan_greedy, plan_by_size}) {
    Net eager(own), model(own);
    const Floats want = capturing::train_eager(eager, task, 9);
    const Floats got = capturing::train_replayed(model, task, 9, [&](Graph& graph) {
      {
        const Tensor free = full(own, {1 << 18}, std::nan(""));  // where the block will lie
      }
      graph.plan(planner);
      CHECK(graph.bytes() == planner(graph.intervals()).bytes);
      CHECK(graph.bytes() >= lower_bound_of(graph.intervals()));
    });
    CHECK(testing::same_bits(got, want));
  }
}

TEST_CASE("a training gives all its memory back") {
  Device& own = device("own");
  auto& pool = plugin_device(own).pool();
  const Task task = task_on(own, kAdam);
  for (const auto& version : kVersions) {
    const size_t live = pool.statistics().live;
    {
      Net model(own);
      version.launch(model, task, 30);
    }
    INFO(version.name);
    CHECK(pool.statistics().live == live);
  }
}

TEST_CASE("a training that fails while it is recorded can be begun anew") {
  Device& own = device("own");
  Task task = task_on(own, kAdam);
  const auto loss = task.loss;
  int calls = 0;
  task.loss = [&](Module& model, const std::vector<Tensor>& batch) {
    const Tensor result = loss(model, batch);
    if (++calls == 4) result.detach().to_host<float>();  // somebody prints it
    return result;
  };
  Net model(own);
  const std::string message =
      testing::what_of<std::runtime_error>([&] { capturing::train_graph(model, task, 30); });
  CHECK(message.find("capture: the host reads 4 bytes from own, behind call ") == 0);
  CHECK(message.find("cross_entropy") != std::string::npos);
  Net again(own), eager(own);
  task.loss = loss;
  CHECK(testing::same_bits(capturing::train_graph(again, task, 30),
                           capturing::train_eager(eager, task, 30)));
}

TEST_CASE("an optimizer takes a rate that lies on the device") {
  Device& own = device("own");
  const Tensor rates = Tensor::from_host(own, Floats{0.5f, 0.25f}, {2});
  Net by_number(own), by_tensor(own);
  ArenaOptimizer one(by_number.parameters(), {kMomentum}), two(by_tensor.parameters(), {kMomentum});
  const auto step = [](Module& model, Optimizer& optimizer, auto rate) {
    optimizer.zero_grad();
    sum(square(model(full(model.parameters()[0].tensor->device(), {2, 6}, 0.5)))).backward();
    optimizer.step(rate);
  };
  step(by_number, one, 0.5), step(by_tensor, two, rates.select(0, 0));
  step(by_number, one, 0.25), step(by_tensor, two, rates.select(0, 1));
  step(by_number, one, 0.125), step(by_tensor, two, 0.125);  // its own rate again
  CHECK(rates.to_host<float>() == Floats{0.5f, 0.25f});
  CHECK(testing::same_bits(parameters_of(by_number), parameters_of(by_tensor)));
}

TEST_CASE("checks refuse losses that are not eager's") {
  const Floats eager{1, 0.5f, 0.25f};
  CHECK(capturing::difference(eager, eager).empty());
  CHECK(
      capturing::difference({1, 0.5f, std::nextafter(0.25f, 1.0f)}, eager).find("step 2 is 0.25") !=
      std::string::npos);

  Options options;
  options.sizes = {1, 128, 3, 16, 20};
  options.sizes_given = true;
  Report report({"8.5", "capture", "", {}, {}}, options, {}, std::tmpfile());
  Device& own = device("own");
  const capturing::Training training = capturing::trainings(options, own, report).back();
  const auto model = training.make(own);
  const Floats first = capturing::train_eager(*model, training.task, training.want.losses.size());
  for (const auto& version : kVersions) CHECK(capturing::check(training, version.launch, first).ok);
  const auto refused = [&](capturing::Launch wrong) {
    return !capturing::check(training, wrong, first).ok;
  };
  // The losses of the first graph again and again, as if nothing were replayed.
  CHECK(refused([](Module& m, const Task& task, std::uint64_t steps) {
    Floats losses = capturing::train_eager(m, task, steps);
    const auto count = capturing::steps_of_graph(steps);
    for (size_t i = count; i < losses.size(); ++i) losses[i] = losses[i - count];
    return losses;
  }));
  // A last bit.
  CHECK(refused([](Module& m, const Task& task, std::uint64_t steps) {
    Floats losses = capturing::train_eager(m, task, steps);
    losses.back() = std::nextafter(losses.back(), 2.0f);
    return losses;
  }));
  // No training at all.
  CHECK(refused([](Module&, const Task&, std::uint64_t steps) { return Floats(steps, 0.7f); }));
}
