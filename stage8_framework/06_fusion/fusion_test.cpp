// The fusing of graphs: which calls become one, what must not move past what, and that every replay
// has the bits of the calls one by one.
#include "stage8_framework/06_fusion/fusion.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/runtime_code.h"
#include "common/testing.h"
#include "common/tests/environment.h"
#include "stage8_framework/02_backends/c_tensor.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/06_fusion/problem.h"
#include "stage8_framework/06_fusion/program.h"

using framework::capture;
using framework::Device;
using framework::device;
using framework::Dtype;
using framework::Layout;
using framework::Shape;
using framework::Tensor;
using fusion::fuse;
using fusion::Fusion;
using fusion::Graph;
using testing::what_of;
using Tensors = std::vector<Tensor>;

namespace {

constexpr Fusion kInterpreted{Fusion::By::interpreted, true};

Device& own() { return device("own"); }
Tensor numbers(const Shape& shape, std::uint32_t stream) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return Tensor::from_host(own(), testing::random_floats(static_cast<size_t>(count), stream, 1),
                           shape);
}
Tensor number(double value) { return framework::full(own(), {}, value); }

// A graph's lines without the places: "fused add(mul(in0, in1), in0)", "matmul".
std::vector<std::string> outline(const Graph& graph) {
  std::vector<std::string> lines;
  for (const framework::GraphCall& call : graph.record().calls)
    lines.push_back(call.op->name + (call.fused ? " " + call.fused->text() : std::string()));
  return lines;
}
using Lines = std::vector<std::string>;

void poison(const Tensors& tensors) {
  for (const Tensor& t : tensors) framework::fill(t, std::nan(""));
}

// Captures `work`, fuses it, and holds a replay with other numbers in `inputs` against the calls
// one by one.
Graph checked(const Tensors& inputs, const std::function<Tensors()>& work,
              const Fusion& how = kInterpreted) {
  Tensors results;
  Graph graph = fuse(capture([&] { results = work(); }), how);
  for (size_t i = 0; i < inputs.size(); ++i)
    inputs[i].copy_from(numbers(inputs[i].shape(), 100 + static_cast<std::uint32_t>(i)));
  const Tensors want = work();
  for (const bool is_of_device : {false, true}) {
    if (is_of_device) graph.instantiate();
    poison(results);
    graph.replay();
    CHECK(fusion::compare_bits(results, want).ok);
  }
  return graph;
}

}  // namespace

TEST_CASE("a chain becomes one call, and what only it wants is nowhere in memory") {
  const Tensor y = numbers({3, 5}, 1), z = numbers({3, 5}, 2);
  const Graph graph = checked(
      {y, z}, [&]() -> Tensors { return {framework::gelu((y * z + y) / number(2)) * z + y}; });
  CHECK(outline(graph) == Lines{"fused add(mul(gelu(div(add(mul(in0, in1), in0), 2)), in1), in0)"});
  CHECK(graph.intervals().empty());
  CHECK(graph.text() ==
        "0  %2 f32 (3,5) = fused(%0 f32 (3,5), %1 f32 (3,5))  "
        "add(mul(gelu(div(add(mul(in0, in1), in0), 2)), in1), in0)\n");
}

TEST_CASE("what others want is stored, by the same call") {
  const Tensor x = numbers({4, 6}, 1), w = numbers({6, 2}, 2);
  Tensor h;  // held
  const Graph graph = checked({x, w}, [&]() -> Tensors {
    h = framework::exp(x);
    const Tensor t = framework::tanh(h), product = framework::matmul(t, w);
    return {framework::square(t) * h, product};
  });
  // The product needs t, and square(t) waits for nobody by then: it begins another chain.
  CHECK(outline(graph) ==
        Lines{"fused exp(in0); tanh(exp(in0))", "matmul", "fused mul(square(in0), in1)"});
}

TEST_CASE("chains with other calls between them wait, and calls that share an input join") {
  const Tensor x = numbers({4, 4}, 1), w = numbers({4, 4}, 2);
  const Graph graph = checked({x, w}, [&]() -> Tensors {
    const Tensor a = framework::neg(x), product = framework::matmul(w, w);
    const Tensor b = framework::abs(x);
    return {a * b, product};
  });
  CHECK(outline(graph) == Lines{"matmul", "fused mul(neg(in0), abs(in0))"});
}

