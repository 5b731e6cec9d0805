// Every version of the training on awkward networks: the first steps against the reference and
// NumPy, versions against one another bit for bit, what is learnt, what is refused, and mistakes
// that must be caught. (A part: trainer_test.cpp.)
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/timer.h"
#include "stage5_training/06_train_toy/loop.h"
#include "stage5_training/06_train_toy/train_toy.h"
#include "stage5_training/06_train_toy/training_for_tests.h"

namespace {

using namespace toy_test;

constexpr unsigned kSteps = 20;
constexpr bool kIsCpu = std::string_view(gpu::kBackend) == "cpu";

// No hidden layer, one point, one unit, four layers, widths and points that are no multiple of a
// group of units, of a float4 or of a wave; more points than threads in a block.
std::vector<Case> cases() {
  return {random_case({2, 8, 2}, 4),        random_case({2, 8, 2}, 5),
          random_case({2, 3}, 10),          random_case({1, 1, 2}, 1),
          random_case({3, 5, 4}, 33),       random_case({2, 4, 3}, 64),
          random_case({5, 9, 7, 3, 2}, 19), random_case({2, 16, 16, 3}, 67),
          random_case({2, 2, 2}, 801)};
}

// Runs the first steps by `launch(trainer)` and holds their losses against the reference.
template <class LaunchSteps>
Comparison check_steps(const Case& c, const Settings& s, LaunchSteps launch) {
  Training t(c.widths, c.points, s);
  t.reset(kSteps, 1);
  const Trajectory want = trajectory_cpu(t, c.points, kSteps);
  launch(t);
  HIP_CHECK(hipStreamSynchronize(t.stream));
  return compare_losses(t.curve.to_host(), want);
}

double accuracy(Training& t, const Points& points) {
  const size_t classes = t.widths().back();
  const float* d_logits = t.model.forward(t.x.data(), t.points(), t.stream);
  HIP_CHECK(hipStreamSynchronize(t.stream));
  const std::vector<float> logits = to_host(d_logits, t.points() * classes);
  size_t right = 0;
  for (size_t i = 0; i < t.points(); ++i) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(i * classes);
    right +=
        std::max_element(row, row + static_cast<std::ptrdiff_t>(classes)) - row == points.labels[i];
  }
  return static_cast<double>(right) / static_cast<double>(t.points());
}

// Whether a step is hundreds of launches of many blocks, which take the CPU backend seconds.
template <class AnyVersion>
bool launches_many(const AnyVersion& version, const Points& points) {
  const bool by_layers =
      version.launch.run == launch_operations || version.launch.run == launch_graph;
  return by_layers && points.labels.size() > 4;
}

}  // namespace

TEST_CASE("the first steps of every version, any network, points and optimizer") {
  for (const Case& c : cases())
    for (const Kind kind : kKinds) {
      const Training probe(c.widths, c.points, settings(kind));
      for_each_version(probe, [&](const auto& version) {
        CAPTURE(c.widths, c.points.labels.size(), optimizers::name(kind), version.name);
        REQUIRE_OK(
            check_steps(c, settings(kind), [&](Training& t) { version.launch.run(t, kSteps); }));
      });
    }
}

// At 0.578 Adam takes full steps from gradients that are nothing but a rounding of a probability
// near 1; at 11.6 from what is left of a slope of tanh; at 1e5 the loss grows by orders of
// magnitude.
TEST_CASE("a large learning rate makes no right version wrong", "[harness]") {
  for (const DataSet& set : data_sets())
    for (const std::uint64_t seed : {72u, 529u})
      for (const Kind kind : kKinds)
        for (const double rate : {0.578, 11.6, 1e5}) {
          const Case c{set.widths, set.make(seed)};
          Settings s = settings(kind, rate);
          s.seed = seed;
          CAPTURE(set.name, seed, optimizers::name(kind), rate);
          for_each_version(Training(c.widths, c.points, s), [&](const auto& version) {
            if (kIsCpu && launches_many(version, c.points)) return;
            CAPTURE(version.name);
            REQUIRE_OK(check_steps(c, s, [&](Training& t) { version.launch.run(t, kSteps); }));
          });
        }
}

