// Every optimizer by every version on awkward lists of tensors: one step against the reference, a
// hundred against NumPy, and replayed graphs.
#include "stage5_training/04_optimizers/optimizers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/graph.h"
#include "common/npy.h"
#include "common/rounding.h"
#include "common/testing.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage5_training/04_optimizers/arenas_for_tests.h"
#include "stage5_training/04_optimizers/counted.h"
#include "stage5_training/04_optimizers/reference.h"

using namespace optimizers_test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The sizes of the tensors.
// clang-format off
const std::vector<std::vector<size_t>> kLists = {
    {}, {0}, {1}, {3}, {4}, {5}, {255}, {256}, {257}, {1003},
    {0, 1, 3, 0, 4, 5, 255, 256, 257, 1003, 0}, {kSlice - 1, kSlice, kSlice + 1, 1},
    {784 * 128, 128, 1280, 10}};
// clang-format on

}  // namespace

TEST_CASE("one step of every optimizer by every version, any tensors and alignment") {
  constexpr size_t kOffsets[][2] = {{0, 0}, {1, 1}, {3, 3}, {0, 1}};
  for (const auto& sizes : kLists)
    for (const Kind kind : kKinds)
      for (const auto& version : testing::chosen(kVersions))
        for (const auto& offsets : kOffsets) {
          CAPTURE(sizes, name(kind), version.name, offsets[0], offsets[1]);
          REQUIRE_OK(check_step(kind, sizes, update_by(version, kind), offsets[0], offsets[1]));
        }
}

TEST_CASE("early and late steps are corrected for their bias") {
  for (const std::uint64_t t : {1, 2, 10, 1000, 1000000})
    for (const Kind kind : {Kind::Adam, Kind::AdamW})
      for (const auto& version : testing::chosen(kVersions)) {
        CAPTURE(t, name(kind), version.name);
        REQUIRE_OK(check_step(kind, {257}, update_by(version, kind), 0, 0, t));
      }
}

TEST_CASE("the loops over the grid work for any number of blocks") {
  for (const size_t blocks : {1, 3}) {
    const vector_add::FewBlocks few(blocks);
    for (const Kind kind : kKinds)
      for (const auto& version : testing::chosen(kVersions))
        for (const auto& [offset, offset_grad] :
             {std::pair<size_t, size_t>{0, 0}, {1, 1}, {1, 0}}) {
          CAPTURE(name(kind), version.name, blocks, offset, offset_grad);
          CHECK(check_step(kind, {5003}, update_by(version, kind), offset, offset_grad).ok);
        }
  }
}

TEST_CASE("all versions give the same bits") {
  const std::vector<size_t> sizes = {1003, 1, 255, 0, kSlice + 5};
  const Values values(1003 + 1 + 255 + kSlice + 5);
  for (const Kind kind : kKinds) {
    std::vector<float> first;
    for (const auto& version : kVersions) {
      Arena arena(kind, values, 1, 1);
      const TensorList list(cut(arena.tensor(), sizes));
      DeviceBuffer<Schedule> schedule = make_schedule({});
      for (int t = 1; t <= 5; ++t) {
        launch_begin_step(schedule.data());
        version.launch(kind, list, schedule.data(), nullptr);
      }
      CAPTURE(name(kind), version.name);
      if (first.empty()) first = arena.to_host();
      REQUIRE(arena.to_host() == first);
    }
  }
}

TEST_CASE("tensors may lie anywhere, but for flat") {
  const Values big(kSlice + 3), small(10);
  for (const Kind kind : kKinds) {
    for (const Launch launch : {launch_per_tensor, launch_multi_tensor}) {
      Arena first(kind, big, 1, 2), second(kind, small, 3, 0);
      const TensorList list({first.tensor(), ParameterArena{}, second.tensor()});
      DeviceBuffer<Schedule> schedule = make_schedule({});
      launch_begin_step(schedule.data());
      launch(kind, list, schedule.data(), nullptr);
      for (const auto& [arena, values] : {std::pair{&first, &big}, std::pair{&second, &small}}) {
        std::vector<Element> elements = elements_of(*values);
        step_cpu(kind, {}, 1, values->grad_w, elements);
        REQUIRE_OK(compare_elements(arena->to_host(), elements));
        REQUIRE(arena->intact());
      }
      REQUIRE_THROWS_AS(launch_flat(kind, list, schedule.data()), std::invalid_argument);
    }
  }
}

