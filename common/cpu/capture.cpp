// Capturing a stream: its work becomes the nodes of a graph.
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "common/cpu/handles.h"

namespace cpu {

namespace {

// Does every node lead to one of `last`? If not, a stream that joined was never waited for.
bool all_joined(const Graph& graph, const NodeNumbers& last) {
  NodeNumbers reached = last;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    if (reached.count(n) == 0) return false;
    reached.insert(graph.nodes[n].needs.begin(), graph.nodes[n].needs.end());
  }
  return true;
}

}  // namespace

void end_capture(Objects& o, const std::shared_ptr<Capture> capture) {
  for (auto& [handle, stream] : o.streams)
    if (stream.capture == capture) stream.capture = nullptr, stream.last.clear();
  for (size_t i = 0; i < o.captures.size(); ++i)
    if (o.captures[i] == capture) o.captures.erase(o.captures.begin() + static_cast<long>(i));
  o.any_capture = !o.captures.empty();
}

hipError_t check_not_capturing() {
  Objects& o = objects();
  if (!o.any_capture) return hipSuccess;
  const std::lock_guard lock(o.mutex);
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
  const std::lock_guard lock(o.mutex);
  const Stream* stream = o.streams.find(handle);
  return stream != nullptr && stream->capture != nullptr;
}

void record(hipStream_t handle, std::function<void()> work) {
  Objects& o = objects();
  const std::lock_guard lock(o.mutex);
  Stream* stream = o.streams.find(handle);
  if (stream == nullptr || stream->capture == nullptr || stream->capture->invalid) return;
  std::vector<Node>& nodes = stream->capture->graph.nodes;
  nodes.push_back({std::move(work), stream->last, stream->device});
  stream->last = {nodes.size() - 1};
}

}  // namespace cpu

using cpu::Capture;
using cpu::Objects;
using cpu::objects;
using cpu::set_error;
using cpu::Stream;

hipError_t hipStreamBeginCapture(hipStream_t handle, hipStreamCaptureMode mode) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (mode < hipStreamCaptureModeGlobal || mode > hipStreamCaptureModeRelaxed)
    return set_error(hipErrorInvalidValue);
  if (handle == nullptr) return set_error(hipErrorStreamCaptureUnsupported);
  Objects& o = objects();
  const std::lock_guard lock(o.mutex);
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
  const std::lock_guard lock(o.mutex);
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
  const std::lock_guard lock(o.mutex);
  const Stream* stream = o.streams.find(handle);
  if (stream == nullptr) return set_error(hipErrorInvalidHandle);
  if (stream->capture != nullptr)
    *status =
        stream->capture->invalid ? hipStreamCaptureStatusInvalidated : hipStreamCaptureStatusActive;
  return cpu::device_state();
}
