// All calls in one launch: the device itself goes from one to the next.
//
//   planned    host    | call 0 | call 1 | call 2 | ...        a launch each, some microseconds
//              device     | 0 |    | 1 |    | 2 |              waits in between
//   graph      host    | launch |
//              device     | 0 | 1 | 2 | ...
//
// Fixes: for small models a launch takes the host longer than the kernel takes the device.
// Idea:  the planned calls are queued once while the device's stream is captured (5.6): the driver
//        keeps the kernels and their arguments. A replay is one launch.
// Costs: the graph's making, once. No call may be the host's. Nothing may be allocated meanwhile,
//        and with a plan nothing is.
#include <stdexcept>

#include "common/error.h"
#include "stage8_framework/05_capture/capture.h"
#include "stage8_framework/05_capture/graph.h"

namespace framework {

namespace {

class InstanceReplay : public Replay {
 public:
  InstanceReplay(const GraphRecord& record, Planner planner)
      : device_(*record.device), planned_(record, planner) {
    const auto refuse = [&](const std::string& reason) {
      throw std::runtime_error("no device graph: " + reason + "; plan() replays the calls without");
    };
    const CourseBackend& table = device_.table();
    if (table.capture_begin == nullptr) refuse(std::string(device_.name()) + " has no graphs");
    for (size_t i = 0; i < record.calls.size(); ++i)
      if (record.calls[i].seat->at_once)
        refuse(record.calls[i].seat->name + " works on the host, where it runs call " +
               described(record, i));
    CourseError error;
    if (table.capture_begin(device_.state(), device_.stream(), &error) != 0)
      throw_error(error, "the capture of a graph");
    try {
      planned_.queue();
    } catch (...) {  // the stream must be usable again
      if (table.capture_end(device_.state(), device_.stream(), &graph_, &error) == 0)
        table.graph_destroy(device_.state(), graph_);
      throw;
    }
    if (table.capture_end(device_.state(), device_.stream(), &graph_, &error) != 0)
      throw_error(error, "the capture of a graph");
  }
  // What is queued may still use the graph.
  ~InstanceReplay() override {
    try {
      device_.wait();
    } catch (const std::exception&) {
      // a device that has failed is done with it, too
    }
    device_.table().graph_destroy(device_.state(), graph_);
  }

  void run() override {
    CourseError error;
    if (device_.table().graph_launch(device_.state(), graph_, device_.stream(), &error) != 0)
      throw_error(error, "the launch of a graph");
    planned_.count_writes();
  }
  size_t bytes() const override { return planned_.bytes(); }

 private:
  PluginDevice& device_;
  PlannedReplay planned_;
  void* graph_ = nullptr;
};

}  // namespace

std::unique_ptr<Replay> replay_instance(const GraphRecord& record, Planner planner) {
  return std::make_unique<InstanceReplay>(record, planner);
}

}  // namespace framework

namespace capturing {

std::vector<float> train_graph(Module& model, const Task& task, std::uint64_t steps) {
  return train_replayed(model, task, steps, [](Graph& graph) { graph.instantiate(); });
}

}  // namespace capturing
