// All intermediates in one block, packed by their lives, and no dispatcher.
//
//   call     0    1    2    3    4           block of the plan
//   %3       |---------|                     | %3 | %5          |
//   %4            |-------------------|      | %4               |
//   %5                       |----|          |   | workspace of 4
//
// Fixes: recorded has memory for each tensor of 50 steps, of which a few are in use at one time. It
//        asks the dispatcher about each call.
// Idea:  the list shows the whole life of each intermediate: from the first call that touches it to
//        the last. Two whose lives do not meet may have the same memory. And who runs a call, by
//        which kernel, has been decided when it was recorded.
// Costs: a graph works with these shapes, this memory and these kernels only.
#include <algorithm>

#include "common/error.h"
#include "stage8_framework/05_capture/capture.h"
#include "stage8_framework/05_capture/graph.h"

namespace framework {

std::vector<Interval> intervals_of(const GraphRecord& record) {
  constexpr int kNever = -1;
  std::vector<Interval> lives;  // of all places
  for (const GraphPlace& place : record.places) lives.push_back({place.bytes, kNever, kNever});
  const auto touch = [&](const GraphTensor& tensor, int call) {
    if (tensor.place < 0) return;
    Interval& life = lives[static_cast<size_t>(tensor.place)];
    // exercise: the life goes from the first call that touches it to the last (about 2 lines)
    if (life.first == kNever) life.first = call;
    life.last = call;
    // end exercise
  };
  std::vector<Interval> workspaces;
  for (size_t i = 0; i < record.calls.size(); ++i) {
    const GraphCall& call = record.calls[i];
    const int number = static_cast<int>(i);
    for (int k = 0; k < call.input_count; ++k) touch(call.inputs[k], number);
    for (int k = 0; k < call.output_count; ++k) touch(call.outputs[k], number);
    if (call.workspace > 0) workspaces.push_back({call.workspace, number, number});
  }
  std::vector<Interval> intervals;
  for (size_t i = 0; i < lives.size(); ++i)
    if (record.places[i].storage == nullptr) intervals.push_back(lives[i]);
  intervals.insert(intervals.end(), workspaces.begin(), workspaces.end());
  return intervals;
}

PlannedReplay::PlannedReplay(const GraphRecord& record, Planner planner) : record_(record) {
  const MemoryPlan plan = planner(intervals_of(record));
  block_ = std::make_shared<Storage>(*record.device, plan.bytes);
  char* const begin = static_cast<char*>(block_->data());
  size_t next = 0;  // of the plan
  Storages storages;
  for (const GraphPlace& place : record.places)
    storages.push_back(place.storage != nullptr
                           ? place.storage
                           : std::make_shared<Storage>(*record.device, begin + plan.offsets[next++],
                                                       place.bytes, block_));
  calls_ = calls_on(record, storages);
  ready_.resize(calls_.size());
  std::vector<const char*> writers(storages.size(), nullptr);
  for (size_t i = 0; i < calls_.size(); ++i) {
    const GraphCall& from = record.calls[i];
    to_c(calls_[i], &ready_[i]);
    CourseCall& call = ready_[i].call;
    if (from.fused == nullptr)
      call.op = from.seat->ops[static_cast<size_t>(row_of(*from.op))], call.kernel = from.kernel;
    if (from.workspace > 0) call.workspace = begin + plan.offsets[next++];
    for (int k = 0; k < from.output_count; ++k)
      writers[static_cast<size_t>(from.outputs[k].place)] = from.op->name;
  }
  for (size_t i = 0; i < storages.size(); ++i)
    if (record.places[i].storage != nullptr && writers[i] != nullptr)
      writes_.push_back({storages[i], writers[i]});
}

void PlannedReplay::queue() {
  PluginDevice& device = *record_.device;
  for (size_t i = 0; i < ready_.size(); ++i) {
    if (record_.calls[i].fused != nullptr) {
      record_.calls[i].fused->queue(ready_[i].call, device.stream());
      continue;
    }
    Seat& seat = *record_.calls[i].seat;
    if (seat.at_once) device.wait();
    CourseError error;
    if (seat.table->run(seat.state, &ready_[i].call, device.stream(), &error) != 0)
      throw_error(error, "replay of " + described(record_, i) + " by " + seat.name);
  }
}

void PlannedReplay::count_writes() const {
  for (const Write& write : writes_) write.storage->count_write(write.operation);
}

std::unique_ptr<Replay> replay_planned(const GraphRecord& record, Planner planner) {
  return std::make_unique<PlannedReplay>(record, planner);
}

}  // namespace framework

namespace capturing {

std::vector<float> train_planned(Module& model, const Task& task, std::uint64_t steps) {
  return train_replayed(model, task, steps, [](Graph& graph) { graph.plan(); });
}

}  // namespace capturing
