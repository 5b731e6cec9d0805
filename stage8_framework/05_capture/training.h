// A training whose steps are recorded and replayed. A graph holds several steps, so that what is
// done between two replays counts little:
//
//   slab    | batch 0 | batch 1 | ... | batch K-1 |     written before each replay, in place
//   rates   |   0     |   1     | ... |   K-1     |     read by the updates of these steps
//   losses  |   0     |   1     | ... |   K-1     |     copied to those of all steps after it
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "stage8_framework/04_modules/modules.h"
#include "stage8_framework/05_capture/graph.h"

namespace capturing {

using framework::Device;
using framework::Graph;
using framework::Module;
using framework::Tensor;
using modules::Task;

// Steps of a graph: at most kMostSteps, and no more than one in kShare of the training, as the
// steps that are recorded take as long as eager ones. Of a short training up to kFewSteps, and so
// that the graph is replayed twice at least, if there are four steps.
inline constexpr std::uint64_t kMostSteps = 50, kFewSteps = 8, kShare = 40;
std::uint64_t steps_of_graph(std::uint64_t steps);

class CapturedTraining {
 public:
  // Of `steps` steps in all, of which a graph has `count`. The model outlives it.
  CapturedTraining(Module& model, const Task& task, std::uint64_t count, std::uint64_t steps);
  CapturedTraining(const CapturedTraining&) = delete;  // slabs_ looks at done_
  CapturedTraining& operator=(const CapturedTraining&) = delete;

  // Brings the samples and the rates of the next `count` steps to where a graph reads them.
  void prepare();
  // Queues step k of these, and all of them while they are recorded.
  void step(std::int64_t k);
  Graph captured();
  // The first `count` of them are done: keeps their losses.
  void count_done(std::int64_t count);
  // Of all steps. Waits for the device.
  std::vector<float> losses() const { return all_losses_.to_host<float>(); }

 private:
  Module& model_;
  const Task& task_;
  std::int64_t count_, done_ = 0;
  framework::ArenaOptimizer optimizer_;
  framework::DeviceLoader slabs_;
  std::vector<Tensor> slab_;
  Tensor rates_, losses_, all_rates_, all_losses_, one_;
};

// Trains as kVersions do. The first step is run eagerly, in which layers make what they keep. The
// next ones are recorded, and begin(graph) may change how they are replayed. What does not fill a
// graph at the end is run eagerly, too.
std::vector<float> train_replayed(Module& model, const Task& task, std::uint64_t steps,
                                  const std::function<void(Graph&)>& begin);

}  // namespace capturing
