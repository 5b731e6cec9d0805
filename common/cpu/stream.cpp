// Streams, events and graphs on the CPU backend.
//
// Work runs as soon as it is queued, so a stream has nothing to keep in order: it exists to be
// captured. While a stream captures, what is queued on it becomes a node of a graph that remembers
// which nodes had to be finished first, and does not run; an event recorded there stands for the
// nodes behind which it was recorded, and a stream that waits for the event joins the capture. The
// nodes' order of arrival is one order that respects all those needs, and a launch runs them in it.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "common/cpu/internal.h"

namespace cpu {

namespace {

using Clock = std::chrono::steady_clock;
using NodeNumbers = std::set<size_t>;

struct Node {
  std::function<void()> work;
  NodeNumbers needs;  // the nodes, all of smaller number, that must have finished
  int device;         // where it runs
};
struct Graph {
  int device =
      0;  // of the stream that captured it; the nodes of streams that joined have their own
  std::vector<Node> nodes;
};

// A graph in the making: the stream where it began and all that have joined it.
struct Capture {
  hipStream_t origin;
  hipStreamCaptureMode mode;
  std::thread::id thread;
  bool invalid = false;
  Graph graph;
};

struct Stream {
  int device = 0;
  unsigned flags = hipStreamDefault;
  std::shared_ptr<Capture> capture;  // null: work runs at once
  NodeNumbers last;                  // the nodes that the next one needs
};

struct Event {
  int device = 0;
  unsigned flags = hipEventDefault;
  bool recorded = false;
  Clock::time_point time;
  std::shared_ptr<Capture> capture;  // where it was recorded, if that was a capture
  NodeNumbers after;                 // and the nodes that it stands for
};

// Objects by handle. Handles are numbers that are never used again, so one that was destroyed, or
// never made, is not found.
template <class Handle, class Object>
class Table {
 public:
  Handle add(Object object) {
    const auto handle = reinterpret_cast<Handle>(next_ += 16);
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  Object* find(Handle handle) {
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : &found->second;
  }
  bool remove(Handle handle) { return objects_.erase(handle) != 0; }
  template <class Condition>
  void remove_if(Condition condition) {
    for (auto at = objects_.begin(); at != objects_.end();)
      at = condition(at->second) ? objects_.erase(at) : std::next(at);
  }
  auto begin() { return objects_.begin(); }
  auto end() { return objects_.end(); }

 private:
  std::map<Handle, Object> objects_;
  std::uintptr_t next_ = 0x1000;
};

struct Objects {
  std::mutex mutex;
  Table<hipStream_t, Stream> streams;
  Table<hipEvent_t, Event> events;
  Table<hipGraph_t, std::shared_ptr<const Graph>> graphs;
  Table<hipGraphExec_t, std::shared_ptr<const Graph>> executables;
  std::vector<std::shared_ptr<Capture>> captures;  // those that have not ended
  std::atomic<bool> any_capture{false};            // what a launch looks at before it locks
};

Objects& objects() {  // never destroyed: static objects of the program may use their handles
  static Objects* const instance = new Objects;
  return *instance;
}

using Lock = std::lock_guard<std::mutex>;

// The end of a capture, good or bad: its streams run work again.
void end_capture(Objects& o, const std::shared_ptr<Capture> capture) {
  for (auto& [handle, stream] : o.streams)
    if (stream.capture == capture) stream.capture = nullptr, stream.last.clear();
  for (size_t i = 0; i < o.captures.size(); ++i)
    if (o.captures[i] == capture) o.captures.erase(o.captures.begin() + static_cast<long>(i));
  o.any_capture = !o.captures.empty();
}

// Does every node lead to one of `last`? If not, a stream that joined was never waited for.
bool all_joined(const Graph& graph, const NodeNumbers& last) {
  NodeNumbers reached = last;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    if (reached.count(n) == 0) return false;
    reached.insert(graph.nodes[n].needs.begin(), graph.nodes[n].needs.end());
  }
  return true;
}

void run_graph(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    const OnDevice scope(node.device);
    if (device_lost()) return;
    node.work();
  }
}

// A call that may not be made while this stream captures: the capture is spoilt by it.
hipError_t refuse_while_capturing(hipStream_t handle) {
  Objects& o = objects();
  const Lock lock(o.mutex);
  if (handle == nullptr) return hipSuccess;
  Stream* stream = o.streams.find(handle);
  if (stream == nullptr) return set_error(hipErrorInvalidHandle);
  if (stream->capture == nullptr) return hipSuccess;
  stream->capture->invalid = true;
  return set_error(hipErrorStreamCaptureUnsupported);
}

// Every call on an event begins here. What was recorded in a capture has no time and can't be
// waited for by the host.
hipError_t check_event(Objects& o, hipEvent_t handle, Event** event) {
  *event = o.events.find(handle);
  if (*event == nullptr) return set_error(hipErrorInvalidHandle);
  if ((*event)->capture == nullptr) return hipSuccess;
  (*event)->capture->invalid = true;
  return set_error(hipErrorCapturedEvent);
}

}  // namespace

