// What a pointer points to: which buffer, where in it, and whether a call may use it.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/cpu/heap.h"

namespace cpu {

std::string count_bytes(size_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

std::string name_of(const Buffer& buffer) {
  const char* kind = buffer.kind == PointerKind::pinned  ? "pinned "
                     : buffer.kind == PointerKind::freed ? "freed "
                                                         : "";
  const bool on_device = device_count > 1 && buffer.kind != PointerKind::pinned;
  return std::string(kind) + std::to_string(buffer.bytes) + "-byte buffer " +
         (on_device ? "of device " + std::to_string(buffer.device) + " " : "") + "allocated at " +
         buffer.file + ":" + std::to_string(buffer.line);
}

std::string place_in(const Buffer& buffer, const void* p) {
  const std::uintptr_t at = address_of(p), begin = address_of(buffer.data),
                       end = address_of(buffer.data_end());
  if (at < begin) return count_bytes(begin - at) + " before the " + name_of(buffer);
  if (at < end) return "at byte " + std::to_string(at - begin) + " of the " + name_of(buffer);
  if (at == end) return "just past the end of the " + name_of(buffer);
  return count_bytes(at - end) + " past the end of the " + name_of(buffer);
}

std::string hex(const void* p) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", p);
  return text;
}

PointerKind pointer_kind(const void* pointer) {
  if (pointer == nullptr) return PointerKind::null;
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  if (const Buffer* b = find(h.live, pointer)) return b->kind;
  return find(h.freed, pointer) != nullptr ? PointerKind::freed : PointerKind::host;
}

std::string describe_address(const void* address) {
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  if (const Buffer* b = find(h.live, address)) return place_in(*b, address);
  if (const Buffer* old = find(h.freed, address)) return place_in(*old, address);
  return "";
}

int owner_of(const void* pointer) {
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  const Buffer* b = find(h.live, pointer);
  return b == nullptr ? -1 : b->device;
}

bool check_range(const std::string& function, const char* role, const void* pointer, size_t bytes,
                 Place place, std::string* why) {
  const auto refuse = [&](const std::string& reason) {
    *why = function + ": the " + role + " " + reason;
    return false;
  };
  if (pointer == nullptr) return refuse("is a null pointer");
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  const Buffer* b = find(h.live, pointer);
  if (b == nullptr) {
    if (const Buffer* old = find(h.freed, pointer)) return refuse("is " + place_in(*old, pointer));
    if (place != Place::device) return true;
    return refuse(hex(pointer) + " is host memory, where device memory belongs");
  }
  if (place == Place::host && b->kind == PointerKind::device)
    return refuse(hex(pointer) + " is device memory, where host memory belongs");
  const std::uintptr_t at = address_of(pointer), begin = address_of(b->data),
                       end = address_of(b->data_end());
  if (at < begin || at > end) return refuse("begins " + place_in(*b, pointer));
  if (bytes > end - at)
    return refuse("ends " + count_bytes(bytes - (end - at)) + " past the end of the " +
                  name_of(*b));
  return true;
}

std::vector<std::string> describe_leaks(size_t most) {
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
  // Oldest first. A program that lost a device is not asked to tidy up there.
  std::map<std::uint64_t, const Buffer*> leaks;
  for (const auto& [begin, b] : h.live)
    if (b.owner == getpid() && !device_lost(b.device)) leaks[b.number] = &b;
  const size_t named = leaks.size() <= most ? leaks.size() : most - 1;
  std::vector<std::string> lines;
  for (const auto& [number, b] : leaks) {
    if (lines.size() == named) {
      lines.push_back("never freed: " + std::to_string(leaks.size() - named) + " more buffers");
      break;
    }
    lines.push_back("never freed: the " + name_of(*b));
  }
  return lines;
}

}  // namespace cpu

using cpu::PointerKind;
using cpu::set_error;

hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  const PointerKind kind = cpu::pointer_kind(pointer);
  const int owner = cpu::owner_of(pointer);
  if (attributes == nullptr || (kind != PointerKind::device && kind != PointerKind::pinned))
    return set_error(hipErrorInvalidValue);
  *attributes = {};
  attributes->type = kind == PointerKind::device ? hipMemoryTypeDevice : hipMemoryTypeHost;
  attributes->device = owner;
  attributes->devicePointer = const_cast<void*>(pointer);
  if (kind == PointerKind::pinned) attributes->hostPointer = const_cast<void*>(pointer);
  return hipSuccess;
}