TEST_CASE("a step keeps the zeros between aligned tensors") {
  for (const Kind kind : kKinds) {
    Values values(23);
    for (size_t i = 10; i < 16; ++i) values.w[i] = values.grad_w[i] = values.m[i] = values.v[i] = 0;
    Arena arena(kind, values);
    DeviceBuffer<Schedule> schedule = make_schedule({});
    for (int t = 1; t <= 10; ++t) step(kind, arena.tensor(), schedule.data());
    const std::vector<float> got = arena.to_host();
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(name(kind), i);
      REQUIRE((got[i] == 0) == (i % 23 >= 10 && i % 23 < 16));
    }
    REQUIRE(schedule.to_host()[0].step == 10);
  }
}

TEST_CASE("names, states and bytes", "[harness]") {
  const std::string names[] = {"sgd", "momentum", "adam", "adamw"};
  for (const Kind kind : kKinds) {
    const size_t i = static_cast<size_t>(kind);
    CAPTURE(names[i]);
    REQUIRE(name(kind) == names[i]);
    REQUIRE(states(kind) == (i < 2 ? static_cast<int>(i) : 2));
    REQUIRE(bytes_per_parameter(kind) == (i == 0 ? 12 : i == 1 ? 20 : 28));
  }
}

TEST_CASE("Adam's first step moves every parameter by the learning rate") {
  Values values(1003);
  std::fill(values.m.begin(), values.m.end(), 0.0f);
  std::fill(values.v.begin(), values.v.end(), 0.0f);
  Arena arena(Kind::Adam, values);
  const Hyperparameters hyper;
  DeviceBuffer<Schedule> schedule = make_schedule(hyper);
  step(Kind::Adam, arena.tensor(), schedule.data());
  const std::vector<float> w = arena.w.to_host();
  const double rate = static_cast<double>(hyper.learning_rate);
  for (size_t i = 0; i < w.size(); ++i) {
    const double g = static_cast<double>(values.grad_w[i]);
    const double moved = static_cast<double>(values.w[i]) - static_cast<double>(w[i]);
    // g / (|g| + epsilon) misses the sign by at most epsilon / |g|, and rounding by some 20 u.
    const double bound = static_cast<double>(hyper.epsilon) / std::fabs(g) + 20 * kFloatRoundoff;
    CAPTURE(i, g, moved);
    REQUIRE(std::fabs(moved - std::copysign(rate, g)) <= rate * bound + kFloatRoundoff);
  }
}

TEST_CASE("AdamW without weight decay is Adam, bit for bit") {
  const Values values(1003);
  Hyperparameters hyper;
  hyper.weight_decay = 0;
  Arena adam(Kind::Adam, values), adamw(Kind::AdamW, values);
  DeviceBuffer<Schedule> first = make_schedule(hyper), second = make_schedule(hyper);
  for (int t = 1; t <= 20; ++t) {
    step(Kind::Adam, adam.tensor(), first.data());
    step(Kind::AdamW, adamw.tensor(), second.data());
  }
  REQUIRE(adam.to_host() == adamw.to_host());
}

TEST_CASE("a gradient of NaN or infinity spoils its own parameter only") {
  constexpr size_t kN = 1003, kPlaces[] = {0, 6, 500, kN - 1};
  for (const Kind kind : kKinds)
    for (const auto& version : testing::chosen(kVersions))
      for (const float bad : {kNan, kInfinity, -kInfinity}) {
        Values values(kN), clean(kN);
        for (const size_t place : kPlaces) values.grad_w[place] = bad;
        Arena arena(kind, values, 1, 1);
        const TensorList list(cut(arena.tensor(), {500, kN - 500}));
        DeviceBuffer<Schedule> schedule = make_schedule({});
        launch_begin_step(schedule.data());
        version.launch(kind, list, schedule.data(), nullptr);
        std::vector<Element> elements = elements_of(clean);
        step_cpu(kind, {}, 1, clean.grad_w, elements);
        std::vector<float> got = arena.to_host();
        CAPTURE(name(kind), version.name, bad);
        for (size_t begin = 0; begin < got.size(); begin += kN)
          for (const size_t place : kPlaces) {
            REQUIRE(!std::isfinite(got[begin + place]));
            if (std::isnan(bad)) REQUIRE(std::isnan(got[begin + place]));
            const Element& e = elements[place];
            got[begin + place] = static_cast<float>(begin == 0 ? e.w : begin == kN ? e.m : e.v);
          }
        for (Element& e : elements)  // the values put back above are rounded once
          e.w_error += kFloatRoundoff * std::fabs(e.w);
        REQUIRE_OK(compare_elements(got, elements));
      }
}