TEST_CASE("twenty steps agree with NumPy, which made data and numbers itself", "[numpy]") {
  const auto values = [](const std::string& name) {
    return read_npy(reference_path("train_toy_" + name + ".npy")).values;
  };
#if defined(COURSE_SANITIZE_THREAD)  // a block takes it milliseconds; 5.4 shows it all rules
  constexpr unsigned kCompared = 2;
  const std::vector<Kind> kinds = {Kind::Adam};
#else
  constexpr unsigned kCompared = kSteps;
  const std::vector<Kind> kinds = {Kind::Momentum, Kind::Adam};
#endif
  for (const DataSet& data : data_sets()) {
    const Points points = data.make(7);
    const std::string name = data.name;
    const std::vector<double> x = values(name + "_x"), labels = values(name + "_labels");
    REQUIRE(std::vector<double>(points.x.begin(), points.x.end()) == x);
    REQUIRE(std::vector<double>(points.labels.begin(), points.labels.end()) == labels);
    for (const Kind kind : kinds) {
      const std::vector<double> losses = values(name + "_" + optimizers::name(kind) + "_losses");
      Training t(data.widths, points, settings(kind));
      for_each_version(t, [&](const auto& version) {
        t.reset(kCompared, 1);
        version.launch.run(t, kCompared);
        HIP_CHECK(hipStreamSynchronize(t.stream));
        const std::vector<float> curve = t.curve.to_host();
        CAPTURE(name, optimizers::name(kind), version.name);
        REQUIRE_OK(compare(
            curve.size(), [&](size_t i) { return curve[i]; }, [&](size_t i) { return losses[i]; },
            [&](size_t i) { return 1e-5 * losses[i]; }));
      });
    }
  }
}

TEST_CASE("XOR, blobs and the spiral are learnt as was promised, from three seeds", "[long]") {
  const auto learns = [](const DataSet& data, std::uint64_t seed) {
    const Points points = data.make(seed);
    for (const auto& version : testing::chosen(kVersions)) {
      Settings s = settings(Kind::Momentum, kDefaults.learning_rate);
      s.seed = seed;
      Training t(data.widths, points, s);
      if (!version.launch.why_not(t).empty() || launches_many(version, points)) continue;
      t.reset(kPromisedEpochs, kPromisedEpochs);
      const HostTimer timer;
      version.launch.run(t, kPromisedEpochs);
      HIP_CHECK(hipStreamSynchronize(t.stream));
      CAPTURE(data.name, version.name, seed, timer.ms());
      REQUIRE(accuracy(t, points) >= data.accuracy);
      REQUIRE(t.curve.to_host()[0] < 0.05f);
#if defined(GPU_BACKEND_CPU) && !defined(COURSE_SANITIZE_ADDRESS)
      REQUIRE(timer.ms() < 5000);
#endif
    }
  };
  for (const DataSet& data : data_sets())
    for (std::uint64_t seed = 1; seed <= 3; ++seed) learns(data, seed);
}

TEST_CASE("XOR is learnt from other numbers and by other rules", "[long]") {
  const DataSet& data = data_sets()[0];
  const Points points = data.make(1);
  for (const Kind kind : kKinds)
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const double rate = kind == Kind::Sgd ? 1 : kind == Kind::Momentum ? 0.2 : 0.02;
      Settings s = settings(kind, rate);
      s.seed = seed;
      Training t(data.widths, points, s);
      t.reset(2000, 2000);
      launch_wave(t, 2000);
      CAPTURE(optimizers::name(kind), seed);
      REQUIRE(accuracy(t, points) == 1);
    }
}

// Of one compiler at one level of optimization: `check` compiles a learner's one_kernel at another,
// which may fuse other multiplications with additions.
TEST_CASE("one kernel for all steps gives the bits of one kernel per step", "[harness]") {
  for (const Case& c : cases())
    for (const Kind kind : kKinds) {
      Training per_step(c.widths, c.points, settings(kind));
      Training persistent(c.widths, c.points, settings(kind));
      for (Training* t : {&per_step, &persistent}) t->reset(kSteps, 3);
      launch_one_kernel(per_step, kSteps);
      launch_persistent(persistent, kSteps);
      CAPTURE(c.widths, c.points.labels.size(), optimizers::name(kind));
      REQUIRE(same_bits(state(per_step), state(persistent)));
    }
}

