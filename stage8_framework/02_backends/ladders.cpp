#include "stage8_framework/02_backends/ladders.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/measure.h"
#include "common/random.h"
#include "stage1_vector/01_vector_add/vector_add.h"
#include "stage8_framework/01_tensor/gpu_device.h"
#include "stage8_framework/02_backends/backends.h"
#include "stage8_framework/02_backends/dispatch.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/listing.h"
#include "stage8_framework/02_backends/network.h"
#include "stage8_framework/02_backends/registry.h"

namespace backends {

using framework::Device;
using framework::Shape;

namespace {

// Why a row that needs this plug-in is left out; empty where it runs. A vendor's libraries may be
// absent. The build that looks for races has no plug-ins; anywhere else it is an error.
std::string reason_to_skip(const std::string& plugin) {
  if (plugin != "vendor" && kTimes) return "";
  for (const framework::Plugin& found : framework::plugins())
    if (found.name == plugin && found.table != nullptr) return "";
  return "no plug-in " + plugin;
}

int rounds_of(const Options& options) {
  return options.repeat > 0 ? options.repeat : options.quick ? 5 : 201;
}

}  // namespace

void poison(const Tensor& tensor) {
  const std::vector<unsigned char> bytes(
      size_of(tensor.dtype()) * static_cast<size_t>(tensor.elements()), 0xFF);
  tensor.device().to_device(tensor.data(), bytes.data(), bytes.size());
}

std::vector<float> numbers(std::uint64_t seed, std::uint32_t stream, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = random_numbers::uniform(seed, stream, i);
  return values;
}

void time_rounds(std::vector<Row>& rows, const Options& options,
                 const std::function<double(size_t i)>& ms) {
  if (options.no_times || !kTimes) return;
  const int rounds = rounds_of(options);
  std::vector<std::vector<double>> times(rows.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i].check.ok && rows[i].skipped.empty()) times[i].push_back(ms(i));
  for (size_t i = 0; i < rows.size(); ++i) {
    const Timing timing = summarize(times[i]);
    rows[i].ms = timing.median, rows[i].ms_p10 = timing.p10, rows[i].ms_p90 = timing.p90;
  }
}

// ---- Dispatch -----------------------------------------------------------------------------------

namespace {

constexpr int kCalls = 256;  // of one round: fewer than a stream takes before the host must wait
constexpr size_t kSmall = 1000;  // elements: what the device does is over at once

// out = a + b, with its output allocated.
Call addition(const Tensor& a, const Tensor& b) {
  Call call;
  call.op = &framework::op_named("add");
  call.input_count = 2, call.output_count = 1;
  call.inputs[0] = a, call.inputs[1] = b;
  call.outputs[0] = Tensor::empty(a.device(), a.shape());
  return call;
}

void wait_for_device() { HIP_CHECK(hipDeviceSynchronize()); }

// The host's nanoseconds per call. The queue is empty before and after: wait() sees to it.
template <class Run, class Wait>
double host_ns(Run&& run, Wait&& wait) {
  HostTimer timer;
  for (int i = 0; i < kCalls; ++i) run();
  const double ns = 1e6 * timer.ms() / kCalls;
  wait();
  return ns;
}

}  // namespace

RunsOn runs_on(const std::string& version, Device& device) {
  if (!Measurement::kIsCpu || version != "plugin") return {device, nullptr, wait_for_device};
  framework::PluginDevice& own = framework::plugin_device(framework::device("own"));
  return {own, static_cast<hipStream_t>(own.stream()), [&own] { own.wait(); }};
}

