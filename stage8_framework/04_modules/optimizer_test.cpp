// Optimizers: 5.4's rules against its reference in double, both places for parameters alike, what
// is refused, and trainings that go on. Learning rates.
#include "stage8_framework/04_modules/optimizer.h"

#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "stage5_training/04_optimizers/reference.h"
#include "stage8_framework/04_modules/layers.h"
#include "stage8_framework/04_modules/modules_for_tests.h"

using namespace modules_test;

namespace {

constexpr int kKinds[] = {kSgd, kMomentum, kAdam, kAdamW};

template <class Kind>
std::unique_ptr<Optimizer> make(Module& model, const OptimizerRule& rule) {
  return std::make_unique<Kind>(model.parameters(), rule);
}
using Make = std::unique_ptr<Optimizer> (*)(Module& model, const OptimizerRule& rule);
struct Named {
  const char* name;
  Make make;
};
constexpr Named kOptimizers[] = {{"per_tensor", make<PerTensorOptimizer>},
                                 {"arena", make<ArenaOptimizer>}};

// Parameters that do not fill 64 bytes each: 15, 3 and 6 elements.
std::unique_ptr<Sequential> net(Device& on = own()) {
  return std::make_unique<Sequential>(std::make_unique<Linear>(on, 5, 3, true, 1),
                                      std::make_unique<Linear>(on, 3, 2, false, 2));
}

Tensor parameter(Module& model, size_t i) { return *model.parameters()[i].tensor; }

// A gradient of its own for each parameter and step.
Floats gradient_at(std::uint64_t step, size_t parameter, size_t n) {
  return testing::random_floats(n, static_cast<std::uint32_t>(10 * step + parameter));
}
void set_gradients(Module& model, std::uint64_t step) {
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    const Tensor p = parameter(model, i);
    p.set_grad(Tensor::from_host(
        p.device(), gradient_at(step, i, static_cast<size_t>(p.elements())), p.shape()));
  }
}

double rate_at(std::uint64_t step) { return 0.1 / static_cast<double>(1 + step / 2); }

// A step by a loss of the whole model.
void train_step(Module& model, Optimizer& optimizer, std::uint64_t step) {
  optimizer.zero_grad();
  const Tensor x = random_tensor({4, 5}, static_cast<std::uint32_t>(100 + step));
  sum(square(model(x))).backward();
  optimizer.step(0.01 * rate_at(step));
}

// The state dict's values, which steps to come don't change.
StateDict copied(const StateDict& state) {
  StateDict copies;
  for (const auto& [name, tensor] : state) copies[name] = tensor.clone();
  return copies;
}

}  // namespace

TEST_CASE("both optimizers follow 5.4's reference, with the same bits") {
  Device& on = device(GENERATE("own", "reference"));
  for (const int kind : kKinds) {
    std::vector<Floats> results;
    for (const Named& optimizer : kOptimizers) {
      INFO(on.name() << " " << optimizer.name << " " << kind);
      const auto model = net(on);
      optimizers::Hyperparameters hyper;  // of 5.4: the same defaults
      hyper.weight_decay = 0.1f;
      OptimizerRule rule{kind};
      rule.weight_decay = 0.1;
      std::vector<std::vector<optimizers::Element>> want;
      for (const NamedTensor& named : model->parameters()) {
        const Floats w = host(named.tensor->detach());
        want.push_back(optimizers::elements_of(w, Floats(w.size()), Floats(w.size())));
      }
      const auto updates = optimizer.make(*model, rule);
      for (std::uint64_t step = 0; step < 6; ++step) {
        set_gradients(*model, step);
        updates->step(rate_at(step));
        hyper.learning_rate = static_cast<float>(rate_at(step));
        INFO("step " << step);
        const StateDict state = updates->state_dict();
        for (size_t i = 0; i < want.size(); ++i) {
          const NamedTensor named = model->parameters()[i];
          optimizers::step_cpu(optimizers::kKinds[kind], hyper, step + 1,
                               gradient_at(step, i, want[i].size()), want[i]);
          const auto holds = [&](const Tensor& got, double optimizers::Element::*value,
                                 double optimizers::Element::*error) {
            const Floats values = host(got.detach());
            REQUIRE_OK(compare(
                values.size(), [&](size_t n) { return values[n]; },
                [&](size_t n) { return want[i][n].*value; },
                [&](size_t n) { return want[i][n].*error; }));
          };
          holds(*named.tensor, &optimizers::Element::w, &optimizers::Element::w_error);
          if (states_of(kind) > 0)
            holds(state.at(named.name + ".m"), &optimizers::Element::m,
                  &optimizers::Element::m_error);
          if (states_of(kind) > 1)
            holds(state.at(named.name + ".v"), &optimizers::Element::v,
                  &optimizers::Element::v_error);
          REQUIRE(state.at(named.name + ".step").to_host<std::int64_t>()[0] ==
                  static_cast<std::int64_t>(step) + 1);
        }
        REQUIRE(state.size() == want.size() * static_cast<size_t>(1 + states_of(kind)));
      }
      results.push_back(values_of(*model));
    }
    REQUIRE(testing::same_bits(results[0], results[1]));
  }
}