hipError_t check_stream(hipStream_t handle) {
  Objects& o = objects();
  if (handle == nullptr && !o.any_capture) return hipSuccess;
  const Lock lock(o.mutex);
  if (handle != nullptr) {
    const Stream* stream = o.streams.find(handle);
    if (stream == nullptr) return set_error(hipErrorInvalidHandle);
    const bool spoilt = stream->capture != nullptr && stream->capture->invalid;
    return set_error(spoilt ? hipErrorStreamCaptureInvalidated : hipSuccess);
  }
  // The default stream waits for every blocking stream, and a capture is nothing to wait for.
  for (const auto& [other, stream] : o.streams) {
    if (stream.device != current_device()) continue;
    if (stream.capture == nullptr || (stream.flags & hipStreamNonBlocking) != 0) continue;
    if (stream.capture->mode == hipStreamCaptureModeRelaxed) continue;
    stream.capture->invalid = true;
    return set_error(hipErrorStreamCaptureImplicit);
  }
  return hipSuccess;
}

int device_of(hipStream_t handle) {
  if (handle == nullptr || device_count == 1) return current_device();
  Objects& o = objects();
  const Lock lock(o.mutex);
  const Stream* stream = o.streams.find(handle);
  return stream == nullptr ? current_device() : stream->device;
}

hipError_t check_not_capturing() {
  Objects& o = objects();
  if (!o.any_capture) return hipSuccess;
  const Lock lock(o.mutex);
  hipError_t error = hipSuccess;
  for (const auto& capture : o.captures) {
    const bool forbids = capture->mode == hipStreamCaptureModeGlobal ||
                         (capture->mode == hipStreamCaptureModeThreadLocal &&
                          capture->thread == std::this_thread::get_id());
    if (!forbids) continue;
    capture->invalid = true;
    error = hipErrorStreamCaptureUnsupported;
  }
  return set_error(error);
}

bool is_capturing(hipStream_t handle) {
  Objects& o = objects();
  if (handle == nullptr || !o.any_capture) return false;
  const Lock lock(o.mutex);
  const Stream* stream = o.streams.find(handle);
  return stream != nullptr && stream->capture != nullptr;
}

void record(hipStream_t handle, std::function<void()> work) {
  Objects& o = objects();
  const Lock lock(o.mutex);
  Stream* stream = o.streams.find(handle);
  if (stream == nullptr || stream->capture == nullptr || stream->capture->invalid) return;
  std::vector<Node>& nodes = stream->capture->graph.nodes;
  nodes.push_back({std::move(work), stream->last, stream->device});
  stream->last = {nodes.size() - 1};
}

void destroy_all_handles() {
  Objects& o = objects();
  const Lock lock(o.mutex);
  const int device = current_device();
  const auto is_ours = [&](const auto& object) { return object.device == device; };
  const auto uses_ours = [&](const std::shared_ptr<const Graph>& graph) {
    return is_ours(*graph) || std::any_of(graph->nodes.begin(), graph->nodes.end(), is_ours);
  };
  for (const auto& [handle, stream] : o.streams) {
    if (!is_ours(stream) || stream.capture == nullptr) continue;
    stream.capture->invalid = true;
    if (stream.capture->origin == handle) end_capture(o, stream.capture);
  }
  o.streams.remove_if(is_ours);
  o.events.remove_if(is_ours);
  o.graphs.remove_if(uses_ours);
  o.executables.remove_if(uses_ours);
}

}  // namespace cpu

using cpu::Capture;
using cpu::Event;
using cpu::Lock;
using cpu::Objects;
using cpu::objects;
using cpu::set_error;
using cpu::Stream;

// ---- Streams ----------------------------------------------------------------------------------

hipError_t hipStreamCreate(hipStream_t* stream) {
  return hipStreamCreateWithFlags(stream, hipStreamDefault);
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (stream == nullptr || (flags & ~hipStreamNonBlocking) != 0)
    return set_error(hipErrorInvalidValue);
  const Lock lock(objects().mutex);
  Stream created;
  created.device = cpu::current_device();
  created.flags = flags;
  *stream = objects().streams.add(created);
  return hipSuccess;
}

