#include "stage8_framework/03_autograd/ladders.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/measure.h"
#include "stage8_framework/01_tensor/splitting.h"
#include "stage8_framework/02_backends/ladders.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/03_autograd/autograd.h"

namespace autograd {

namespace {

using framework::Device;
using framework::PluginDevice;

// Freed memory of the device, as much as `bytes`, holds the bytes that nothing correct has: what is
// allocated next lies there.
void poison_free_memory(Device& device, size_t bytes) {
  const Tensor all =
      Tensor::empty(device, {static_cast<std::int64_t>(bytes)}, framework::Dtype::u8);
  const std::vector<unsigned char> poison(bytes, 0xFF);
  device.to_device(all.data(), poison.data(), bytes);
}

std::vector<Row> rows_of(const Options& options, std::vector<Launch>* launches) {
  std::vector<Row> rows;
  for (const auto& version : kVersions) {
    if (!options.wants(version.name)) continue;
    Row& row = rows.emplace_back();
    row.name = version.name, row.lesson = version.lesson, row.work.limit = Work::Limit::none;
    launches->push_back(version.launch);
  }
  return rows;
}

// A perceptron's gradients, once or several times.
class Runner {
 public:
  Runner(const Values& values, Device& device)
      : values_(values),
        device_(framework::plugin_device(device)),
        perceptron_(values.on(device)),
        seed_(values.seed_on(device)) {}

  Comparison check(Launch launch) {
    poison_free_memory(device_, 4 * sizeof(float) * values_.error.size());
    ms(launch);
    return values_.compare(perceptron_.gradients());
  }
  // Of the way back alone, with the device's work.
  double ms(Launch launch) {
    perceptron_.forget_gradients();
    const Tensor y = perceptron_.forward();
    device_.wait();
    device_.pool().restart_peaks();
    live_ = live();
    HostTimer timer;
    backward(y, seed_, false, launch);
    device_.wait();
    return timer.ms();
  }
  // The most bytes that were live on the device in the last ms(), weights and seed among them.
  double peak() const { return static_cast<double>(device_.pool().statistics().peak_live); }
  // What there is if nothing is freed before the end: what was there, and all gradients.
  double all_kept() const {
    const Case& c = values_.size;
    const size_t results = (c.layers + 1) * c.batch * c.width;
    return live_ + static_cast<double>(sizeof(float) * (results + c.parameters()));
  }

 private:
  double live() const { return static_cast<double>(device_.pool().statistics().live); }

  const Values& values_;
  PluginDevice& device_;
  Perceptron perceptron_;
  Tensor seed_;
  double live_ = 0;
};

// Says how much memory it took. Of few samples the weights and their gradients are most of it, and
// tiny tensors take more than they need.
void add_peak(const Case& c, const Runner& runner, Row& row) {
  constexpr double kPromised = 0.7;
  char text[80];
  std::snprintf(text, sizeof text, "at most %.2f MB live", 1e-6 * runner.peak());
  row.note = text;
  const bool is_promised =
      row.name == "counted" && c.batch >= c.width && c.width >= 16 && c.layers >= 16;
  if (is_promised && runner.peak() > kPromised * runner.all_kept())
    row.missed = std::string(text) + ", promised 0.7 of what iterative keeps";
}

}  // namespace

void run_perceptron(const Case& c, const Options& options, Report& report) {
  constexpr size_t kMostFrames = 1000;
  std::vector<Launch> launches;
  std::vector<Row> rows = rows_of(options, &launches);
  const Values integers(c, true, options.seed), values(c, false, options.seed);
  report.table(c.name(), values.reference_ms);
  std::optional<Runner> runner;
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    if (row.name == "recursive" && c.layers > kMostFrames)
      row.skipped = "it needs a stack frame for each layer";
    if (!row.skipped.empty()) continue;
    Device& own = framework::device("own");
    row.check = Runner(integers, own).check(launches[i]);
    if (!row.check.exact()) {
      row.check.ok = false, row.note = "on integers";
      continue;
    }
    if (!runner) runner.emplace(values, own);
    row.check = runner->check(launches[i]);
    add_peak(c, *runner, row);
  }
  backends::time_rounds(rows, options, [&](size_t i) { return runner->ms(launches[i]); });
  for (const Row& row : rows) report.add(row);
}

// ---- Small graphs -------------------------------------------------------------------------------

