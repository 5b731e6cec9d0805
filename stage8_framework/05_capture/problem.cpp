#include "stage8_framework/05_capture/problem.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "common/program.h"
#include "common/sizes.h"
#include "stage5_training/06_train_toy/picture.h"
#include "stage5_training/06_train_toy/training.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/04_modules/precision.h"

namespace capturing {

namespace {

using framework::Activation;

constexpr size_t kCheckedSteps = 20;

size_t xor_epochs(const Options& options) { return options.sizes.back(); }

// 5.6's network of one hidden layer, tanh: points (n, 2) -> logits (n, 2).
class ToyNetwork : public Module {
 public:
  ToyNetwork(Device& device, const std::vector<size_t>& widths)
      : first_(device, width(widths, 0), width(widths, 1)),
        last_(device, width(widths, 1), width(widths, 2)) {
    add_module("0", first_), add_module("2", last_);
  }
  Tensor forward(const Tensor& x) override {
    return last_(framework::linear(x, first_.weight, first_.bias, Activation::tanh));
  }

 private:
  static std::int64_t width(const std::vector<size_t>& widths, size_t i) {
    return static_cast<std::int64_t>(widths[i]);
  }
  framework::Linear first_, last_;
};

Training xor_training(const Options& options, Device& device) {
  const train_toy::DataSet& data = train_toy::data_sets()[0];
  const train_toy::Points points = data.make(options.seed);
  train_toy::Settings settings;
  settings.kind = train_toy::Kind::Momentum, settings.seed = options.seed;
  settings.hyper.learning_rate = static_cast<float>(train_toy::kDefaults.learning_rate);
  const train_toy::Training like(data.widths, points, settings);
  const double rate = static_cast<double>(settings.hyper.learning_rate);

  Device& host = framework::device("reference");
  const auto count = static_cast<std::int64_t>(points.labels.size());
  const std::vector<Tensor> columns{
      Tensor::from_host(host, points.x, {count, 2}),
      Tensor::from_host(host, std::vector<std::int32_t>(points.labels.begin(), points.labels.end()),
                        {count})};
  const std::vector<Tensor> uploaded = modules::uploaded(columns, device);
  Training training{
      std::string(data.name) + "   points=" + std::to_string(count) + " network=2-8-2 " +
          train_toy::kDefaults.optimizer +
          " lr=" + train_toy::text("%g", train_toy::kDefaults.learning_rate) +
          " epochs=" + std::to_string(xor_epochs(options)),
      "xor.safetensors",
      0,
      modules::beginning_with(
          modules::state_of(like.model.tensors(), like.parameters()),
          [&data](Device& on) { return std::make_unique<ToyNetwork>(on, data.widths); }),
      {device, columns, uploaded, count, framework::in_order(count, count),
       modules::cross_entropy_of, modules::rule_of(settings),
       [rate](std::uint64_t) { return rate; }},
      xor_epochs(options),
      {},
      {}};
  HostTimer timer;
  training.want =
      train_toy::trajectory_cpu(like, points, std::min(kCheckedSteps, xor_epochs(options)));
  training.reference_ms = timer.ms();
  const double least =
      !options.sizes_given && xor_epochs(options) >= train_toy::kPromisedEpochs ? data.accuracy : 0;
  training.judge = [uploaded, least](Module& model, const std::vector<float>& losses) {
    const double share = modules::accuracy(model, uploaded);
    std::string text = train_toy::text("accuracy %.4g%%", 100 * share);
    if (!losses.empty())
      text = train_toy::text("loss %.2g, ", static_cast<double>(losses.back())) + text;
    return Training::Result{
        text, share < least ? text + train_toy::text(", promised %.4g%%", 100 * least) : ""};
  };
  return training;
}

}  // namespace

std::vector<Size> sizes() {
  std::vector<Size> all = modules::sizes();
  Size &epochs = all[0], &images = all[1], &steps = all[2];
  // Steps enough for a graph that is replayed: the reference follows one epoch.
  epochs.quick = 4, images.quick = 64, steps.quick = 4;
  steps.cpu = 6;  // each version trains three times, to be checked
  all.push_back({"xor_epochs", train_toy::kDefaults.epochs, train_toy::kDefaults.epochs_cpu,
                 train_toy::kDefaults.epochs_quick});
  return all;
}

void require_memory(const Options& options) {
  modules::require_memory(options);
  const double losses_and_rates = 2 * sizeof(float) * static_cast<double>(xor_epochs(options));
  require_device_memory(losses_and_rates);
  sizes::require_host_memory(2 * losses_and_rates);
}

std::vector<Training> trainings(const Options& options, Device& device, Report& report) {
  std::vector<Training> all = modules::trainings(options, device, report);
  if (!modules::wants_bf16(options)) all.push_back(xor_training(options, device));
  return all;
}

void train(const Training& training, const std::vector<TrainingVersion>& versions, const Like& like,
           const Options& options, Report& report) {
  const size_t checked = training.want.losses.size();
  report.table(training.name, training.reference_ms,
               "checked: the first gradient, the losses of the first " + std::to_string(checked) +
                   " steps, and that all losses are " + like.name);
  const auto losses_of = [&](Launch launch, std::uint64_t steps) {
    const auto model = training.make(training.task.device);
    return launch(*model, training.task, steps);
  };
  const std::uint64_t compared = std::min(training.steps, std::max<std::uint64_t>(checked, 4));
  const std::vector<float> first = losses_of(train_eager, compared);
  std::vector<float> want;  // of all steps, once they have been trained
  for (const TrainingVersion& version : versions) {
    if (!options.wants(version.name)) continue;
    Row row;
    row.name = version.name, row.lesson = version.lesson, row.work.limit = Work::Limit::none;
    row.skipped = version.skipped;
    if (row.skipped.empty()) row.check = check(training, version.launch, first);
    if (row.skipped.empty() && row.check.ok && !options.no_times) {
      const auto model = training.make(training.task.device);
      HostTimer timer;
      const std::vector<float> losses = version.launch(*model, training.task, training.steps);
      row.ms = row.ms_p10 = row.ms_p90 = timer.ms();
      const Training::Result result = training.judge(*model, losses);
      if (want.empty())
        want = version.launch == like.launch ? losses : losses_of(like.launch, training.steps);
      row.note = result.text, row.missed = result.missed;
      if (row.missed.empty()) row.missed = difference(losses, want);
    }
    report.add(row);
  }
}

void draw(const Graph& graph, const std::string& what, const std::string& file, Report& report) {
  if (graph.draw(file)) return report.line(what + ": " + file);
  report.line("no picture: there is no Graphviz (dot), or " + file + " can't be written");
  report.line(graph.text());
}

std::string short_name(const Training& training) {
  return training.file.substr(0, training.file.find('.'));
}

Comparison check(const Training& training, Launch launch, const std::vector<float>& eager) {
  const std::unique_ptr<Module> model = training.make(training.task.device);
  const std::vector<float> losses = launch(*model, training.task, eager.size());
  const Comparison same = compare(
      eager.size(), [&](size_t i) { return losses[i]; },
      [&](size_t i) { return static_cast<double>(eager[i]); }, [](size_t) { return 0.0; });
  return together({modules::check(training, launch), same});
}

std::string difference(const std::vector<float>& losses, const std::vector<float>& eager) {
  for (size_t i = 0; i < eager.size(); ++i)
    if (std::memcmp(&losses[i], &eager[i], sizeof(float)) != 0)
      return "the loss of step " + std::to_string(i) + " is " +
             train_toy::text("%.9g", static_cast<double>(losses[i])) + ", eager's is " +
             train_toy::text("%.9g", static_cast<double>(eager[i]));
  return "";
}

}  // namespace capturing