TEST_CASE("a parameter without a gradient is refused before anything changes") {
  for (const Named& optimizer : kOptimizers) {
    INFO(optimizer.name);
    const auto model = net();
    const auto updates = optimizer.make(*model, {kAdam});
    set_gradients(*model, 0);
    updates->step(0.1);
    set_gradients(*model, 1);
    parameter(*model, 1).set_grad({});
    const Floats before = values_of(*model);
    const StateDict state = copied(updates->state_dict());
    REQUIRE(error_of<std::runtime_error>([&] { updates->step(0.1); }) ==
            "0.bias has no gradient: the loss does not depend on it, or backward() has not run "
            "since zero_grad()");
    REQUIRE(values_of(*model) == before);
    for (const auto& [name, tensor] : updates->state_dict())
      REQUIRE(host_doubles(tensor) == host_doubles(state.at(name)));
    updates->zero_grad();
    for (const NamedTensor& named : model->parameters())
      REQUIRE(!named.tensor->grad().is_defined());
    REQUIRE(contains_text(error_of<std::runtime_error>([&] { updates->step(0.1); }),
                          "0.weight has no gradient"));
  }
}

TEST_CASE("gradients that lie elsewhere are taken, in any order of elements") {
  std::vector<Floats> results;
  for (const Named& optimizer : kOptimizers) {
    INFO(optimizer.name);
    const auto model = net();
    const auto updates = optimizer.make(*model, {kMomentum});
    train_step(*model, *updates, 0);  // gradients where the optimizer has them
    const Tensor turned = random_tensor({5, 3}, 7).transpose(0, 1);
    parameter(*model, 0).set_grad(turned);
    updates->step(0.1);
    results.push_back(values_of(*model));
    REQUIRE(host(turned) == host(random_tensor({5, 3}, 7).transpose(0, 1)));
  }
  REQUIRE(testing::same_bits(results[0], results[1]));
}

TEST_CASE("a gradient of another parameter of the same shape is taken") {
  std::vector<Floats> results;
  for (const Named& optimizer : kOptimizers) {
    INFO(optimizer.name);
    Sequential model(std::make_unique<Linear>(own(), 3, 3, true, 1),
                     std::make_unique<Linear>(own(), 3, 3, true, 2));
    const auto updates = optimizer.make(model, {kSgd});
    sum(square(model(random_tensor({4, 3}, 1)))).backward();
    const Tensor first = parameter(model, 0), second = parameter(model, 2);
    const Tensor of_first = first.grad(), of_second = second.grad();
    first.set_grad(of_second), second.set_grad(of_first);
    updates->step(0.1);
    results.push_back(values_of(model));
  }
  REQUIRE(testing::same_bits(results[0], results[1]));
}

TEST_CASE("parameters of an arena are views of one tensor, and so are their gradients") {
  const auto model = net();
  const Floats before = values_of(*model);
  const Tensor old = parameter(*model, 0);
  const ArenaOptimizer optimizer(model->parameters(), {kSgd});
  REQUIRE(values_of(*model) == before);
  REQUIRE(!parameter(*model, 0).shares_storage(old));
  sum(square((*model)(random_tensor({4, 5}, 1)))).backward();
  const Tensor first = parameter(*model, 0);
  for (const NamedTensor& named : model->parameters()) {
    REQUIRE((named.tensor->shares_storage(first) && named.tensor->is_contiguous()));
    REQUIRE(named.tensor->grad().shares_storage(first.grad()));
    const auto offset =
        static_cast<const char*>(named.tensor->data()) - static_cast<const char*>(first.data());
    REQUIRE(offset % 64 == 0);
    REQUIRE(static_cast<const char*>(named.tensor->grad().data()) -
                static_cast<const char*>(first.grad().data()) ==
            offset);
  }
}

