// Products of 16-bit factors as functions, what they refuse, and Autocast.
#include <string>
#include <thread>
#include <vector>

#include "common/testing.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/02_backends/tensors_for_tests.h"

using namespace framework;
using tensors_test::host, tensors_test::random_on;

namespace {

using Floats = std::vector<float>;

template <class F>
std::string refused(F&& product) {
  return testing::what_of<std::invalid_argument>(product);
}

}  // namespace

TEST_CASE("a product of 16-bit factors is f32") {
  Device& on = device(GENERATE("reference", "own"));
  const Dtype type = GENERATE(Dtype::bf16, Dtype::f16);
  CAPTURE(on.name(), name_of(type));
  // 257 has nine bits, one more than bf16 has: the product is not rounded to its factors' type.
  const Tensor a = Tensor::from_host(on, Floats{1, 2, 3, 256, 1, 0}, {2, 3}).to(type);
  const Tensor y = matmul(a, full(on, {3, 1}, 1, type));
  REQUIRE((y.dtype() == Dtype::f32 && host(y) == Floats{6, 257}));
  const Tensor w = Tensor::from_host(on, Floats{1, 1, 1, 0, -1, 0}, {2, 3}).to(type);
  REQUIRE(host(linear(a, w)) == Floats{6, -2, 257, -1});
  const Tensor bias = Tensor::from_host(on, Floats{0.001f, 1}, {2});
  REQUIRE(host(linear(a, w, bias, Activation::relu)) == Floats{6.001f, 0, 257.001f, 0});
  REQUIRE(host(matmul(w, a.transpose(0, 1))) == Floats{6, 257, -2, -1});
}

TEST_CASE("a product of two types is refused in one line") {
  Device& on = device(GENERATE("reference", "own"));
  CAPTURE(on.name());
  const Tensor f32 = full(on, {2, 2}, 1), f64 = f32.to(Dtype::f64);
  const Tensor bf16 = f32.to(Dtype::bf16), f16 = f32.to(Dtype::f16);
  const Tensor bias = full(on, {2}, 1);
  REQUIRE(refused([&] { matmul(bf16, f32); }) ==
          "matmul of bf16 (2,2) and f32 (2,2): the types differ");
  REQUIRE(refused([&] { matmul(f32, bf16); }) ==
          "matmul of f32 (2,2) and bf16 (2,2): the types differ");
  REQUIRE(refused([&] { matmul(f16, bf16); }) ==
          "matmul of f16 (2,2) and bf16 (2,2): the types differ");
  REQUIRE(refused([&] { linear(bf16, f64); }) ==
          "linear of bf16 (2,2), f64 (2,2) and none: the types differ");
  REQUIRE(refused([&] { linear(bf16, bf16, bias.to(Dtype::bf16)); }) ==
          "linear of bf16 (2,2), bf16 (2,2) and bf16 (2): bias must be f32");
  REQUIRE(refused([&] { linear(f32, f32, bias.to(Dtype::f64)); }) ==
          "linear of f32 (2,2), f32 (2,2) and f64 (2): bias must be f32");
  REQUIRE(refused([&] { linear(f64, f64, bias); }) ==
          "linear of f64 (2,2), f64 (2,2) and f32 (2): bias must be f64");
  REQUIRE(refused([&] {
            matmul(bf16, bf16, Tensor::empty(on, {2, 2}, Dtype::bf16));
          }) == "matmul of bf16 (2,2) and bf16 (2,2): output 0 is bf16 (2,2), not f32 (2,2)");
  REQUIRE(refused([&] { matmul(f32.to(Dtype::i32), f32.to(Dtype::i32)); }) ==
          "matmul of i32 (2,2) and i32 (2,2): i32 is not f32 or f64");
  REQUIRE(refused([&] { add(bf16, bf16); }) ==
          "add of bf16 (2,2) and bf16 (2,2): bf16 is not f32 or f64");
}

TEST_CASE("under an Autocast factors of f32 are cast, and nothing else is") {
  Device& on = device(GENERATE("reference", "own"));
  const Dtype type = GENERATE(Dtype::bf16, Dtype::f16);
  CAPTURE(on.name(), name_of(type));
  const Tensor x = random_on(on, {5, 6}, 1), w = random_on(on, {4, 6}, 2),
               bias = random_on(on, {4}, 3);
  const auto product = [&] { return host(linear(x, w, bias, Activation::tanh)); };
  const Floats in_f32 = product();
  const Floats cast = host(linear(x.to(type), w.to(type), bias, Activation::tanh));
  REQUIRE(in_f32 != cast);
  {
    const Autocast guard(type);
    REQUIRE(product() == cast);
    REQUIRE(host(matmul(x, w.transpose(0, 1))) ==
            host(matmul(x.to(type), w.transpose(0, 1).to(type))));
    REQUIRE(product() == host(linear(x.to(type), w, bias, Activation::tanh)));
    REQUIRE(matmul(x, w.transpose(0, 1)).dtype() == Dtype::f32);
    {
      const Autocast none(Dtype::f32);
      REQUIRE(product() == in_f32);
    }
    REQUIRE(product() == cast);
    Floats elsewhere;
    std::thread([&] { elsewhere = product(); }).join();
    REQUIRE(elsewhere == in_f32);
    REQUIRE((x + x).dtype() == Dtype::f32);
  }
  REQUIRE(product() == in_f32);
  if (on.name() == std::string("reference")) {
    const Autocast guard(type);
    REQUIRE(linear(x.to(Dtype::f64), w.to(Dtype::f64)).dtype() == Dtype::f64);
  }
  REQUIRE(refused([] { const Autocast guard(Dtype::f64); }) ==
          "Autocast: products are not made in f64");
  REQUIRE(product() == in_f32);
}
