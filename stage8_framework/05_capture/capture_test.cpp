// Graphs: what is recorded, the same bits from every way of replaying, and errors after which
// everything is usable.
#include "stage8_framework/05_capture/capture.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/testing.h"
#include "stage8_framework/01_tensor/splitting.h"
#include "stage8_framework/02_backends/c_tensor.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/03_autograd/tape.h"
#include "stage8_framework/04_modules/layers.h"

using framework::capture;
using framework::Device;
using framework::device;
using framework::Graph;
using framework::plugin_device;
using framework::Tensor;
using testing::what_of;
using Floats = std::vector<float>;

namespace {

Tensor numbers(Device& on, const framework::Shape& shape, std::uint32_t stream) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return Tensor::from_host(on, testing::random_floats(static_cast<size_t>(count), stream, 1),
                           shape);
}

// The three ways of a replay.
const std::vector<std::pair<std::string, std::function<void(Graph&)>>> kWays = {
    {"recorded", [](Graph&) {}},
    {"planned", [](Graph& graph) { graph.plan(); }},
    {"graph", [](Graph& graph) { graph.instantiate(); }}};

// Free memory, in large pieces and in small ones, is not what it was.
void poison_free_memory(Device& on) {
  std::vector<Tensor> free{Tensor::empty(on, {1 << 16})};
  for (int i = 0; i < 64; ++i) free.push_back(Tensor::empty(on, {32}));
  for (const Tensor& piece : free) framework::fill(piece, std::nan(""));
}

// The plug-in own, whose calls fail when they are told to.
namespace failing {

int runs_before_failure = -1;  // -1: none fails
bool is_out_of_memory = false;
const CourseBackend* own = nullptr;

std::int32_t run(void* state, const CourseCall* call, void* stream, CourseError* error) {
  if (runs_before_failure == 0) return framework::fail(error, 7, "it broke");
  if (runs_before_failure > 0) --runs_before_failure;
  return own->run(state, call, stream, error);
}
std::int32_t allocate(void* state, size_t bytes, void** block, CourseError* error) {
  if (is_out_of_memory) return framework::fail(error, 2, "out of memory");
  return own->allocate(state, bytes, block, error);
}

Device& on() {
  static CourseBackend table;
  if (own == nullptr) {
    own = &plugin_device(device("own")).table();
    table = *own;
    table.name = "failing", table.run = run, table.allocate = allocate;
    framework::add_backend(&table);
  }
  return device("failing");
}

}  // namespace failing

}  // namespace

TEST_CASE("a graph is a list of calls") {
  Device& own = device("own");
  const Tensor x = numbers(own, {3, 4}, 1), w = numbers(own, {2, 4}, 2);
  Tensor y;
  const Graph graph = capture([&] { y = framework::relu(framework::linear(x, w)); });
  CHECK(graph.size() == 2);
  CHECK(graph.text() ==
        "0  %2 f32 (3,2) = linear(%0 f32 (3,4), %1 f32 (2,4), none) activation=0\n"
        "1  %3 f32 (3,2) = relu(%2 f32 (3,2))\n");
  CHECK(graph.intervals().size() == 1);  // y is held
}

TEST_CASE("replays take what is in the inputs, and write what is held") {
  Device& own = device("own");
  for (const auto& [name, prepare] : kWays) {
    INFO(name);
    const Tensor x = numbers(own, {5, 8}, 1), w = numbers(own, {6, 8}, 2);
    const auto work = [&] {
      const Tensor h = framework::tanh(framework::linear(x, w));
      return framework::sum(h * h + framework::exp(h.transpose(0, 1)).transpose(0, 1), {1});
    };
    Tensor y;
    Graph graph = capture([&] { y = work(); });
    prepare(graph);
    for (std::uint32_t round = 3; round < 6; ++round) {
      x.copy_from(numbers(own, {5, 8}, round));
      const Floats want = work().to_host<float>();
      const std::uint64_t version = y.version();
      poison_free_memory(own);
      graph.replay();
      CHECK(testing::same_bits(y.to_host<float>(), want));
      CHECK(y.version() == version + 1);
    }
  }
}

TEST_CASE("a copy of a view and a cast are calls, too") {
  Device& own = device("own");
  for (const auto& [name, prepare] : kWays) {
    INFO(name);
    const Tensor x = numbers(own, {4, 6}, 1), to = framework::full(own, {6, 4}, 0);
    Tensor half;
    Graph graph = capture([&] {
      const Tensor turned = x.transpose(0, 1).contiguous();
      to.slice(0, 0, 3).copy_from(turned.slice(0, 3, 6));
      half = turned.clone().to(framework::Dtype::f16);
    });
    CHECK(graph.size() == 4);
    prepare(graph);
    x.copy_from(numbers(own, {4, 6}, 2));
    graph.replay();
    const Tensor turned = x.transpose(0, 1).contiguous();
    CHECK(testing::same_bits(to.slice(0, 0, 3).to_host<float>(),
                             turned.slice(0, 3, 6).to_host<float>()));
    CHECK(to.slice(0, 3, 6).to_host<float>() == Floats(12, 0));
    CHECK(testing::same_bits(
        half.to(framework::Dtype::f32).to_host<float>(),
        turned.to(framework::Dtype::f16).to(framework::Dtype::f32).to_host<float>()));
  }
}

