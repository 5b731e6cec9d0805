// The reference in double: against differences of its own loss, against trainings on the device of
// every optimizer, and mistakes that its bounds must catch.
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "stage5_training/05_sequential/training_for_tests.h"

using namespace sequential_test;

namespace {

std::vector<double> column(const std::vector<optimizers::Element>& elements,
                           double optimizers::Element::*which) {
  std::vector<double> values;
  for (const optimizers::Element& element : elements) values.push_back(element.*which);
  return values;
}

// The present parameters, and m and v as far as they are kept, against those in double.
Comparison against(const Sequential& model, const DoubleModel& want, Kind kind) {
  using optimizers::Element;
  std::vector<Comparison> parts;
  for (size_t k = 0; k < want.parameters(); ++k) {
    const NamedTensor& tensor = model.tensors()[k];
    const std::vector<Element>& elements = want.parameter(k);
    const auto part = [&](const float* got, double Element::*value, double Element::*error) {
      parts.push_back(sequential_test::against(to_host(got, tensor.n),
                                               {column(elements, value), column(elements, error)}));
    };
    part(tensor.w, &Element::w, &Element::w_error);
    if (optimizers::states(kind) >= 1) part(tensor.m, &Element::m, &Element::m_error);
    if (optimizers::states(kind) >= 2) part(tensor.v, &Element::v, &Element::v_error);
  }
  return together(parts);
}

const std::vector<int> kLabels = some_labels(9, 4);

}  // namespace

TEST_CASE("the gradients in double are those of the loss") {
  constexpr size_t kBatch = 9;
  const std::vector<float> x = some_floats(kBatch * 5, 1), targets = some_floats(kBatch * 4, 2);
  const auto check = [&](Sequential model) {
    for (const bool squares : {false, true}) {
      DoubleModel run(model);
      const auto loss_of = [&] {
        const Values& y = run.forward(dense::exactly(x), kBatch);
        return squares ? mean_squared_error_cpu(y, targets) : cross_entropy_cpu(y, kLabels, 4);
      };
      run.backward(loss_of().grad);
      const std::vector<Values> gradients = run.gradients();
      for (size_t k = 0; k < run.parameters(); ++k)
        for (size_t i = 0; i < run.parameter(k).size(); ++i) {
          constexpr double kMove = 1e-6;
          double& w = run.parameter(k)[i].w;
          const double before = w;
          w = before + kMove;
          const double above = loss_of().mean.value;
          w = before - kMove;
          const double below = loss_of().mean.value;
          w = before;
          CAPTURE(model.description(), squares, k, i);
          REQUIRE(std::fabs((above - below) / (2 * kMove) - gradients[k].value[i]) < 1e-7);
        }
    }
  };
  check(make(Linear(5, 7), ReLU(), Linear(7, 4)));
  check(make(Linear(5, 7), Sigmoid(), Linear(7, 4), Tanh()));
  check(make(Linear(5, 3), GELU(), Linear(3, 4), Softplus()));
}

TEST_CASE("three steps of a training stay within the bounds, by every optimizer") {
  const std::vector<float> x = some_floats(9 * 6, 1);
  for (const Kind kind : optimizers::kKinds) {
    Sequential model = make(Linear(6, 10), Tanh(), Linear(10, 4));
    Trainer trainer(model, kind, x, kLabels, 0.01f);
    DoubleModel want(model);
    optimizers::Hyperparameters hyper;
    hyper.learning_rate = 0.01f;
    for (std::uint64_t t = 1; t <= 3; ++t) {
      const Loss loss = cross_entropy_cpu(want.forward(dense::exactly(x), 9), kLabels, 4);
      want.backward(loss.grad);
      trainer.step();
      CAPTURE(optimizers::name(kind), t, loss.mean.value, loss.mean.error, trainer.loss());
      REQUIRE(std::fabs(trainer.loss() - loss.mean.value) <= loss.mean.error);
      if (t == 1) CHECK(loss.mean.error < 1e-4 * loss.mean.value);
      for (size_t k = 0; k < want.parameters(); ++k)
        REQUIRE_OK(sequential_test::against(to_host(model.tensors()[k].grad, model.tensors()[k].n),
                                            want.gradients()[k]));
      want.step(kind, hyper, t);
      REQUIRE_OK(against(model, want, kind));
    }
  }
}

TEST_CASE("what a gradient is off by, a step is, and hardly more") {
  using optimizers::Element;
  for (const Kind kind : optimizers::kKinds)
    for (const double off : {1e-4, -1e-4, 0.2}) {
      constexpr double kGradients[] = {0.1, -0.3, 0.2};
      std::vector<Element> want{{0.5}}, moved{{0.5}};
      for (std::uint64_t t = 1; t <= 3; ++t) {
        const double gradient = kGradients[t - 1];
        optimizers::step_cpu(kind, {}, t, {gradient}, {std::fabs(off)}, want);
        optimizers::step_cpu(kind, {}, t, std::vector<double>{gradient + off}, {0}, moved);
        CAPTURE(optimizers::name(kind), off, t);
        REQUIRE(std::fabs(moved[0].w - want[0].w) <= want[0].w_error);
        REQUIRE(std::fabs(moved[0].m - want[0].m) <= want[0].m_error);
        REQUIRE(std::fabs(moved[0].v - want[0].v) <= want[0].v_error);
        const double moves = std::fabs(moved[0].w - want[0].w);
        if (kind == Kind::Sgd) REQUIRE(want[0].w_error < 2 * moves + 1e-7);
      }
    }
}

