// The tape: what is recorded, what backward() adds to leaves, what is refused, and what an error
// leaves behind.
#include "stage8_framework/03_autograd/autograd.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/error.h"
#include "common/testing.h"
#include "stage8_framework/01_tensor/splitting.h"
#include "stage8_framework/02_backends/fake_for_tests.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/plugin_device.h"
#include "stage8_framework/03_autograd/rules.h"

using namespace framework;

namespace {

using Floats = std::vector<float>;

Device& reference() { return device("reference"); }

Tensor leaf(const Floats& values, const Shape& shape, Device& on = reference()) {
  Tensor x = Tensor::from_host(on, values, shape);
  x.set_requires_grad();
  return x;
}
Floats host(const Tensor& t) { return t.to_host<float>(); }

template <class Error = std::invalid_argument, class F>
std::string error_of(F&& f) {
  return testing::what_of<Error>(f);
}

}  // namespace

TEST_CASE("a tensor that is used twice gets the sum of both gradients, and backward adds") {
  const Tensor x = leaf({1, 2, 3}, {3});
  const Tensor y = sum(x * x + x);
  REQUIRE(!x.grad().is_defined());
  y.backward();
  REQUIRE(host(x.grad()) == Floats{3, 5, 7});
  sum(x).backward();
  REQUIRE(host(x.grad()) == Floats{4, 6, 8});
  const Tensor same = x;  // a handle to the same leaf
  same.set_grad({});
  REQUIRE(!x.grad().is_defined());
  x.backward(Tensor::from_host(reference(), Floats{5, 6, 7}, {3}));
  REQUIRE(host(same.grad()) == Floats{5, 6, 7});
}

TEST_CASE("thirty diamonds in a row") {
  const Tensor x = leaf({1}, {});
  Tensor y = x;
  for (int i = 0; i < 30; ++i) y = y + y;
  y.backward();
  REQUIRE(host(x.grad()) == Floats{1073741824.0f});
}

TEST_CASE("gradients of leaves are theirs alone") {
  const Tensor a = leaf({1, 2}, {2}), b = leaf({3, 4}, {2});
  const Tensor seed = Tensor::from_host(reference(), Floats{1, 1}, {2});
  (a + b).backward(seed);
  fill(a.grad(), 7);
  REQUIRE((host(b.grad()) == Floats{1, 1} && host(seed) == Floats{1, 1}));
  a.set_grad({});
  sum(a).backward();  // what is expanded has no elements of its own
  REQUIRE(a.grad().is_contiguous());
}

TEST_CASE("what is recorded") {
  const Tensor x = leaf({1, 2}, {2}), c = Tensor::from_host(reference(), Floats{3, 4}, {2});
  REQUIRE((x.requires_grad() && !c.requires_grad() && (x * c).requires_grad()));
  REQUIRE((!(c * c).requires_grad() && !x.detach().requires_grad()));
  REQUIRE((!less(x, c).requires_grad() && !argmax(x).requires_grad()));
  REQUIRE(!cast(x, Dtype::i32).requires_grad());
  {
    const NoGrad guard;
    REQUIRE((!is_recording() && !(x * c).requires_grad() && !x.reshape({2, 1}).requires_grad()));
    { const NoGrad again; }
    REQUIRE(!is_recording());
  }
  REQUIRE((is_recording() && x.reshape({2, 1}).requires_grad()));
  sum(x * x.detach()).backward();
  REQUIRE(host(x.grad()) == Floats{1, 2});
  Tensor other = x;
  other.set_requires_grad(false);
  REQUIRE((!other.requires_grad() && x.requires_grad()));
  const auto [pooled, places] = maxpool2d(x.reshape({1, 1, 1, 2}), {1, 2}, {});
  REQUIRE((pooled.requires_grad() && !places.requires_grad()));
}