TEST_CASE("the device counts the steps") {
  const Hyperparameters hyper;
  DeviceBuffer<Schedule> schedule = make_schedule(hyper);
  for (std::uint64_t t = 1; t <= 100; ++t) {
    launch_begin_step(schedule.data());
    const Schedule got = schedule.to_host()[0];
    REQUIRE(got.step == t);
    const double unseen1 = std::pow(static_cast<double>(hyper.beta1), t);
    const double unseen2 = std::pow(static_cast<double>(hyper.beta2), t);
    const double rate = static_cast<double>(hyper.learning_rate);
    // Rounded to float once; the double before is off by a few units of its 2^-53.
    const double step_size = rate / (1 - unseen1), root_scale = 1 / std::sqrt(1 - unseen2);
    REQUIRE(std::fabs(static_cast<double>(got.step_size) - step_size) <=
            1.001 * kFloatRoundoff * step_size);
    REQUIRE(std::fabs(static_cast<double>(got.root_scale) - root_scale) <=
            1.001 * kFloatRoundoff * root_scale);
    // A run that is resumed goes on with the same bits.
    DeviceBuffer<Schedule> resumed = make_schedule(hyper, t - 1);
    launch_begin_step(resumed.data());
    const Schedule same = resumed.to_host()[0];
    REQUIRE((same.step == got.step && same.decay == got.decay));
    REQUIRE((same.step_size == got.step_size && same.root_scale == got.root_scale));
  }
}

TEST_CASE("a captured step can be replayed, with a learning rate that changes") {
  const Values values(1003);
  for (const Kind kind : kKinds) {
    Arena eager(kind, values), replayed(kind, values);
    DeviceBuffer<Schedule> first = make_schedule({}), second = make_schedule({});
    const gpu::Stream stream;
    const gpu::Graph graph(stream, [&] { step(kind, replayed.tensor(), second.data(), stream); });
    for (int t = 1; t <= 10; ++t) {
      const float rate = 0.01f / static_cast<float>(t);
      for (Schedule* schedule : {first.data(), second.data()})
        HIP_CHECK(hipMemcpyAsync(&schedule->hyper.learning_rate, &rate, sizeof rate,
                                 hipMemcpyHostToDevice, stream));
      step(kind, eager.tensor(), first.data(), stream);
      graph.launch(stream);
      stream.wait();
    }
    CAPTURE(name(kind));
    REQUIRE(second.to_host()[0].step == 10);
    REQUIRE(replayed.to_host() == eager.to_host());
  }
}

// On the device: what launch_counted_update() takes, with `steps` behind it.
struct Counter {
  explicit Counter(std::int64_t steps) : step(std::vector<std::int64_t>{steps}) {}
  CountedStep at(float learning_rate) {
    rate = DeviceBuffer<float>(std::vector<float>{learning_rate});
    return {{}, rate.data(), step.data(), finished.data()};
  }
  DeviceBuffer<float> rate{std::vector<float>{0}};
  DeviceBuffer<std::int64_t> step;
  DeviceBuffer<unsigned> finished{std::vector<unsigned>{0}};
};

