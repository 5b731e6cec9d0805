// Module: names, what is registered and what is refused, state dicts, other devices. And the
// ladder: all versions train alike.
#include "stage8_framework/04_modules/modules.h"

#include <functional>
#include <memory>
#include <utility>

#include "stage8_framework/04_modules/models.h"
#include "stage8_framework/04_modules/modules_for_tests.h"

using namespace modules_test;
using modules::Task;
using Names = std::vector<std::string>;

namespace {

// Parts of its own, and functions that are protected.
struct Part : Module {
  Tensor forward(const Tensor& x) override { return x; }
  using Module::add_buffer;
  using Module::add_module;
  using Module::add_parameter;
};

Tensor zeros(const Shape& shape) { return full(own(), shape, 0); }

// A module with a parameter, a real buffer, an integer buffer and a part.
struct Small : Module {
  Tensor gain = zeros({2}), seen = zeros({3}), count = full(own(), {}, 7, Dtype::i64);
  Linear inner{own(), 2, 3};
  Small() {
    add_parameter("gain", gain), add_buffer("seen", seen), add_buffer("count", count);
    add_module("inner", inner);
  }
  Tensor forward(const Tensor& x) override { return inner(x * gain); }
};

}  // namespace

// ---- Module -------------------------------------------------------------------------------------

