// What keeps a kernel out of the memory of other devices.
//
// A buffer belongs to a device, but all host threads can reach all of it, whichever device they
// work for. So the pointers that a launch is given are looked at, and with HIP_CPU_STRICT=1 the
// pages are closed to it. Pages are open or closed to the whole process, so then work that may not
// use the same devices' memory takes turns.
#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <string>

#include "common/cpu/heap.h"

namespace cpu {

namespace {

void protect_device_memory(Heap& h, int access) {
  for (const auto& [begin, b] : h.live)
    if (b.kind == PointerKind::device && (h.open_devices >> b.device & 1) != 0)
      mprotect(b.pages, b.page_bytes, access);
}

// Is this the memory of a device that the current one can't reach? Guard pages are nobody's.
bool is_out_of_reach(const Buffer& b, const void* p) {
  return b.kind == PointerKind::device && p >= b.data && p <= b.data_end() &&
         (reachable_from(current_device()) >> b.device & 1) == 0;
}

std::string out_of_reach(const Buffer& b, const void* p) {
  const std::string from = std::to_string(current_device()), to = std::to_string(b.device);
  return place_in(b, p) + ": device " + from + " has no peer access to device " + to +
         " (hipDeviceEnablePeerAccess)";
}

}  // namespace

bool is_reachable(const void* address, std::string* why) {
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  const Buffer* b = find(h.live, address);
  if (b == nullptr || !is_out_of_reach(*b, address)) return true;
  *why = out_of_reach(*b, address);
  return false;
}

bool are_reachable(const void* arguments, size_t bytes, std::string* why) {
  for (size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const void* value = nullptr;
    std::memcpy(&value, static_cast<const char*>(arguments) + at, sizeof value);
    if (!is_reachable(value, why)) return false;
  }
  return true;
}

OpenMemory::OpenMemory(DeviceSet devices) {
  if (!device().strict) return;
  devices &= (1u << device_count) - 1;
  Heap& h = heap();
  std::unique_lock<std::recursive_mutex> lock(h.mutex);
  h.closed.wait(lock, [&] { return h.opened == 0 || h.open_devices == devices; });
  h.open_devices = devices;
  if (h.opened++ == 0) protect_device_memory(h, PROT_READ | PROT_WRITE);
}

OpenMemory::~OpenMemory() {
  if (!device().strict) return;
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  if (--h.opened != 0) return;
  protect_device_memory(h, PROT_NONE);
  h.closed.notify_all();
}

}  // namespace cpu