TEST_CASE("a step that is counted and done in one launch has the bits of two launches") {
  for (const Kind kind : kKinds)
    for (const size_t n : {0, 1, 3, 4, 255, 1003, 5000, 101776})
      for (const size_t blocks : {0, 1, 3}) {
        const Values values(n);
        CAPTURE(name(kind), n, blocks);
        Arena in_two(kind, values, 1, 1), in_one(kind, values, 1, 1);
        Counter counter(6);
        DeviceBuffer<Schedule> schedule = make_schedule({}, 6);
        std::unique_ptr<vector_add::FewBlocks> few;
        if (blocks > 0) few = std::make_unique<vector_add::FewBlocks>(blocks);
        for (std::int64_t t = 7; t <= 9; ++t) {  // `finished` is 0 again for the next one
          step(kind, in_two.tensor(), schedule.data());
          launch_counted_update(kind, in_one.tensor(), counter.at(Hyperparameters{}.learning_rate));
          REQUIRE(counter.step.to_host()[0] == t);
        }
        REQUIRE(in_one.intact());
        REQUIRE(testing::same_bits(in_one.to_host(), in_two.to_host()));
      }
}

TEST_CASE("a counted step takes the learning rate that is on the device") {
  const Values values(1003);
  for (const Kind kind : kKinds) {
    Arena in_two(kind, values), in_one(kind, values);
    Hyperparameters hyper;
    hyper.learning_rate = 0.25f;
    DeviceBuffer<Schedule> schedule = make_schedule(hyper);
    Counter counter(0);
    step(kind, in_two.tensor(), schedule.data());
    launch_counted_update(kind, in_one.tensor(), counter.at(hyper.learning_rate));
    CAPTURE(name(kind));
    REQUIRE(testing::same_bits(in_one.to_host(), in_two.to_host()));
  }
}

TEST_CASE("a hundred steps agree with NumPy", "[numpy]") {
  const auto doubles = [](const std::string& array) {
    return read_npy(reference_path("optimizers_" + array + ".npy")).values;
  };
  const auto floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
#if defined(COURSE_SANITIZE_THREAD)
  constexpr std::uint64_t kSteps = 3;  // a block takes ThreadSanitizer milliseconds
#else
  constexpr std::uint64_t kSteps = 100;
#endif
  const std::vector<float> all_grads = floats(doubles("grads"));
  Values values(doubles("w").size());
  values.w = floats(doubles("w"));
  std::fill(values.m.begin(), values.m.end(), 0.0f);
  std::fill(values.v.begin(), values.v.end(), 0.0f);
  const size_t n = values.w.size();
  for (const Kind kind : kKinds)
    for (const auto& version : testing::chosen(kVersions)) {
      Arena arena(kind, values);
      const TensorList list(cut(arena.tensor(), {42, 0, n - 42}));
      Hyperparameters hyper;
      hyper.weight_decay = 0.1f;
      DeviceBuffer<Schedule> schedule = make_schedule(hyper);
      std::vector<Element> elements = elements_of(values);
      for (std::uint64_t t = 1; t <= kSteps; ++t) {
        hyper.learning_rate = t <= 50 ? 0.01f : 0.005f;
        HIP_CHECK(hipMemcpy(&schedule.data()->hyper, &hyper, sizeof hyper, hipMemcpyHostToDevice));
        const auto grads = all_grads.begin() + static_cast<std::ptrdiff_t>((t - 1) * n);
        const std::vector<float> grad_w(grads, grads + static_cast<std::ptrdiff_t>(n));
        HIP_CHECK(hipMemcpy(arena.grad_w.data(), grad_w.data(), n * sizeof(float),
                            hipMemcpyHostToDevice));
        launch_begin_step(schedule.data());
        version.launch(kind, list, schedule.data(), nullptr);
        step_cpu(kind, hyper, t, grad_w, elements);
        if (t != 3 && t != 100) continue;
        // NumPy's values, with the errors that step_cpu has summed up.
        const std::string after = name(kind) + std::to_string(t);
        const std::vector<double> w = doubles(after + "_w"), m = doubles(after + "_m");
        const std::vector<double> v = doubles(after + "_v");
        std::vector<Element> numpy = elements;
        for (size_t i = 0; i < n; ++i) numpy[i].w = w[i], numpy[i].m = m[i], numpy[i].v = v[i];
        CAPTURE(name(kind), version.name, t);
        REQUIRE_OK(compare_elements(arena.to_host(), numpy));
      }
    }
}
