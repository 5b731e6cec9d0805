// Gradients of products of 16-bit factors and of attention of bf16, which are f32, and of what an
// Autocast casts.
#include <cmath>
#include <string>
#include <vector>

#include "common/testing.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/02_backends/tensors_for_tests.h"
#include "stage8_framework/03_autograd/tape.h"

using namespace framework;
using tensors_test::host, tensors_test::random_on;

namespace {

using Floats = std::vector<float>;

Tensor leaf(const Tensor& values) {
  Tensor x = values.clone();
  x.set_requires_grad();
  return x;
}
// The numbers that are left of these in a type.
Tensor rounded(const Tensor& values, Dtype type) { return values.to(type).to(Dtype::f32); }

bool is(const Tensor& grad, const Tensor& want) {
  return grad.dtype() == Dtype::f32 && grad.shape() == want.shape() &&
         testing::same_bits(host(grad), host(want));
}

}  // namespace

TEST_CASE("an Autocast's gradients are those of products in 16 bits, and arrive as f32") {
  Device& on = device(GENERATE("reference", "own"));
  const Dtype type = GENERATE(Dtype::bf16, Dtype::f16);
  CAPTURE(on.name(), name_of(type));
  const Tensor x = leaf(random_on(on, {2, 5, 6}, 1)), w = leaf(random_on(on, {4, 6}, 2));
  const Tensor bias = leaf(random_on(on, {4}, 3)), g = random_on(on, {2, 5, 4}, 4);
  const Tensor y = [&] {
    const Autocast guard(type);
    return linear(x, w, bias);
  }();
  REQUIRE(y.dtype() == Dtype::f32);
  y.backward(g);
  const Tensor rows = g.reshape({10, 4}).to(type), x16 = x.detach().to(type).reshape({10, 6});
  REQUIRE(is(x.grad(), matmul(rows, w.detach().to(type)).reshape({2, 5, 6})));
  REQUIRE(is(w.grad(), matmul(rows.transpose(0, 1), x16)));
  REQUIRE(is(bias.grad(), sum(g.reshape({10, 4}), {0})));  // g itself, not what is left of it
  REQUIRE(!is(bias.grad(), sum(rounded(g.reshape({10, 4}), type), {0})));
}

TEST_CASE("a matmul of 16-bit factors has gradients in f32, of a batch, too") {
  Device& on = device(GENERATE("reference", "own"));
  const Dtype type = GENERATE(Dtype::bf16, Dtype::f16);
  CAPTURE(on.name(), name_of(type));
  const Tensor a = leaf(random_on(on, {3, 5, 6}, 1).to(type)),
               one = leaf(random_on(on, {6, 4}, 2).to(type));
  const Tensor many = leaf(random_on(on, {3, 6, 4}, 3).to(type)), g = random_on(on, {3, 5, 4}, 4);
  matmul(a, one).backward(g);
  const Tensor g16 = g.to(type);
  const Tensor from_one = matmul(g16, one.detach().transpose(0, 1));
  REQUIRE(is(a.grad(), from_one));
  REQUIRE(
      is(one.grad(), matmul(a.detach().reshape({15, 6}).transpose(0, 1), g16.reshape({15, 4}))));
  matmul(a, many).backward(g);
  REQUIRE(is(a.grad(), from_one + matmul(g16, many.detach().transpose(1, 2))));
  REQUIRE(is(many.grad(), matmul(a.detach().transpose(1, 2), g16)));
}

TEST_CASE("gelu's gradient in a linear layer makes the same product again") {
  Device& on = device("own");
  const Tensor x = leaf(random_on(on, {5, 6}, 1).to(Dtype::bf16)), w = random_on(on, {4, 6}, 2);
  const Tensor g = random_on(on, {5, 4}, 4), w16 = w.to(Dtype::bf16), bias = random_on(on, {4}, 3);
  linear(x, w16, bias, Activation::gelu).backward(g);
  const Tensor through = gelu_backward(g, linear(x.detach(), w16, bias));
  REQUIRE(is(x.grad(), matmul(through.to(Dtype::bf16), w16)));
}

TEST_CASE("an Autocast around backward() changes no gradient") {
  Device& on = device("own");
  const Tensor x = leaf(random_on(on, {5, 6}, 1)), w = random_on(on, {4, 6}, 2),
               g = random_on(on, {5, 4}, 4);
  const Tensor y = linear(x, w);
  const Autocast guard;
  y.backward(g);
  const Autocast none(Dtype::f32);
  REQUIRE(is(x.grad(), matmul(g, w)));
}

namespace {
// Whether the device has attention of bf16 for heads of so many numbers, and its gradient.
bool has_attention(const Tensor& q, std::string* reason) {
  const Autocast guard;
  Dtype type;
  const auto before = left_in_f32(q.device());
  if (is_cast_attention(q, q, q, true, 0.25, &type)) return true;
  const auto& after = left_in_f32(q.device());
  for (size_t i = 0; i < after.size(); ++i)
    if (i >= before.size() || after[i].times > before[i].times) *reason = after[i].reason;
  return false;
}
}  // namespace

