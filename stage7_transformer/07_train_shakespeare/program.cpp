#include "stage7_transformer/07_train_shakespeare/program.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <stdexcept>

#include "common/timer.h"
#include "common/training.h"
#include "stage5_training/05_sequential/checkpoint.h"
#include "stage5_training/06_train_toy/epochs.h"
#include "stage5_training/06_train_toy/picture.h"
#include "stage7_transformer/07_train_shakespeare/checkpoint.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"
#include "stage7_transformer/07_train_shakespeare/writer.h"

namespace train_shakespeare {

namespace {

constexpr size_t kOwnText = 200000;   // characters of the play that is made up
constexpr size_t kQuickText = 20000;  // characters of either text with --quick

// ---- The command line -------------------------------------------------------------------------

// The value of an option that was given, or the default.
std::string given(const Options& options, const std::string& name, const std::string& otherwise) {
  const auto found = options.extra.find(name);
  return found == options.extra.end() ? otherwise : found->second;
}

size_t count_of(const Options& options, const std::string& name, size_t least, size_t otherwise) {
  const std::string value = given(options, name, std::to_string(otherwise));
  size_t count = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, count);
  if (error != std::errc() || stop != end || count < least || count > 1000000000)
    throw UsageError(name + ": '" + value + "' is not a number from " + std::to_string(least) +
                     " to 1000000000");
  return count;
}

enum class Wanted { fp32, bf16, both };

Wanted precision_of(const Options& options) {
  const bool is_medium = given(options, "--config", "") == kConfigs[1].name;
  const std::string name = given(options, "--precision", is_medium ? "both" : "fp32");
  if (name != "fp32" && name != "bf16" && name != "both")
    throw UsageError("--precision: '" + name + "' is none of fp32, bf16 and both");
  return name == "fp32" ? Wanted::fp32 : name == "bf16" ? Wanted::bf16 : Wanted::both;
}

const Config& config_of(const Options& options) {
  const std::string name = given(options, "--config", kConfigs[0].name);
  const auto* const found = std::find_if(std::begin(kConfigs), std::end(kConfigs),
                                         [&](const Config& config) { return name == config.name; });
  if (found == std::end(kConfigs))
    throw UsageError("--config: '" + name + "' is neither small nor medium");
  return *found;
}

}  // namespace

std::vector<ChosenVersion> versions_of(const Options& options) {
  const Wanted precision = precision_of(options);
  // A version that is named runs, unless the precision is named, too, and is another one.
  const bool any = !options.versions.empty() && options.extra.count("--precision") == 0;
  const bool one = options.training.one_version() && options.versions.empty();
  std::vector<ChosenVersion> list;
  if (any || precision != Wanted::bf16)
    for (const auto& version : kVersions)
      if (options.wants(version.name) && (!one || &version == &best()))
        list.push_back({version, Precision::fp32});
  if (any || precision == Wanted::bf16 || (precision == Wanted::both && !one))
    for (const auto& version : kBf16Versions)
      if (options.wants(version.name) && (!one || &version == &best_bf16()))
        list.push_back({version, Precision::bf16});
  return list;
}

Sampling sampling_of(const Options& options) {
  Sampling sampling;
  const std::string value = given(options, "--temperature", "0.8");
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, sampling.temperature);
  if (error != std::errc() || stop != end ||
      !(sampling.temperature >= 0 && sampling.temperature <= 100))
    throw UsageError("--temperature: '" + value + "' is not a number from 0 to 100");
  sampling.top_k = count_of(options, "--top-k", 0, 0);
  sampling.seed = options.seed;
  return sampling;
}

