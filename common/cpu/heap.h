// The CPU backend's buffers: all that is known of each, and where they are looked up. For
// common/cpu/*.cpp only.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

#include "common/cpu/internal.h"

namespace cpu {

struct Buffer {
  int device = 0;
  PointerKind kind = PointerKind::device;
  char* data = nullptr;
  size_t bytes = 0;
  char* pages = nullptr;  // the accessible pages: pad, data, slack
  size_t page_bytes = 0;
  size_t guard_bytes = 0;  // on either side
  const char* file = "";
  int line = 0;
  pid_t owner = 0;
  std::uint64_t number = 0;  // in order of allocation
  bool freed_by_reset = false;

  char* map_begin() const { return pages - guard_bytes; }
  size_t map_bytes() const { return page_bytes + 2 * guard_bytes; }
  char* data_end() const { return data + bytes; }
  size_t slack() const { return static_cast<size_t>(pages + page_bytes - data_end()); }
  size_t pad() const { return static_cast<size_t>(data - pages); }
};

using Buffers = std::map<std::uintptr_t, Buffer>;  // by the mapping's first address

struct Heap {
  std::recursive_mutex mutex;  // diagnoses are made under it
  Buffers live, freed;
  std::deque<std::uintptr_t> freed_order;
  size_t freed_bytes = 0;  // address space in quarantine
  std::uintptr_t next_check = 0;
  int opened = 0;              // how many launches and copies have device memory open (strict mode)
  DeviceSet open_devices = 0;  // whose, while there are any
  std::condition_variable_any closed;  // there are none any more
  std::uint64_t allocations = 0;
  size_t allocated_since_look = 0, available_at_look = 0;
  struct PerDevice {
    size_t bytes = 0, most_bytes = 0;
    std::uint64_t release_threshold = 0;
  } of[kMaxDevices];
};

// Never destroyed: static objects of the program may free buffers at any time.
inline Heap& heap() {
  static Heap* const instance = new Heap;
  return *instance;
}

inline std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

// The buffer whose mapping, guards included, holds p; null if there is none.
inline Buffer* find(Buffers& buffers, const void* p) {
  auto next = buffers.upper_bound(address_of(p));
  if (next == buffers.begin()) return nullptr;
  Buffer& buffer = std::prev(next)->second;
  return address_of(p) < address_of(buffer.map_begin()) + buffer.map_bytes() ? &buffer : nullptr;
}

// ---- In words (pointers.cpp) ------------------------------------------------------------------

// "4096-byte buffer allocated at file:line", with its kind and, where there are several, its device
std::string name_of(const Buffer& buffer);
// "4 bytes past the end of the 4096-byte buffer ..."
std::string place_in(const Buffer& buffer, const void* p);
// An address as a number.
std::string hex(const void* p);

// ---- Redzones (redzones.cpp) ------------------------------------------------------------------

// Writes the pattern around a new buffer; AddressSanitizer reports whoever touches it.
void make_redzones(const Buffer& b);
// Takes back what AddressSanitizer was told: the addresses go.
void forget_redzones(const Buffer& b);
// Is the pattern around the buffer as it was? Looks at `reach` bytes on either side of it. If not,
// *what tells which side was written, and the pattern is made good.
bool check_redzone(const Buffer& b, size_t reach, std::string* what);

}  // namespace cpu