namespace {

constexpr size_t kSmall = 1024;
constexpr const char* kFourOperations = "four operations";

std::string table_name(const std::string& graph) {
  return graph + " and backward   n=" + size_text(kSmall) + " float32";
}

// A function of some leaves of kSmall elements, and its exact gradients, one leaf after the other.
struct Small {
  std::string name;
  std::vector<Tensor> leaves;
  std::function<Tensor()> forward;
  std::vector<float> want;

  void run(Launch launch) const {
    for (const Tensor& leaf : leaves) leaf.set_grad({});
    const Tensor y = forward();
    backward(y, framework::full(y.device(), {}, 1), false, launch);
  }
  Comparison compare() const {
    std::vector<float> got;
    for (const Tensor& leaf : leaves) {
      const std::vector<float> grad = gradient_of(leaf);
      got.insert(got.end(), grad.begin(), grad.end());
    }
    return ::compare(
        want.size(), [&](size_t i) { return got[i]; },
        [&](size_t i) { return static_cast<double>(want[i]); }, [](size_t) { return 0.0; });
  }
};

Tensor leaf_of(Device& device, const std::vector<float>& values) {
  Tensor leaf = Tensor::from_host(device, values, {static_cast<std::int64_t>(kSmall)});
  leaf.set_requires_grad();
  return leaf;
}

// h = x * w; sum(h * relu(h)): the way back to h has two branches. The gradients are 2 relu(h)
// times the other factor, rounded once more, as the device does.
Small four_operations(Device& device, std::uint64_t seed) {
  const std::vector<float> x = backends::numbers(seed, 0, kSmall);
  const std::vector<float> w = backends::numbers(seed, 1, kSmall);
  const std::vector<Tensor> leaves{leaf_of(device, x), leaf_of(device, w)};
  const auto forward = [leaves] {
    const Tensor h = leaves[0] * leaves[1];
    return sum(h * relu(h));
  };
  std::vector<float> want;
  for (const auto& [other, factor] : {std::pair(&w, &x), std::pair(&x, &w)})
    for (size_t i = 0; i < kSmall; ++i)
      want.push_back(2 * std::max((*other)[i] * (*factor)[i], 0.0f) * (*other)[i]);
  return {kFourOperations, leaves, forward, want};
}

// y = y + y, time after time: 2^kBranches paths lead from the sum to x.
Small branches(Device& device, std::uint64_t seed) {
  constexpr int kBranches = 6;
  const Tensor x = leaf_of(device, backends::numbers(seed, 0, kSmall));
  const auto forward = [x] {
    Tensor y = x;
    for (int i = 0; i < kBranches; ++i) y = y + y;
    return sum(y);
  };
  return {"six branches in a row", {x}, forward, std::vector<float>(kSmall, 1 << kBranches)};
}

// The host's time of one of several: fewer launches than a stream takes before the host must wait.
template <class Run>
double host_ms(PluginDevice& device, Run&& run) {
  constexpr int kTimes = 4;
  device.wait();
  HostTimer timer;
  for (int k = 0; k < kTimes; ++k) run();
  const double ms = timer.ms() / kTimes;
  device.wait();
  return ms;
}

void run_graph(const Small& graph, const Options& options, std::vector<Row> rows,
               const std::vector<Launch>& launches, Report& report) {
  PluginDevice& device = framework::plugin_device(graph.leaves[0].device());
  for (size_t i = 0; i < rows.size(); ++i) {
    poison_free_memory(device, 64 * kSmall);
    graph.run(launches[i]);
    rows[i].check = graph.compare();
  }
  std::vector<double> unrecorded, recorded;  // us
  backends::time_rounds(rows, options, [&](size_t i) {
    recorded.push_back(1e3 * host_ms(device, graph.forward));
    unrecorded.push_back(1e3 * host_ms(device, [&] {
                           const framework::NoGrad guard;
                           graph.forward();
                         }));
    return host_ms(device, [&] { graph.run(launches[i]); });
  });
  for (const Row& row : rows) report.add(row);
  if (recorded.empty()) return;
  report.fact(graph.name + " without a tape", summarize(unrecorded).median, "us");
  report.fact(graph.name + ", recorded", summarize(recorded).median, "us");
}

}  // namespace

std::string four_operations_name() { return table_name(kFourOperations); }

void run_small(const Options& options, Report& report) {
  for (const auto make : {four_operations, branches}) {
    std::vector<Launch> launches;
    const std::vector<Row> rows = rows_of(options, &launches);
    const Small graph = make(framework::device("own"), options.seed);
    report.table(table_name(graph.name));
    run_graph(graph, options, rows, launches, report);
  }
}

}  // namespace autograd
