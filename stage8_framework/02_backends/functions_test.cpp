// The functions, on the reference and on own: small cases whose results are plain to see.
#include "stage8_framework/02_backends/functions.h"

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
  REQUIRE(host(conv2d_grad_w(full(on, {1, 1, 1, 1}, 3), x, {}, {2, 2})) == Floats{3, 6, 9, 12});
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

TEST_CASE("a name that no operation has", "[harness]") {
  REQUIRE_THROWS_AS(op_named("matmull"), std::invalid_argument);
  REQUIRE(&op_named("matmul") == &kOps[row_of(op_named("matmul"))]);
}