TEST_CASE("an Autocast's casts and products stay between the chains") {
  const Tensor x = numbers({4, 8}, 1), w = numbers({8, 8}, 2);
  const Graph graph = checked({x, w}, [&]() -> Tensors {
    const framework::Autocast guard;
    const Tensor product = framework::matmul(framework::neg(framework::abs(x)), w);
    return {framework::gelu(product) + product};
  });
  CHECK(outline(graph) ==
        Lines{"fused neg(abs(in0))", "cast", "cast", "matmul", "fused add(gelu(in0), in0)"});
}

TEST_CASE("two chains that meet become one") {
  const Tensor a = numbers({7}, 1), b = numbers({7}, 2), c = numbers({7}, 3), d = numbers({7}, 4);
  const Graph graph = checked({a, b, c, d}, [&]() -> Tensors {
    const Tensor left = a + b, right = c + d;
    return {left * right};
  });
  CHECK(outline(graph) == Lines{"fused mul(add(in0, in1), add(in2, in3))"});
}

TEST_CASE("a call that writes what a chain reads comes behind the chain") {
  const Tensor x = numbers({8}, 1), other = numbers({8}, 2);
  const Graph graph = checked({other}, [&]() -> Tensors {
    x.copy_from(other);
    const Tensor y = framework::neg(framework::exp(x));
    x.copy_from(framework::square(other));  // a copy is no part of a chain
    const Tensor z = framework::neg(framework::exp(x));
    return {y, z};
  });
  CHECK(outline(graph) ==
        Lines{"copy", "fused neg(exp(in0))", "square", "copy", "fused neg(exp(in0))"});
}

TEST_CASE("numbers are a part of the program, as they were when it was recorded") {
  const Tensor x = numbers({8}, 1), scratch = framework::full(own(), {}, 0);
  const Graph graph = checked({x}, [&]() -> Tensors {
    framework::fill(scratch, 3);
    const Tensor y = framework::neg(x * scratch);
    framework::fill(scratch, 5);
    return {framework::exp(y + scratch), scratch};
  });
  CHECK(outline(graph) ==
        Lines{"fill", "fused neg(mul(in0, 3))", "fill", "fused exp(add(in0, 5))"});
}

TEST_CASE("broadcasts, views and shapes of as many elements") {
  const Tensor x = numbers({4, 6}, 1), row = numbers({6}, 2), column = numbers({4, 1}, 3);
  const Tensor turned = numbers({6, 4}, 4);
  CHECK(outline(checked({x, row, column, turned}, [&]() -> Tensors {
          return {framework::relu(x * row + column) - turned.transpose(0, 1)};
        })) == Lines{"fused sub(relu(add(mul(in0, in1), in2)), in3)"});
  // The same elements under another shape.
  CHECK(outline(checked({x}, [&]() -> Tensors {
          return {framework::neg(framework::exp(x).reshape({2, 12}))};
        })) == Lines{"fused neg(exp(in0))"});
  // The same elements in another order: that needs them in memory.
  CHECK(outline(checked({x}, [&]() -> Tensors {
          return {framework::neg(framework::exp(x).transpose(0, 1))};
        })) == Lines{"exp", "neg"});
  CHECK(outline(checked({x, turned}, [&]() -> Tensors {
          return {framework::neg(framework::exp(x).slice(0, 1, 3))};
        })) == Lines{"exp", "neg"});
  // A choice, whose condition is never stored.
  CHECK(outline(checked({x, row}, [&]() -> Tensors {
          return {framework::select(framework::less(x, row), x, row)};
        })) == Lines{"fused select(less(in0, in1), in0, in1)"});
  // A condition that is held is of bool, and stays a call.
  CHECK(outline(checked({x}, [&]() -> Tensors {
          const Tensor c = framework::less(x, row);
          return {framework::select(c, x, row), c.to(framework::Dtype::f32)};
        })).size() == 3);
}

