// Runs three expressions by every version: checks them in double, holds the results of all versions
// together bit for bit, and times replays. Then trains the character model of 8.4 with graphs that
// are fused.
#include "stage8_framework/06_fusion/fusion.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "common/option_values.h"
#include "common/program.h"
#include "common/runtime_compiler.h"
#include "common/timer.h"
#include "stage0_infra/03_timing/timing.h"
#include "stage5_training/06_train_toy/picture.h"
#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/02_backends/ladders.h"
#include "stage8_framework/02_backends/registry.h"
#include "stage8_framework/05_capture/problem.h"
#include "stage8_framework/06_fusion/problem.h"
#include "stage8_framework/06_fusion/source.h"

using framework::Device;
using framework::Tensor;
using fusion::Expression;
using fusion::Graph;
using fusion::Recorded;
using modules::Training;
using train_toy::text;

namespace {

constexpr const char* kSources = "--sources";
constexpr const char* kGraph = "--graph";

// "2 calls, compiled in 12.3 ms"
std::string note_of(const Graph& graph) {
  std::string note = std::to_string(graph.size()) + (graph.size() == 1 ? " call" : " calls");
  for (const std::string& line : fusion::notes_of(graph)) note += ", " + line;
  return note;
}

// Why nothing can be compiled here; empty where it can. Loads the compiler's library: what a row
// says of compiling is the time of its own program.
std::string obstacle_to_compiling(Device& device) {
  const Tensor x = framework::full(device, {1}, 1);
  Tensor y;  // held: a result that nobody wants is not computed
  const Graph graph = framework::capture([&] { y = framework::neg(framework::exp(x)); });
  try {
    fusion::fuse(graph, {fusion::Fusion::By::compiled, false});
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

// Milliseconds that the compiler takes for a kernel that does nothing, the median of some: what is
// left of a program's time is the program's own. Each has a name that no other one had: NVRTC keeps
// on the disk what it has compiled.
double ms_of_nothing() {
  constexpr int kTimesCompiled = 5;
  const std::string text =
      "#if defined(__CUDACC__) || defined(__HIP__)\n__global__\n#endif\nvoid nothing_";
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  std::vector<double> ms;
  for (int i = 0; i < kTimesCompiled; ++i) {
    HostTimer timer;
    runtime_code::code_of(text + std::to_string(now + i) + "() {}\n");
    ms.push_back(timer.ms());
  }
  return summarize(ms).median;
}

// Why a version can't run, where nothing can be compiled for this reason.
std::string skipped_for(fusion::Launch version, const std::string& obstacle) {
  const bool compiles = version == fusion::fuse_compiled || version == fusion::fuse_with_reduction;
  return compiles ? obstacle : "";
}

// ---- Expressions --------------------------------------------------------------------------------

// The rows of a table, and the graphs that they time.
struct Rows {
  std::vector<Row> rows;
  std::vector<Recorded> graphs;
};

// What three arrays take that nothing but their sum is made of: 1.1's kernel.
void add_limit(const Expression& sum, Rows& table) {
  Row& row = table.rows.emplace_back();
  row.name = "sum of two arrays", row.peer = true, row.work = sum.work;
  table.graphs.push_back(fusion::recorded(sum));
  table.graphs.back().graph.instantiate();
  row.check = sum.check(table.graphs.back().results);
}

void run_expression(const Expression& expression, const Expression* limit,
                    const std::string& obstacle, Device& device, const Options& options,
                    Report& report) {
  report.table(expression.name, 0, expression.sampled);
  const Recorded separate = fusion::recorded(expression);
  Rows table;
  auto& [rows, graphs] = table;
  if (limit != nullptr) add_limit(*limit, table);
  for (const auto& version : fusion::kVersions) {
    if (!options.wants(version.name)) continue;
    Row& row = rows.emplace_back();
    row.name = version.name, row.lesson = version.lesson, row.work = expression.work;
    graphs.push_back(fusion::recorded(expression));
    Recorded& made = graphs.back();
    row.skipped = skipped_for(version.launch, obstacle);
    if (!row.skipped.empty()) continue;
    version.launch(made.graph);
    row.note = note_of(made.graph);
    made.graph.instantiate();
    for (const Tensor& result : made.results) backends::poison(result);
    made.graph.replay();
    row.check = together(
        {expression.check(made.results), fusion::compare_bits(made.results, separate.results)});
  }
  framework::PluginDevice& queue = framework::plugin_device(device);
  constexpr int kReplays = 8;  // of a round, one behind the other: the host's part is hidden
  backends::time_rounds(rows, options, [&](size_t i) {
    queue.wait();
    HostTimer timer;
    for (int k = 0; k < kReplays; ++k) table.graphs[i].graph.replay();
    queue.wait();
    return timer.ms() / kReplays;
  });
  for (const Row& row : rows) report.add(row);
}

// ---- Trainings ----------------------------------------------------------------------------------

template <fusion::Launch prepare>
std::vector<float> train_fused(framework::Module& model, const capturing::Task& task,
                               std::uint64_t steps) {
  return capturing::train_replayed(model, task, steps, [](Graph& graph) {
    prepare(graph);
    graph.instantiate();
  });
}
constexpr modules::Launch kTrainings[] = {
    train_fused<fusion::fuse_separate>, train_fused<fusion::fuse_interpreted>,
    train_fused<fusion::fuse_compiled>, train_fused<fusion::fuse_with_reduction>};

void train(const Training& training, const std::string& obstacle, const Options& options,
           Report& report) {
  std::vector<capturing::TrainingVersion> versions;
  for (size_t i = 0; i < std::size(kTrainings); ++i) {
    const auto& version = fusion::kVersions[i];
    versions.push_back(
        {version.name, version.lesson, kTrainings[i], skipped_for(version.launch, obstacle)});
  }
  capturing::train(training, versions, {"those of separate", kTrainings[0]}, options, report);
}

}  // namespace

int main(int argc, char** argv) {
  ProgramInfo program{"8.6", "fusion", "chains of operations as one pass over memory",
                      fusion::sizes(), version_infos(fusion::kVersions)};
  program.extra = {{kSources, "FOLDER", "write generated source code of some programs there"},
                   {kGraph, "FILE", "draw the fused graph of the last expression there, as SVG"}};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    require_work(options);
    const auto sources = options.extra.find(kSources);
    if (sources != options.extra.end()) {
      fusion::write_sources(sources->second);
      return;
    }
    const auto file = options.extra.find(kGraph);
    if (file != options.extra.end()) option_values::check_output_path(kGraph, file->second);
    fusion::require_memory(options);
    report.limits(timing::measure_limits(options));
    // The build that looks for races has no plug-ins, and here is nothing that runs beside another.
    if (!kTimes) return;
    Device& device = framework::device("own");
    const Training training = modules::character_training(options, device, report);
    const std::string obstacle = obstacle_to_compiling(device);
    if (obstacle.empty())
      report.fact("compiling a kernel that does nothing", ms_of_nothing(), "ms");
    const fusion::Expression limit = fusion::sum_of_two(options, device);
    const std::vector<Expression> expressions = fusion::expressions(options, device);
    for (const Expression& expression : expressions) {
      const bool is_alike = expression.work.bytes == limit.work.bytes;  // it has three such arrays
      run_expression(expression, is_alike ? &limit : nullptr, obstacle, device, options, report);
    }
    train(training, obstacle, options, report);
    if (file != options.extra.end())
      capturing::draw(fusion::fuse(fusion::recorded(expressions.back()).graph),
                      expressions.back().name, file->second, report);
  });
}
