// Copying and filling memory on the CPU backend. Each pointer is held against the direction of the
// copy and the size of its buffer before a byte is moved.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "common/cpu/internal.h"
#include "common/in_parallel.h"

namespace cpu {

namespace {

// Runs work(first, last) over [0, bytes), on all threads where that pays for starting them.
template <class Work>
void on_threads(size_t bytes, Work work) {
  constexpr size_t kWorthAThread = size_t{16} << 20;
  in_parallel(bytes, kWorthAThread, static_cast<size_t>(device().threads), work);
}

// One copy of `rows` rows; a plain copy is one row.
struct Copy {
  const char* function;
  void* to;
  size_t to_pitch;
  const void* from;
  size_t from_pitch, row_bytes, rows;
  hipMemcpyKind kind;
  int to_device = -1, from_device = -1;  // where the memory must be; -1: anywhere

  size_t span(size_t pitch) const { return (rows - 1) * pitch + row_bytes; }
};

bool check_owner(const std::string& call, const char* role, const void* pointer, int device,
                 std::string* why) {
  const int owner = owner_of(pointer);
  if (device < 0 || device == owner) return true;
  *why = call + ": the " + role + " is on device " + std::to_string(owner) + ", not on device " +
         std::to_string(device);
  return false;
}

bool check_copy(const Copy& copy, std::string* why) {
  static constexpr const char* kKinds[] = {"hipMemcpyHostToHost", "hipMemcpyHostToDevice",
                                           "hipMemcpyDeviceToHost", "hipMemcpyDeviceToDevice",
                                           "hipMemcpyDefault"};
  const bool any = copy.kind == hipMemcpyDefault;
  const bool from_host = copy.kind == hipMemcpyHostToHost || copy.kind == hipMemcpyHostToDevice;
  const bool to_host = copy.kind == hipMemcpyHostToHost || copy.kind == hipMemcpyDeviceToHost;
  const Place from_place = from_host ? Place::host : Place::device;
  const Place to_place = to_host ? Place::host : Place::device;
  const size_t from_bytes = copy.span(copy.from_pitch), to_bytes = copy.span(copy.to_pitch);
  const std::string call = std::string(copy.function) + " of " +
                           count_bytes(copy.rows * copy.row_bytes) + ", " + kKinds[copy.kind];
  if (!check_range(call, "source", copy.from, from_bytes, any ? Place::either : from_place, why) ||
      !check_range(call, "destination", copy.to, to_bytes, any ? Place::either : to_place, why))
    return false;
  if (!check_owner(call, "source", copy.from, copy.from_device, why) ||
      !check_owner(call, "destination", copy.to, copy.to_device, why))
    return false;
  const auto from = reinterpret_cast<std::uintptr_t>(copy.from);
  const auto to = reinterpret_cast<std::uintptr_t>(copy.to);
  if (copy.rows == 1 && from < to + to_bytes && to < from + from_bytes) {
    *why = call + ": source and destination overlap";
    return false;
  }
  return true;
}

void run_copy(const Copy& copy) {
  const OpenMemory open;
  char* to = static_cast<char*>(copy.to);
  const char* from = static_cast<const char*>(copy.from);
  if (copy.rows == 1) {
    on_threads(copy.row_bytes, [=](size_t first, size_t last) {
      std::memcpy(to + first, from + first, last - first);
    });
  } else {
    for (size_t row = 0; row < copy.rows; ++row)
      std::memcpy(to + row * copy.to_pitch, from + row * copy.from_pitch, copy.row_bytes);
  }
}

// hipSuccess, or the fault by which the device that owns this memory was lost.
hipError_t owner_state(const void* pointer) {
  const int owner = device_count == 1 ? -1 : owner_of(pointer);
  return owner < 0 ? hipSuccess : device_wait(owner);
}

// Queues check-then-run on a stream and its device: now, or at each launch of the graph that the
// stream captures. A graph outlives its capture, so its copies are checked again when they run, and
// are then as wrong as a kernel that touches what is gone.
template <class Work, class Check, class Run>
hipError_t queue(const Work& work, hipStream_t stream, Check check, Run run) {
  if (const hipError_t error = check_stream(stream); error != hipSuccess) return error;
  const OnDevice scope(device_of(stream));
  if (const hipError_t lost = device_state(); lost != hipSuccess) return lost;
  std::string why;
  if (!check(work, &why)) return fail(hipErrorInvalidValue, why);
  if (is_capturing(stream)) {
    record(stream, [=] {
      std::string wrong;
      if (check(work, &wrong))
        run(work);
      else
        raise_fault(hipErrorIllegalAddress, "in a graph: " + wrong);
    });
  } else if (!device_lost()) {
    run(work);
  }
  return hipSuccess;
}

hipError_t queue_copy(const Copy& copy, hipStream_t stream) {
  if (const hipError_t lost = device_state(); lost != hipSuccess) return lost;
  if (copy.kind < hipMemcpyHostToHost || copy.kind > hipMemcpyDefault)
    return set_error(hipErrorInvalidMemcpyDirection);
  if (copy.row_bytes == 0 || copy.rows == 0) return check_stream(stream);
  if (copy.rows > 1 && (copy.to_pitch < copy.row_bytes || copy.from_pitch < copy.row_bytes))
    return set_error(hipErrorInvalidPitchValue);
  for (const void* pointer : {copy.from, static_cast<const void*>(copy.to)})
    if (const hipError_t lost = owner_state(pointer); lost != hipSuccess) return lost;
  return queue(copy, stream, check_copy, run_copy);
}

hipError_t queue_copy_between(const char* function, void* to, int to_device, const void* from,
                              int from_device, size_t bytes, hipStream_t stream) {
  if (const hipError_t lost = device_state(); lost != hipSuccess) return lost;
  if (!exists(to_device) || !exists(from_device)) return set_error(hipErrorInvalidDevice);
  return queue_copy(
      {function, to, bytes, from, bytes, bytes, 1, hipMemcpyDeviceToDevice, to_device, from_device},
      stream);
}

struct Set {
  const char* function;
  void* to;
  int value;
  size_t bytes;
};

bool check_set(const Set& set, std::string* why) {
  return check_range(set.function, "destination", set.to, set.bytes, Place::device, why);
}

void run_set(const Set& set) {
  const OpenMemory open;
  fill_bytes(set.to, set.value, set.bytes);
}

hipError_t queue_set(const Set& set, hipStream_t stream) {
  if (const hipError_t lost = device_state(); lost != hipSuccess) return lost;
  if (set.bytes == 0) return check_stream(stream);
  if (const hipError_t lost = owner_state(set.to); lost != hipSuccess) return lost;
  return queue(set, stream, check_set, run_set);
}

// What the calls without a stream do besides: they use the default stream and wait for it.
hipError_t before_waiting_call() {
  if (const hipError_t error = check_stream(nullptr); error != hipSuccess) return error;
  if (const hipError_t error = check_not_capturing(); error != hipSuccess) return error;
  return device_wait();
}

}  // namespace

void fill_bytes(void* to, int value, size_t bytes) {
  on_threads(bytes, [=](size_t first, size_t last) {
    std::memset(static_cast<char*>(to) + first, value, last - first);
  });
}

}  // namespace cpu

hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind kind) {
  if (const hipError_t error = cpu::before_waiting_call(); error != hipSuccess) return error;
  return cpu::queue_copy({"hipMemcpy", to, bytes, from, bytes, bytes, 1, kind}, nullptr);
}

hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind,
                          hipStream_t stream) {
  return cpu::queue_copy({"hipMemcpyAsync", to, bytes, from, bytes, bytes, 1, kind}, stream);
}

hipError_t hipMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                       size_t row_bytes, size_t rows, hipMemcpyKind kind) {
  if (const hipError_t error = cpu::before_waiting_call(); error != hipSuccess) return error;
  return cpu::queue_copy({"hipMemcpy2D", to, to_pitch, from, from_pitch, row_bytes, rows, kind},
                         nullptr);
}

hipError_t hipMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  if (const hipError_t error = cpu::before_waiting_call(); error != hipSuccess) return error;
  return cpu::queue_copy_between("hipMemcpyPeer", to, to_device, from, from_device, bytes, nullptr);
}

hipError_t hipMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                              size_t bytes, hipStream_t stream) {
  return cpu::queue_copy_between("hipMemcpyPeerAsync", to, to_device, from, from_device, bytes,
                                 stream);
}

hipError_t hipMemset(void* to, int value, size_t bytes) {
  if (const hipError_t error = cpu::before_waiting_call(); error != hipSuccess) return error;
  return cpu::queue_set({"hipMemset", to, value, bytes}, nullptr);
}

hipError_t hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t stream) {
  return cpu::queue_set({"hipMemsetAsync", to, value, bytes}, stream);
}