Settings settings_of(const Options& options) {
  Settings settings(train_toy::settings_of(options));
  const std::vector<size_t>& sizes = options.sizes;
  settings.sizes = {sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
  settings.steps = options.training.epochs;
  if (options.extra.count("--config") > 0) {
    const Config& config = config_of(options);
    if (options.sizes_given) throw UsageError("--config and --size say the same: leave one away");
    settings.sizes = config.sizes;
    if (!options.training.epochs_given) settings.steps = config.steps;
    if (!options.training.learning_rate_given)
      settings.hyper.learning_rate = static_cast<float>(config.learning_rate);
  }
  try {
    check(settings.sizes);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  return settings;
}

std::string prompt_of(const Options& options, const Vocabulary& vocabulary) {
  const std::string& known = vocabulary.characters();
  const std::string usual = known.find('\n') == std::string::npos ? known.substr(0, 1) : "\n";
  const std::string prompt = given(options, "--prompt", usual);
  if (prompt.empty()) throw UsageError("--prompt: the text is empty");
  try {
    vocabulary.encode(prompt);
  } catch (const std::invalid_argument& error) {
    throw UsageError(std::string("--prompt: ") + error.what());
  }
  return prompt;
}

// ---- Data -------------------------------------------------------------------------------------

Data find_data(const Options& options, Report& report) {
  const std::string folder = training::data_folder(options);
  const std::string path = shakespeare::path_in(folder);
  std::error_code unreadable;
  if (std::filesystem::exists(path, unreadable) || !options.training.data.empty()) {
    const std::string whole = training::load_or_refuse([&] { return shakespeare::read(path); });
    if (!options.quick || whole.size() <= kQuickText) return {Corpus(whole), kRealText};
    return {Corpus(whole.substr(0, kQuickText)), "the beginning of Tiny Shakespeare"};
  }
  report.line("no " + path + ": training on a play that this program makes up" +
              " (get Tiny Shakespeare with `python3 scripts/data.py`)");
  return {Corpus(shakespeare::compose(options.quick ? kQuickText : kOwnText, 1)),
          "the course's own play"};
}

// ---- What was learnt --------------------------------------------------------------------------

std::string missed(const Options& options, const Settings& settings, const Data& data, double loss,
                   double validation) {
  if (data.name != kRealText || !options.training.data.empty() ||
      &config_of(options) != &kConfigs[0] || !train_toy::as_promised(options, kDefaults))
    return "";
  const Promise* promise = nullptr;
  for (const Promise& one : kPromises)
    if (settings.steps >= one.steps) promise = &one;
  if (promise == nullptr || (loss <= promise->loss && validation <= promise->loss)) return "";
  return train_toy::text("loss %.3f, ", loss) + train_toy::text("validation %.3f, ", validation) +
         train_toy::text("promised %.3f", promise->loss);
}

std::string missed_beside(const Options& options, const Settings& settings, const Data& data,
                          double validation, double of_fp32) {
  const Config& medium = kConfigs[1];
  if (data.name != kRealText || !options.training.data.empty() || of_fp32 == 0 ||
      &config_of(options) != &medium || settings.steps < medium.steps ||
      options.training.learning_rate_given || !(options.training.optimizer == kDefaults.optimizer))
    return "";
  if (validation <= (1 + kBf16Share) * of_fp32) return "";
  return train_toy::text("validation %.3f", validation) + ", promised within " +
         train_toy::text("%g%%", 100 * kBf16Share) + train_toy::text(" of %.3f", of_fp32);
}

void show_text(const std::string& prompt, const std::string& written, Report& report) {
  report.line("");
  report.line("the model writes:");
  std::string line = "  | ";
  for (const char c : prompt + written) {
    if (c == '\n') {
      report.line(line);
      line = "  | ";
    } else {
      line += c;
    }
  }
  report.line(line);
}

// What is written goes to stdout as it is, for whoever redirects it.
void generate(const Options& options, Report& report) {
  const std::string& path = options.training.checkpoint;
  if (path.empty()) throw UsageError("--generate needs a model: add --checkpoint FILE");
  const size_t count = count_of(options, "--generate", 1, kWritten);
  const Sampling sampling = sampling_of(options);
  training::load_or_refuse([&] {
    const safetensors::File file = safetensors::read(path);
    const Checkpoint checkpoint = checkpoint_of(path, file);
    Model model(checkpoint.sizes, checkpoint.vocabulary.size());
    sequential::load(path, file, model);
    const std::string prompt = prompt_of(options, checkpoint.vocabulary);
    report.line(path + ": " + model.description() + " behind " + std::to_string(checkpoint.steps) +
                " steps");
    const HostTimer timer;
    const std::string written = write(model, checkpoint.vocabulary, prompt, count, sampling);
    const double ms = timer.ms();
    report.line("");
    report.line(prompt + written);
    report.line("");
    report.fact("written", static_cast<double>(count) / ms * 1e3, "characters/s");
  });
}

void evaluate(const Options& options, const Data& data, Report& report) {
  const std::string& path = options.training.evaluate;
  training::load_or_refuse([&] {
    const safetensors::File file = safetensors::read(path);
    const Checkpoint checkpoint = checkpoint_of(path, file);
    if (checkpoint.vocabulary.characters() != data.corpus.vocabulary.characters())
      throw std::invalid_argument(path + " knows other characters than " + data.name);
    Model model(checkpoint.sizes, checkpoint.vocabulary.size());
    sequential::load(path, file, model);
    Pass pass(checkpoint.sizes, checkpoint.vocabulary.size(), transformer_block::kBest);
    const DeviceBuffer<std::uint8_t> text(data.corpus.validation);
    report.line(path + ": " + model.description() + " behind " + std::to_string(checkpoint.steps) +
                " steps, on " + data.name);
    report.fact("validation loss", loss_of(model, pass, {text.data(), text.size()}), "nats");
  });
  report.fact("loss of knowing the characters' shares", shakespeare::unigram_loss(data.corpus),
              "nats");
}

}  // namespace train_shakespeare
