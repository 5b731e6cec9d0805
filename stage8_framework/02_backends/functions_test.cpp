// The functions, on the reference and on own: small cases whose results are plain to see.
#include "stage8_framework/02_backends/functions.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/testing.h"
#include "stage8_framework/02_backends/registry.h"

using namespace framework;

namespace {

using Floats = std::vector<float>;

Floats host(const Tensor& t) { return t.to_host<float>(); }

}  // namespace

TEST_CASE("each function calls its operation with its inputs in order") {
  Device& on = device(GENERATE("reference", "own"));
  const Tensor a = Tensor::from_host(on, Floats{1, -2, 4}, {3});
  const Tensor b = Tensor::from_host(on, Floats{2, 2, 0.5f}, {3});
  CAPTURE(on.name());
  REQUIRE(host(neg(a)) == Floats{-1, 2, -4});
  REQUIRE(host(abs(a)) == Floats{1, 2, 4});
  REQUIRE(host(square(a)) == Floats{1, 4, 16});
  REQUIRE(host(sqrt(square(a))) == Floats{1, 2, 4});
  REQUIRE(host(reciprocal(b)) == Floats{0.5f, 0.5f, 2});
  REQUIRE(host(relu(a)) == Floats{1, 0, 4});
  REQUIRE(host(a + b) == Floats{3, 0, 4.5f});
  REQUIRE(host(a - b) == Floats{-1, -4, 3.5f});
  REQUIRE(host(a * b) == Floats{2, -4, 2});
  REQUIRE(host(a / b) == Floats{0.5f, -1, 8});
  REQUIRE(host(-a) == Floats{-1, 2, -4});
  REQUIRE(host(maximum(a, b)) == Floats{2, 2, 4});
  REQUIRE(host(minimum(a, b)) == Floats{1, -2, 0.5f});
  REQUIRE(host(select(less(a, b), a, b)) == Floats{1, -2, 0.5f});
  REQUIRE(host(select(less_equal(b, a), a, b)) == Floats{2, 2, 4});
  REQUIRE(cast(equal(a, a), Dtype::i32).to_host<std::int32_t>() ==
          std::vector<std::int32_t>{1, 1, 1});
  REQUIRE(host(full(on, {2, 2}, 7)) == Floats{7, 7, 7, 7});
  REQUIRE(!copy(a).shares_storage(a));

  const Tensor m = Tensor::from_host(on, Floats{1, 2, 3, 4, 5, 6}, {2, 3});
  REQUIRE(host(sum(m)) == Floats{21});
  REQUIRE(host(sum(m, {0})) == Floats{5, 7, 9});
  REQUIRE(host(mean(m, {-1})) == Floats{2, 5});
  REQUIRE(max(m, {1}, true).shape() == Shape{2, 1});
  REQUIRE(sum(m, {0, 1}, true).shape() == Shape{1, 1});
  REQUIRE(argmax(m).to_host<std::int32_t>() == std::vector<std::int32_t>{2, 2});
  REQUIRE_THROWS_AS(sum(m, {2}), std::invalid_argument);

  REQUIRE(host(matmul(m, m.transpose(0, 1))) == Floats{14, 32, 32, 77});
  const Tensor w = Tensor::from_host(on, Floats{1, 0, 0, 0, -1, 0}, {2, 3});
  const Tensor bias = Tensor::from_host(on, Floats{1, 1}, {2});
  REQUIRE(host(linear(m, w)) == Floats{1, -2, 4, -5});
  REQUIRE(host(linear(m, w, bias, Activation::relu)) == Floats{2, 0, 5, 0});

  const Tensor one = full(on, {}, 1);
  REQUIRE(host(squared_error(a, b)) == Floats{(1 + 16 + 12.25f) / 3});
  REQUIRE(host(squared_error_backward(one, a, a)) == Floats{0, 0, 0});
  REQUIRE(host(softmax(full(on, {1, 2}, 3))) == Floats{0.5f, 0.5f});
  REQUIRE(host(relu_backward(b, a)) == Floats{2, 0, 0.5f});
  const Tensor labels = Tensor::from_host(on, std::vector<std::int32_t>{0}, {1});
  REQUIRE(host(cross_entropy_backward(one, full(on, {1, 2}, 3), labels)) == Floats{-0.5f, 0.5f});

  const Tensor x = Tensor::from_host(on, Floats{1, 2, 3, 4}, {1, 1, 2, 2});
  const Tensor ones = full(on, {1, 1, 2, 2}, 1);
  REQUIRE(host(conv2d(x, ones)) == Floats{10});
  REQUIRE(host(conv2d_grad_x(full(on, {1, 1, 1, 1}, 2), x, {}, {2, 2})) == Floats{2, 4, 6, 8});
  REQUIRE(host(conv2d_grad_w(full(on, {1, 1, 1, 1}, 3), x, {}, {2, 2}).first) ==
          Floats{3, 6, 9, 12});
  const auto [pooled, places] = maxpool2d(x, {2, 2}, {2, 2});
  REQUIRE((host(pooled) == Floats{4} && places.to_host<std::int32_t>()[0] == 3));
  REQUIRE(host(maxpool2d_backward(pooled, places, {2, 2}, {2, 2}, {2, 2})) == Floats{0, 0, 0, 4});

  const Tensor ids = Tensor::from_host(on, std::vector<std::int32_t>{1, 0, 1}, {3});
  REQUIRE(host(embedding(m, ids)) == Floats{4, 5, 6, 1, 2, 3, 4, 5, 6});
  REQUIRE(host(embedding_backward(full(on, {3, 1}, 1), ids, 3)) == Floats{1, 2, 0});
  const Tensor flat = full(on, {2, 3}, 5);
  const auto [y, average, rstd] = layernorm(flat, full(on, {3}, 2), full(on, {3}, 1));
  REQUIRE((host(y) == Floats(6, 1) && host(average) == Floats(2, 5) && rstd.shape() == Shape{2}));
  const Triple grads = layernorm_backward(flat, flat, full(on, {3}, 2), average, rstd);
  REQUIRE((grads.second.shape() == Shape{3} && host(grads.third) == Floats(3, 10)));
  const Tensor q = full(on, {1, 1, 2, 4}, 1);
  const auto [out, lse] = attention(q, q, q, true, 0.5);
  REQUIRE((host(out) == Floats(8, 1) && lse.shape() == Shape{1, 1, 2}));
  const Triple of = attention_backward(q, q, q, q, out, lse, true, 0.5);
  REQUIRE((of.first.shape() == q.shape() && of.third.shape() == q.shape()));
  REQUIRE(host(of.third) == Floats{1.5f, 1.5f, 1.5f, 1.5f, 0.5f, 0.5f, 0.5f, 0.5f});
}