TEST_CASE("where two are equal, or a slope has no limit") {
  Device& on = reference();
  const Tensor seed = Tensor::from_host(on, Floats{1, 10, 100}, {3});
  const auto grads = [&](const auto& f) {
    const Tensor a = leaf({1, 0, 3}, {3}), b = leaf({1, 0, -2}, {3});
    f(a, b).backward(seed);
    return std::pair(host(a.grad()), host(b.grad()));
  };
  using Both = std::pair<Floats, Floats>;
  REQUIRE(grads([](auto& a, auto& b) { return maximum(a, b); }) ==
          Both{{0.5f, 5, 100}, {0.5f, 5, 0}});
  REQUIRE(grads([](auto& a, auto& b) { return minimum(a, b); }) ==
          Both{{0.5f, 5, 0}, {0.5f, 5, 100}});
  // 1^1, 0^0 and 3^-2: by the base e a^(e - 1), by the exponent y log a, and 0 for 0^0.
  const auto [base, exponent] = grads([](auto& a, auto& b) { return pow(a, b); });
  REQUIRE((base[0] == 1 && base[1] == 0 && exponent[0] == 0 && exponent[1] == 0));
  REQUIRE(std::fabs(exponent[2] - 100 * std::log(3.0f) / 9) < 1e-4);
  const Tensor x = leaf({-2, 0, 4, 4}, {2, 2});
  (sum(abs(x)) + sum(relu(x)) + max(x)).backward();
  REQUIRE(host(x.grad()) == Floats{-1, 0, 2.5f, 2.5f});
}

TEST_CASE("a graph that nobody holds is gone, with what it saved") {
  const auto& pool = plugin_device(reference()).pool();
  const Tensor x = leaf({1, 2}, {2});
  const size_t live = pool.statistics().live;
  {
    const Tensor y = exp(x), z = maximum(y, sqrt(y));
    const auto [out, mean, rstd] = layernorm(x.reshape({1, 2}), x.detach(), x.detach());
    REQUIRE(pool.statistics().live > live);
  }
  REQUIRE(pool.statistics().live == live);
  x.backward(x.detach());
  const size_t with_grad = pool.statistics().live;
  const Tensor z = square(exp(x));
  const size_t with_saved = pool.statistics().live;
  z.backward(x.detach());  // z itself stays
  REQUIRE((with_grad < pool.statistics().live && pool.statistics().live < with_saved));
}

TEST_CASE("a graph that is retained can be gone through again, another one can't") {
  const Tensor x = leaf({2}, {});
  const Tensor y = square(x), one = full(reference(), {}, 1);
  y.backward(one, true);
  y.backward(one, true);
  REQUIRE(host(x.grad()) == Floats{8});
  const Tensor z = exp(y);
  y.backward();
  REQUIRE(host(x.grad()) == Floats{12});
  const std::string used =
      "backward of square: the graph was used up by a backward() before: "
      "retain it there";
  REQUIRE(error_of<std::runtime_error>([&] { y.backward(); }) == used);
  REQUIRE(error_of<std::runtime_error>([&] { z.backward(); }) == used);  // through what it shares
  REQUIRE(host(x.grad()) == Floats{12});
}

TEST_CASE("what backward refuses") {
  const Tensor x = leaf({1, 2}, {2}), c = Tensor::from_host(reference(), Floats{3}, {});
  REQUIRE(error_of([&] { (x + c).backward(); }) ==
          "backward of f32 (2): only a tensor of one element needs no seed");
  REQUIRE(error_of([&] { c.backward(); }) ==
          "backward of f32 (): nothing that it was computed from requires a gradient");
  REQUIRE(error_of([&] { sum(x).backward(full(reference(), {1}, 1)); }) ==
          "backward of f32 (): the seed is f32 (1)");
  REQUIRE(error_of([&] { sum(x).backward(full(reference(), {}, 1, Dtype::f64)); }) ==
          "backward of f32 (): the seed is f64 ()");
  REQUIRE(error_of([&] { sum(x).backward(full(device("own"), {}, 1)); }) ==
          "backward of f32 (): the seed is on own, not on reference");
  Tensor whole = Tensor::empty(reference(), {3}, Dtype::i32);
  REQUIRE(error_of([&] { whole.set_requires_grad(); }) ==
          "set_requires_grad of i32 (3): i32 numbers have no gradient");
  REQUIRE(error_of([&] { whole.select(0, 0).backward(); }) ==
          "backward of i32 (): nothing that it was computed from requires a gradient");
  REQUIRE(error_of([&] { (x + c).grad(); }) ==
          "grad of f32 (2): it is no leaf that requires a gradient");
  REQUIRE(error_of([&] { x.set_grad(c); }) == "set_grad of f32 (2): the gradient is f32 ()");
  REQUIRE(!x.grad().is_defined());
}