TEST_CASE("a sum, mean or maximum ends a chain") {
  const Tensor x = numbers({37, 19}, 1), m = numbers({37, 1}, 2);
  const auto lines = [&](const Shape& axes, bool is_held, const Fusion& how) {
    return outline(checked(
        {x, m},
        [&]() -> Tensors {
          const Tensor d = framework::square(x - m);
          if (is_held) return {framework::mean(d, axes), d};
          return {framework::mean(d, axes)};
        },
        how));
  };
  for (const Shape& axes : {Shape{1}, Shape{0}, Shape{0, 1}}) {
    CHECK(lines(axes, false, kInterpreted) == Lines{"fused mean(square(sub(in0, in1)))"});
    CHECK(lines(axes, true, kInterpreted) ==
          Lines{"fused square(sub(in0, in1)); mean(square(sub(in0, in1)))"});
  }
  CHECK(lines({1}, false, {Fusion::By::interpreted, false}) ==
        Lines{"fused square(sub(in0, in1))", "mean"});
  const Tensor cube = numbers({3, 4, 5}, 3);  // an axis in the middle is no end of a chain
  CHECK(outline(checked({cube}, [&]() -> Tensors {
          return {framework::sum(framework::exp(framework::neg(cube)), {1})};
        })) == Lines{"fused exp(neg(in0))", "sum"});
  CHECK(outline(checked({cube}, [&]() -> Tensors {
          const Tensor two = number(2);  // a single call stays as it was, with its number
          return {framework::max(framework::neg(cube), {1, 2}, true) * two};
        })) == Lines{"fill", "fused max(neg(in0))", "mul"});
}

TEST_CASE("programs have limits, and what does not fit is another one") {
  const Tensor x = numbers({9}, 1);
  Tensors many;
  for (std::uint32_t i = 0; i < 12; ++i) many.push_back(numbers({9}, i));
  const Graph sums = checked(many, [&]() -> Tensors {
    Tensor sum = many[0];
    for (size_t i = 1; i < many.size(); ++i) sum = sum + many[i];
    return {sum};
  });
  CHECK(sums.size() == 2);
  const Graph long_chain = checked({x}, [&]() -> Tensors {
    Tensor y = x;
    for (int i = 0; i < 100; ++i) y = framework::neg(framework::abs(y));
    return {y};
  });
  CHECK(long_chain.size() == 7);  // 200 instructions, 32 at most in each
  Tensors held;                   // more results than a program may store
  const Graph results = checked({x}, [&]() -> Tensors {
    held.clear();
    Tensor y = x;
    for (int i = 0; i < 5; ++i) held.push_back(y = framework::exp(y));
    return held;
  });
  CHECK(outline(results) == Lines(5, "exp"));
}

TEST_CASE("a kernel that was chosen, a plug-in that can't fuse, and one call alone stay") {
  const Tensor x = numbers({64}, 1);
  framework::kernel(own(), "relu", "scalar");
  const Graph chosen =
      checked({x}, [&]() -> Tensors { return {framework::relu(framework::neg(x))}; });
  framework::kernel(own(), "relu", "");
  CHECK(outline(chosen) == Lines{"neg", "relu"});
  CHECK(outline(checked({x}, [&]() -> Tensors { return {framework::neg(x)}; })) == Lines{"neg"});

  Device& reference = device("reference");
  const Tensor y = framework::full(reference, {4}, 1);
  Graph graph = fuse(capture([&] { framework::neg(framework::exp(y)); }));
  CHECK(graph.size() == 2);
  graph.replay();
  CHECK(fuse(Graph()).size() == 0);
}