TEST_CASE("the kernels write the parameters, their states and the curve, and nothing else") {
  const Case c = random_case({2, 8, 2}, 4);
  const std::pair<QueueSpan, void (*)(Training&, unsigned)> kernels[] = {
      {queue_persistent, launch_persistent},
      {queue_registers, launch_registers},
      {queue_wave, launch_wave}};
  for (const auto& [queue, launch] : kernels) {
    Training t(c.widths, c.points, settings(Kind::Adam));
    t.reset(kSteps, 4);
    const optimizers::ParameterArena& arena = t.model.arena();
    Guarded<float> w(to_host(arena.w, arena.n), 1), m(to_host(arena.m, arena.n), 2);
    Guarded<float> v(to_host(arena.v, arena.n), 3), curve(kSteps / 4, 1);
    Guarded<float> x(c.points.x, 3);
    Guarded<int> labels(c.points.labels, 1);
    Arrays arrays = make_arrays(t, kSteps);
    arrays.x = x.data(), arrays.labels = labels.data(), arrays.curve = curve.data();
    arrays.w = w.data(), arrays.m = m.data(), arrays.v = v.data();
    queue(t.network(), Kind::Adam, arrays, Span{0, kSteps, 4}, t.stream);
    HIP_CHECK(hipStreamSynchronize(t.stream));
    launch(t, kSteps);
    std::vector<float> got = curve.to_host();
    for (const Guarded<float>* array : {&w, &m, &v})
      for (const float value : array->to_host()) got.push_back(value);
    CAPTURE(queue == queue_persistent, queue == queue_wave);
    REQUIRE(same_bits(got, state(t)));
    REQUIRE((w.intact() && m.intact() && v.intact() && curve.intact()));
    REQUIRE((x.intact() && labels.intact()));
  }
}

TEST_CASE("a point far away makes no NaN") {
  // Logits that differ by more than float's exponential can hold: the loss is that difference.
  Case c = random_case({1, 2}, 2);
  c.points.x = {1e4f, -1e4f}, c.points.labels = {0, 1};
  Training t(c.widths, c.points, settings(Kind::Sgd, 1e-6));
  std::vector<float> curves;
  for_each_version(t, [&](const auto& version) {
    t.reset(1, 1);
    const Trajectory want = trajectory_cpu(t, c.points, 1);
    version.launch.run(t, 1);
    HIP_CHECK(hipStreamSynchronize(t.stream));
    CAPTURE(version.name);
    REQUIRE_OK(compare_losses(t.curve.to_host(), want));
    for (const float value : state(t)) REQUIRE(std::isfinite(value));
  });
}

