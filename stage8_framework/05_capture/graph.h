// Graph: a list of Calls that were run once and can be run again. Plain C++ that knows no device.
//
//   Graph step = capture([&] {                 0  %3 f32 (64,128) = linear(%0 f32 (64,784), ...)
//     loss(model(x), labels).backward();       1  %4 f32 () = cross_entropy(%3 ..., %2 ...)
//     optimizer.step(rate);                    2  ...
//   });
//   x.copy_from(next); step.replay();          the same calls on the same tensors
//
// A tensor that was made while the graph was recorded, and that nobody holds afterwards, is an
// intermediate: its place is the graph's business. All others stay where they are: parameters,
// states, inputs, and what the user still has. So whoever wants other values writes them into these
// before replay(), and finds results in them afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stage8_framework/02_backends/c_call.h"
#include "stage8_framework/02_backends/plugin_device.h"
#include "stage8_framework/05_capture/planner.h"

namespace framework {

// A tensor of a recorded call: a storage, and how the elements lie in it.
struct GraphTensor {
  int place = -1;  // of GraphRecord::places; -1: an input that is absent
  Layout layout;
  Dtype dtype = Dtype::f32;
};

// Several calls as one: what 8.6 makes of them.
class FusedWork {
 public:
  virtual ~FusedWork() = default;
  // Queues it on the inputs, outputs and workspace of a call. Throws gpu::Error or
  // std::runtime_error.
  virtual void queue(const CourseCall& call, void* stream) const = 0;
  virtual std::string text() const = 0;  // what it computes
  virtual std::string note() const = 0;  // what runs it
};
extern const Op kFused;  // the operation of such a call: it is no row of kOps

// A Call as it was queued, and who has taken it.
struct GraphCall {
  const Op* op = nullptr;
  int input_count = 0, output_count = 0;
  GraphTensor inputs[kMaxInputs], outputs[kMaxOutputs];
  double attributes[kMaxAttributes] = {};
  Seat* seat = nullptr;
  std::int32_t kernel = 0;
  size_t workspace = 0;                    // bytes
  std::shared_ptr<const FusedWork> fused;  // of a call whose operation is kFused
};

// A storage that recorded calls use.
struct GraphPlace {
  size_t bytes = 0;
  std::shared_ptr<Storage> storage;  // nullptr: of an intermediate
};

// What was recorded: calls of one device, in their order.
struct GraphRecord {
  PluginDevice* device = nullptr;  // nullptr: there are no calls
  std::vector<GraphCall> calls;
  std::vector<GraphPlace> places;
};

// "17  %4 f32 (64,10) = linear(%2 f32 (64,128), %0 f32 (10,128), %1 f32 (10))"
std::string described(const GraphRecord& record, size_t call);

// A way to run the calls of a record again. Errors are those of run().
class Replay {
 public:
  virtual ~Replay() = default;
  virtual void run() = 0;
  virtual size_t bytes() const = 0;  // of intermediates and workspaces that it holds
};

// May be moved, not copied. Errors leave a graph as it was: gpu::Error of the device, out of memory
// included; std::runtime_error where it can't be done, one line that names the call.
class Graph {
 public:
  Graph() = default;  // of no calls
  explicit Graph(std::shared_ptr<const GraphRecord> record) : record_(std::move(record)) {}

  // Queues all calls again, in their order. A graph that is not planned asks the dispatcher for
  // each of them and has memory of its own for each intermediate; one that is fused can't, and is
  // planned. Not within a capture().
  void replay();
  // From now on all intermediates and workspaces lie in one block, and each call goes at once to
  // the plug-in and the kernel that have run it first.
  Graph& plan(Planner planner = plan_by_size);
  // The same, and all calls are one graph of the device, which one launch replays. Refused where a
  // plug-in works on the host, or the device has no graphs.
  Graph& instantiate(Planner planner = plan_by_size);

  const GraphRecord& record() const;
  size_t size() const { return record().calls.size(); }
  // Of intermediates and workspaces: what is held now.
  size_t bytes() const { return replay_ == nullptr ? 0 : replay_->bytes(); }
  // What a planner is given.
  std::vector<Interval> intervals() const;

  std::string text() const;  // a line for each call
  // The same as a picture, by Graphviz. False where there is no `dot` or the file can't be written.
  bool draw(const std::string& svg_file) const;

 private:
  std::shared_ptr<const GraphRecord> record_;  // where it lies, replay_ knows
  std::unique_ptr<Replay> replay_;
};

// Runs `work` once, as ever, and records every call that it queues in this thread: forward,
// backward and updates, and copies of tensors. Errors, after which nothing is recorded, and the
// next capture() begins anew: what `work` throws, with the call behind which it came.
// std::runtime_error where the host reads or writes a device's memory meanwhile, where the calls
// are of two devices, where a state is made that is updated and outlives the recording, and within
// another capture().
Graph capture(const std::function<void()>& work);

// ---- The ladder's ways -----------------------------------------------------------------------

std::unique_ptr<Replay> replay_recorded(const GraphRecord& record);                  // recorded.cpp
std::unique_ptr<Replay> replay_planned(const GraphRecord& record, Planner planner);  // planned.cpp
std::unique_ptr<Replay> replay_instance(const GraphRecord& record, Planner planner);  // graph.cpp

// The lives of all intermediates, in the order of their places, then those of the workspaces, in
// the order of their calls. versions/planned.cpp.
std::vector<Interval> intervals_of(const GraphRecord& record);

// The calls on these storages, one for each place.
using Storages = std::vector<std::shared_ptr<Storage>>;
std::vector<Call> calls_on(const GraphRecord& record, const Storages& storages);

// Calls that are placed, and go to their plug-ins' tables without asking anybody.
class PlannedReplay : public Replay {
 public:
  PlannedReplay(const GraphRecord& record, Planner planner);
  void run() override {
    queue();
    count_writes();
  }
  size_t bytes() const override { return block_->bytes(); }
  void queue();
  // The versions of what the calls have written, which others may see.
  void count_writes() const;

 private:
  struct Write {
    std::shared_ptr<Storage> storage;
    const char* operation;
  };
  const GraphRecord& record_;
  std::shared_ptr<Storage> block_;
  std::vector<Call> calls_;
  std::vector<CCall> ready_;  // the same, for the tables; they point into calls_ and themselves
  std::vector<Write> writes_;
};

}  // namespace framework
