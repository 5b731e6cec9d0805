// Trains the course's three models, written as modules, by every version: checks the first steps
// against the references of 5.8, 6.4 and 7.7, times the trainings, and says what was learnt.
#include "stage8_framework/04_modules/modules.h"

#include <filesystem>

#include "common/program.h"
#include "common/training.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/04_modules/precision.h"
#include "stage8_framework/04_modules/problem.h"
#include "stage8_framework/04_modules/state_file.h"

namespace {

constexpr const char *kSave = "--save", *kLoad = "--load";

// The file in the folder that an option names.
std::string path_of(const Options& options, const char* option, const modules::Training& training) {
  return options.extra.at(option) + "/" + training.file;
}

void run(const modules::Training& training, const Options& options, Report& report) {
  const std::string steps = std::to_string(training.want.losses.size());
  report.table(training.name, training.reference_ms,
               "checked: the first gradient and the losses of the first " + steps + " steps");
  for (const auto& version : modules::kVersions) {
    if (!options.wants(version.name)) continue;
    Row row;
    row.name = version.name, row.lesson = version.lesson, row.work.limit = Work::Limit::none;
    row.check = modules::check(training, version.launch);
    if (row.check.ok && !options.no_times) {
      const auto model = training.make(training.task.device);
      HostTimer timer;
      const std::vector<float> losses = version.launch(*model, training.task, training.steps);
      row.ms = row.ms_p10 = row.ms_p90 = timer.ms();
      const modules::Training::Result result = training.judge(*model, losses);
      row.note = result.text, row.missed = result.missed;
      if (options.extra.count(kSave) > 0)
        framework::save(path_of(options, kSave, training), *model);
    }
    report.add(row);
  }
}

void require_folder(const Options& options, const char* option) {
  std::error_code unreadable;
  const auto given = options.extra.find(option);
  if (given != options.extra.end() && !std::filesystem::is_directory(given->second, unreadable))
    throw UsageError(std::string(option) + ": there is no folder " + given->second);
}

// What the models in a folder reach, whoever has trained them.
void evaluate(const modules::Training& training, const Options& options, Report& report) {
  const auto model = training.make(training.task.device);
  const std::string path = path_of(options, kLoad, training);
  training::load_or_refuse([&] {
    framework::load(path, *model);
    return 0;
  });
  report.line(path + ": " + training.judge(*model, {}).text);
}

}  // namespace

int main(int argc, char** argv) {
  ProgramInfo program{"8.4", "modules", "models as trees of named tensors, and their training",
                      modules::sizes(), version_infos(modules::kVersions)};
  program.extra = {{kSave, "FOLDER", "write the trained models there, as safetensors files"},
                   {kLoad, "FOLDER", "test the models that are there, train not"},
                   modules::precision_option()};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    require_folder(options, kSave), require_folder(options, kLoad);
    modules::require_memory(options);
    report.limits(timing::measure_limits(options));
    // The build that looks for races has no plug-ins, and here is nothing that runs beside another.
    if (!kTimes) return;
    framework::Device& device = framework::device("own");
    for (const modules::Training& training : modules::trainings(options, device, report)) {
      if (options.extra.count(kLoad) > 0)
        evaluate(training, options, report);
      else
        run(training, options, report);
    }
  });
}