hipError_t hipStreamDestroy(hipStream_t stream) {
  Objects& o = objects();
  const Lock lock(o.mutex);
  Stream* const found = o.streams.find(stream);
  if (found == nullptr) return set_error(hipErrorInvalidHandle);
  if (const auto capture = found->capture) {
    capture->invalid = true;
    if (capture->origin == stream) cpu::end_capture(o, capture);
  }
  o.streams.remove(stream);
  return cpu::device_state();
}

hipError_t hipStreamSynchronize(hipStream_t stream) {
  if (const hipError_t error = cpu::check_stream(stream); error != hipSuccess) return error;
  if (const hipError_t error = cpu::refuse_while_capturing(stream); error != hipSuccess)
    return error;
  return cpu::device_wait(cpu::device_of(stream));
}

hipError_t hipStreamQuery(hipStream_t stream) { return hipStreamSynchronize(stream); }

hipError_t hipStreamWaitEvent(hipStream_t handle, hipEvent_t event_handle, unsigned flags) {
  if (const hipError_t error = cpu::check_stream(handle); error != hipSuccess) return error;
  if (flags != 0) return set_error(hipErrorInvalidValue);
  Objects& o = objects();
  const Lock lock(o.mutex);
  const Event* event = o.events.find(event_handle);
  if (event == nullptr) return set_error(hipErrorInvalidHandle);
  Stream* stream = handle == nullptr ? nullptr : o.streams.find(handle);
  const auto own = stream == nullptr ? nullptr : stream->capture;
  if (event->capture == nullptr) {
    if (own == nullptr || !event->recorded) return cpu::device_state();
    own->invalid = true;  // a graph can't wait for what happens outside of it
    return set_error(hipErrorStreamCaptureIsolation);
  }
  bool still_open = false;
  for (const auto& capture : o.captures) still_open |= capture == event->capture;
  if (!still_open) return set_error(hipErrorCapturedEvent);
  if (stream == nullptr) {
    event->capture->invalid = true;
    return set_error(hipErrorStreamCaptureImplicit);
  }
  if (own != nullptr && own != event->capture) {
    own->invalid = event->capture->invalid = true;
    return set_error(hipErrorStreamCaptureMerge);
  }
  stream->capture = event->capture;
  stream->last.insert(event->after.begin(), event->after.end());
  return cpu::device_state();
}

// ---- Events -----------------------------------------------------------------------------------

hipError_t hipEventCreate(hipEvent_t* event) {
  return hipEventCreateWithFlags(event, hipEventDefault);
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (event == nullptr || (flags & ~(hipEventBlockingSync | hipEventDisableTiming)) != 0)
    return set_error(hipErrorInvalidValue);
  const Lock lock(objects().mutex);
  Event created;
  created.device = cpu::current_device();
  created.flags = flags;
  *event = objects().events.add(created);
  return hipSuccess;
}

hipError_t hipEventDestroy(hipEvent_t event) {
  const Lock lock(objects().mutex);
  if (!objects().events.remove(event)) return set_error(hipErrorInvalidHandle);
  return cpu::device_state();
}

hipError_t hipEventRecord(hipEvent_t event_handle, hipStream_t handle) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (const hipError_t error = cpu::check_stream(handle); error != hipSuccess) return error;
  Objects& o = objects();
  const Lock lock(o.mutex);
  Event* event = o.events.find(event_handle);
  if (event == nullptr) return set_error(hipErrorInvalidHandle);
  const Stream* stream = handle == nullptr ? nullptr : o.streams.find(handle);
  const int device = stream == nullptr ? cpu::current_device() : stream->device;
  if (event->device != device)
    return cpu::fail(hipErrorInvalidHandle, "hipEventRecord: the event belongs to device " +
                                                std::to_string(event->device) +
                                                ", the stream to device " + std::to_string(device));
  event->capture = stream == nullptr ? nullptr : stream->capture;
  event->after = stream == nullptr ? cpu::NodeNumbers{} : stream->last;
  event->recorded = true;
  event->time = cpu::Clock::now();
  return hipSuccess;
}

hipError_t hipEventSynchronize(hipEvent_t handle) {
  int device = 0;
  {
    const Lock lock(objects().mutex);
    Event* event = nullptr;
    if (const hipError_t error = cpu::check_event(objects(), handle, &event); error != hipSuccess)
      return error;
    device = event->device;
  }
  return cpu::device_wait(device);
}