TEST_CASE("a write in place is refused where its gradient would be wrong") {
  const Tensor x = leaf({1, 2}, {2}), y = square(x);
  const Tensor c = Tensor::from_host(reference(), Floats{3, 4}, {2});
  REQUIRE(
      error_of([&] { fill(x, 0); }) ==
      "fill: output 0, f32 (2), is written in place, which has no gradient: do it under NoGrad");
  REQUIRE(error_of([&] { x.copy_from(c); }) ==
          "copy of f32 (2) into f32 (2): a write in place has no gradient: do it under NoGrad");
  REQUIRE_THROWS_AS(x.slice(0, 0, 1).copy_from(c.slice(0, 0, 1)), std::invalid_argument);
  REQUIRE_THROWS_AS(c.copy_from(y), std::invalid_argument);
  Call call;
  call.op = &op_named("neg"), call.input_count = call.output_count = 1;
  call.inputs[0] = x, call.outputs[0] = c;
  REQUIRE_THROWS_AS(run(call), std::invalid_argument);
  REQUIRE((host(x) == Floats{1, 2} && host(c) == Floats{3, 4}));
  REQUIRE((x.version() == 0 && c.version() == 0));
  {
    const NoGrad guard;
    run(call);
    x.copy_from(c);
  }
  REQUIRE((host(x) == Floats{-1, -2} && x.requires_grad() && !c.requires_grad()));
  const Layout all = x.layout();
  REQUIRE(error_of([&] { x.view(all); }) ==
          "view of f32 (2) by a layout has no gradient: detach() it, or use slice and others");
  REQUIRE(
      error_of([&] { relu_backward(x, c); }) ==
      "relu_backward of f32 (2) and f32 (2): it has no gradient, being a part of one: a gradient "
      "is differentiated once: call it under NoGrad");
}

TEST_CASE("a saved tensor that was written names itself, its versions and the writer") {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor c = full(reference(), {2, 3}, 2);
  const Tensor product = sum(x * c), root = sum(exp(x));
  fill(c.select(0, 0), 1);
  const std::string line = error_of<std::runtime_error>([&] { product.backward(); });
  REQUIRE(line ==
          "backward of mul: its input b, f32 (2,3), was saved at version 1 and is at version 2: "
          "fill has written it in place");
  const Tensor y = exp(x), sums = sum(y);
  {
    const NoGrad guard;
    y.copy_from(c);
  }
  REQUIRE(error_of<std::runtime_error>([&] { sums.backward(); }) ==
          "backward of exp: its output 0, f32 (2,3), was saved at version 1 and is at version 2: "
          "copy has written it in place");
  const Tensor bias = leaf({1, 1}, {2}), w = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor activated = sum(linear(x, w, bias, Activation::gelu));
  {
    const NoGrad guard;
    fill(bias, 0);
  }
  REQUIRE(contains_text(error_of<std::runtime_error>([&] { activated.backward(); }),
                        "its input bias, f32 (2), was saved at version 0 and is at version 1"));
  REQUIRE((!x.grad().is_defined() && !w.grad().is_defined()));
  root.backward();  // another graph of the same leaf
  REQUIRE(x.grad().is_defined());
}