TEST_CASE("names are paths in the order of registration, as PyTorch has them") {
  Part root, middle;
  Tensor a = zeros({2}), b = zeros({2}), c = zeros({2, 2}), seen = zeros({5});
  Linear inner(own(), 3, 2);
  root.add_module("middle", middle), middle.add_module("fc", inner);
  root.add_parameter("z", a), root.add_parameter("y", b), middle.add_parameter("c", c);
  middle.add_buffer("seen", seen);
  // A module's own come before those of its parts.
  REQUIRE(names_of(root.parameters()) ==
          Names{"z", "y", "middle.c", "middle.fc.weight", "middle.fc.bias"});
  REQUIRE(names_of(root.buffers()) == Names{"middle.seen"});
  REQUIRE(root.parameter_count() == 2 + 2 + 4 + 6 + 2);
  REQUIRE(root.parameters()[2].tensor == &c);
  for (const NamedTensor& named : root.parameters()) REQUIRE(named.tensor->requires_grad());
  REQUIRE(!root.buffers()[0].tensor->requires_grad());

  Sequential net(std::make_unique<Linear>(own(), 4, 3), std::make_unique<ReLU>(),
                 std::make_unique<Linear>(own(), 3, 2, false));
  REQUIRE(names_of(net.parameters()) == Names{"0.weight", "0.bias", "2.weight"});
  REQUIRE((net.size() == 3 && &net[2] != &net[0]));
  REQUIRE_THROWS_AS(net[3], std::out_of_range);
  MultiHeadAttention attention(own(), 4, 2);
  REQUIRE(names_of(attention.parameters()) ==
          Names{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"});
  BatchNorm2d norm(own(), 3);
  REQUIRE(names_of(norm.parameters()) == Names{"weight", "bias"});
  REQUIRE(names_of(norm.buffers()) == Names{"running_mean", "running_var", "num_batches_tracked"});
}

TEST_CASE("names that are empty, dotted or taken are refused") {
  Part root, part;
  Tensor a = zeros({2}), b = zeros({2}), none;
  root.add_parameter("a", a), root.add_module("part", part), root.add_buffer("b", b);
  const auto refuses = [&](const std::string& name, const std::string& line) {
    CAPTURE(name);
    Tensor other = zeros({2});
    Part module;
    REQUIRE(error_of([&] { root.add_parameter(name, other); }) == line);
    REQUIRE(error_of([&] { root.add_parameter(name, none); }) == line);
    REQUIRE(error_of([&] { root.add_buffer(name, other); }) == line);
    REQUIRE(error_of([&] { root.add_module(name, module); }) == line);
    REQUIRE(!other.requires_grad());
  };
  refuses("", "a module can't have a part called \"\"");
  refuses("x.y", "a module can't have a part called \"x.y\"");
  for (const std::string taken : {"a", "b", "part"})
    refuses(taken, "a module has two parts called " + taken);
  root.add_parameter("free", none);  // a bias that is left out
  REQUIRE(names_of(root.parameters()) == Names{"a"});
  REQUIRE(root.state_dict().size() == 2);
}

TEST_CASE("a state dict holds the elements themselves") {
  Small net;
  const StateDict state = net.state_dict();
  Names names;
  for (const auto& [name, tensor] : state) {
    names.push_back(name);
    REQUIRE(!tensor.requires_grad());
  }
  REQUIRE(names == Names{"count", "gain", "inner.bias", "inner.weight", "seen"});
  fill(state.at("gain"), 3);
  REQUIRE(host(net.gain) == Floats{3, 3});
  REQUIRE(state.at("inner.weight").shares_storage(net.inner.weight));
}

TEST_CASE("load_state_dict copies values of any floating-point type and device") {
  Small net;
  const Tensor weight = net.inner.weight;  // a handle that sees what is loaded
  StateDict state;
  state["gain"] = Tensor::from_host(own(), Floats{1, 2}, {2});
  state["seen"] = Tensor::from_host(reference(), Doubles{0.5, 0.25, 3}, {3});
  state["inner.bias"] = Tensor::from_host(reference(), Floats{4, 5, 6}, {3});
  state["inner.weight"] =  // of any strides
      Tensor::from_host(own(), Doubles{1, 2, 3, 4, 5, 6}, {2, 3}).transpose(0, 1);
  net.load_state_dict(state);  // an integer buffer may be missing
  REQUIRE(host(net.gain) == Floats{1, 2});
  REQUIRE(host(net.seen) == Floats{0.5f, 0.25f, 3});
  REQUIRE(host(net.inner.bias) == Floats{4, 5, 6});
  REQUIRE(host(weight) == Floats{1, 4, 2, 5, 3, 6});
  REQUIRE(net.count.to_host<std::int64_t>()[0] == 7);
  REQUIRE((net.gain.requires_grad() && !net.gain.shares_storage(state["gain"])));
  state["count"] = full(reference(), {}, 9, Dtype::i64);
  net.load_state_dict(state);
  REQUIRE(net.count.to_host<std::int64_t>()[0] == 9);
  Tensor tracked = Tensor::from_host(own(), Floats{7, 8}, {2});
  tracked.set_requires_grad();
  state["gain"] = tracked;
  net.load_state_dict(state);
  REQUIRE(host(net.gain) == Floats{7, 8});
}

TEST_CASE("load_state_dict refuses another module's, and changes nothing then") {
  Small net, other;
  fill(other.gain.detach(), 5);
  fill(other.count, 70);
  const auto refuses = [&](const std::function<void(StateDict&)>& change, const std::string& line) {
    StateDict state = other.state_dict();
    change(state);
    REQUIRE(error_of([&] { net.load_state_dict(state); }) == "load_state_dict: " + line);
    REQUIRE(host(net.gain) == Floats{0, 0});
    REQUIRE(net.count.to_host<std::int64_t>()[0] == 7);
  };
  refuses([](StateDict& s) { s.erase("seen"); }, "seen is missing");
  refuses([](StateDict& s) { s.erase("inner.weight"); }, "inner.weight is missing");
  refuses([](StateDict& s) { s["inner.gain"] = zeros({1}); }, "the module has no inner.gain");
  refuses([](StateDict& s) { s["seen"] = zeros({4}); }, "seen is f32 (4), not f32 (3)");
  refuses([](StateDict& s) { s["seen"] = zeros({3, 1}); }, "seen is f32 (3,1), not f32 (3)");
  refuses([](StateDict& s) { s["seen"] = {}; }, "seen is undefined");
  refuses([](StateDict& s) { s["seen"] = full(own(), {3}, 0, Dtype::i64); },
          "seen is i64 (3), not f32 (3)");
  refuses([](StateDict& s) { s["count"] = zeros({}); }, "count is f32 (), not i64 ()");
}

TEST_CASE("train and eval reach all parts") {
  Part root, middle, leaf;
  root.add_module("middle", middle), middle.add_module("leaf", leaf);
  const auto all_train = [&](bool is) {
    return root.is_training() == is && middle.is_training() == is && leaf.is_training() == is;
  };
  REQUIRE(all_train(true));
  root.eval();
  REQUIRE(all_train(false));
  root.train();
  REQUIRE(all_train(true));
  middle.eval();
  REQUIRE((root.is_training() && !middle.is_training() && !leaf.is_training()));
}

TEST_CASE("to another device and back keeps values and leaves") {
  Small net;
  const Tensor x = random_tensor({4, 2}, 5);
  net.load_state_dict({{"gain", random_tensor({2}, 1)},
                       {"seen", random_tensor({3}, 2)},
                       {"inner.weight", random_tensor({3, 2}, 3)},
                       {"inner.bias", random_tensor({3}, 4)}});
  net.inner.bias.set_requires_grad(false);
  const Floats want = values_of(net), seen = host(net.seen), y = host(net(x).detach());
  sum(net(x)).backward();
  for (Device* const on : {&reference(), &own()}) {
    net.to(*on);
    REQUIRE(values_of(net) == want);
    REQUIRE(host(net.seen) == seen);
    REQUIRE(net.count.to_host<std::int64_t>()[0] == 7);
    for (const NamedTensor& named : net.parameters()) REQUIRE(&named.tensor->device() == on);
    for (const NamedTensor& named : net.buffers()) REQUIRE(&named.tensor->device() == on);
    REQUIRE((net.gain.requires_grad() && !net.inner.bias.requires_grad()));
    REQUIRE(!net.gain.grad().is_defined());
    sum(net(to(x, *on))).backward();
    REQUIRE(net.gain.grad().is_defined());
  }
  REQUIRE(host(net(x).detach()) == y);
}

// ---- The versions -------------------------------------------------------------------------------

namespace {

// Inputs (24, 5) and targets (24, 3), in batches of 6.
Task linear_task(int kind) {
  const Tensor x = random_tensor({24, 5}, 1, reference()),
               t = random_tensor({24, 3}, 2, reference());
  return {own(),
          {x, t},
          {to(x, own()), to(t, own())},
          6,
          shuffled(24, 6, 3),
          [](Module& model, const std::vector<Tensor>& batch) {
            return squared_error(model(batch[0]), batch[1]);
          },
          {kind},
          [](std::uint64_t done) { return by_steps(0.1, done, 3, 0.5); }};
}

// All pieces of 4 characters of a text of 40, and the one after each.
Task text_task() {
  Integers text(40);
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::int32_t>(i * i % 7);
  const auto pieces = [&](Device& on) {
    const Tensor all = Tensor::from_host(on, text, {40});
    return std::vector<Tensor>{all.view(Layout{{36, 4}, {1, 1}, 0}),
                               all.view(Layout{{36, 4}, {1, 1}, 1})};
  };
  return {own(),
          pieces(reference()),
          pieces(own()),
          5,
          shuffled(36, 5, 1),
          [](Module& model, const std::vector<Tensor>& batch) {
            return cross_entropy(model(batch[0]), batch[1]);
          },
          {kAdamW},
          [](std::uint64_t done) { return warm_cosine(1e-2, done, 9, 2, 0.1); }};
}

std::unique_ptr<Module> perceptron() {
  return std::make_unique<Sequential>(std::make_unique<Linear>(own(), 5, 4, true, 1),
                                      std::make_unique<Tanh>(),
                                      std::make_unique<Linear>(own(), 4, 3, true, 2));
}
std::unique_ptr<Module> characters() {
  return std::make_unique<Sequential>(std::make_unique<Embedding>(own(), 7, 6, 1),
                                      std::make_unique<LayerNorm>(own(), 6),
                                      std::make_unique<Linear>(own(), 6, 7, false, 2));
}

// The same training written out: samples by hand, an operation per parameter, no optimizer class.
Floats by_hand(Module& model, const Task& task, std::uint64_t steps) {
  std::vector<std::pair<Tensor, Tensor>> states;  // of each parameter, and its count of steps
  for (const NamedTensor& named : model.parameters()) {
    Shape rows = named.tensor->shape();
    rows.insert(0, task.rule.kind == kSgd ? 0 : task.rule.kind == kMomentum ? 1 : 2);
    states.emplace_back(full(own(), rows, 0), full(own(), {}, 0, Dtype::i64));
  }
  Floats losses;
  for (std::uint64_t step = 0; step < steps; ++step) {
    Integers rows(static_cast<size_t>(task.batch));
    task.order(step, rows.data());
    std::vector<Tensor> batch;
    for (const Tensor& column : task.host_columns) {
      Shape shape = column.shape();
      shape[0] = task.batch;
      const Tensor samples = Tensor::empty(reference(), shape, column.dtype());
      for (size_t i = 0; i < rows.size(); ++i)
        samples.select(0, static_cast<std::int64_t>(i)).copy_from(column.select(0, rows[i]));
      batch.push_back(to(samples, own()));
    }
    for (const NamedTensor& named : model.parameters()) named.tensor->set_grad({});
    const Tensor loss = task.loss(model, batch);
    loss.backward();
    losses.push_back(host(loss)[0]);
    const NoGrad guard;
    size_t i = 0;
    for (const NamedTensor& named : model.parameters()) {
      optimizer_step(named.tensor->detach(), states[i].first, states[i].second,
                     named.tensor->grad(), full(own(), {}, task.rate(step)), task.rule);
      ++i;
    }
  }
  return losses;
}

}  // namespace

TEST_CASE("all versions train as a training by hand does, bit for bit") {
  const auto train_alike = [](const Task& task,
                              const std::function<std::unique_ptr<Module>()>& make) {
    constexpr std::uint64_t kSteps = 9;  // two epochs and a bit
    const auto hand = make();
    const Floats losses = by_hand(*hand, task, kSteps);
    REQUIRE(losses.back() < losses.front());
    for (const auto& version : testing::chosen(modules::kVersions)) {
      INFO(version.name << ", rule " << task.rule.kind);
      const auto model = make();
      REQUIRE(testing::same_bits(version.launch(*model, task, kSteps), losses));
      REQUIRE(testing::same_bits(values_of(*model), values_of(*hand)));
      REQUIRE(testing::same_bits(gradients_of(*model), gradients_of(*hand)));
      // The model is the caller's: it trains on.
      sum(square(model->forward(to(task.host_columns[0].slice(0, 0, 2).contiguous(), own()))))
          .backward();
    }
  };
  for (int kind = kSgd; kind <= kAdamW; ++kind) train_alike(linear_task(kind), perceptron);
  train_alike(text_task(), characters);
}

TEST_CASE("a loss that misses a parameter is refused by every version, by its name") {
  Task task = linear_task(kAdam);
  task.loss = [](Module& model, const std::vector<Tensor>& batch) {
    return squared_error(static_cast<Sequential&>(model)[0](batch[0]).slice(1, 0, 3), batch[1]);
  };
  for (const auto& version : testing::chosen(modules::kVersions)) {
    const auto model = perceptron();
    REQUIRE(error_of<std::runtime_error>([&] { version.launch(*model, task, 1); }) ==
            "2.weight has no gradient: the loss does not depend on it, or backward() has not run "
            "since zero_grad()");
  }
}
