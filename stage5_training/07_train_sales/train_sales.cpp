// Reads a shop's sales, trains every version of the model on them, and says how far off it is.
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/input_file.h"
#include "common/program.h"
#include "common/sample.h"
#include "common/sizes.h"
#include "common/training.h"
#include "stage5_training/06_train_toy/epochs.h"
#include "stage5_training/07_train_sales/checkpoint.h"
#include "stage5_training/07_train_sales/reference.h"
#include "stage5_training/07_train_sales/train_sales.h"

using namespace train_sales;

namespace {

constexpr double kSgdRate = 0.05;      // what suits SGD here, beside Adam's --lr
constexpr size_t kPredictions = 400;   // for the picture
constexpr size_t kProgressLines = 10;  // of each training, at most

using TrainVersion = Version<Launch>;

// ---- The sales --------------------------------------------------------------------------------

struct Input {
  Sales sales;
  std::string name;    // "data/sales.tsv"
  std::string source;  // what a checkpoint says of them
};

// Reads DIR/sales.tsv, or makes sales where there is none or where the command line asks for a
// size, which a file has already; --quick takes a file only if --data names its folder.
Input read_sales(const Options& options, Report& report) {
  const std::string path = training::data_folder(options) + "/sales.tsv";
  const bool wanted = !options.sizes_given && (!options.quick || !options.training.data.empty());
  const bool from_file = wanted && std::filesystem::exists(path);
  Input input;
  std::string text;
  if (from_file) {
    input.name = path;
    text = training::load_or_refuse([&] { return input_file::read(path); });
  } else {
    // A sale's line, twice while the text grows, and what is parsed from it.
    constexpr double kBytesPerSale = 256;
    sizes::require_host_memory(kBytesPerSale * static_cast<double>(options.sizes[0]));
    input.name = "made up here";
    text = sales::make(options.sizes[0], options.seed);
    report.line((wanted ? "no " + path + ": " : std::string()) + size_text(options.sizes[0]) +
                " sales are made up here (scripts/make_sales.py makes files of them)");
  }
  const Timing timing = time_host([&] { input.sales = sales::parse(text); });
  const double bytes = static_cast<double>(text.size());
  report.fact("parse", bytes / timing.median / 1e3, "MB/s");

  const Sales& sales = input.sales;
  input.source = std::to_string(text.size()) + " bytes, " + std::to_string(sales.lines) + " lines";
  report.line(input.name + ": " + input.source + ", " + std::to_string(sales.malformed()) +
              " of them malformed and skipped");
  for (size_t f = 0; f < sales::kFaultCount; ++f)
    if (sales.faults[f] > 0)
      report.line("  " + std::to_string(sales.faults[f]) + " x " + sales::kFaults[f]);
  for (const std::string& example : sales.examples) report.line("    " + example);
  return input;
}

// ---- A training -------------------------------------------------------------------------------

struct Result {
  Row row;
  std::vector<double> losses, errors;  // after each epoch: mean loss of its steps, test MAE
  std::vector<float> predictions;      // of the test split, normalised
};

std::string text(const char* format, double a, double b) {
  char line[120];
  std::snprintf(line, sizeof line, format, a, b);
  return line;
}

// Checks a version's first steps, then trains from the beginning, or goes on where the options say
// so; of an epoch only the training is timed.
Result train(const TrainVersion& version, const DataSet& data, const Settings& settings,
             const Options& options, const Input& input, const std::vector<float4>& rows,
             const std::string& title) {
  const TrainingOptions& wanted = options.training;
  Result result;
  Row& row = result.row;
  row.name = version.name, row.lesson = version.lesson;
  row.skipped = missing(version.needs);
  if (!row.skipped.empty() && wanted.one_version())
    throw UsageError(std::string("--version ") + version.name + ": " + row.skipped);
  if (!row.skipped.empty()) return result;

  const training::Interrupt interrupt;
  Training t(data.train_rows(), data.train(), settings, input.source);
  const train_toy::QueueSteps queue = [&](size_t steps) { version.launch(t, steps); };
  row.check = train_toy::check_first_steps(
      t, queue, trajectory_cpu(t.model, t.parameters(), rows, t.sampler, settings, kChecked));
  if (!row.check.ok) return result;  // what begins wrong is neither trained nor saved
  t.restart();
  if (wanted.resume) training::load_or_refuse([&] { t.resume(wanted.checkpoint); });
  const std::uint64_t before = t.steps;

  std::printf("%s\n", title.c_str());
  const size_t every = wanted.one_version() ? 1 : gpu::ceil_div(wanted.epochs, kProgressLines);
  train_toy::Epochs run{wanted.epochs, t.steps_per_epoch(), t.steps_per_epoch(), wanted.checkpoint,
                        texts_of(data.encoding())};
  run.after_round = [&](size_t epoch, double loss, const training::Kept&) {
    result.predictions = predict(t.model, data.test_rows(), data.test());
    result.losses.push_back(loss);
    result.errors.push_back(error_of(result.predictions, data));
    const bool shown = epoch % every == 0 || epoch == wanted.epochs;
    return shown ? text("loss %.5f   test MAE %.2f", loss, result.errors.back()) : "";
  };
  row.ms = train_toy::run_epochs(t, run, queue, interrupt);
  if (result.errors.empty()) return result;  // resumed at its end

  const double trained = static_cast<double>((t.steps - before) * settings.batch);
  row.ms_p10 = row.ms_p90 = row.ms;
  row.work = {0, 6.0 * static_cast<double>(t.model.parameter_count()) * trained, Work::Limit::none};
  const double error = result.errors.back(), promised = kPromisedShare * error_of_mean(data);
  const bool was_promised = train_toy::as_promised(options, kDefaults) && wanted.data.empty() &&
                            settings.kind == Kind::Adam && wanted.epochs >= kPromisedEpochs;
  if (was_promised && !(error < promised))
    row.missed = text("test MAE %.2f, promised below %.2f", error, promised);
  row.note = text("%.3g M rows/s, test MAE %.2f", trained / row.ms / 1e3, result.errors.back());
  return result;
}

// ---- What is reported -------------------------------------------------------------------------

void report_split(const DataSet& data, Report& report) {
  report.line(std::to_string(data.train()) + " to train, " + std::to_string(data.test()) +
              " to test; " + std::to_string(data.encoding().categories.size()) +
              " categories with a column; of others, all zeros there: " +
              std::to_string(data.other_train()) + " to train, " +
              std::to_string(data.other_test()) + " to test");
}

void report_errors(double model, const DataSet& data, Report& report) {
  const double mean = error_of_mean(data);
  report.fact("test MAE", model, "");
  report.fact("test MAE of the mean", mean, "");
  report.fact("test MAE of the median", error_of_median(data), "");
  report.fact("share of the mean's", 100 * model / mean, "%");
}

// True and predicted totals of the first rows of the test split.
void report_predictions(const std::vector<float>& normalized, const DataSet& data, Report& report) {
  std::vector<std::vector<double>> rows;
  for (size_t i = 0; i < std::min(kPredictions, normalized.size()); ++i)
    rows.push_back({static_cast<double>(data.totals()[data.train() + i]),
                    data.encoding().normalization.total(normalized[i])});
  report.series("predictions", {"total", "predicted"}, rows);
}

// Tests the model of a checkpoint: on the test split, if these are the sales it was trained on,
// else on all of them.
void evaluate(const Input& input, const Options& options, Report& report) {
  const std::string& path = options.training.evaluate;
  Sequential model = make_model();
  const Checkpoint checkpoint = training::load_or_refuse([&] {
    const safetensors::File file = safetensors::read(path);
    const Checkpoint found = checkpoint_of(path, file);
    sequential::load(path, file, model);
    return found;
  });
  sales::require(input.sales, input.name, 1);
  const auto source = checkpoint.state.more.find("source");
  const bool same = source != checkpoint.state.more.end() && source->second == input.source;
  const size_t n = input.sales.rows.size();
  const DataSet data(input.sales, checkpoint.state.seed, checkpoint.encoding,
                     same ? n - training_share(n) : n);
  report.line(path + ": " + std::to_string(checkpoint.state.epochs) + " epochs of " +
              checkpoint.state.optimizer + "; " +
              (same ? "tested on the split that it was not trained on"
                    : "tested on all of these sales, which it was not trained on"));
  report_split(data, report);
  const std::vector<float> predictions = predict(model, data.test_rows(), data.test());
  report.fact("test MAE", error_of(predictions, data), "");
  report.fact("test MAE of the mean", error_of_mean(data), "");
  report_predictions(predictions, data, report);
}

// SGD beside Adam: `best` trains with both, unless `known` is there already.
void compare_optimizers(const TrainVersion& version, const DataSet& data, Settings settings,
                        const Options& options, const Input& input, const std::vector<float4>& rows,
                        const Result& known, Report& report) {
  std::map<Kind, Result> results{{settings.kind, known}};
  const float rate = settings.hyper.learning_rate;
  for (const Kind kind : {Kind::Sgd, Kind::Adam}) {
    if (results.count(kind) > 0) continue;
    settings.kind = kind;
    settings.hyper.learning_rate = kind == Kind::Sgd ? static_cast<float>(kSgdRate) : rate;
    results[kind] = train(version, data, settings, options, input, rows,
                          std::string(version.name) + " with " + optimizers::name(kind));
  }
  std::vector<std::string> columns{"epoch"};
  for (const auto& [kind, result] : results) columns.push_back(optimizers::name(kind));
  std::vector<std::vector<double>> curve(known.losses.size());
  for (size_t epoch = 0; epoch < curve.size(); ++epoch) {
    curve[epoch].push_back(static_cast<double>(epoch + 1));
    for (const auto& [kind, result] : results) curve[epoch].push_back(result.losses[epoch]);
  }
  report.series("loss", columns, curve);

  report.table(std::string("optimizers   ") + version.name);
  for (auto& [kind, result] : results) {
    result.row.name = optimizers::name(kind);
    report.add(result.row);
  }
  for (const auto& [kind, result] : results)
    if (!result.row.check.ok) return;  // it was not trained
  const std::vector<double>&sgd = results[Kind::Sgd].losses, &adam = results[Kind::Adam].losses;
  size_t epoch = 0;
  while (epoch < adam.size() && adam[epoch] > sgd.back()) ++epoch;
  report.fact("epochs of sgd", static_cast<double>(sgd.size()), "");
  if (epoch < adam.size())
    report.fact("epochs until adam has sgd's last loss", static_cast<double>(epoch + 1), "");
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"5.7",
                            "train_sales",
                            "learns what a sale brings in",
                            {{"sales", 366000, 40000, 3001}},
                            version_infos(kVersions),
                            kDefaults};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const TrainingOptions& wanted = options.training;
    const Input input = read_sales(options, report);
    if (!wanted.evaluate.empty()) return evaluate(input, options, report);