TEST_CASE("a plug-in that refuses a program, and one that fails when it runs it") {
  static CourseBackend table = framework::plugin_device(own()).table();
  static bool refuses = true, fails = false;
  static std::int32_t code = -1;  // of the refusal: no error of the device
  static const CourseBackend* const real = &framework::plugin_device(own()).table();
  table.name = "stubborn";
  table.fuse = [](void* state, std::int32_t count, const CourseProgram* programs,
                  const CourseTensor* const* inputs, std::int32_t kernel, void** fused,
                  CourseError* errors) {
    real->fuse(state, count, programs, inputs, kernel, fused, errors);
    for (std::int32_t i = 0; refuses && i < count; ++i) {
      if (fused[i] != nullptr) real->fused_destroy(state, fused[i]);
      fused[i] = nullptr;
      framework::fail(&errors[i], code, "not today");
    }
  };
  table.fused_run = [](void* state, void* fused, const CourseCall* call, void* stream,
                       CourseError* error) -> std::int32_t {
    if (fails) return framework::fail(error, 7, "it broke");
    return real->fused_run(state, fused, call, stream, error);
  };
  framework::add_backend(&table);
  Device& on = device("stubborn");
  const Tensor x = framework::full(on, {5}, 2);
  Tensor y;
  const Graph recorded = capture([&] { y = framework::neg(framework::square(x)); });
  CHECK(fuse(recorded).size() == 2);
  CHECK(what_of<std::runtime_error>([&] {
          fuse(recorded, {Fusion::By::compiled, true});
        }) == "stubborn can't fuse neg(square(in0)): not today");
  code = 2;  // the device has failed: nothing goes on then
  CHECK(what_of<gpu::Error>([&] { fuse(recorded); }) ==
        "stubborn can't fuse neg(square(in0)): not today");
  refuses = false;
  Graph graph = fuse(recorded, kInterpreted);
  CHECK(graph.size() == 1);
  fails = true;
  CHECK(what_of<gpu::Error>([&] { graph.replay(); }) ==
        "replay of neg(square(in0)) by stubborn: it broke");
  fails = false;
  poison({y});
  graph.replay();
  CHECK(y.to_host<float>() == std::vector<float>(5, -4));
}

// Three of them: in one text, or in as many as the compiler takes at once.
TEST_CASE("the chains of a graph are compiled together, but for those that were before") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("fusion_test." + std::to_string(getpid()));
  KeptVariable cache("COURSE_CACHE_DIR");
  cache.set(folder.string());
  const auto kept_files = [&] {
    const fs::directory_iterator files(folder);
    return std::distance(begin(files), end(files));
  };
  const Tensor x = numbers({3, 5}, 1), w = numbers({5, 5}, 2);
  const auto fused = [&](double factor) {
    const Fusion compiled{Fusion::By::compiled, true};
    const auto work = [&]() -> Tensors {
      const Tensor h = framework::tanh(framework::square(x)), product = framework::matmul(h, w);
      return {framework::gelu(product * number(factor)), framework::exp(framework::neg(w))};
    };
    return checked({x, w}, work, compiled);
  };
  const Graph first = fused(0.375);
  CHECK(outline(first) == Lines{"fused tanh(square(in0))", "matmul", "fused gelu(mul(in0, 0.375))",
                                "fused exp(neg(in0))"});
  const auto texts = std::min<std::ptrdiff_t>(runtime_code::texts_at_once(), 3);
  CHECK(kept_files() == texts);
  const Graph second = fused(0.625);
  CHECK(kept_files() == texts + 1);
  CHECK(second.record().calls.front().fused->note() == "compiled, kept");
  fs::remove_all(folder);
}

TEST_CASE("a program that a plug-in can't take leaves the others as they are") {
  const Layout five = Layout::contiguous({5});
  fusion::Program program;
  program.domain = {5};
  program.inputs = {{five, Dtype::f32}};
  program.code = {{fusion::Formula::exp, {0}}, {fusion::Formula::neg, {1}}};
  program.outputs = {2};
  fusion::CProgram good, bad;
  fusion::to_c(program, &good), fusion::to_c(program, &bad);
  bad.instructions[1].formula = "sine";
  framework::PluginDevice& device = framework::plugin_device(own());
  for (const std::int32_t kernel : {0, 1, 2}) {
    const CourseProgram programs[] = {good.program, bad.program, good.program};
    const CourseTensor* const inputs[] = {good.inputs.data(), bad.inputs.data(),
                                          good.inputs.data()};
    void* fused[3];
    CourseError errors[3];
    device.table().fuse(device.state(), 3, programs, inputs, kernel, fused, errors);
    CHECK(fused[1] == nullptr);
    CHECK(std::string(errors[1].text) == "fused: there is no formula of sine");
    for (const int i : {0, 2}) {
      REQUIRE(fused[i] != nullptr);
      device.table().fused_destroy(device.state(), fused[i]);
    }
  }
}

// ---- Random graphs ------------------------------------------------------------------------------

namespace {

// Calls of all kinds on tensors that were there before, on results, on views of both, and writes
// into what is there; the same for each run with one seed. What is left at the end is held.
class RandomWork {
 public:
  explicit RandomWork(std::uint32_t seed) : random_(seed) {}

