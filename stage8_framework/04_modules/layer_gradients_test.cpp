// The gradients of layers that are written in several operations, by all their inputs and
// parameters, against difference quotients in f64 on the reference.
#include <cmath>
#include <memory>

#include "stage5_training/03_gradient_check/checker.h"
#include "stage8_framework/04_modules/layers.h"
#include "stage8_framework/04_modules/modules_for_tests.h"

using namespace modules_test;

namespace {

constexpr double kTolerance = 1e-7;  // of gradients of order 1: what is left of h^2 L''' / 6

// The loss is the sum of the results, each times a number of its own.
void require_gradients(Module& layer, const Shape& shape) {
  make_double(layer);
  Tensor x = random_tensor(shape, 1, reference()).to(Dtype::f64);
  x.set_requires_grad();
  std::vector<Tensor> leaves{x};
  std::uint32_t stream = 40;
  for (const NamedTensor& named : layer.parameters()) {
    named.tensor->detach().copy_from(random_tensor(named.tensor->shape(), stream++, reference()));
    leaves.push_back(*named.tensor);
  }
  const auto result = [&] {
    const Tensor y = layer(x);
    return sum(y * random_tensor(y.shape(), 2, reference()).to(Dtype::f64));
  };
  result().backward();
  std::vector<Doubles> values;
  for (const Tensor& leaf : leaves) values.push_back(host_doubles(leaf));
  const auto loss = [&](const std::vector<Doubles>& at) {
    const NoGrad guard;
    for (size_t i = 0; i < at.size(); ++i)
      leaves[i].copy_from(Tensor::from_host(reference(), at[i], leaves[i].shape()));
    return result().to_host<double>()[0];
  };
  const double here = loss(values);
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Doubles got = host_doubles(leaves[i].grad());
    for (size_t n = 0; n < got.size(); ++n) {
      INFO("leaf " << i << ", element " << n);
      const double want = gradient_check::difference_quotients(loss, values, i, n, here).central;
      REQUIRE(std::fabs(got[n] - want) <= kTolerance);
    }
  }
}

}  // namespace

TEST_CASE("gradients of BatchNorm2d, in training and in eval") {
  for (const bool trains : {true, false}) {
    INFO("training " << trains);
    BatchNorm2d layer(reference(), 2, 1e-2);
    layer(random_tensor({2, 2, 3, 3}, 5, reference()));  // other statistics than the first ones
    layer.train(trains);
    require_gradients(layer, {2, 2, 2, 3});
  }
}

TEST_CASE("gradients of MultiHeadAttention, causal and not") {
  for (const bool is_causal : {true, false}) {
    INFO("causal " << is_causal);
    MultiHeadAttention layer(reference(), 4, 2, is_causal, 1);
    require_gradients(layer, {2, 3, 4});
  }
}

TEST_CASE("gradients of AvgPool2d: none for what fills no window") {
  AvgPool2d layer(2);
  require_gradients(layer, {1, 2, 5, 4});
  Tensor x = random_tensor({1, 1, 3, 5}, 1);
  x.set_requires_grad();
  sum(layer(x)).backward();
  REQUIRE(host(x.grad()) == Floats{0.25f, 0.25f, 0.25f, 0.25f, 0, 0.25f, 0.25f, 0.25f, 0.25f, 0,  //
                                   0, 0, 0, 0, 0});
}

TEST_CASE("gradients of a network of other layers") {
  Sequential net(std::make_unique<Conv2d>(reference(), 1, 2, 3, 1, 1), std::make_unique<Tanh>(),
                 std::make_unique<MaxPool2d>(2), std::make_unique<Flatten>(),
                 std::make_unique<Linear>(reference(), 8, 3), std::make_unique<GELU>(),
                 std::make_unique<LayerNorm>(reference(), 3, 1e-2), std::make_unique<Sigmoid>());
  require_gradients(net, {2, 1, 4, 4});
}