TEST_CASE("attention writes the heads side by side if it is told to") {
  Device& on = device("own");
  const auto some = [&](const Shape& shape, std::uint32_t stream) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return Tensor::from_host(on, testing::random_floats(static_cast<size_t>(count), stream), shape);
  };
  for (const auto& [T, D] : {std::pair<std::int64_t, std::int64_t>{5, 3}, {33, 16}, {1, 1}}) {
    const Tensor q = some({2, 3, T, D}, 1), k = some({2, 3, T, D}, 2), v = some({2, 3, T, D}, 3);
    const auto [apart, lse] = attention(q, k, v, true, 0.5);
    const auto [joined, same] = attention(q, k, v, true, 0.5, true);
    REQUIRE((joined.shape() == q.shape() && joined.transpose(1, 2).is_contiguous()));
    REQUIRE((host(joined.contiguous()) == host(apart) && host(same) == host(lse)));
    const Triple grads = attention_backward(apart, q, k, v, apart, lse, true, 0.5);
    const Triple others = attention_backward(joined, q, k, v, joined, lse, true, 0.5);
    REQUIRE((host(others.first) == host(grads.first) && host(others.third) == host(grads.third)));
  }
}

TEST_CASE("a name that no operation has", "[harness]") {
  REQUIRE_THROWS_AS(op_named("matmull"), std::invalid_argument);
  REQUIRE(&op_named("matmul") == &kOps[row_of(op_named("matmul"))]);
}

