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
    poison_free_memory(device_, 4 * values_.error.size() * sizeof(float));
    perceptron_.forget_gradients();
    backward(perceptron_.forward(), seed_, false, launch);
    return values_.compare(perceptron_.gradients());
  }
  // Of the way back alone, with the device's work.
  double ms(Launch launch) {
    perceptron_.forget_gradients();
    const Tensor y = perceptron_.forward();
    device_.wait();
    device_.pool().restart_peaks();
    HostTimer timer;
    backward(y, seed_, false, launch);
    device_.wait();
    return timer.ms();
  }
  // The most bytes that were live on the device in the last ms(), weights and seed among them.
  double peak_bytes() const { return static_cast<double>(device_.pool().statistics().peak_live); }

 private:
  const Values& values_;
  PluginDevice& device_;
  Perceptron perceptron_;
  Tensor seed_;
};

}  // namespace

void run_perceptron(const Case& c, const Options& options, Report& report) {
  constexpr double kPromised = 0.7;  // of iterative's peak
  std::vector<Launch> launches;
  std::vector<Row> rows = rows_of(options, &launches);
  const Values integers(c, true, options.seed), values(c, false, options.seed);
  report.table(c.name(), values.reference_ms);
  std::optional<Runner> runner;
  std::vector<double> peaks(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].skipped.empty()) continue;
    Device& own = framework::device("own");
    rows[i].check = Runner(integers, own).check(launches[i]);
    if (!rows[i].check.exact()) {
      rows[i].check.ok = false, rows[i].note = "on integers";
      continue;
    }
    if (!runner) runner.emplace(values, own);
    rows[i].check = runner->check(launches[i]);
  }
  backends::time_rounds(rows, options, [&](size_t i) {
    const double ms = runner->ms(launches[i]);
    peaks[i] = runner->peak_bytes();
    return ms;
  });
  // Of few samples the weights and their gradients are most of it.
  const bool is_promised = !options.quick && !options.sizes_given;
  double of_iterative = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    if (row.name == std::string("iterative")) of_iterative = peaks[i];
    if (peaks[i] > 0) {
      char text[80];
      std::snprintf(text, sizeof text, "at most %.2f MB live", 1e-6 * peaks[i]);
      row.note = text;
      if (is_promised && row.name == std::string("counted") &&
          peaks[i] > kPromised * of_iterative && of_iterative > 0)
        row.missed = std::string(text) + ", promised 0.7 of iterative's";
    }
    report.add(row);
  }
}

namespace {

constexpr size_t kSmall = 1024;

// sum(relu(x * w + b)), and its gradients by w and b.
struct FourOperations {
  Tensor x, w, b;

  explicit FourOperations(Device& device, std::uint64_t seed) {
    for (Tensor* leaf : {&x, &w, &b}) {
      std::vector<float> values(kSmall);
      const auto stream = static_cast<std::uint32_t>(leaf == &x ? 0 : leaf == &w ? 1 : 2);
      for (size_t i = 0; i < kSmall; ++i) values[i] = random_numbers::uniform(seed, stream, i);
      *leaf = Tensor::from_host(device, values, {static_cast<std::int64_t>(kSmall)});
    }
    w.set_requires_grad(), b.set_requires_grad();
  }
  void run(Launch launch) const {
    w.set_grad({}), b.set_grad({});
    const Tensor y = sum(relu(x * w + b));
    backward(y, framework::full(y.device(), {}, 1), false, launch);
  }
  // Both are selections of what is there: exact.
  Comparison compare() const {
    const auto of_x = x.to_host<float>(), of_w = w.to_host<float>(), of_b = b.to_host<float>();
    std::vector<float> got = w.grad().to_host<float>(), want;
    const std::vector<float> grad_b = b.grad().to_host<float>();
    got.insert(got.end(), grad_b.begin(), grad_b.end());
    for (const bool is_w : {true, false})
      for (size_t i = 0; i < kSmall; ++i) {
        const float product = of_x[i] * of_w[i];
        want.push_back(product + of_b[i] > 0 ? is_w ? of_x[i] : 1.0f : 0.0f);
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
  backends::time_rounds(rows, options, [&](size_t i) {
    constexpr int kTimes = 16;  // fewer launches than a stream takes before the host must wait
    PluginDevice& device = framework::plugin_device(four->x.device());
    device.wait();
    HostTimer timer;
    for (int k = 0; k < kTimes; ++k) four->run(launches[i]);
    const double ms = timer.ms() / kTimes;
    device.wait();
    return ms;
  });
  for (Row& row : rows) {
    if (!Measurement::kIsCpu && !options.quick && row.name == std::string("counted") &&
        row.ms > kPromised)
      row.missed = "promised 45 us";
    report.add(row);
  }
}

}  // namespace autograd