    const Settings settings{train_toy::settings_of(options), wanted.batch};
    sales::require(input.sales, input.name, gpu::ceil_div(settings.batch * 5, 4));
    require_device_memory(2 * DataSet::bytes(static_cast<double>(input.sales.rows.size())));
    const DataSet data(input.sales, options.seed);
    report_split(data, report);

    std::vector<TrainVersion> versions;
    for (const TrainVersion& version : kVersions)
      if (options.wants(version.name)) versions.push_back(version);
    // Where there is one model to train: the version that was named, else the last.
    if (wanted.one_version()) versions.erase(versions.begin(), versions.end() - 1);

    std::vector<float4> rows(data.train() * kParts);
    HIP_CHECK(hipMemcpy(rows.data(), data.train_rows(), rows.size() * sizeof(float4),
                        hipMemcpyDeviceToHost));
    std::vector<Result> results;
    for (const TrainVersion& version : versions)
      results.push_back(train(version, data, settings, options, input, rows, version.name));

    report.table("rows=" + size_text(data.train()) + " batch=" + std::to_string(settings.batch) +
                     " epochs=" + std::to_string(wanted.epochs) + " " + wanted.optimizer +
                     " float32",
                 0,
                 "checked: the first gradient and the losses of up to " + std::to_string(kChecked) +
                     " steps");
    for (const Result& result : results) {
      report.add(result.row);
      if (!result.row.check.ok && !wanted.checkpoint.empty())
        report.line(training::not_trained_text(wanted.checkpoint));
    }
    const Result& last = results.back();
    if (last.errors.empty()) return;  // nothing was left to do
    if (!wanted.one_version())
      compare_optimizers(versions.back(), data, settings, options, input, rows, last, report);
    report_errors(last.errors.back(), data, report);
    report_predictions(last.predictions, data, report);
  });
}