TEST_CASE("what a plug-in needs to run a call is recorded, and what is only measured is not") {
  Device& own = device("own");
  const Tensor x = numbers(own, {7, 33}, 1);
  for (const auto& [name, prepare] : kWays) {
    INFO(name);
    Tensor y;
    Graph graph = capture([&] { y = framework::softmax(x.transpose(0, 1)); });
    CHECK(graph.size() == 2);  // its rows must be contiguous: a copy, and the softmax of that
    prepare(graph);
    x.copy_from(numbers(own, {7, 33}, 2));
    graph.replay();
    CHECK(testing::same_bits(y.to_host<float>(),
                             framework::softmax(x.transpose(0, 1)).to_host<float>()));
  }
  // The kernel, though another one would be chosen now, which adds in another order.
  const Tensor rows = numbers(own, {64, 500}, 3);
  Tensor shares;
  framework::kernel(own, "softmax", "thread_per_row");
  Graph by_thread = capture([&] { shares = framework::softmax(rows); });
  framework::kernel(own, "softmax", "");
  const Floats of_thread = shares.to_host<float>();
  REQUIRE(!testing::same_bits(framework::softmax(rows).to_host<float>(), of_thread));
  by_thread.plan().replay();
  CHECK(testing::same_bits(shares.to_host<float>(), of_thread));

  framework::use(own, "best");
  const Graph graph = capture([&] { framework::matmul(x, x.transpose(0, 1)); });
  framework::use(own, plugin_device(own).is_host_memory() ? "own,reference" : "own");
  CHECK(graph.size() == 1);
}

TEST_CASE("a plug-in that fails while a graph is recorded, planned, captured or replayed") {
  Device& on = failing::on();
  const Tensor x = numbers(on, {64}, 1);
  const Floats of_x = x.to_host<float>();
  Tensor y;
  const auto work = [&] { y = framework::neg(framework::neg(framework::neg(x))); };
  const auto message = [&](int runs, const std::function<void()>& step) {
    failing::runs_before_failure = runs;
    const std::string text = what_of<gpu::Error>(step);
    failing::runs_before_failure = -1;
    return text;
  };
  const auto is_right = [&] {
    const Floats got = y.to_host<float>();
    return std::equal(got.begin(), got.end(), of_x.begin(),
                      [](float a, float b) { return a == -b; });
  };
  CHECK(message(1, [&] { capture(work); }) ==
        "capture, behind call 0  %1 f32 (64) = neg(%0 f32 (64)): "
        "neg of f32 (64) by failing on failing: it broke");
  for (int runs = 0; runs < 3; ++runs)
    for (const auto& way : kWays) {
      const auto& [name, prepare] = way;
      INFO(name << ", call " << runs);
      Graph graph = capture(work);
      const std::string text = message(runs, [&] { way.second(graph), graph.replay(); });
      CHECK(text.find("it broke") != std::string::npos);
      if (name != "recorded") CHECK(text.find("replay of " + std::to_string(runs) + "  %") == 0);
      framework::fill(y, 0);
      prepare(graph);
      graph.replay();
      CHECK(is_right());
    }
  // No memory for the block: the graph replays as before.
  const Tensor large = numbers(on, {1 << 20}, 3);
  Graph graph = capture([&] {
    y = framework::neg(framework::neg(framework::neg(large))).slice(0, 0, 64).contiguous();
  });
  plugin_device(on).release();
  failing::is_out_of_memory = true;
  CHECK(what_of<gpu::Error>([&] { graph.plan(); }).find("out of memory") != std::string::npos);
  CHECK(what_of<gpu::Error>([&] { graph.instantiate(); }).find("out of memory") !=
        std::string::npos);
  failing::is_out_of_memory = false;
  framework::fill(y, 0);
  graph.replay();
  CHECK(y.to_host<float>()[5] == -large.to_host<float>()[5]);
}

