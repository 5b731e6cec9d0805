// What every training does with its steps, whatever it learns: a curve that is used in turn, graphs
// that are kept; and how many points the registers of narrow networks leave room for.
#include <functional>
#include <vector>

#include "stage5_training/06_train_toy/trainings_for_tests.h"

using namespace train_toy_test;

namespace {

// Queues so many steps, one by one or from graphs.
using Queue = std::function<void(Training&, size_t)>;
const Queue kQueues[] = {
    [](Training& t, size_t count) { t.run_operations(count); },
    [](Training& t, size_t count) { t.replay(count, "graph", [&] { t.queue_step(); }); }};

}  // namespace

TEST_CASE("the places of a short curve are used in turn") {
  const Case c = random_case({2, 4, 3}, 9);
  Training t(c.widths, c.points, settings(Kind::Momentum));
  t.reset(24, 1);
  t.run_operations(24);
  const std::vector<float> all = t.losses();
  for (const Queue& queue : kQueues)
    for (const size_t every : {1, 2}) {
      constexpr size_t kPlaces = 5;
      t.restart();
      t.set_curve({kPlaces, every});
      queue(t, 24);
      std::vector<float> want(kPlaces);
      for (size_t loss = 0; loss < 24 / every; ++loss)
        want[loss % kPlaces] = all[(loss + 1) * every - 1];
      CAPTURE(every, &queue == kQueues);
      REQUIRE(same_bits(t.losses(), want));
    }
}

TEST_CASE("graphs are captured once, and anew where what they hold has changed") {
  const Case c = random_case({2, 4, 3}, 9);
  Training plain(c.widths, c.points, settings(Kind::Adam)),
      replayed(c.widths, c.points, settings(Kind::Adam));
  size_t captured = 0;  // steps
  const auto steps_captured_by = [&](const char* name, size_t count) {
    captured = 0;
    plain.run_operations(count);
    replayed.replay(count, name, [&] { ++captured, replayed.queue_step(); });
    REQUIRE(same_bits(state(plain), state(replayed)));
    return captured;
  };
  for (Training* t : {&plain, &replayed}) t->reset(500, 1);
  CHECK(steps_captured_by("graph", kGraphSteps + 7) == kGraphSteps + 1);
  CHECK(steps_captured_by("graph", 2 * kGraphSteps) == 0);
  CHECK(steps_captured_by("other", 3) == kGraphSteps + 1);
  for (Training* t : {&plain, &replayed}) t->model.reserve(c.points.labels.size() + 1);
  CHECK(steps_captured_by("other", 3) == kGraphSteps + 1);
  for (Training* t : {&plain, &replayed}) t->set_curve({50, 10});
  CHECK(steps_captured_by("other", 25) == 10 + 1);
  CHECK(steps_captured_by("other", 5) == 0);
}

// Records of eight units per hidden layer take 112 or 176 bytes, those of sixteen 176 or 304; no
// backend has less than 64 KiB for a block.
TEST_CASE("a narrow network leaves room for more points") {
  for (const Case& c : {random_case({2, 8, 2}, 500), random_case({2, 8, 8, 2}, 300)}) {
    Training t(c.widths, c.points, settings(Kind::Momentum));
    CAPTURE(c.widths);
    REQUIRE(why_not_registers(t).empty());
    t.reset(2, 1);
    const Trajectory want = trajectory_cpu(t, c.points, 2);
    launch_registers(t, 2);
    REQUIRE_OK(compare_losses(t.losses(), want));
  }
}
