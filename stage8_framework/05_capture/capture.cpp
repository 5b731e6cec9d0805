// Trains four models by every version: checks the first steps against the references of their
// stages, holds every loss against eager's, bit for bit, and times the trainings. Then packs the
// memory of their graphs by every planner.
#include "stage8_framework/05_capture/capture.h"

#include <algorithm>

#include "common/option_values.h"
#include "common/program.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage5_training/06_train_toy/picture.h"
#include "stage8_framework/01_tensor/splitting.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/04_modules/precision.h"
#include "stage8_framework/05_capture/problem.h"

using capturing::Training;
using framework::Graph;
using framework::Interval;
using train_toy::text;

namespace {

constexpr const char* kGraph = "--graph";
constexpr double kPromised = 1.05;  // by_size's bytes, of the least that can be

double megabytes(size_t bytes) { return static_cast<double>(bytes) / 1e6; }

// ---- Memory -------------------------------------------------------------------------------------

// A graph of a training's steps, behind the first one. Its intermediates' peak in eager, as the
// pool counts it, goes to `peak`.
Graph graph_of(const Training& training, std::uint64_t steps, size_t* peak = nullptr) {
  const auto model = training.make(training.task.device);
  capturing::CapturedTraining captured(*model, training.task, steps, steps + 1);
  captured.prepare();
  captured.step(0);
  captured.count_done(1);
  tensor::Splitting& pool = framework::plugin_device(training.task.device).pool();
  pool.restart_peaks();
  const size_t live = pool.statistics().live;
  Graph graph = captured.captured();
  if (peak != nullptr) *peak = pool.statistics().peak_live - live;
  return graph;
}

void plan(const Training& training, const Options& options, Report& report) {
  const std::uint64_t steps = capturing::steps_of_graph(training.steps);
  size_t peak = 0;
  const Graph graph = graph_of(training, steps, &peak);
  const std::vector<Interval> intervals = graph.intervals();
  const size_t bound = framework::lower_bound_of(intervals);
  const std::string name = capturing::short_name(training);
  report.table("memory of " + std::to_string(steps) + (steps == 1 ? " step   " : " steps   ") +
               name);
  for (const auto& planner : capturing::kPlanners) {
    if (!options.wants(planner.name)) continue;
    Row row;
    row.name = planner.name, row.lesson = planner.lesson, row.work.limit = Work::Limit::none;
    HostTimer timer;
    const framework::MemoryPlan plan = planner.launch(intervals);
    const double ms = timer.ms();
    if (!options.no_times) row.ms = row.ms_p10 = row.ms_p90 = ms;
    const double share = static_cast<double>(plan.bytes) / static_cast<double>(bound);
    row.note = text("%.3f MB", megabytes(plan.bytes)) + text(", %.3f x the bound", share);
    row.missed = framework::fault_of(plan, intervals);
    row.check.compared = intervals.size(), row.check.ok = row.missed.empty();
    if (row.missed.empty() && plan.bytes < bound) row.missed = "less than is in use at one time";
    if (row.missed.empty() && planner.launch == framework::plan_by_size && share > kPromised)
      row.missed = row.note + text(", promised %.2f", kPromised);
    report.add(row);
  }
  report.fact(name + ", calls of the graph", static_cast<double>(graph.size()), "calls");
  report.fact(name + ", the lower bound", megabytes(bound), "MB");
  report.fact(name + ", eager's peak", megabytes(peak), "MB");
}

}  // namespace

int main(int argc, char** argv) {
  ProgramInfo program{"8.5", "capture", "training steps that are recorded, planned and replayed",
                      capturing::sizes(),
                      version_infos(capturing::kVersions, capturing::kPlanners)};
  program.extra = {{kGraph, "FILE", "draw one step of the first model there, as SVG"},
                   modules::precision_option()};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const auto file = options.extra.find(kGraph);
    if (file != options.extra.end()) option_values::check_output_path(kGraph, file->second);
    capturing::require_memory(options);
    report.limits(timing::measure_limits(options));
    // The build that looks for races has no plug-ins, and here is nothing that runs beside another.
    if (!kTimes) return;
    framework::Device& device = framework::device("own");
    const std::vector<Training> trainings = capturing::trainings(options, device, report);
    if (wants_any(options, capturing::kVersions))
      for (const Training& training : trainings)
        capturing::train(training, capturing::versions(capturing::kVersions),
                         {"eager's", capturing::train_eager}, options, report);
    if (wants_any(options, capturing::kPlanners))
      for (const Training& training : trainings) plan(training, options, report);
    if (file != options.extra.end())
      capturing::draw(graph_of(trainings[0], 1), "one step of " + trainings[0].name, file->second,
                      report);
  });
}
