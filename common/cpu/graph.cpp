// Graphs: made ready, launched, looked into and destroyed.
#include <memory>
#include <mutex>
#include <vector>

#include "common/cpu/handles.h"

namespace cpu {

namespace {

void run_graph(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    const OnDevice scope(node.device);
    if (device_lost()) return;
    node.work();
  }
}

}  // namespace

}  // namespace cpu

using cpu::Objects;
using cpu::objects;
using cpu::set_error;

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t handle,
                                        unsigned long long flags) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  Objects& o = objects();
  const std::lock_guard lock(o.mutex);
  const auto* graph = o.graphs.find(handle);
  if (executable == nullptr || graph == nullptr || flags != 0)
    return set_error(hipErrorInvalidValue);
  *executable = o.executables.add(*graph);
  return hipSuccess;
}

hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph,
                               hipGraphNode_t* error_node, char* log, size_t log_bytes) {
  if (error_node != nullptr) *error_node = nullptr;
  if (log != nullptr && log_bytes != 0) *log = '\0';
  return hipGraphInstantiateWithFlags(executable, graph, 0);
}

hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (const hipError_t error = cpu::check_stream(stream); error != hipSuccess) return error;
  std::shared_ptr<const cpu::Graph> graph;  // kept alive, whatever is destroyed meanwhile
  {
    const std::lock_guard lock(objects().mutex);
    if (const auto* found = objects().executables.find(executable)) graph = *found;
  }
  if (graph == nullptr) return set_error(hipErrorInvalidValue);
  if (cpu::is_capturing(stream))
    cpu::record(stream, [graph] { cpu::run_graph(*graph); });
  else
    cpu::run_graph(*graph);
  return hipSuccess;
}

hipError_t hipGraphDestroy(hipGraph_t graph) {
  const std::lock_guard lock(objects().mutex);
  if (!objects().graphs.remove(graph)) return set_error(hipErrorInvalidValue);
  return cpu::device_state();
}

hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  const std::lock_guard lock(objects().mutex);
  if (!objects().executables.remove(executable)) return set_error(hipErrorInvalidValue);
  return cpu::device_state();
}

hipError_t hipGraphGetNodes(hipGraph_t handle, hipGraphNode_t* nodes, size_t* count) {
  if (count == nullptr) return set_error(hipErrorInvalidValue);
  const std::lock_guard lock(objects().mutex);
  const auto* graph = objects().graphs.find(handle);
  if (graph == nullptr) return set_error(hipErrorInvalidValue);
  const std::vector<cpu::Node>& known = (*graph)->nodes;
  const size_t size = known.size();
  if (nodes == nullptr) {
    *count = size;
    return cpu::device_state();
  }
  for (size_t n = 0; n < *count; ++n)
    nodes[n] =
        n < size ? reinterpret_cast<hipGraphNode_t>(const_cast<cpu::Node*>(&known[n])) : nullptr;
  if (size < *count) *count = size;
  return cpu::device_state();
}