hipError_t hipEventQuery(hipEvent_t event) { return hipEventSynchronize(event); }

hipError_t hipEventElapsedTime(float* ms, hipEvent_t start_handle, hipEvent_t stop_handle) {
  if (ms == nullptr) return set_error(hipErrorInvalidValue);
  Objects& o = objects();
  const Lock lock(o.mutex);
  Event *start = nullptr, *stop = nullptr;
  if (const hipError_t error = cpu::check_event(o, start_handle, &start); error != hipSuccess)
    return error;
  if (const hipError_t error = cpu::check_event(o, stop_handle, &stop); error != hipSuccess)
    return error;
  if (!start->recorded || !stop->recorded ||
      ((start->flags | stop->flags) & hipEventDisableTiming) != 0)
    return set_error(hipErrorInvalidHandle);
  if (start->device != stop->device)
    return cpu::fail(hipErrorInvalidHandle, "hipEventElapsedTime: the events belong to devices " +
                                                std::to_string(start->device) + " and " +
                                                std::to_string(stop->device));
  *ms = std::chrono::duration<float, std::milli>(stop->time - start->time).count();
  return cpu::device_wait(start->device);
}

// ---- Graphs -----------------------------------------------------------------------------------

hipError_t hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode mode) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (mode < hipStreamCaptureModeGlobal || mode > hipStreamCaptureModeRelaxed)
    return set_error(hipErrorInvalidValue);
  if (handle == nullptr) return set_error(hipErrorStreamCaptureUnsupported);
  Objects& o = objects();
  const Lock lock(o.mutex);
  Stream* stream = o.streams.find(handle);
  if (stream == nullptr) return set_error(hipErrorInvalidHandle);
  if (stream->capture != nullptr) return set_error(hipErrorIllegalState);
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = handle;
  stream->capture->mode = mode;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->graph.device = stream->device;
  o.captures.push_back(stream->capture);
  o.any_capture = true;
  return hipSuccess;
}

hipError_t hipStreamEndCapture(hipStream_t handle, hipGraph_t* graph) {
  if (graph == nullptr) return set_error(hipErrorInvalidValue);
  *graph = nullptr;
  Objects& o = objects();
  const Lock lock(o.mutex);
  Stream* stream = o.streams.find(handle);
  if (stream == nullptr) return set_error(hipErrorInvalidHandle);
  const auto capture = stream->capture;
  if (capture == nullptr) return set_error(hipErrorIllegalState);
  if (capture->origin != handle) {
    capture->invalid = true;
    return set_error(hipErrorStreamCaptureUnmatched);
  }
  if (capture->mode != hipStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return set_error(hipErrorStreamCaptureWrongThread);
  const bool joined = cpu::all_joined(capture->graph, stream->last);
  cpu::end_capture(o, capture);
  if (capture->invalid) return set_error(hipErrorStreamCaptureInvalidated);
  if (!joined) return set_error(hipErrorStreamCaptureUnjoined);
  *graph = o.graphs.add(std::make_shared<const cpu::Graph>(std::move(capture->graph)));
  return cpu::device_state();
}

hipError_t hipStreamIsCapturing(hipStream_t handle, hipStreamCaptureStatus* status) {
  if (status == nullptr) return set_error(hipErrorInvalidValue);
  *status = hipStreamCaptureStatusNone;
  if (handle == nullptr) return cpu::check_stream(nullptr);
  Objects& o = objects();
  const Lock lock(o.mutex);
  const Stream* stream = o.streams.find(handle);
  if (stream == nullptr) return set_error(hipErrorInvalidHandle);
  if (stream->capture != nullptr)
    *status =
        stream->capture->invalid ? hipStreamCaptureStatusInvalidated : hipStreamCaptureStatusActive;
  return cpu::device_state();
}

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t handle,
                                        unsigned long long flags) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  Objects& o = objects();
  const Lock lock(o.mutex);
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
    const Lock lock(objects().mutex);
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
  const Lock lock(objects().mutex);
  if (!objects().graphs.remove(graph)) return set_error(hipErrorInvalidValue);
  return cpu::device_state();
}

hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  const Lock lock(objects().mutex);
  if (!objects().executables.remove(executable)) return set_error(hipErrorInvalidValue);
  return cpu::device_state();
}

hipError_t hipGraphGetNodes(hipGraph_t handle, hipGraphNode_t* nodes, size_t* count) {
  if (count == nullptr) return set_error(hipErrorInvalidValue);
  const Lock lock(objects().mutex);
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
