#include "stage8_framework/03_autograd/ladders.h"

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "common/measure.h"
#include "common/random.h"
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
    row.skipped = backends::reason_to_skip("own");
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

// Says how much memory it took. Of few samples the weights and their gradients are most of it.
void add_peak(const Case& c, const Runner& runner, Row& row) {
  constexpr double kPromised = 0.7;
  char text[80];
  std::snprintf(text, sizeof text, "at most %.2f MB live", 1e-6 * runner.peak());
  row.note = text;
  const bool is_promised = row.name == "counted" && c.batch >= c.width && c.layers >= 16;
  if (is_promised && runner.peak() > kPromised * runner.all_kept())
    row.missed = std::string(text) + ", promised 0.7 of what iterative keeps";
}

}  // namespace

void run_perceptron(const Case& c, const Options& options, Report& report) {
  std::vector<Launch> launches;
  std::vector<Row> rows = rows_of(options, &launches);
  const Values integers(c, true, options.seed), values(c, false, options.seed);
  report.table(c.name(), values.reference_ms);
  std::optional<Runner> runner;
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
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

namespace {

constexpr size_t kSmall = 1024;

// h = x * w; sum(h * relu(h)), and its gradients by x and w: the way back to h has two branches.
struct FourOperations {
  Tensor x, w;

  FourOperations(Device& device, std::uint64_t seed) {
    for (Tensor* leaf : {&x, &w}) {
      std::vector<float> values(kSmall);
      for (size_t i = 0; i < kSmall; ++i)
        values[i] = random_numbers::uniform(seed, leaf == &x ? 0 : 1, i);
      *leaf = Tensor::from_host(device, values, {static_cast<std::int64_t>(kSmall)});
      leaf->set_requires_grad();
    }
  }
  Tensor forward() const {
    const Tensor h = x * w;
    return sum(h * relu(h));
  }
  void run(Launch launch) const {
    x.set_grad({}), w.set_grad({});
    const Tensor y = forward();
    backward(y, framework::full(y.device(), {}, 1), false, launch);
  }
  // 2 relu(h) times the other factor: rounded once more, as the device does.
  Comparison compare() const {
    const std::vector<float> of_x = x.to_host<float>(), of_w = w.to_host<float>();
    std::vector<float> got = gradient_of(x), want;
    const std::vector<float> grad_w = gradient_of(w);
    got.insert(got.end(), grad_w.begin(), grad_w.end());
    for (const std::vector<float>* other : {&of_w, &of_x})
      for (size_t i = 0; i < kSmall; ++i) {
        const float h = of_x[i] * of_w[i];
        want.push_back(2 * (h > 0 ? h : 0) * (*other)[i]);
      }
    return ::compare(
        want.size(), [&](size_t i) { return got[i]; },
        [&](size_t i) { return static_cast<double>(want[i]); }, [](size_t) { return 0.0; });
  }
};

}  // namespace

void run_small(const Options& options, Report& report) {
  constexpr double kPromised = 0.045;  // ms, of counted on a GPU
  std::vector<Launch> launches;
  std::vector<Row> rows = rows_of(options, &launches);
  report.table("four operations and backward   n=" + size_text(kSmall) + " float32");
  std::optional<FourOperations> four;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].skipped.empty()) continue;
    if (!four) four.emplace(framework::device("own"), options.seed);
    poison_free_memory(four->x.device(), 64 * kSmall);
    four->run(launches[i]);
    rows[i].check = four->compare();
  }
  const auto host_ms = [&](const auto& run) {
    constexpr int kTimes = 16;  // fewer launches than a stream takes before the host must wait
    PluginDevice& device = framework::plugin_device(four->x.device());
    device.wait();
    HostTimer timer;
    for (int k = 0; k < kTimes; ++k) run();
    const double ms = timer.ms() / kTimes;
    device.wait();
    return ms;
  };
  std::vector<double> unrecorded, recorded;
  backends::time_rounds(rows, options, [&](size_t i) {
    recorded.push_back(host_ms([&] { four->forward(); }));
    unrecorded.push_back(host_ms([&] {
      const framework::NoGrad guard;
      four->forward();
    }));
    return host_ms([&] { four->run(launches[i]); });
  });
  for (Row& row : rows) {
    if (!Measurement::kIsCpu && !options.quick && row.name == "counted" && row.ms > kPromised)
      row.missed = "promised 45 us";
    report.add(row);
  }
  if (recorded.empty()) return;
  report.fact("the four operations without a tape", 1e3 * summarize(unrecorded).median, "us");
  report.fact("the four operations, recorded", 1e3 * summarize(recorded).median, "us");
}

}  // namespace autograd