TEST_CASE("a second backward without zero_grad adds") {
  std::vector<Floats> results;
  for (const Named& optimizer : kOptimizers) {
    INFO(optimizer.name);
    const auto model = net();
    const auto updates = optimizer.make(*model, {kSgd});
    const Tensor x = random_tensor({4, 5}, 1);
    const auto backward = [&] { sum(square((*model)(x))).backward(); };
    backward();
    const Floats once = gradients_of(*model);
    backward();
    Floats twice = once;
    for (float& value : twice) value *= 2;
    REQUIRE(gradients_of(*model) == twice);
    backward();
    results.push_back(gradients_of(*model));
    updates->zero_grad();
    backward();
    REQUIRE(gradients_of(*model) == once);
  }
  REQUIRE(testing::same_bits(results[0], results[1]));
}

TEST_CASE("a training that goes on has the bits of one that was not interrupted") {
  for (const int kind : kKinds)
    for (const Named& optimizer : kOptimizers)
      for (const Named& next : kOptimizers) {
        INFO(optimizer.name << " " << next.name << " " << kind);
        const auto whole = net(), first = net(), second = net();
        const auto of_whole = optimizer.make(*whole, {kind}), of_first = next.make(*first, {kind});
        for (std::uint64_t step = 0; step < 6; ++step) train_step(*whole, *of_whole, step);
        for (std::uint64_t step = 0; step < 3; ++step) train_step(*first, *of_first, step);
        const StateDict weights = copied(first->state_dict()),
                        state = copied(of_first->state_dict());
        const auto of_second = optimizer.make(*second, {kind});
        second->load_state_dict(weights);
        of_second->load_state_dict(state);
        for (std::uint64_t step = 3; step < 6; ++step) train_step(*second, *of_second, step);
        REQUIRE(testing::same_bits(values_of(*second), values_of(*whole)));
      }
}

TEST_CASE("an optimizer refuses another one's state, and changes nothing then") {
  for (const Named& optimizer : kOptimizers) {
    INFO(optimizer.name);
    const auto model = net();
    const auto updates = optimizer.make(*model, {kMomentum});
    train_step(*model, *updates, 0);
    const StateDict before = copied(updates->state_dict());
    const auto refuses = [&](const std::function<void(StateDict&)>& change,
                             const std::string& line) {
      StateDict state;
      for (const auto& [name, tensor] : before)
        state[name] = full(own(), tensor.shape(), 9, tensor.dtype());
      change(state);
      REQUIRE(error_of([&] { updates->load_state_dict(state); }) ==
              "load_state_dict of an optimizer: " + line);
      for (const auto& [name, tensor] : updates->state_dict())
        REQUIRE(host_doubles(tensor) == host_doubles(before.at(name)));
    };
    refuses([](StateDict& s) { s.erase("1.weight.m"); }, "1.weight.m is missing");
    refuses([](StateDict& s) { s.erase("1.weight.step"); }, "1.weight.step is missing");
    refuses([](StateDict& s) { s["0.bias.v"] = s["0.bias.m"]; }, "it has no 0.bias.v");
    refuses([](StateDict& s) { s["0.bias.m"] = full(own(), {2}, 0); },
            "0.bias.m is f32 (2), not f32 (3)");
    refuses([](StateDict& s) { s["0.bias.m"] = {}; }, "0.bias.m is undefined");
  }
}

TEST_CASE("a module outlives its optimizer and trains on with another one") {
  for (const Named& optimizer : kOptimizers)
    for (const Named& next : kOptimizers) {
      INFO(optimizer.name << " " << next.name);
      const auto model = net(), other = net();
      Floats gradients;
      {
        const auto updates = optimizer.make(*model, {kSgd});
        train_step(*model, *updates, 0);
        gradients = gradients_of(*model);
      }
      REQUIRE(gradients_of(*model) == gradients);  // they stay
      sum(square((*model)(random_tensor({4, 5}, 9)))).backward();
      const auto updates = next.make(*model, {kSgd});
      train_step(*model, *updates, 1);
      const auto of_other = make<PerTensorOptimizer>(*other, {kSgd});
      for (std::uint64_t step = 0; step < 2; ++step) train_step(*other, *of_other, step);
      REQUIRE(testing::same_bits(values_of(*model), values_of(*other)));
    }
}

