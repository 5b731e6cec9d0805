// The calls of a step from a list, in place of the program that made them.
//
//   eager      model, layers, functions | shapes | memory | tape | rules | dispatcher | kernel
//   recorded                                                               dispatcher | kernel
//
// Fixes: eager asks in every step again which calls there are, how large their results, where these
//        lie, and what the gradients need. The answers are those of the step before.
// Idea:  keep the calls, and a storage for each tensor that they make. A replay runs one after the
//        other. What shall differ is written into the inputs first.
// Costs: every intermediate of the graph has memory of its own, as none is ever freed. And the
//        dispatcher checks and asks as if it saw each call for the first time.
#include "stage8_framework/02_backends/dispatch.h"
#include "stage8_framework/05_capture/capture.h"
#include "stage8_framework/05_capture/graph.h"

namespace framework {

namespace {

class RecordedReplay : public Replay {
 public:
  explicit RecordedReplay(const GraphRecord& record) {
    Storages storages;
    for (const GraphPlace& place : record.places) {
      storages.push_back(place.storage);
      if (place.storage != nullptr) continue;
      storages.back() = std::make_shared<Storage>(*record.device, place.bytes);
      bytes_ += place.bytes;
    }
    calls_ = calls_on(record, storages);
  }

  void run() override {
    // exercise: run all calls again (about 1 line)
    for (Call& call : calls_) framework::run(call);
    // end exercise
  }
  size_t bytes() const override { return bytes_; }

 private:
  std::vector<Call> calls_;
  size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<Replay> replay_recorded(const GraphRecord& record) {
  return std::make_unique<RecordedReplay>(record);
}

}  // namespace framework

namespace capturing {

std::vector<float> train_recorded(Module& model, const Task& task, std::uint64_t steps) {
  return train_replayed(model, task, steps, [](Graph&) {});
}

}  // namespace capturing