TEST_CASE("views and copies of a tracked tensor have its gradient") {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor seed = Tensor::from_host(reference(), Floats{1, 2, 3, 4, 5, 6}, {2, 3});
  const auto grad = [&](const Tensor& view, const Tensor& weights) {
    x.set_grad({});
    view.backward(weights);
    return host(x.grad());
  };
  REQUIRE(grad(x.transpose(0, -1), seed.reshape({3, 2})) == Floats{1, 3, 5, 2, 4, 6});
  REQUIRE(grad(x.permute({-1, 0}), seed.reshape({3, 2})) == Floats{1, 3, 5, 2, 4, 6});
  REQUIRE(grad(x.unsqueeze(1).permute({2, 0, 1}), seed.reshape({3, 2, 1})) ==
          Floats{1, 3, 5, 2, 4, 6});
  REQUIRE(grad(x.unsqueeze(1).permute({1, -1, 0}), seed.reshape({1, 3, 2})) ==
          Floats{1, 3, 5, 2, 4, 6});
  REQUIRE(grad(x.reshape({3, 2}), seed.transpose(0, 1)) == Floats{1, 4, 2, 5, 3, 6});
  REQUIRE(grad(x.slice(1, 2, -1, -2), seed.slice(1, 0, 2)) == Floats{2, 0, 1, 5, 0, 4});
  REQUIRE(grad(x.select(0, -1), seed.select(0, 0)) == Floats{0, 0, 0, 1, 2, 3});
  REQUIRE(grad(x.slice(0, 1, 2).squeeze(0), seed.select(0, 0)) == Floats{0, 0, 0, 1, 2, 3});
  REQUIRE(grad(x.slice(0, 0, 1).expand({2, 2, 3}), seed.expand({2, 2, 3})) ==
          Floats{10, 14, 18, 0, 0, 0});
  REQUIRE(grad(x.clone(), seed) == host(seed));
  REQUIRE(grad(x.transpose(0, 1).contiguous(), seed.transpose(0, 1)) == host(seed));
  REQUIRE(grad(x.to(Dtype::f64), seed.to(Dtype::f64)) == host(seed));
  REQUIRE(grad(to(x, "own"), to(seed, "own")) == host(seed));
  REQUIRE(grad(x.slice(0, 0, 0), seed.slice(0, 0, 0)) == Floats(6));
}

TEST_CASE("a chain of a million nodes runs and is freed") {
  Device& on = reference();
  const Tensor x = leaf({1}, {});
  const Tensor c = full(on, {}, -1);
  const auto chain = [&](int length) {
    Tensor y = x;
    for (int i = 0; i < length; ++i) y = i % 2 == 0 ? y.unsqueeze(0) : y.squeeze(0);
    return y * c;
  };
  Tensor y = chain(1000000);
  y.backward();
  REQUIRE(host(x.grad()) == Floats{-1});
  y = chain(1000000);
  y = {};  // never run
}

// ---- Errors in the middle -----------------------------------------------------------------------

namespace {

// All free blocks of the fake device but the last `left`: the next request after these fails.
class Hog {
 public:
  Hog(Device& on, size_t left) {
    fake::record.is_out_of_memory = true;
    try {
      for (;;) blocks_.push_back(Tensor::empty(on, {2}));
    } catch (const gpu::Error&) {
      blocks_.resize(blocks_.size() - std::min(blocks_.size(), left));
    }
  }
  ~Hog() { fake::record.is_out_of_memory = false; }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;

 private:
  std::vector<Tensor> blocks_;
};

}  // namespace

TEST_CASE("after an error in the middle no gradient has changed, and all goes on") {
  Device& on = fake::device();
  use(on, "fake");
  const Tensor a = leaf({1, 2}, {2}, on), b = leaf({3, 4}, {2}, on);
  const Tensor seed = Tensor::from_host(on, Floats{1, 10}, {2});
  const auto graph = [&] { return neg(a) + neg(b + a); };
  const auto has = [&](const Floats& of_a, const Floats& of_b) {
    return host(a.grad()) == of_a && host(b.grad()) == of_b;
  };
  int failures = 0;
  for (const bool is_out_of_memory : {false, true})
    for (const auto& version : autograd::kVersions)
      for (int before = 0;; ++before) {
        INFO(version.name << " " << before);
        a.set_grad({}), b.set_grad({});
        graph().backward(seed);
        REQUIRE(has({-2, -20}, {-1, -10}));
        const Tensor y = graph();
        bool has_failed = false;
        try {
          const Hog hog(on, is_out_of_memory ? static_cast<size_t>(before) : SIZE_MAX);
          fake::record.runs_before_failure = before;
          fake::record.fail_code = is_out_of_memory ? 0 : 719;
          autograd::backward(y, seed, false, version.launch);
        } catch (const gpu::Error& error) {
          has_failed = true;
          REQUIRE(error.code == (is_out_of_memory ? 2 : 719));
        }
        fake::record.fail_code = 0;
        if (!has_failed) break;  // it takes no more
        ++failures;
        REQUIRE(has({-2, -20}, {-1, -10}));
        REQUIRE(is_recording());
        graph().backward(seed);
        REQUIRE(has({-4, -40}, {-2, -20}));
      }
  REQUIRE(failures > 20);
}