  Tensors run(const Tensors& state) {
    Tensors pool = state;
    const int steps = 4 + below(24);
    for (int i = 0; i < steps; ++i) step(pool, state);
    pool.erase(pool.begin(), pool.begin() + static_cast<std::ptrdiff_t>(state.size()));
    if (pool.size() > 3) pool.erase(pool.begin(), pool.end() - 3);
    pool.insert(pool.end(), state.begin(), state.end());
    return pool;
  }

 private:
  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  const Tensor& one_of(const Tensors& pool) {
    return pool[static_cast<size_t>(below(static_cast<int>(pool.size())))];
  }

  void step(Tensors& pool, const Tensors& state) {
    using framework::max, framework::mean, framework::sum;
    const Tensor a = one_of(pool), b = one_of(pool), matrix = state[0];
    switch (below(16)) {
      case 0:
        return pool.push_back(framework::neg(a));
      case 1:
        return pool.push_back(framework::tanh(a));
      case 2:
        return pool.push_back(framework::gelu(a));
      case 3:
        return pool.push_back(a + b);
      case 4:
        return pool.push_back(a * b);
      case 5:
        return pool.push_back(framework::sigmoid_backward(a, a * number(0.5)));
      case 6:
        return pool.push_back(framework::select(framework::less(a, b), b, a));
      case 7:
        return pool.push_back(framework::maximum(a, matrix));
      case 8:
        return pool.push_back(framework::square(a - matrix));
      case 9:
        return pool.push_back(a.rank() == 2 ? sum(a, {below(2)}, true) : framework::exp(-a));
      case 10:
        return pool.push_back(a.rank() == 2 ? mean(a, {1}, true) : framework::abs(a));
      case 11:
        return pool.push_back(max(a));
      case 12:
        return framework::fill(one_of(state), below(3));
      case 13: {  // a part of what was there is another one now
        const Tensor to = one_of(state);
        return to.select(0, 0).copy_from(sum(one_of(pool)));
      }
      case 14:
        return pool.push_back(framework::softmax(matrix));
      default:  // what nobody holds any more is an intermediate
        if (pool.size() > state.size())
          pool.erase(pool.begin() + static_cast<std::ptrdiff_t>(state.size()) +
                     below(static_cast<int>(pool.size() - state.size())));
    }
  }
  std::mt19937 random_;
};

void check_random(std::uint32_t seed, const Fusion& how) {
  INFO("seed " << seed);
  std::mt19937 sizes(seed);
  const auto extent = [&] { return static_cast<std::int64_t>(1 + sizes() % 9); };
  const std::int64_t rows = extent(), cols = extent();
  const auto state = [&] {
    return Tensors{numbers({rows, cols}, seed), numbers({cols}, seed + 1),
                   numbers({rows, 1}, seed + 2), numbers({1}, seed + 3)};
  };
  const Tensors want = RandomWork(seed).run(state());
  const Tensors before = state(), again = state();
  Tensors results;
  const Graph recorded = capture([&] { results = RandomWork(seed).run(before); });
  Graph graph = fuse(recorded, how);
  REQUIRE(graph.size() <= recorded.size());
  for (const bool is_of_device : {false, true}) {
    if (is_of_device) graph.instantiate();
    poison(Tensors(results.begin(), results.end() - static_cast<std::ptrdiff_t>(before.size())));
    for (size_t i = 0; i < before.size(); ++i) before[i].copy_from(again[i]);
    graph.replay();
    REQUIRE(fusion::compare_bits(results, want).ok);
  }
}

}  // namespace

TEST_CASE("random graphs have the bits of their calls") {
  for (std::uint32_t seed = 1; seed <= 100; ++seed) check_random(seed, kInterpreted);
  for (std::uint32_t seed = 1; seed <= 50; ++seed)
    check_random(seed, {Fusion::By::interpreted, false});
}
TEST_CASE("2000 random graphs have the bits of their calls", "[long]") {
  for (std::uint32_t seed = 101; seed <= 1500; ++seed) check_random(seed, kInterpreted);
  for (std::uint32_t seed = 51; seed <= 500; ++seed)
    check_random(seed, {Fusion::By::interpreted, false});
}
