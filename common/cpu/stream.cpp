// Streams: made, destroyed, waited for, and made to wait for an event.
#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>

#include "common/cpu/handles.h"

namespace cpu {

namespace {

// A call that may not be made while this stream captures: the capture is spoilt by it.
hipError_t refuse_while_capturing(hipStream_t handle) {
  Objects& o = objects();
  const std::lock_guard lock(o.mutex);
  if (handle == nullptr) return hipSuccess;
  Stream* stream = o.streams.find(handle);
  if (stream == nullptr) return set_error(hipErrorInvalidHandle);
  if (stream->capture == nullptr) return hipSuccess;
  stream->capture->invalid = true;
  return set_error(hipErrorStreamCaptureUnsupported);
}

}  // namespace

hipError_t check_stream(hipStream_t handle) {
  Objects& o = objects();
  if (handle == nullptr && !o.any_capture) return hipSuccess;
  const std::lock_guard lock(o.mutex);
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
  const std::lock_guard lock(o.mutex);
  const Stream* stream = o.streams.find(handle);
  return stream == nullptr ? current_device() : stream->device;
}

size_t live_streams() {
  Objects& o = objects();
  const std::lock_guard lock(o.mutex);
  return static_cast<size_t>(std::distance(o.streams.begin(), o.streams.end()));
}

void destroy_all_handles() {
  Objects& o = objects();
  const std::lock_guard lock(o.mutex);
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

using cpu::Event;
using cpu::Objects;
using cpu::objects;
using cpu::set_error;
using cpu::Stream;

hipError_t hipStreamCreate(hipStream_t* stream) {
  return hipStreamCreateWithFlags(stream, hipStreamDefault);
}

hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (stream == nullptr || (flags & ~hipStreamNonBlocking) != 0)
    return set_error(hipErrorInvalidValue);
  const std::lock_guard lock(objects().mutex);
  Stream created;
  created.device = cpu::current_device();
  created.flags = flags;
  *stream = objects().streams.add(created);
  return hipSuccess;
}

hipError_t hipStreamDestroy(hipStream_t stream) {
  Objects& o = objects();
  const std::lock_guard lock(o.mutex);
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
  const std::lock_guard lock(o.mutex);
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
