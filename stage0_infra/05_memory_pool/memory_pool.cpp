// The allocations of a training run, by the driver, by the runtime's pool and by the step's own
// pool.
#include "stage0_infra/05_memory_pool/memory_pool.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <vector>

#include "common/program.h"
#include "stage0_infra/05_memory_pool/allocator_table.h"
#include "stage0_infra/05_memory_pool/pool.h"
#include "stage0_infra/05_memory_pool/trace.h"

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
    const std::vector<Row> rows = memory_pool::measure_allocators(
        {std::begin(memory_pool::kVersions), std::end(memory_pool::kVersions)}, trace, short_trace,
        options, report);
    double raw_ms = 0, pool_ms = 0;
    for (const Row& row : rows) {
      if (row.name == "raw") raw_ms = row.ms;
      if (row.name == "pool") pool_ms = row.ms;
    }
    if (raw_ms > 0 && pool_ms > 0) report.fact("pool faster than raw", raw_ms / pool_ms, "x");

    // What a pool does for one replay, from its own statistics.
    memory_pool::Pool pool;
    std::vector<void*> blocks(trace.blocks);
    memory_pool::replay(trace, pool, blocks);
    const memory_pool::Statistics books = pool.statistics();
    report.fact("pool hits", static_cast<double>(books.hits), "allocations");
    report.fact("pool misses", static_cast<double>(books.misses), "allocations");
    report.fact("pool peak", static_cast<double>(books.peak) / 1e6, "MB");
    report.fact("pool cached at the end", static_cast<double>(books.cached) / 1e6, "MB");
    report.fact("pool still live at the end", static_cast<double>(books.live), "bytes");
  });
}
