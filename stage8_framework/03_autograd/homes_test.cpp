// Homes of gradients: where a rule writes at once, where backward() copies, and what is refused.
// With and without a home a gradient has the same bits.
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/testing.h"
#include "stage8_framework/02_backends/fake_for_tests.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/02_backends/tensors_for_tests.h"
#include "stage8_framework/03_autograd/autograd.h"

using namespace framework;
using tensors_test::host, tensors_test::random_on;

namespace {

using Floats = std::vector<float>;

// What is computed from leaves, and their shapes. `written` says which of them the rule of the
// operation writes home at once.
struct Computation {
  const char* name;
  std::vector<Shape> leaves;
  std::function<Tensor(Device& on, const std::vector<Tensor>& leaves)> make;
  std::vector<bool> written;
};

const std::vector<Computation>& computations() {
  static const std::vector<Computation> all{
      {"matmul",
       {{4, 5}, {5, 3}},
       [](Device&, const auto& l) { return matmul(l[0], l[1]); },
       {false, true}},
      {"matmul of a batch by one",
       {{5, 3}},
       [](Device& on, const auto& l) {
         return matmul(random_on(on, {2, 4, 5}, 9), l[0]);
       },
       {true}},
      {"matmul of two batches",
       {{2, 5, 3}},
       [](Device& on, const auto& l) {
         return matmul(random_on(on, {2, 4, 5}, 9), l[0]);
       },
       {false}},
      {"linear",
       {{4, 5}, {3, 5}, {3}},
       [](Device&, const auto& l) { return linear(l[0], l[1], l[2], Activation::gelu); },
       {false, true, true}},
      {"conv2d",
       {{2, 3, 5, 5}, {4, 3, 3, 3}, {4}},
       [](Device&, const auto& l) {
         return conv2d(l[0], l[1], l[2], {2, 1, 1, 1});
       },
       {false, true, true}},
      {"embedding",
       {{6, 4}},
       [](Device& on, const auto& l) {
         const std::vector<std::int32_t> ids{5, 0, 2, 5, 5};
         return embedding(l[0], Tensor::from_host(on, ids, {5}));
       },
       {true}},
      {"layernorm",
       {{4, 6}, {6}, {6}},
       [](Device&, const auto& l) { return layernorm(l[0], l[1], l[2]).first; },
       {false, true, true}},
      {"layernorm without a gradient of its input",
       {{6}, {6}},
       [](Device& on, const auto& l) {
         return layernorm(random_on(on, {4, 6}, 9), l[0], l[1]).first;
       },
       {true, true}},
      {"add with a broadcast",
       {{2, 4, 5}, {4, 5}, {5}, {4, 1}},
       [](Device&, const auto& l) { return l[0] + l[1] + l[2] + l[3]; },
       {false, true, true, true}},
      {"a weight that is used twice, and by others",
       {{3, 3}, {3}},
       [](Device& on, const auto& l) {
         const Tensor x = random_on(on, {4, 3}, 9);
         return linear(linear(x, l[0], l[1]), l[0], l[1]) * l[1] + matmul(x, l[0]);
       },
       {false, false}},
      {"weight and bias that are one leaf",
       {{3, 3}},
       [](Device& on, const auto& l) {
         return matmul(l[0], l[0]) + linear(random_on(on, {3, 3}, 9), l[0]) + l[0];
       },
       {false}},
      {"views of a leaf",
       {{4, 3}},
       [](Device& on, const auto& l) {
         return matmul(random_on(on, {5, 3}, 9), l[0].transpose(0, 1)) +
                matmul(random_on(on, {5, 3}, 8), l[0].transpose(0, 1));
       },
       {false}},
  };
  return all;
}

// Leaves, and for each a home that is filled with 7.
struct Leaves {
  Leaves(Device& on, const Computation& graph, bool have_homes) {
    for (size_t i = 0; i < graph.leaves.size(); ++i) {
      leaves.push_back(random_on(on, graph.leaves[i], static_cast<std::uint32_t>(i)));
      leaves.back().set_requires_grad();
      homes.push_back(full(on, graph.leaves[i], 7));
      if (have_homes) set_gradient_home(leaves[i], homes[i]);
    }
  }
  void forget() const {
    for (const Tensor& leaf : leaves) leaf.set_grad({});
  }
  std::vector<Floats> grads() const {
    std::vector<Floats> all;
    for (const Tensor& leaf : leaves) all.push_back(host(leaf.grad()));
    return all;
  }
  bool are_home() const {
    for (size_t i = 0; i < leaves.size(); ++i)
      if (!leaves[i].grad().shares_storage(homes[i]) || leaves[i].grad().data() != homes[i].data())
        return false;
    return true;
  }
  std::vector<Tensor> leaves, homes;
};

void run_back(const Tensor& y, bool retains, autograd::Launch launch) {
  autograd::backward(y, random_on(y.device(), y.shape(), 20), retains, launch);
}

}  // namespace

TEST_CASE("a gradient has the same bits with a home and without") {
  for (const char* const name : {"own", "reference"})
    for (const Computation& graph : computations())
      for (const auto& version : testing::chosen(autograd::kVersions)) {
        INFO(name << " " << graph.name << " " << version.name);
        Device& on = device(name);
        const Leaves with(on, graph, true), without(on, graph, false);
        std::vector<std::vector<Floats>> got[2];
        for (const Leaves* const leaves : {&without, &with}) {
          auto& grads = got[leaves == &with];
          const Tensor y = graph.make(on, leaves->leaves);
          for (const bool retains : {true, false}) {  // two passes add
            run_back(y, retains, version.launch);
            grads.push_back(leaves->grads());
          }
          leaves->forget();
          run_back(graph.make(on, leaves->leaves), false, version.launch);
          grads.push_back(leaves->grads());
        }
        REQUIRE(with.are_home());
        REQUIRE(testing::same_bits(got[0], got[1]));
        REQUIRE(got[1][0] == got[1][2]);
        REQUIRE(got[1][0] != got[1][1]);
      }
}