TEST_CASE("a gradient has a home for as long as there is the optimizer") {
  const auto model = net();
  const Tensor x = random_tensor({4, 5}, 1);
  Tensor in_arena;
  {
    const ArenaOptimizer optimizer(model->parameters(), {kSgd});
    sum((*model)(x)).backward();
    in_arena = parameter(*model, 0).grad();
  }
  parameter(*model, 0).set_grad({});
  sum((*model)(x)).backward();
  REQUIRE(!parameter(*model, 0).grad().shares_storage(in_arena));
  {  // of a parameter that has been frozen since there is no gradient to forget
    const ArenaOptimizer optimizer(model->parameters(), {kSgd});
    model->parameters()[1].tensor->set_requires_grad(false);
  }
  REQUIRE(!parameter(*model, 1).requires_grad());
}

TEST_CASE("what an optimizer refuses") {
  for (const Named& optimizer : kOptimizers) {
    INFO(optimizer.name);
    const auto refusal = [&](std::vector<NamedTensor> list) {
      return error_of([&] {
        if (optimizer.make == static_cast<Make>(make<ArenaOptimizer>))
          ArenaOptimizer(list, {kSgd});
        else
          PerTensorOptimizer(list, {kSgd});
      });
    };
    Tensor a = full(own(), {2}, 1), b = full(own(), {2}, 1, Dtype::f64),
           c = full(reference(), {2}, 1);
    Tensor number = full(own(), {2}, 1, Dtype::i32);
    a.set_requires_grad(), b.set_requires_grad(), c.set_requires_grad();
    REQUIRE(refusal({}) == "an optimizer of no parameters");
    REQUIRE(refusal({{"a", &a}, {"n", &number}}) ==
            "an optimizer of n, i32 (2): it updates f32 and f64");
    Tensor frozen = full(own(), {2}, 1);
    REQUIRE(refusal({{"a", &a}, {"f", &frozen}}) ==
            "an optimizer of f, which requires no gradient: leave it out of the list");
    for (Tensor* const other : {&b, &c})
      REQUIRE(refusal({{"a", &a}, {"o", other}}) ==
              "an optimizer of a and o, which are of two types or on two devices");
  }
}

TEST_CASE("parameters of f64 are updated in f64") {
  for (const Named& optimizer : kOptimizers) {
    INFO(optimizer.name);
    const auto model = net(reference());
    make_double(*model);
    const Doubles before = host_doubles(parameter(*model, 1));
    const auto updates = optimizer.make(*model, {kSgd});
    for (const NamedTensor& named : model->parameters())
      named.tensor->set_grad(full(reference(), named.tensor->shape(), 1, Dtype::f64));
    updates->step(0.1);
    const Doubles after = host_doubles(parameter(*model, 1));
    for (size_t i = 0; i < after.size(); ++i)
      REQUIRE(std::fabs(after[i] - (before[i] - 0.1)) < 1e-15);
  }
}

// ---- Learning rates -----------------------------------------------------------------------------

TEST_CASE("the corners of learning rates") {
  REQUIRE(warm_cosine(2, 0, 10, 0, 0.1) == 2);  // no warm-up: it begins with the highest
  REQUIRE(warm_cosine(2, 0, 10, 4, 0.1) == 0.5);
  REQUIRE(warm_cosine(2, 3, 10, 4, 0.1) == 2);
  REQUIRE(warm_cosine(2, 4, 10, 4, 0.1) == 2);
  REQUIRE(std::fabs(warm_cosine(2, 7, 10, 4, 0.1) - 1.1) < 1e-15);
  for (const std::uint64_t done : {10, 11, 1000000})
    REQUIRE(std::fabs(warm_cosine(2, done, 10, 4, 0.1) - 0.2) < 1e-15);
  REQUIRE(warm_cosine(2, 10, 10, 10, 0) == 2);  // all steps warm up
  REQUIRE(by_steps(2, 0, 3, 0.5) == 2);
  REQUIRE(by_steps(2, 2, 3, 0.5) == 2);
  REQUIRE(by_steps(2, 3, 3, 0.5) == 1);
  REQUIRE(by_steps(2, 8, 3, 0.5) == 0.5);
  REQUIRE(by_steps(2, 5, 1, 1) == 2);
}
