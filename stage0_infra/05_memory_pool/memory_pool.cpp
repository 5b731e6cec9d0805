// The allocations of a training run, by the driver, by the runtime's pool and by the step's own
// pool.
#include "stage0_infra/05_memory_pool/memory_pool.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <vector>

#include "common/program.h"
#include "common/timer.h"
#include "stage0_infra/05_memory_pool/pool.h"
#include "stage0_infra/05_memory_pool/trace.h"

namespace {

// A version's row, its allocator and its times.
struct Entry {
  Row row;
  std::unique_ptr<memory_pool::Allocator> allocator;  // null: this device has none
  std::vector<double> ms;
};

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"0.5",
                            "memory_pool",
                            "device memory that is asked for once",
                            {{"steps", 100, 40, 3}, {"width", 1024, 256, 100}},
                            version_infos(memory_pool::kVersions)};
  return run_program(argc, argv, program, [](const Options& options, Report& report) {
    const size_t steps = options.sizes[0], max_width = options.sizes[1];
    constexpr size_t kMostSteps = 100000, kMostWidth = size_t{1} << 20;
    if (steps < 1 || steps > kMostSteps || max_width < 1 || max_width > kMostWidth)
      throw UsageError("--size steps x width: 1 to 100000 steps, width 1 to 2^20");
    const memory_pool::Trace trace = memory_pool::training_trace(steps, max_width, options.seed);
    // What the trace has at a time, and what the two pools keep: each may keep twice as much.
    require_device_memory(5.0 * static_cast<double>(trace.peak_bytes));
    const memory_pool::Trace short_trace =
        memory_pool::training_trace(std::min(steps, size_t{2}), max_width, options.seed);

    char text[160];
    std::snprintf(text, sizeof text, "%zu training steps: %zu blocks, at most %.1f MB at a time",
                  steps, trace.blocks, static_cast<double>(trace.peak_bytes) / 1e6);
    report.table(text);
    std::vector<Entry> entries;
    for (const auto& version : memory_pool::kVersions) {
      if (!options.wants(version.name)) continue;
      Entry& entry = entries.emplace_back();
      entry.row.name = version.name, entry.row.lesson = version.lesson;
      entry.row.work.limit = Work::Limit::none;
      entry.allocator = version.launch();
      if (entry.allocator == nullptr) {
        entry.row.skipped = "not supported by this device";
        continue;
      }
      const size_t damaged = memory_pool::count_damaged(short_trace, *entry.allocator);
      entry.row.check = compare(
          1, [&](size_t) { return static_cast<double>(damaged); }, [](size_t) { return 0.0; },
          [](size_t) { return 0.0; });
    }
    // The rounds are interleaved, so that whatever slows the machine down does so for all.
    constexpr int kRounds = 3;
    const int replays = options.repeat > 0 ? options.repeat : kRounds;
    std::vector<void*> blocks(trace.blocks);
    for (int round = 0; round < kRounds; ++round)
      for (Entry& entry : entries) {
        if (entry.allocator == nullptr || !entry.row.check.ok) continue;
        const auto run = [&] {
          memory_pool::replay(trace, *entry.allocator, blocks);
          HIP_CHECK(hipDeviceSynchronize());
        };
        if (round == 0) run();  // the first replay fills the pools
        for (int r = round; r < replays; r += kRounds) {
          HostTimer timer;
          run();
          entry.ms.push_back(timer.ms());
        }
      }
    double raw_ms = 0, pool_ms = 0;
    for (Entry& entry : entries) {
      Row& row = entry.row;
      if (!entry.ms.empty()) {
        const Timing timing = summarize(entry.ms);
        row.ms = timing.median, row.ms_p10 = timing.p10, row.ms_p90 = timing.p90;
        std::snprintf(text, sizeof text, "%.2f us per block",
                      1e3 * row.ms / static_cast<double>(trace.blocks));
        row.note = text;
      }
      report.add(row);
      if (row.name == "raw") raw_ms = row.ms;
      if (row.name == "pool") pool_ms = row.ms;
    }
    if (raw_ms > 0 && pool_ms > 0) report.fact("pool faster than raw", raw_ms / pool_ms, "x");

    entries.clear();

    // What a pool does for one replay, from its own statistics.
    memory_pool::Pool pool;
    memory_pool::replay(trace, pool, blocks);
    const memory_pool::Statistics books = pool.statistics();
    report.fact("pool hits", static_cast<double>(books.hits), "allocations");
    report.fact("pool misses", static_cast<double>(books.misses), "allocations");
    report.fact("pool peak", static_cast<double>(books.peak) / 1e6, "MB");
    report.fact("pool cached at the end", static_cast<double>(books.cached) / 1e6, "MB");
    report.fact("pool still live at the end", static_cast<double>(books.live), "bytes");
  });
}