TEST_CASE("what a graph reads lives as long as the graph") {
  Device& own = device("own");
  for (const auto& [name, prepare] : kWays) {
    INFO(name);
    Tensor x = numbers(own, {32}, 1), partly = numbers(own, {32}, 2), y, z;
    const Floats of_x = x.to_host<float>(), of_partly = partly.to_host<float>();
    Graph graph = capture([&] {
      y = x + x;
      partly.slice(0, 0, 16).copy_from(x.slice(0, 0, 16));  // the rest is what it was
      z = framework::copy(partly);
      x = Tensor(), partly = Tensor();
    });
    poison_free_memory(own);
    prepare(graph);
    framework::fill(y, 0), framework::fill(z, 0);
    graph.replay();
    const Floats got = y.to_host<float>(), rest = z.to_host<float>();
    for (size_t i = 0; i < 32; ++i) {
      CHECK(got[i] == 2 * of_x[i]);
      CHECK(rest[i] == (i < 16 ? of_x : of_partly)[i]);
    }
  }
}

TEST_CASE("recording frees intermediates as early as eager does") {
  Device& own = device("own");
  auto& pool = plugin_device(own).pool();
  const Tensor x = numbers(own, {1 << 12}, 1);
  const auto chain = [&] {
    Tensor y = x;
    for (int i = 0; i < 16; ++i) y = framework::neg(y);
    return y;
  };
  const auto peak_of = [&](const std::function<void()>& work) {
    pool.restart_peaks();
    const size_t before = pool.statistics().live;
    work();
    return pool.statistics().peak_live - before;
  };
  const size_t eager = peak_of([&] { chain(); });
  Graph graph;
  Tensor y;
  CHECK(peak_of([&] { graph = capture([&] { y = chain(); }); }) == eager);
  graph.plan();
  CHECK(graph.bytes() == eager);
  graph.plan(framework::plan_none);
  CHECK(graph.bytes() == 15 * (sizeof(float) << 12));
}

TEST_CASE("a host read, an exception and a second capture are refused, and all is usable") {
  Device& own = device("own");
  auto& pool = plugin_device(own).pool();
  const Tensor x = numbers(own, {3, 4}, 1);
  const size_t live = pool.statistics().live;
  CHECK(
      what_of<std::runtime_error>([&] { capture([&] { framework::neg(x).to_host<float>(); }); }) ==
      "capture: the host reads 48 bytes from own, behind call 0  %1 f32 (3,4) = neg(%0 f32 (3,4))"
      ", and what it does can't be replayed: do that before or after");
  CHECK(what_of<std::runtime_error>([&] { capture([&] { numbers(own, {2}, 1); }); }) ==
        "capture: the host writes 8 bytes to own, before the first call"
        ", and what it does can't be replayed: do that before or after");
  // Caught within: it counts all the same.
  CHECK(what_of<std::runtime_error>([&] {
          capture([&] { what_of<std::runtime_error>([&] { x.to_host<float>(); }); });
        }).find("the host reads") != std::string::npos);
  CHECK(what_of<std::runtime_error>([&] {
          capture([&] {
            framework::neg(x);
            throw std::runtime_error("the user's own");
          });
        }) == "capture, behind call 0  %1 f32 (3,4) = neg(%0 f32 (3,4)): the user's own");
  CHECK(what_of<std::invalid_argument>([&] {
          capture([&] { framework::matmul(x, x); });
        }).find("capture, before the first call: matmul of f32 (3,4) and f32 (3,4)") == 0);
  CHECK(what_of<std::runtime_error>([&] { capture([&] { capture([] {}); }); }).find("under way") !=
        std::string::npos);
  Graph other = capture([&] { framework::neg(x); });
  CHECK(what_of<std::runtime_error>([&] {
          capture([&] { other.replay(); });
        }).find("replayed meanwhile") != std::string::npos);
  CHECK(what_of<std::runtime_error>([&] {
          const Tensor elsewhere = Tensor::from_host(device("reference"), Floats(4), {4});
          capture([&] { framework::neg(x), framework::neg(elsewhere); });
        }).find("a graph is of one device") != std::string::npos);
  other = Graph();
  CHECK(pool.statistics().live == live);

  Tensor y;
  Graph graph = capture([&] { y = framework::neg(x); });  // a later one works
  framework::fill(y, 0);
  graph.replay();
  CHECK(y.to_host<float>()[0] == -x.to_host<float>()[0]);
}

TEST_CASE("a device graph names the call that the host would run") {
  Device& host = device("reference");
  const Tensor x = Tensor::from_host(host, Floats{1, 2}, {2});
  Tensor y;
  Graph graph = capture([&] { y = framework::neg(x); });
  CHECK(what_of<std::runtime_error>([&] { graph.instantiate(); }) ==
        "no device graph: reference has no graphs; plan() replays the calls without");
  graph.plan().replay();
  CHECK(y.to_host<float>() == Floats{-1, -2});
  if (!plugin_device(device("own")).is_host_memory()) return;

  Device& own = device("own");
  framework::use(own, "reference");
  const Tensor a = Tensor::from_host(own, Floats{1, 2}, {2});
  Graph mixed = capture([&] { y = framework::neg(a); });
  framework::use(own, "own,reference");
  CHECK(
      what_of<std::runtime_error>([&] {
        mixed.instantiate();
      }).find("reference works on the host, where it runs call 0  %1 f32 (2) = neg(%0 f32 (2))") !=
      std::string::npos);
  framework::fill(y, 0);
  mixed.plan().replay();
  CHECK(y.to_host<float>() == Floats{-1, -2});
}