TEST_CASE("a mean squared error agrees with step 3.3's") {
  Sequential model = make(Linear(6, 10), ReLU(), Linear(10, 4));
  const std::vector<float> x = some_floats(9 * 6, 1), targets = some_floats(9 * 4, 2);
  DoubleModel want(model);
  const Loss loss = mean_squared_error_cpu(want.forward(dense::exactly(x), 9), targets);
  const DeviceBuffer<float> d_x(x), d_targets(targets);
  DeviceBuffer<float> d_loss(1), d_grad(9 * 4);
  losses::Buffers buffers(9);
  losses::launch_squared_error_vectorized(d_loss.data(), d_grad.data(),
                                          model.forward(d_x.data(), 9), d_targets.data(), 9 * 4,
                                          buffers.workspace());
  REQUIRE_OK(sequential_test::against(d_loss.to_host(), {{loss.mean.value}, {loss.mean.error}}));
  REQUIRE_OK(sequential_test::against(d_grad.to_host(), loss.grad));
}

TEST_CASE("the losses' bounds refuse a dropped term and a row that is elsewhere", "[harness]") {
  const Values y = dense::exactly(some_floats(32 * 10, 1));
  const auto refuses = [](const Loss& loss, size_t row_length) {
    testing::require_refusals(
        loss.grad.value, [&](size_t i) { return loss.grad.error[i]; }, row_length,
        [&](size_t i) { return loss.grad.value[i] / 10; });
    CHECK(loss.mean.error < loss.mean.value / 32 / 10);  // a tenth of a sample's share
  };
  refuses(cross_entropy_cpu(y, some_labels(32, 10), 10), 10);
  refuses(mean_squared_error_cpu(y, some_floats(32 * 10, 2)), 10);
}

TEST_CASE("a label that counts for nothing, and no label that counts") {
  const Values y = dense::exactly(some_floats(3 * 4, 1));
  const Loss two = cross_entropy_cpu(y, {1, -1, 2}, 4);
  for (size_t c = 4; c < 8; ++c) CHECK(two.grad.value[c] == 0);
  CHECK(std::isfinite(two.mean.value));
  const Loss none = cross_entropy_cpu(y, {-1, -1, -1}, 4);
  CHECK(std::isnan(none.mean.value));
  for (const double value : none.grad.value) CHECK(value == 0);
}

TEST_CASE("a twin sees a sum in doubt on the other side of ReLU's corner") {
  Sequential model{Linear(1, 2), ReLU(), Linear(2, 1)};
  const std::vector<std::vector<float>> parameters{{1, 1}, {-1, 2}, {1, 1}, {0}};
  const Values one = dense::exactly({1}), grad = dense::exactly({1});
  DoubleModel plain(model, parameters), twin(model, parameters, {false, 0, 1});
  for (DoubleModel* run : {&plain, &twin}) run->parameter(1)[0].w = -1 + 1e-9;  // a sum of 1e-9
  plain.forward(one, 1), plain.backward(grad);
  twin.forward(one, 1), twin.backward(grad);
  CHECK(plain.gradients()[1].value == std::vector<double>{1, 1});
  CHECK(twin.gradients()[1].value == std::vector<double>{0, 1});
  CHECK(plain.gradients()[1].error[0] >= 1);  // the bound knows of it
}

TEST_CASE("a twin stores floats, and what is left of tanh's slope where it is nearly 1") {
  const Values one = dense::exactly({1}), grad = dense::exactly({1});
  Sequential model{Linear(1, 1), Tanh()};
  const auto run = [&](float weight, int toward_zero) {
    DoubleModel twin(model, {{weight}, {0}}, {true, toward_zero, 0});
    const double y = twin.forward(one, 1).value[0];
    twin.backward(grad);
    return std::pair{y, twin.gradients()[0].value[0]};
  };
  constexpr double kUlp = 1.0 / (1 << 24);
  CHECK(run(12, 0) == std::pair{1 - 0.0, 0.0});  // 1 - 8e-11 is no float
  CHECK(run(12, 2) == std::pair{1 - 2 * kUlp, 1 - (1 - 2 * kUlp) * (1 - 2 * kUlp)});
  CHECK(run(12, -2) == std::pair{1.0, 0.0});
  CHECK(run(-12, 1).first == kUlp - 1);
  CHECK(run(0, 3) == std::pair{0.0, 1.0});
}

TEST_CASE("what is not a training of this model is refused") {
  const Sequential model{Linear(2, 3), ReLU(), Linear(3, 1)};
  const auto says = [](auto&& call) { return complaint<std::invalid_argument>(call); };
  CHECK(contains_text(says([&] {
                        DoubleModel{model, std::vector<std::vector<float>>(3)};
                      }),
                      "3 tensors for the 4 of Sequential"));
  CHECK(contains_text(says([&] {
                        DoubleModel{model, std::vector<std::vector<float>>(4)};
                      }),
                      "0 values for \"0.weight\", which has 6"));
  DoubleModel run(model);
  CHECK_THROWS_AS(run.backward(dense::exactly({1})), std::logic_error);
  CHECK_THROWS_AS(run.step(Kind::Sgd, {}, 1), std::logic_error);
  CHECK(contains_text(says([&] { run.forward(dense::exactly({1}), 1); }), "x is not (1, 2)"));
  CHECK(contains_text(says([] { mean_squared_error_cpu(dense::exactly({1}), {}); }), "0 targets"));
  CHECK_THROWS_AS(cross_entropy_cpu(dense::exactly({1, 2}), {2}, 2), std::out_of_range);
}