void run_dispatch(const Options& options, Report& report) {
  tensor::GpuDevice device;
  const std::vector<float> a = numbers(options.seed, 0, kSmall),
                           b = numbers(options.seed, 1, kSmall);
  const Shape shape{static_cast<std::int64_t>(kSmall)};
  const auto addition_on = [&](Device& on) {
    return addition(Tensor::from_host(on, a, shape), Tensor::from_host(on, b, shape));
  };
  const Call call = addition_on(device);

  report.table("dispatch of an add   n=" + std::to_string(kSmall) + " float32");
  std::vector<Row> rows;
  struct Launched {
    Launch launch;
    RunsOn runs_on;
    Call call;
  };
  std::vector<Launched> launches;
  for (const auto& version : kVersions) {
    if (!options.wants(version.name)) continue;
    Row& row = rows.emplace_back();
    row.name = version.name, row.lesson = version.lesson, row.work.limit = Work::Limit::none;
    row.shape = {kSmall};
    if (row.name == std::string("plugin")) row.skipped = reason_to_skip("own");
    const RunsOn place = row.skipped.empty() ? runs_on(version.name, device) : RunsOn{device};
    const Launched& launched =
        launches.emplace_back(Launched{version.launch, place, addition_on(place.device)});
    if (!row.skipped.empty()) continue;
    const Tensor& out = launched.call.outputs[0];
    row.check = check_launch(
        {}, [&] { poison(out), version.launch(launched.call, place.stream); },
        [&] {
          place.wait();
          const std::vector<float> got = out.to_host<float>();
          return compare(
              kSmall, [&](size_t i) { return got[i]; },
              [&](size_t i) { return static_cast<double>(a[i] + b[i]); },
              [](size_t) { return 0.0; });
        });
  }
  const auto direct = [&] {
    vector_add::launch_vectorized_add(static_cast<float*>(call.outputs[0].data()),
                                      static_cast<const float*>(call.inputs[0].data()),
                                      static_cast<const float*>(call.inputs[1].data()), kSmall,
                                      nullptr);
  };
  std::vector<double> alone;
  std::vector<std::vector<double>> above(rows.size());
  host_ns(direct, wait_for_device);  // the first launch loads code
  time_rounds(rows, options, [&](size_t i) {
    alone.push_back(host_ns(direct, wait_for_device));
    const Launched& row = launches[i];
    const double ns = host_ns([&] { row.launch(row.call, row.runs_on.stream); }, row.runs_on.wait);
    above[i].push_back(ns - alone.back());
    return 1e-6 * ns;
  });
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows[i];
    if (!above[i].empty()) {
      const double extra = summarize(above[i]).median;
      char text[80];
      std::snprintf(text, sizeof text, "%.0f ns above the launcher", extra);
      row.note = text;
    }
    report.add(row);
  }
  if (!alone.empty())
    report.fact("the launcher of 1.1 itself", 1e-3 * summarize(alone).median, "us");
}

void run_eager(const Options& options, Report& report) {
  Device& device = framework::device("own");
  const auto wait = [&] { framework::plugin_device(device).wait(); };
  const Shape shape{static_cast<std::int64_t>(kSmall)};
  const Tensor a = Tensor::from_host(device, numbers(options.seed, 0, kSmall), shape);
  const Tensor b = Tensor::from_host(device, numbers(options.seed, 1, kSmall), shape);
  Call call = addition(a, b);
  std::vector<double> given, eager;  // us
  for (int round = 0; round < rounds_of(options); ++round) {
    given.push_back(1e-3 * host_ns([&] { framework::run(call); }, wait));
    eager.push_back(1e-3 * host_ns([&] { framework::add(a, b); }, wait));
  }
  report.fact("an add by the dispatcher, its output given", summarize(given).median, "us");
  report.fact("an eager add, its output allocated", summarize(eager).median, "us");
}

// ---- Memory -------------------------------------------------------------------------------------