TEST_CASE("an Autocast's gradients of attention are those of bf16, and arrive as f32") {
  Device& on = device(GENERATE("reference", "own"));
  CAPTURE(on.name());
  constexpr std::int64_t B = 2, T = 13, H = 3, D = 16;
  const Tensor rows = leaf(random_on(on, {B, T, 3, H, D}, 1)), g = random_on(on, {B, T, H, D}, 2);
  const auto part = [](const Tensor& of, std::int64_t i) {
    return of.select(2, i).transpose(1, 2);
  };
  const auto gradient = [&](Dtype type, bool are_joined) {
    rows.set_grad({});
    const Tensor y = [&] {
      const Autocast guard(type);
      return attention(part(rows, 0), part(rows, 1), part(rows, 2), true, 0.25, are_joined).first;
    }();
    REQUIRE(y.dtype() == Dtype::f32);
    y.backward(g.transpose(1, 2));
    REQUIRE(rows.grad().dtype() == Dtype::f32);
    return host(rows.grad());
  };
  const Floats in_f32 = gradient(Dtype::f32, true);
  for (const bool are_joined : {false, true}) {
    const Floats got = gradient(Dtype::bf16, are_joined);
    std::string reason;
    if (!has_attention(part(rows, 0), &reason)) {
      WARN("not checked in bf16: " << reason);
      REQUIRE(testing::same_bits(got, in_f32));
      continue;
    }
    const Tensor low = rows.detach().to(Dtype::bf16), g16 = g.to(Dtype::bf16).transpose(1, 2);
    const auto [out, lse] = attention(part(low, 0), part(low, 1), part(low, 2), true, 0.25);
    const Tensor want = Tensor::empty(on, {B, T, 3, H, D}, Dtype::bf16);
    attention_backward(g16, part(low, 0), part(low, 1), part(low, 2), out, lse, true, 0.25,
                       {part(want, 0), part(want, 1), part(want, 2)});
    REQUIRE(testing::same_bits(got, host(want.to(Dtype::f32))));
    // And near those of f32: a rounding of bf16 is 2^-8 of a number, and no gradient is above 4.
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::fabs(got[i] - in_f32[i]) < 0x1p-5f);
  }
}

TEST_CASE("attention of bf16 has a gradient by lse, and heads whose gradient is none stay in f32") {
  Device& on = device("own");
  const Tensor q = leaf(random_on(on, {1, 2, 7, 160}, 1));
  std::string reason;
  if (!has_attention(q.detach(), &reason)) {
    WARN("not checked in bf16: " << reason);
    return;
  }
  REQUIRE(!has_attention(q, &reason));
  REQUIRE(reason == "own: gradients of bf16 are of heads of 1 to 128 numbers");
  const auto gradients = [&](Dtype type) {
    const Tensor x = leaf(random_on(on, {1, 2, 7, 16}, 1).to(type));
    const Tensor k = leaf(random_on(on, {1, 2, 9, 16}, 2).to(type));
    const Tensor v = leaf(random_on(on, {1, 2, 9, 16}, 3).to(type));
    const Pair y = attention(x, k, v, true, 0.25);
    y.second.backward(random_on(on, {1, 2, 7}, 4), true);
    Floats all = host(x.grad()), of_k = host(k.grad());
    REQUIRE(k.grad().dtype() == Dtype::f32);
    all.insert(all.end(), of_k.begin(), of_k.end());
    return all;
  };
  const Floats got = gradients(Dtype::bf16), want = gradients(Dtype::f32);
  for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::fabs(got[i] - want[i]) < 0x1p-6f);
  REQUIRE(got != want);
}

TEST_CASE("the gradient of a 16-bit tensor is a sum in f32") {
  Device& on = device(GENERATE("reference", "own"));
  const Dtype type = GENERATE(Dtype::bf16, Dtype::f16);
  CAPTURE(on.name(), name_of(type));
  const Tensor x = leaf(Tensor::from_host(on, Floats{1, 2, 3}, {3}).to(type));
  // 1 + 2^-13 has more bits than either type.
  const Tensor g = full(on, {3}, 1), small = full(on, {3}, 0x1p-13);
  const Tensor y = x.to(Dtype::f32);
  (y * g + x.to(Dtype::f32) * small).backward(g);
  REQUIRE(host(x.grad()) == Floats(3, 1 + 0x1p-13f));
  x.set_grad(small);
  REQUIRE(host(x.grad()) == Floats(3, 0x1p-13f));
  REQUIRE(testing::what_of<std::invalid_argument>([&] { x.set_grad(small.to(type)); }) ==
          std::string("set_grad of ") + name_of(type) + " (3): the gradient is " + name_of(type) +
              " (3)");
  const Tensor home = Tensor::empty(on, {3});
  set_gradient_home(x, home);
  x.clone().backward(g);  // the root has 16 bits, its seed 32
  REQUIRE((x.grad().shares_storage(home) && host(home) == Floats(3, 1)));
  x.set_grad({});
  // Parts of one tensor, of which one has no gradient.
  const Tensor pair = leaf(full(on, {2, 3}, 1, type));
  unbind(pair, 0)[1].to(Dtype::f32).backward(g);
  REQUIRE(host(pair.grad()) == Floats{0, 0, 0, 1, 1, 1});
  const Tensor one = leaf(full(on, {}, 1, type));
  one.clone().backward();
  REQUIRE((one.grad().dtype() == Dtype::f32 && host(one.grad()) == Floats{1}));
  REQUIRE(testing::what_of<std::invalid_argument>([&] { x.clone().backward(x.detach()); }) ==
          std::string("backward of ") + name_of(type) + " (3): the seed is " + name_of(type) +
              " (3)");
}