TEST_CASE("what does not fit is refused") {
  const Settings s = settings(Kind::Sgd);
  REQUIRE_THROWS_AS(Training({2}, {}, s), std::invalid_argument);
  REQUIRE_THROWS_AS(Training({2, 3, 2}, {}, s), std::invalid_argument);
  REQUIRE_THROWS_AS(Training({2, 3, 2}, {{1, 2, 3}, {0, 1}}, s), std::invalid_argument);
  REQUIRE_THROWS_AS(Training({2, 3, 2}, {{1, 2, 3, 4}, {0, 2}}, s), std::out_of_range);
  REQUIRE_THROWS_AS(Training({2, 3, 2}, {{1, 2, 3, 4}, {0, -1}}, s), std::out_of_range);
  REQUIRE_THROWS_AS(Training({2, 0, 2}, {{1, 2}, {0}}, s), std::invalid_argument);

  const std::pair<Case, std::string> too_much[] = {
      {random_case({2, 3, 3, 3, 3, 2}, 4), "more than 4 layers"},
      {random_case({2, 3, 5}, 4), "more than 4 classes"},
      {random_case({2, 40, 20, 2}, 4), "more than 768 parameters"},
      {random_case({2, 8, 2}, 30000), "more points than fit into shared memory"}};
  for (const auto& [c, text] : too_much) {
    Training t(c.widths, c.points, s);
    CAPTURE(text);
    REQUIRE(why_not_block(t) == text);
    REQUIRE(&best(t) == &kVersions[1]);
    t.reset(1, 1);
    REQUIRE_THROWS_AS(launch_one_kernel(t, 1), std::invalid_argument);
    REQUIRE_THROWS_AS(launch_persistent(t, 1), std::invalid_argument);
  }
  for (const Case& c : {random_case({2, 8, 2}, 5), random_case({2, 8, 3}, 4),
                        random_case({3, 8, 2}, 4), random_case({2, 7, 2}, 4)}) {
    Training t(c.widths, c.points, s);
    REQUIRE(!why_not_wave(t).empty());
    REQUIRE_THROWS_AS(launch_wave(t, 1), std::invalid_argument);
    const bool is_small = why_not_registers(t).empty();
    REQUIRE(std::string(best(t).name) == (is_small ? "registers" : "persistent"));
  }
  const std::pair<Case, std::string> too_much_for_registers[] = {
      {random_case({2, 3}, 4), "not one or two hidden layers"},
      {random_case({2, 3, 3, 3, 2}, 4), "not one or two hidden layers"},
      {random_case({5, 3, 2}, 4), "more than 4 inputs"},
      {random_case({2, 3, 17, 2}, 4), "more than 16 units in a hidden layer"},
      {random_case({2, 3, 5}, 4), "more than 4 classes"},
      {random_case({2, 3, 3, 2}, 200000), "more points than fit into shared memory"}};
  for (const auto& [c, text] : too_much_for_registers) {
    Training t(c.widths, c.points, s);
    CAPTURE(text);
    REQUIRE(why_not_registers(t) == text);
    t.reset(1, 1);
    REQUIRE_THROWS_AS(launch_registers(t, 1), std::invalid_argument);
  }
  const Case c = random_case({2, 8, 2}, 4);
  Training t(c.widths, c.points, s);
  REQUIRE(std::string(best(t).name) == "wave");
  for (const auto& version : testing::chosen(kVersions)) {
    t.reset(10, 5);
    version.launch.run(t, 7);
    CAPTURE(version.name);
    REQUIRE_THROWS_AS(version.launch.run(t, 8), std::invalid_argument);
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// Steps of a kernel with something wrong that `spoil` does to what it is given.
template <class Spoil>
Comparison spoiled(QueueSpan queue, const Case& c, const Settings& s, Spoil spoil) {
  return check_steps(c, s, [&](Training& t) {
    Network n = t.network();
    Arrays arrays = make_arrays(t, kSteps);
    Span span{0, kSteps, 1};
    Kind kind = s.kind;
    spoil(n, arrays, span, kind);
    queue(n, kind, arrays, span, t.stream);
  });
}

}  // namespace

TEST_CASE("mistakes are caught", "[harness]") {
  const Settings momentum = settings(Kind::Momentum), adam = settings(Kind::Adam);
  for (const QueueSpan queue : {queue_persistent, queue_registers})
    for (const Case& c : {random_case({2, 8, 2}, 4), random_case({2, 5, 6, 3}, 33)}) {
      CAPTURE(c.widths, queue == queue_registers);
      const auto right = [](Network&, Arrays&, Span&, Kind&) {};
      REQUIRE_OK(spoiled(queue, c, momentum, right));
      REQUIRE_OK(spoiled(queue, c, adam, right));
      // A point is left out; a layer has the numbers of another; a class is missing.
      REQUIRE(
          !spoiled(queue, c, momentum, [](Network& n, Arrays&, Span&, Kind&) { --n.points; }).ok);
      REQUIRE(!spoiled(queue, c, momentum, [](Network& n, Arrays&, Span&, Kind&) {
                 --n.layer[1].w;
               }).ok);
      if (queue == queue_persistent) {  // `registers` has rows of its own
        REQUIRE(!spoiled(queue, c, momentum, [](Network& n, Arrays&, Span&, Kind&) {
                   ++n.layer[0].inputs;
                 }).ok);
        REQUIRE(!spoiled(queue, c, momentum, [](Network& n, Arrays&, Span&, Kind&) {
                   --n.layer[1].grads;
                 }).ok);
        REQUIRE(!spoiled(queue, c, momentum, [](Network& n, Arrays&, Span&, Kind&) {
                   --n.parameters;
                 }).ok);
      } else {
        REQUIRE(!spoiled(queue, c, momentum, [](Network& n, Arrays&, Span&, Kind&) {
                   --n.layer[n.layers - 1].out;
                 }).ok);
      }
      // Losses a step late, and steps that Adam counts wrong.
      REQUIRE(!spoiled(queue, c, momentum, [](Network&, Arrays& a, Span& s, Kind&) {
                 --s.count, ++a.curve;
               }).ok);
      REQUIRE(!spoiled(queue, c, adam, [](Network&, Arrays& a, Span& s, Kind&) {
                 --s.count, ++a.schedules;
               }).ok);
      // Another rule, and a velocity that is forgotten.
      REQUIRE(!spoiled(queue, c, momentum, [](Network&, Arrays&, Span&, Kind& kind) {
                 kind = Kind::Sgd;
               }).ok);
      REQUIRE(!spoiled(queue, c, momentum, [](Network&, Arrays& a, Span&, Kind&) {
                 a.hyper.momentum = 0;
               }).ok);
      REQUIRE(!check_steps(c, momentum, [](Training&) {}).ok);
    }
}