TEST_CASE("a state that is made while it is recorded is refused, if it outlives that") {
  Device& own = device("own");
  Tensor calls, mask;
  const auto draw = [&] {
    if (!calls.is_defined()) calls = framework::full(own, {}, 0, framework::Dtype::i64);
    mask = Tensor::empty(own, {64});
    framework::dropout_mask(mask, calls, 0.5, 3);
  };
  const std::string message = what_of<std::runtime_error>([&] { capture(draw); });
  CHECK(message.find("capture: call 1  %1 f32 (64), %0 i64 () = dropout_mask() p=0.5 seed=3 "
                     "updates %0, which was made meanwhile") == 0);
  calls = Tensor();
  CHECK(capture([&] { draw(), calls = Tensor(); }).size() == 2);  // nobody knows it
  draw();
  Graph graph = capture(draw);
  const Floats before = mask.to_host<float>();
  graph.replay();
  CHECK(calls.to_host<std::int64_t>()[0] == 3);
  CHECK(mask.to_host<float>() != before);
}

TEST_CASE("replays of a BatchNorm2d count its batches and move its means as eager calls do") {
  Device& own = device("own");
  constexpr int kSteps = 5;
  framework::BatchNorm2d eager(own, 2), replayed(own, 2);
  const Tensor x = numbers(own, {3, 2, 4, 4}, 1), y = Tensor::empty(own, {3, 2, 4, 4});
  const auto new_numbers = [&](int step) {
    x.copy_from(numbers(own, x.shape(), 10 + static_cast<std::uint32_t>(step)));
  };
  const framework::NoGrad guard;
  Floats want;
  for (int step = 0; step < kSteps; ++step) new_numbers(step), want = eager(x).to_host<float>();
  new_numbers(0);
  Graph graph = capture([&] { y.copy_from(replayed(x)); });
  for (int step = 1; step < kSteps; ++step) {
    if (step == 3) graph.instantiate();
    new_numbers(step), graph.replay();
  }
  CHECK(y.to_host<float>() == want);
  CHECK(replayed.num_batches_tracked.to_host<std::int64_t>()[0] == kSteps);
  CHECK(replayed.running_mean.to_host<float>() == eager.running_mean.to_host<float>());
  CHECK(replayed.running_var.to_host<float>() == eager.running_var.to_host<float>());
}

TEST_CASE("a drawing needs Graphviz, and any name of a file will do") {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("capture_test_" + std::to_string(::getpid()));
  fs::create_directories(folder / "bin");
  const Tensor x = numbers(device("own"), {3}, 1);
  const Graph graph = capture([&] { framework::neg(framework::exp(x)); });
  const std::string path = std::getenv("PATH"), file = (folder / "one step's; $(id).svg").string();
  ::setenv("PATH", (folder / "bin").c_str(), 1);
  CHECK(!graph.draw(file));  // there is no dot
  CHECK(!fs::exists(file));
  ::setenv("PATH", ((folder / "bin").string() + ":" + path).c_str(), 1);
  std::ofstream(folder / "bin/dot") << "#!/bin/sh\ncp \"$4\" \"$3\"\n";
  fs::permissions(folder / "bin/dot", fs::perms::owner_all);
  CHECK(graph.draw(file));
  std::ifstream drawn(file);
  const std::string text{std::istreambuf_iterator<char>(drawn), {}};
  CHECK(text.find("c0 [label=\"exp\\n%1 f32 (3)\"];\n") != std::string::npos);
  CHECK(text.find("c0 -> c1;\n") != std::string::npos);
  CHECK(!graph.draw((folder / "nowhere/x.svg").string()));
  ::setenv("PATH", path.c_str(), 1);
  CHECK(std::distance(fs::directory_iterator(folder), {}) == 2);  // bin, and the picture
  fs::remove_all(folder);
}

TEST_CASE("an empty graph") {
  Graph nothing, empty = capture([] {});
  for (Graph* graph : {&nothing, &empty}) {
    graph->plan().instantiate().replay();
    CHECK(graph->size() == 0);
    CHECK(graph->bytes() == 0);
    CHECK(graph->text().empty());
    CHECK(graph->intervals().empty());
  }
}
