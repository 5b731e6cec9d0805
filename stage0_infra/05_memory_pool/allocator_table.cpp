#include "stage0_infra/05_memory_pool/allocator_table.h"

#include <cstdio>
#include <memory>

#include "common/timer.h"

namespace memory_pool {

namespace {

// A version's row, its allocator and its times.
struct Entry {
  Row row;
  std::unique_ptr<Allocator> allocator;  // null: this device has none
  std::vector<double> ms;
};

}  // namespace

std::vector<Row> measure_allocators(const std::vector<Version<Launch>>& versions,
                                    const Trace& trace, const Trace& checked,
                                    const Options& options, Report& report,
                                    const std::function<void(Row&, Allocator&)>& finish) {
  std::vector<Entry> entries;
  for (const Version<Launch>& version : versions) {
    if (!options.wants(version.name)) continue;
    Entry& entry = entries.emplace_back();
    entry.row.name = version.name, entry.row.lesson = version.lesson;
    entry.row.work.limit = Work::Limit::none;
    entry.allocator = version.launch();
    if (entry.allocator == nullptr) {
      entry.row.skipped = "not supported by this device";
      continue;
    }
    const size_t damaged = count_damaged(checked, *entry.allocator);
    entry.row.check = compare(
        1, [&](size_t) { return static_cast<double>(damaged); }, [](size_t) { return 0.0; },
        [](size_t) { return 0.0; });
  }
  // The rounds are interleaved, so that whatever slows the machine down does so for all.
  const int rounds = options.rounds, replays = options.repeat > 0 ? options.repeat : rounds;
  std::vector<void*> blocks(trace.blocks);
  for (int round = 0; round < rounds; ++round)
    for (Entry& entry : entries) {
      if (entry.allocator == nullptr || !entry.row.check.ok) continue;
      const auto run = [&] {
        replay(trace, *entry.allocator, blocks);
        HIP_CHECK(hipDeviceSynchronize());
      };
      if (round == 0) run();  // the first replay fills the pools
      for (int r = round; r < replays; r += rounds) {
        HostTimer timer;
        run();
        entry.ms.push_back(timer.ms());
      }
    }
  std::vector<Row> rows;
  for (Entry& entry : entries) {
    Row& row = entry.row;
    if (!entry.ms.empty()) {
      const Timing timing = summarize(entry.ms);
      row.ms = timing.median, row.ms_p10 = timing.p10, row.ms_p90 = timing.p90;
      char text[80];
      std::snprintf(text, sizeof text, "%.2f us per block",
                    1e3 * row.ms / static_cast<double>(trace.blocks));
      row.note = text;
      finish(row, *entry.allocator);
    }
    report.add(row);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace memory_pool
