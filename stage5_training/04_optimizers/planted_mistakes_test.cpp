// Wrong updates that the checks of the optimizers must catch.
#include <cmath>
#include <cstddef>
#include <vector>

#include "common/device_buffer.h"
#include "common/testing.h"
#include "stage5_training/04_optimizers/arenas_for_tests.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/04_optimizers/problem.h"
#include "stage5_training/04_optimizers/reference.h"

// Wrong kernels: optimizers_test.hip.
namespace optimizers_test {
void launch_coupled_decay(const ParameterArena& arena, const Schedule* schedule);
void launch_decay_afterwards(const ParameterArena& arena, const Schedule* schedule);
void launch_bias_left_in(const ParameterArena& arena, const Schedule* schedule);
void launch_epsilon_inside_root(const ParameterArena& arena, const Schedule* schedule);
void launch_rate_in_velocity(const ParameterArena& arena, const Schedule* schedule);
void launch_without_bounds_check(const ParameterArena& arena, const Schedule* schedule);
}  // namespace optimizers_test

using namespace optimizers_test;

namespace {

template <class Launcher>
bool passes(Kind kind, Launcher launch) {
  const auto update = [&](const TensorList& list, const Schedule* schedule) {
    launch(list.arena(), schedule);
  };
  return check_step(kind, {1003}, update).ok;
}

}  // namespace

TEST_CASE("wrong rules are caught", "[harness]") {
  const auto rule_of = [](Kind kind) {
    return [kind](const ParameterArena& arena, const Schedule* schedule) {
      launch_update(kind, arena, schedule);
    };
  };
  for (const Kind kind : kKinds) REQUIRE(passes(kind, rule_of(kind)));
  REQUIRE(!passes(Kind::AdamW, rule_of(Kind::Adam)));
  REQUIRE(!passes(Kind::AdamW, launch_coupled_decay));
  REQUIRE(!passes(Kind::AdamW, launch_decay_afterwards));
  REQUIRE(!passes(Kind::Adam, launch_bias_left_in));
  REQUIRE(!passes(Kind::Adam, launch_epsilon_inside_root));
  REQUIRE(!passes(Kind::Momentum, launch_rate_in_velocity));
}

TEST_CASE("wrong launches are caught", "[harness]") {
  const auto no_check = [](const TensorList& list, const Schedule* schedule) {
    optimizers_test::launch_without_bounds_check(list.arena(), schedule);
  };
  REQUIRE(!check_step(Kind::Sgd, {5}, no_check).ok);
  REQUIRE(check_step(Kind::Sgd, {8}, no_check).ok);
  // Nothing is done: no parameter passes.
  for (const Kind kind : kKinds) {
    // SGD leaves what has no gradient, which is every eleventh, as it was.
    const size_t moved = kind == Kind::Sgd ? 1003 - 91 : 1003;
    REQUIRE(check_step(kind, {1003}, [](const TensorList&, const Schedule*) {}).failed >= moved);
  }
  // The last tensor is forgotten; a slice is done twice; the elements behind the last float4 stay.
  const auto all_but_last = [](const TensorList& list, const Schedule* schedule) {
    launch_update(Kind::Sgd, list.tensors().front(), schedule);
  };
  REQUIRE(!check_step(Kind::Sgd, {1000, 1}, all_but_last).ok);
  const auto twice = [](const TensorList& list, const Schedule* schedule) {
    launch_update(Kind::Adam, list.arena(), schedule);
    launch_update(Kind::Adam, list.arena().part(1002, 1), schedule);
  };
  REQUIRE(!check_step(Kind::Adam, {1003}, twice).ok);
  const auto no_tail = [](const TensorList& list, const Schedule* schedule) {
    launch_update(Kind::Adam, list.arena().part(0, 1000), schedule);
  };
  REQUIRE(!check_step(Kind::Adam, {1003}, no_tail).ok);
  // A step number that stands still.
  const auto not_begun = [](const TensorList& list, const Schedule*) {
    DeviceBuffer<Schedule> before = make_schedule({}, 1);
    launch_begin_step(before.data());
    launch_update(Kind::Adam, list.arena(), before.data());
  };
  REQUIRE(!check_step(Kind::Adam, {1003}, not_begun).ok);
}

TEST_CASE("the program's check refuses a lost, a doubled and a misplaced update", "[harness]") {
  constexpr size_t kN = 20011;  // as many as the program has with --quick
  Values start(kN);
  start.w = testing::random_floats(kN, 0), start.grad_w = testing::random_floats(kN, 1);
  start.m = testing::random_floats(kN, 2), start.v = start.m;
  for (float& value : start.v) value *= value;
  const std::vector<Element> before = elements_of(start);
  for (const Kind kind : kKinds) {
    std::vector<Element> after = before;
    step_cpu(kind, {}, kCheckedStep, start.grad_w, after);
    for (size_t c = 0; c < 1 + static_cast<size_t>(states(kind)); ++c) {
      CAPTURE(name(kind), c);
      const Column of = kColumns[c];
      const auto bound = [&](size_t i) { return after[i].*of.error; };
      testing::require_refusals(column(after, of.value), bound, 1, [&](size_t i) {
        const double moved = after[i].*of.value - before[i].*of.value;
        return std::fabs(moved) > 2 * bound(i) ? moved : 0;  // else nothing that float shows
      });
    }
  }
}
