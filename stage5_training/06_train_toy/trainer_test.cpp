// The common Trainer: graphs that are kept, steps in pieces, a curve that is used in turn,
// checkpoints, and the streams it makes. Also how many points the registers have room for.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/testing.h"
#include "common/tests/programs.h"
#include "stage5_training/06_train_toy/train_toy.h"
#include "stage5_training/06_train_toy/training_for_tests.h"

using namespace toy_test;

namespace {

// Queues so many steps, one by one or from graphs.
using Queue = std::function<void(Training&, size_t)>;
const Queue kQueues[] = {
    [](Training& t, size_t count) { t.run_operations(count); },
    [](Training& t, size_t count) { t.replay(count, "graph", [&] { t.queue_step(); }); }};

}  // namespace

TEST_CASE("a graph gives the bits of its kernels, and the steps that are left over too") {
  const Case c = random_case({2, 4, 3}, 9);
  for (const auto& [steps, every] : std::initializer_list<std::pair<unsigned, unsigned>>{
           {0, 1},
           {1, 1},
           {10, 3},
           {kGraphSteps + 7, kGraphSteps + 3},
           {2 * kGraphSteps + 1, 2 * kGraphSteps}}) {
    Training one_by_one(c.widths, c.points, settings(Kind::Adam));
    Training replayed(c.widths, c.points, settings(Kind::Adam));
    for (Training* t : {&one_by_one, &replayed}) t->reset(steps, every);
    launch_operations(one_by_one, steps);
    launch_graph(replayed, steps);
    CAPTURE(steps, every);
    REQUIRE(replayed.steps == steps);
    REQUIRE(same_bits(state(one_by_one), state(replayed)));
  }
}

TEST_CASE("a training in pieces is the training as a whole, and repeats itself") {
  const Case c = random_case({2, 8, 2}, 4);
  Training t(c.widths, c.points, settings(Kind::Adam));
  for_each_version(t, [&](const auto& version) {
    t.reset(30, 4);
    version.launch.run(t, 30);
    const std::vector<float> whole = state(t);
    for (const std::vector<unsigned>& pieces :
         {std::vector<unsigned>{30}, {1, 29}, {0, 3, 1, 4, 0, 22}, {13, 17}}) {
      t.reset(30, 4);
      for (const unsigned piece : pieces) version.launch.run(t, piece);
      CAPTURE(version.name, pieces);
      REQUIRE(t.steps == 30);
      REQUIRE(same_bits(state(t), whole));
    }
  });
}

TEST_CASE("the curve holds the losses of the steps that it names") {
  const Case c = random_case({2, 8, 2}, 4);
  Training t(c.widths, c.points, settings(Kind::Momentum));
  for_each_version(t, [&](const auto& version) {
    t.reset(23, 1);
    version.launch.run(t, 23);
    HIP_CHECK(hipStreamSynchronize(t.stream));
    const std::vector<float> all = t.curve.to_host();
    for (const unsigned every : {2u, 5u, 23u, 24u}) {
      t.reset(23, every);
      version.launch.run(t, 23);
      HIP_CHECK(hipStreamSynchronize(t.stream));
      const std::vector<float> some = t.curve.to_host();
      CAPTURE(version.name, every);
      REQUIRE(some.size() == 23 / every);
      for (size_t i = 0; i < some.size(); ++i) REQUIRE(some[i] == all[(i + 1) * every - 1]);
    }
  });
}

TEST_CASE("a training that is resumed from its checkpoint goes on bit for bit") {
  const tests::Folder folder;
  const std::string path = folder / "checkpoint.safetensors";
  const Case c = random_case({2, 8, 2}, 4);
  for (const Kind kind : kKinds) {
    Training whole(c.widths, c.points, settings(kind));
    for_each_version(whole, [&](const auto& version) {
      whole.reset(30, 30);
      version.launch.run(whole, 30);
      Training first(c.widths, c.points, settings(kind));
      first.reset(30, 30);
      version.launch.run(first, 13);
      first.save(path);
      Training second(c.widths, c.points, settings(kind));
      second.resume(path);
      second.set_curve({1, 30});
      version.launch.run(second, 17);
      CAPTURE(optimizers::name(kind), version.name);
      REQUIRE(second.steps == 30);
      REQUIRE(same_bits(state(second), state(whole)));
    });
  }
}

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

#if defined(GPU_BACKEND_CPU)

#include "common/cpu/internal.h"

// One, and two branches of it: no layer, no workspace and no version makes any.
TEST_CASE("cpu: a training makes three streams, however it runs, and takes them away") {
  const size_t before = cpu::live_streams();
  {
    const Case c = random_case({2, 8, 2}, 4);
    Training t(c.widths, c.points, settings(Kind::Adam));
    for_each_version(t, [&](const auto& version) {
      CAPTURE(version.name);
      t.reset(3, 1);
      version.launch.run(t, 3);
      REQUIRE(cpu::live_streams() == before + 3);
    });
  }
  REQUIRE(cpu::live_streams() == before);
}

#endif