TEST_CASE("an output that is given is written where nobody else has it") {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor held = Tensor::empty(reference(), {2});
  Call seen;
  seen.op = &op_named("neg"), seen.input_count = seen.output_count = 1;
  seen.inputs[0] = x;
  Call own = seen;
  seen.outputs[0] = held;
  REQUIRE_THROWS_AS(run(seen), std::invalid_argument);
  own.outputs[0] = Tensor::empty(reference(), {2, 2}).select(1, 1);
  run(own);
  sum(own.outputs[0]).backward();
  REQUIRE((host(own.outputs[0].detach()) == Floats{-1, -2} && host(x.grad()) == Floats{-1, -1}));
}

TEST_CASE("the parts that unbind() makes bring their gradients back to their places") {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 3, 2});
  const std::vector<Tensor> parts = unbind(x, -2);
  REQUIRE(parts.size() == 3);
  REQUIRE(host(parts[1]) == Floats{3, 4, 9, 10});
  REQUIRE(parts[1].shares_storage(x));
  sum(parts[0] * parts[2] + parts[2]).backward();  // parts[1] leads to nothing
  REQUIRE(host(x.grad()) == Floats{5, 6, 0, 0, 2, 3, 11, 12, 0, 0, 8, 9});
  {
    const NoGrad guard;
    REQUIRE(!unbind(x, 1)[0].requires_grad());
  }
  REQUIRE(!unbind(x.detach(), 0)[1].requires_grad());
  REQUIRE(error_of([&] { unbind(x, 3); }) ==
          "unbind of f32 (2,3,2) along axis 3: it takes an axis of up to 4 elements");
  REQUIRE_THROWS_AS(unbind(Tensor::empty(reference(), {5, 2}), 0), std::invalid_argument);
}

TEST_CASE("gradients of unbind()'s parts that lie at equal distances are one tensor") {
  const Floats values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const Tensor together = Tensor::from_host(reference(), values, {3, 2, 2});
  const Tensor apart = Tensor::from_host(reference(), values, {12});
  const Tensor x = leaf(Floats(12, 0), {2, 3, 2});
  const auto gradient = [&](const std::vector<Tensor>& seeds) {
    Tensor given[kMaxInputs];
    const std::vector<Tensor> parts = unbind(x, 1);
    const Node& node = *parts[0].autograd()->node;
    WayBack back(node, seeds.data(), given, 1);
    node.rule->run(back);
    return given[0];
  };
  const auto part = [&](std::int64_t i) { return together.select(0, i); };
  const auto at = [&](std::int64_t i) { return apart.slice(0, i, i + 4).reshape({2, 2}); };
  const Tensor in_order = gradient({part(0), part(1), part(2)});
  REQUIRE(in_order.shares_storage(together));
  REQUIRE(host(in_order.contiguous()) == Floats{1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12});
  const auto check = [&](const std::vector<Tensor>& seeds, bool is_one, const Floats& want) {
    const Tensor got = gradient(seeds);
    REQUIRE(got.shares_storage(seeds[0]) == is_one);
    REQUIRE((got.shape() == x.shape() && host(got.contiguous()) == want));
  };
  check({part(2), part(1), part(0)}, true, {9, 10, 5, 6, 1, 2, 11, 12, 7, 8, 3, 4});
  check({part(1), part(1), part(1)}, true, {5, 6, 5, 6, 5, 6, 7, 8, 7, 8, 7, 8});
  check({at(0), at(1), at(2)}, true, {1, 2, 2, 3, 3, 4, 3, 4, 4, 5, 5, 6});
  check({at(0), at(1), at(5)}, false, {1, 2, 2, 3, 6, 7, 3, 4, 4, 5, 8, 9});
  check({part(0).clone(), part(1), part(2)}, false, {1, 2, 5, 6, 9, 10, 3, 4, 7, 8, 11, 12});
  check({part(0), part(1).transpose(0, 1), part(2)}, false,
        {1, 2, 5, 7, 9, 10, 3, 4, 6, 8, 11, 12});
  check({part(0), Tensor(), part(2)}, false, {1, 2, 0, 0, 9, 10, 3, 4, 0, 0, 11, 12});
}