TEST_CASE("gather fetches rows of any type, of views whose rows overlap, too") {
  Device& on = device(GENERATE("reference", "own"));
  CAPTURE(on.name());
  const auto ids_of = [&](const std::vector<std::int32_t>& ids, const Shape& shape) {
    return Tensor::from_host(on, ids, shape);
  };
  const Tensor m = Tensor::from_host(on, Floats{1, 2, 3, 4, 5, 6}, {2, 3});
  REQUIRE(host(gather(m, ids_of({1, 0, 1}, {3}))) == Floats{4, 5, 6, 1, 2, 3, 4, 5, 6});
  REQUIRE(gather(m, ids_of({1, 0, 1, 1}, {2, 2})).shape() == Shape{2, 2, 3});
  REQUIRE(host(gather(m.transpose(0, 1), ids_of({2}, {}))) == Floats{3, 6});
  REQUIRE(std::isnan(host(gather(m, ids_of({2}, {1})))[0]));
  const Tensor text = Tensor::from_host(on, std::vector<std::int32_t>{10, 11, 12, 13, 14}, {5});
  const Tensor windows = text.view({{3, 2}, {1, 1}, 1});  // (11,12), (12,13), (13,14)
  REQUIRE(gather(windows, ids_of({2, 0, -1}, {3})).to_host<std::int32_t>() ==
          std::vector<std::int32_t>{13, 14, 11, 12, 0, 0});
  const auto refused = [&](const Tensor& a, const Tensor& ids) {
    return testing::what_of<std::invalid_argument>([&] { gather(a, ids); });
  };
  REQUIRE(refused(full(on, {}, 1), text) == "gather of f32 () and i32 (5): a scalar has no rows");
  REQUIRE(contains_text(refused(m, m), "ids must be i32"));
  REQUIRE(contains_text(refused(full(on, {1, 1, 1, 1, 1, 1, 1, 1}, 0), ids_of({0}, {1, 1})),
                        "more than 8 axes"));
}

TEST_CASE("an optimizer steps in place, and counts on the device") {
  Device& on = device(GENERATE("reference", "own"));
  CAPTURE(on.name());
  const Tensor w = full(on, {2, 3}, 2), grad = full(on, {2, 3}, 0.5), rate = full(on, {}, 0.25);
  const Tensor step = full(on, {}, 0, Dtype::i64);
  const auto steps = [&] { return step.to_host<std::int64_t>()[0]; };
  const Tensor none = Tensor::empty(on, {0, 2, 3});
  optimizer_step(w, none, step, grad, rate, {0});
  REQUIRE((host(w) == Floats(6, 1.875f) && steps() == 1));
  REQUIRE((w.version() == 2 && step.version() == 2));
  const Tensor m = full(on, {1, 2, 3}, 1);
  optimizer_step(w, m, step, grad, rate, {1, 0.5});
  REQUIRE((host(m) == Floats(6, 1) && host(w) == Floats(6, 1.625f) && steps() == 2));
  // The first step of Adam is the learning rate long, whatever the gradient.
  const Tensor states = full(on, {2, 2, 3}, 0);
  fill(step, 0);
  optimizer_step(w, states, step, grad, rate, {2});
  for (const float value : host(w)) REQUIRE(std::fabs(value - 1.375f) < 1e-6f);
  REQUIRE(std::fabs(host(states)[0] - 0.05f) < 1e-7f);
  REQUIRE(std::fabs(host(states)[6] - 0.00025f) < 1e-8f);

  const auto refused = [&](const Tensor& of_w, const Tensor& of_state, const OptimizerRule& rule) {
    return testing::what_of<std::invalid_argument>(
        [&] { optimizer_step(of_w, of_state, step, grad, rate, rule); });
  };
  REQUIRE(refused(w, Tensor(), {0}) ==
          "optimizer_step of f32 (2,3) and f32 (): it works in place: all outputs (w, state, step) "
          "must be given");
  REQUIRE(contains_text(refused(w, none, {2}), "output 1 is f32 (0,2,3), not f32 (2,2,3)"));
  REQUIRE(contains_text(refused(full(on, {6}, 1), none, {0}), "grad must be (6)"));
  REQUIRE(contains_text(refused(w, states, {4}), "3 (adamw)"));
  REQUIRE(contains_text(refused(w, states, {2, 0.9, 1}), "beta1 must be from 0 to below 1"));
  REQUIRE(contains_text(refused(w, states, {3, 0.9, 0.9, 0.99, 0}), "epsilon must be above 0"));
  REQUIRE(contains_text(refused(grad, none, {0}), "output 0 overlaps an input"));
  REQUIRE(steps() == 1);
}

