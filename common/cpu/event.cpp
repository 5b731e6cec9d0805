// Events: recorded in a stream, waited for, and the time between two of them.
#include <chrono>
#include <mutex>
#include <string>

#include "common/cpu/handles.h"

namespace cpu {

namespace {

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

}  // namespace cpu

using cpu::Event;
using cpu::Objects;
using cpu::objects;
using cpu::set_error;
using cpu::Stream;

hipError_t hipEventCreate(hipEvent_t* event) {
  return hipEventCreateWithFlags(event, hipEventDefault);
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (event == nullptr || (flags & ~(hipEventBlockingSync | hipEventDisableTiming)) != 0)
    return set_error(hipErrorInvalidValue);
  const std::lock_guard lock(objects().mutex);
  Event created;
  created.device = cpu::current_device();
  created.flags = flags;
  *event = objects().events.add(created);
  return hipSuccess;
}

hipError_t hipEventDestroy(hipEvent_t event) {
  const std::lock_guard lock(objects().mutex);
  if (!objects().events.remove(event)) return set_error(hipErrorInvalidHandle);
  return cpu::device_state();
}

hipError_t hipEventRecord(hipEvent_t event_handle, hipStream_t handle) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (const hipError_t error = cpu::check_stream(handle); error != hipSuccess) return error;
  Objects& o = objects();
  const std::lock_guard lock(o.mutex);
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
    const std::lock_guard lock(objects().mutex);
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
  const std::lock_guard lock(o.mutex);
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