TEST_CASE("the rules of parameters write home at once, and nobody copies there") {
  Device& on = device("own");
  for (const Computation& graph : computations())
    for (const auto& version : testing::chosen(autograd::kVersions)) {
      const Leaves with(on, graph, true);
      const Tensor y = graph.make(on, with.leaves);
      std::vector<std::uint64_t> before;
      for (const Tensor& home : with.homes) before.push_back(home.version());
      run_back(y, false, version.launch);
      for (size_t i = 0; i < with.homes.size(); ++i) {
        INFO(graph.name << " " << version.name << ", leaf " << i);
        REQUIRE(with.homes[i].version() > before[i]);
        const bool was_copied = std::string(with.homes[i].last_writer()) == "copy";
        REQUIRE(was_copied != graph.written[i]);
      }
    }
}

TEST_CASE("a gradient that was set elsewhere is added to, at home") {
  Device& on = device("own");
  const Computation& graph = computations()[3];
  for (const auto& version : testing::chosen(autograd::kVersions)) {
    INFO(version.name);
    const Leaves with(on, graph, true), without(on, graph, false);
    for (const Leaves* const leaves : {&with, &without}) {
      leaves->leaves[1].set_grad(random_on(on, graph.leaves[1], 30));
      run_back(graph.make(on, leaves->leaves), false, version.launch);
    }
    REQUIRE(with.are_home());
    REQUIRE(testing::same_bits(with.grads(), without.grads()));
  }
}

TEST_CASE("a home is taken back, and the gradient stays") {
  Device& on = device("own");
  const Computation& graph = computations()[3];
  const Leaves with(on, graph, true);
  run_back(graph.make(on, with.leaves), false, autograd::backward_counted);
  const std::vector<Floats> grads = with.grads();
  for (const Tensor& leaf : with.leaves) set_gradient_home(leaf, {});
  REQUIRE((with.are_home() && with.grads() == grads));
  with.forget();
  run_back(graph.make(on, with.leaves), false, autograd::backward_counted);
  REQUIRE((!with.are_home() && with.grads() == grads));
  const Tensor home = full(on, graph.leaves[0], 3);
  set_gradient_home(with.leaves[0], home);  // the gradient that it had is forgotten
  REQUIRE(!with.leaves[0].grad().is_defined());
}

TEST_CASE("what set_gradient_home refuses") {
  Device& on = device("own");
  const auto refusal = [](const Tensor& leaf, const Tensor& home) {
    return testing::what_of<std::invalid_argument>([&] { set_gradient_home(leaf, home); });
  };
  Tensor x = full(on, {2, 3}, 1);
  REQUIRE(refusal(x, x) ==
          "set_gradient_home of f32 (2,3): it is no leaf that requires a gradient");
  x.set_requires_grad();
  REQUIRE(refusal(x + x, full(on, {2, 3}, 0)) ==
          "set_gradient_home of f32 (2,3): it is no leaf that requires a gradient");
  sum(x).backward();
  const std::string line = "set_gradient_home of f32 (2,3): the home is ";
  REQUIRE(refusal(x, full(on, {3, 2}, 0)) == line + "f32 (3,2)");
  REQUIRE(refusal(x, full(on, {2, 3}, 0, Dtype::f64)) == line + "f64 (2,3)");
  REQUIRE(refusal(x, full(on, {3, 2}, 0).transpose(0, 1)) == line + "f32 (2,3)");
  REQUIRE(refusal(x, full(device("reference"), {2, 3}, 0)) == line + "f32 (2,3)");
  REQUIRE(host(x.grad()) == Floats(6, 1));  // as it was
}

TEST_CASE("after an error no leaf with a home has a gradient that it had not") {
  Device& on = fake::device();
  use(on, "fake");
  Tensor a = Tensor::from_host(on, Floats{1, 2}, {2}), b = Tensor::from_host(on, Floats{3, 4}, {2});
  a.set_requires_grad(), b.set_requires_grad();
  const Tensor home_a = Tensor::from_host(on, Floats{0, 0}, {2});
  const Tensor home_b = Tensor::from_host(on, Floats{0, 0}, {2});
  set_gradient_home(a, home_a), set_gradient_home(b, home_b);
  const Tensor seed = Tensor::from_host(on, Floats{1, 10}, {2});
  const auto graph = [&] { return neg(a) + neg(b + a); };
  int failures = 0;
  for (const auto& version : autograd::kVersions)
    for (int before = 0;; ++before) {
      INFO(version.name << " " << before);
      a.set_grad({}), b.set_grad({});
      const Tensor y = graph();
      bool has_failed = false;
      try {
        fake::record.runs_before_failure = before, fake::record.fail_code = 719;
        autograd::backward(y, seed, false, version.launch);
      } catch (const gpu::Error&) {
        has_failed = true;
      }
      fake::record.fail_code = 0;
      if (!has_failed) break;  // it takes no more
      ++failures;
      REQUIRE((!a.grad().is_defined() && !b.grad().is_defined()));
      graph().backward(seed);
      REQUIRE((host(a.grad()) == Floats{-2, -20} && host(b.grad()) == Floats{-1, -10}));
      REQUIRE((a.grad().shares_storage(home_a) && b.grad().shares_storage(home_b)));
    }
  REQUIRE(failures > 8);
}