TEST_CASE("a dropout mask is drawn anew by every call, and is the same everywhere") {
  const Floats draws = [] {
    Device& reference = device("reference");
    const Tensor mask = Tensor::empty(reference, {1000});
    dropout_mask(mask, full(reference, {}, 5, Dtype::i64), 0.25, 7);
    return host(mask);
  }();
  REQUIRE(std::abs(std::count(draws.begin(), draws.end(), 0.0f) - 250) < 70);  // 5 sigma
  Device& on = device(GENERATE("reference", "own"));
  CAPTURE(on.name());
  const Tensor mask = Tensor::empty(on, {1000}), step = full(on, {}, 4, Dtype::i64);
  dropout_mask(mask, step, 0.25, 7);
  REQUIRE(host(mask) != draws);
  dropout_mask(mask, step, 0.25, 7);
  REQUIRE((host(mask) == draws && step.to_host<std::int64_t>()[0] == 6));
  dropout_mask(mask, step, 0, 7);
  REQUIRE(host(mask) == Floats(1000, 1));
  const auto refused = [&](double p, std::uint64_t seed) {
    return testing::what_of<std::invalid_argument>([&] { dropout_mask(mask, step, p, seed); });
  };
  REQUIRE(refused(1, 0) == "dropout_mask: p must be from 0 to below 1");
  REQUIRE(contains_text(refused(0.5, (std::uint64_t{1} << 53) + 1), "2^53 at most, not 90071992"));
  REQUIRE_NOTHROW(dropout_mask(mask, step, 0.5, std::uint64_t{1} << 53));
}

TEST_CASE("count_up adds one on every device, to an i64 without axes") {
  Device& on = device(GENERATE("reference", "own"));
  CAPTURE(on.name());
  const Tensor step = full(on, {}, 0x1p40, Dtype::i64);
  count_up(step), count_up(step);
  REQUIRE(step.to_host<std::int64_t>()[0] == (std::int64_t{1} << 40) + 2);
  const auto refused = [](const Tensor& wrong) {
    return testing::what_of<std::invalid_argument>([&] { count_up(wrong); });
  };
  REQUIRE(contains_text(refused(full(on, {}, 0)), "output 0 is f32 (), not i64 ()"));
  REQUIRE(contains_text(refused(full(on, {1}, 0, Dtype::i64)), "output 0 is i64 (1), not i64 ()"));
  REQUIRE(contains_text(refused({}), "no tensor says on which device"));
}

TEST_CASE("best runs what works in place once, by the first that takes it") {
  Device& on = device("own");
  const std::string policy = [&] {
    std::string names;
    for (const Seat* seat : plugin_device(on).policy)
      names += (names.empty() ? "" : ",") + seat->name;
    return names;
  }();
  use(on, "best");
  const Tensor w = full(on, {4}, 1), step = full(on, {}, 0, Dtype::i64);
  const size_t measured = choices(on).size();
  optimizer_step(w, Tensor::empty(on, {0, 4}), step, full(on, {4}, 1), full(on, {}, 0.25), {0});
  dropout_mask(Tensor::empty(on, {4}), step, 0.5, 1);
  use(on, policy);
  REQUIRE((host(w) == Floats(4, 0.75f) && step.to_host<std::int64_t>()[0] == 2));
  for (size_t i = measured; i < choices(on).size(); ++i)
    REQUIRE(contains_text(choices(on)[i].call, "fill"));
}
