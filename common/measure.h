// Measures a whole table: checks every version, then times all of them in interleaved rounds, so
// that a device that warms up or slows down does so for all of them.
//
//   Measurement table(options);
//   if (blas::available()) table.peer(blas::name(), {work, launch_blas, verify, {{c, bytes}}});
//   for (const auto& version : kVersions) table.version(version, {work, launch, verify, ...});
//   inputs.fill_integers();
//   table.check_exactly();
//   inputs.fill_uniform();
//   report.table(problem, inputs.reference_ms);
//   table.run(report);
#pragma once

#include <algorithm>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/graph.h"
#include "common/program.h"

// Matrix units draw so much power that the device lowers its clock within half a second. A row that
// keeps them busy runs for that long before it is timed, so that all are timed at the clock that
// lasts. In milliseconds, for Measured::settle_ms.
inline double settle_matrix_units(const Options& options) {
  return options.quick || std::string_view(gpu::kBackend) == "cpu" ? 0 : 500;
}

// What a row of the table does. Only work, launch and verify must be there.
struct Measured {
  Work work;
  // Queues the work on this stream, and only there. For a check the stream is the default one.
  std::function<void(hipStream_t)> launch;
  // Copies the result back and compares it. Called after each checked launch.
  std::function<Comparison()> verify;
  // {pointer, bytes} of what a launch writes: poisoned before each checked one.
  std::vector<std::pair<void*, size_t>> outputs = {};
  // Called before each checked launch: puts back what the work reads and overwrites.
  std::function<void()> prepare = {};
  // Compares the result on integers; without it, verify() does.
  std::function<Comparison()> verify_exactly = {};
  // Called at the end, with a row that is right: may set its note, or refuse it.
  std::function<void(Row&)> finish = {};
  std::string note = {};
  std::vector<std::size_t> shape = {};  // of the output
  double settle_ms = 20;                // time_gpu's
  std::string skipped = {};             // why it can't run here; empty: it can
};

class Measurement {
 public:
  static constexpr int kRounds = 3;  // unless --rounds says other
  // Launches shorter than this are timed in a graph of many: by themselves they would be held up by
  // the host that queues them, or be so short that what the timer itself takes counts.
  // scripts/bench_torch.py does the same with PyTorch's calls. The CPU backend runs a launch at
  // once and needs no graphs.
#if defined(GPU_BACKEND_CPU)
  static constexpr bool kIsCpu = true;
#else
  static constexpr bool kIsCpu = false;
#endif
  static constexpr double kGraphBelow = kIsCpu ? 0 : 1;  // ms

  // graph_below: see kGraphBelow, in ms.
  explicit Measurement(const Options& options, double graph_below = kGraphBelow)
      : options_(options), graph_below_(graph_below) {}

  // Adds a library's row. Peers come first in the table, in this order.
  void peer(const std::string& name, Measured measured) {
    Entry entry(name, std::move(measured));
    entry.row.peer = true;
    entries_.insert(entries_.begin() + static_cast<std::ptrdiff_t>(peers_++), std::move(entry));
  }
  // Adds a version's row. Does nothing where the user wants other versions. What the device lacks
  // is a reason to skip it before the caller's own.
  template <class Launch>
  void version(const Version<Launch>& version, Measured measured) {
    if (!options_.wants(version.name)) return;
    Entry entry(version.name, std::move(measured));
    entry.row.lesson = version.lesson;
    if (const std::string lack = missing(version.needs); !lack.empty()) entry.row.skipped = lack;
    entries_.push_back(std::move(entry));
  }

  // Launches every version once, on inputs whose result is exact in float in any order (small
  // integers), and refuses each whose result is not equal bit for bit. The caller has filled them,
  // and fills others afterwards.
  void check_exactly() {
    for (Entry& entry : entries_) {
      if (!is_left(entry)) continue;
      const Measured& m = entry.measured;
      Comparison& check = entry.row.check;
      check = check_once(m, m.verify_exactly ? m.verify_exactly : m.verify);
      if (!check.ok || check.max_error != 0) {
        check.ok = false;
        check.failed = std::max<size_t>(check.failed, 1);
        add_note(entry.row, "on integers");
      }
    }
  }