void run_memory(const Options& options, Report& report) {
  const NetworkSizes usual{256, 784, 128, 10}, small{33, 50, 17, 10};
  const NetworkValues values(options.quick ? small : usual, options.seed);
  report.table(values.sizes.name());
  const std::string skipped = reason_to_skip("own");
  std::optional<TwoLayers> network;
  if (skipped.empty()) network.emplace(values.on(framework::device("own")));
  std::vector<Row> rows;
  std::vector<Forward> forwards;
  std::vector<float> y(values.want.size());
  for (const auto& version : kMemoryVersions) {
    if (!options.wants(version.name)) continue;
    Row& row = rows.emplace_back();
    forwards.push_back(version.launch);
    row.name = version.name, row.lesson = version.lesson, row.work.limit = Work::Limit::none;
    row.shape = {static_cast<size_t>(values.sizes.batch),
                 static_cast<size_t>(values.sizes.outputs)};
    row.skipped = skipped;
    if (!network) continue;
    std::memset(y.data(), 0xFF, sizeof(float) * y.size());
    version.launch(y.data(), values.x.data(), *network);
    row.check = values.compare(y);
  }
  time_rounds(rows, options, [&](size_t i) {
    HostTimer timer;
    forwards[i](y.data(), values.x.data(), *network);
    return timer.ms();
  });
  for (const Row& row : rows) report.add(row);
}

// ---- Kernels ------------------------------------------------------------------------------------

namespace {

// A case's operands on one device, and its Call.
struct OnDevice {
  OnDevice(const Case& c, Device& to) : device(to) {
    call.op = &framework::op_named(c.op());
    for (const Shape& shape : c.inputs())
      call.inputs[call.input_count++] = Tensor::empty(device, shape);
    if (c.which == Which::conv2d) ++call.input_count;  // no bias
    call.output_count = 1;
    call.outputs[0] = Tensor::empty(device, c.output());
    const std::vector<double> attributes = c.attributes();
    std::copy(attributes.begin(), attributes.end(), call.attributes);
  }
  void fill(const Values& values) {
    for (size_t i = 0; i < values.inputs.size(); ++i) {
      const std::vector<float>& input = values.inputs[i];
      device.to_device(call.inputs[i].data(), input.data(), sizeof(float) * input.size());
    }
  }

  Device& device;
  Call call;
};

}  // namespace

void run_kernels(const Case& c, const Options& options, Report& report) {
  Values values;
  std::map<std::string, OnDevice> operands;  // by the device's name
  Measurement table(options, 0);
  for (const auto& version : kKernelVersions) {
    if (!options.wants(version.name)) continue;
    const Who who = version.launch;
    Measured measured;
    measured.skipped = reason_to_skip(std::strcmp(who.policy, "best") == 0 ? "own" : who.policy);
    if (measured.skipped.empty() && std::strcmp(who.policy, "vendor") == 0 &&
        !has_operation("vendor", c.op()))
      measured.skipped = std::string("no ") + c.op() + " in vendor";
    if (!measured.skipped.empty()) {
      table.version(version, std::move(measured));
      continue;
    }
    OnDevice& on = operands.try_emplace(who.device, c, framework::device(who.device)).first->second;
    measured.work = c.work();
    if (std::strcmp(who.policy, "reference") == 0) measured.settle_ms = 0;  // no clock rises for it
    measured.launch = [&on, who](hipStream_t) {
      framework::use(on.device, who.policy);
      framework::run(on.call);
    };
    measured.verify = [&] { return values.compare(on.call.outputs[0].to_host<float>()); };
    measured.prepare = [&on] { poison(on.call.outputs[0]); };
    // The maker's convolution may be a Fourier transform, which rounds integers, too.
    const std::string policy = who.policy;
    if (c.which == Which::conv2d && (policy == "vendor" || policy == "best"))
      measured.verify_exactly = [] { return Comparison{}; };
    for (const std::int64_t extent : c.output())
      measured.shape.push_back(static_cast<size_t>(extent));
    table.version(version, std::move(measured));
  }
  const auto fill = [&](bool with_integers) {
    values = values_of(c, with_integers, options.seed);
    for (auto& [name, on] : operands) on.fill(values);
  };
  fill(true);
  table.check_exactly();
  fill(false);
  report.table(c.name(), values.reference_ms, values.sample.text);
  table.run(report);
}

}  // namespace backends