  // Checks and times all rows and adds them to the report's last table. A row that fails, here or
  // in check_exactly(), is not timed. --repeat says how many times each is timed, all rounds
  // together; without it a round takes a third of what the timer thinks right. With --no-times none
  // is timed.
  const std::vector<Row>& run(Report& report) {
    rows_.clear();
    for (Entry& entry : entries_) {
      if (!is_left(entry)) continue;
      if (!kTimes && entry.row.check.compared > 0) continue;  // one launch shows its races
      entry.row.check = check_once(entry.measured, entry.measured.verify);
      entry.timed = entry.row.check.ok && kTimes && !options_.no_times;
    }
    for (int round = 0; round < options_.rounds; ++round)
      for (Entry& entry : entries_)
        if (entry.timed) time_round(entry, round);
    for (Entry& entry : entries_) {
      Row& row = entry.row;
      if (entry.timed) {
        const Timing timing = summarize(std::move(entry.ms));
        row.ms = timing.median, row.ms_p10 = timing.p10, row.ms_p90 = timing.p90;
        entry.graph.reset();
      }
      if (kTimes && is_left(entry) && entry.measured.finish) entry.measured.finish(row);
      report.add(row);
      rows_.push_back(row);
    }
    entries_.clear();
    peers_ = 0;
    return rows_;
  }

 private:
  struct Entry {
    Entry(const std::string& name, Measured of_row) : measured(std::move(of_row)) {
      row.name = name, row.work = measured.work;
      row.note = measured.note, row.shape = measured.shape, row.skipped = measured.skipped;
    }

    Measured measured;
    Row row;
    bool timed = false;
    Pace pace;
    std::unique_ptr<gpu::Graph> graph;  // pace.batch launches; null: they are queued one by one
    std::vector<double> ms;
  };

  // Whether this row can run here and has not failed.
  static bool is_left(const Entry& entry) {
    return entry.row.skipped.empty() && entry.row.check.ok;
  }

  static Comparison check_once(const Measured& m, const std::function<Comparison()>& verify) {
    if (m.prepare) m.prepare();
    return check_launch(
        m.outputs, [&] { m.launch(nullptr); }, verify);
  }

  static void add_note(Row& row, const std::string& note) {
    row.note += (row.note.empty() ? "" : "   ") + note;
  }

  // This round's share of the repeats.
  void time_round(Entry& entry, int round) {
    const auto work = [&] { entry.measured.launch(nullptr); };
    Pace& pace = entry.pace;
    if (round == 0) {
      pace = settle(work, options_.repeat, entry.measured.settle_ms);
      if (options_.repeat == 0) {
        pace.repeat = (pace.repeat * options_.rounds + kRounds - 1) / kRounds;
      }
      if (pace.once_ms < graph_below_) record(entry);
    } else if (!kIsCpu) {  // other rows ran in between: the clocks are theirs
      warm_up(work, pace.once_ms, entry.measured.settle_ms);
    }
    const int repeat = pace.repeat / options_.rounds + (round < pace.repeat % options_.rounds);
    if (!entry.graph) {
      time_batches(entry.ms, work, pace.batch, repeat);
      return;
    }
    if (repeat == 0) return;
    entry.graph->launch(*stream_);  // the first launch brings the graph to the device
    GpuTimer timer;
    for (int r = 0; r < repeat; ++r) {
      timer.start(*stream_);
      entry.graph->launch(*stream_);
      entry.ms.push_back(timer.stop(*stream_) / pace.batch);
    }
  }

  // Captures as many launches as take about two milliseconds.
  void record(Entry& entry) {
    const int batch = static_cast<int>(std::clamp(2 / entry.pace.once_ms, 3.0, 256.0));
    try {
      if (!stream_) stream_ = std::make_unique<gpu::Stream>();
      entry.measured.launch(*stream_);  // whatever a library allocates for a stream, it does now
      stream_->wait();
      auto graph = std::make_unique<gpu::Graph>(*stream_, [&] {
        for (int b = 0; b < batch; ++b) entry.measured.launch(*stream_);
      });
      // Work that went elsewhere is not in the graph.
      if (graph->nodes() < static_cast<size_t>(batch))
        return add_note(entry.row, "not in a graph: it does not use its stream");
      entry.graph = std::move(graph), entry.pace.batch = batch;
    } catch (const std::exception&) {  // a library's error may be of any type
      static_cast<void>(hipGetLastError());
      add_note(entry.row, "not in a graph: its launch can't be captured");
    }
  }

  const Options options_;
  const double graph_below_;
  std::deque<Entry> entries_;  // peers first
  size_t peers_ = 0;
  std::unique_ptr<gpu::Stream> stream_;
  std::vector<Row> rows_;
};
