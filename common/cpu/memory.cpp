// Device memory on the CPU backend: allocating, freeing, and catching what a GPU lets pass.
//
// Every buffer has a mapping of its own:
//
//   | guard pages | pad ... redzone | the buffer | slack | guard pages |
//     no access     known pattern     0xFF bytes   0..15   no access
//
// The buffer ends at a guard page, or at most 15 bytes before it because it must begin at a
// multiple of 16: an access behind it faults at once, and what is written to the pad or the slack
// is found after the launch. HIP_CPU_GUARD=exact leaves no slack: a buffer whose size is no
// multiple of 16 is then aligned as its size is, no more. HIP_CPU_GUARD=begin leaves no pad: the
// buffer begins at a guard page, and the slack goes on to the end of its last page.
//
// Fresh bytes are 0xFF: a float that nobody wrote is NaN. So is one that is read from the pad or
// the slack, with other bits. A freed buffer gives its memory back, but its addresses stay reserved
// and inaccessible until many others have been freed, so a pointer that outlived its buffer faults
// too and the fault can be explained.
//
// A buffer belongs to a device, but all host threads can reach all of it, whichever device they
// work for. What keeps a kernel out of the memory of other devices: the pointers that a launch is
// given are looked at, and with HIP_CPU_STRICT=1 the pages are closed to it. Pages are open or
// closed to the whole process, so then work that may not use the same devices' memory takes turns.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "common/cpu/internal.h"

#if defined(__SANITIZE_ADDRESS__)
#define CPU_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CPU_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(CPU_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace cpu {

namespace {

constexpr size_t kAlignment = 16;
constexpr size_t kRedzone = 64;  // how much of pad and slack is looked at after each launch
constexpr unsigned char kPoison = 0xFF;
// What pad and slack hold, at even and at odd addresses: 0x7FF5 is NaN in each of the formats fp16,
// bf16, float and double, at every place where one of them can lie.
constexpr unsigned char kPattern[2] = {0xF5, 0x7F};
// Guards as long as the buffer, within reason, also catch an index that is wrong by whole rows.
// They are address space only.
constexpr size_t kMinGuard = size_t{64} << 10, kMaxGuard = size_t{16} << 20;
constexpr size_t kQuarantineBuffers = 1024;
constexpr size_t kQuarantineBytes = size_t{64} << 30;  // of address space

#if defined(CPU_ADDRESS_SANITIZER)
constexpr bool kAddressSanitizer = true;  // reports a touched redzone itself, with the line
void forbid(const char* p, size_t bytes) { ASAN_POISON_MEMORY_REGION(p, bytes); }
void permit(const char* p, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(p, bytes); }
#else
constexpr bool kAddressSanitizer = false;
void forbid(const char*, size_t) {}
void permit(const char*, size_t) {}
#endif

size_t page() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t round_up(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

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

Heap& heap() {  // never destroyed: static objects of the program may free buffers at any time
  static Heap* const instance = new Heap;
  return *instance;
}

using Lock = std::lock_guard<std::recursive_mutex>;

std::uintptr_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

// The buffer whose mapping, guards included, holds p; null if there is none.
Buffer* find(Buffers& buffers, const void* p) {
  auto next = buffers.upper_bound(address_of(p));
  if (next == buffers.begin()) return nullptr;
  Buffer& buffer = std::prev(next)->second;
  return address_of(p) < address_of(buffer.map_begin()) + buffer.map_bytes() ? &buffer : nullptr;
}

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

void fill_with_pattern(const Buffer& b) {
  const auto fill = [](char* first, const char* last) {
    for (char* p = first; p != last; ++p) *p = static_cast<char>(kPattern[address_of(p) % 2]);
  };
  fill(b.pages, b.data);
  fill(b.data_end(), b.pages + b.page_bytes);
}

// ---- Allocating and freeing -------------------------------------------------------------------

// Is there memory for `bytes` more? Linux promises more than it has and kills whoever believes it,
// so a real device's "out of memory" has to be made here. Asking the system takes long: small
// requests are held against its last answer.
bool fits_in_memory(size_t bytes) {
  constexpr size_t kLookAgainAfter = size_t{64} << 20;
  Heap& h = heap();
  if (bytes > kLookAgainAfter || h.available_at_look == 0 ||
      h.allocated_since_look + bytes > kLookAgainAfter) {
    h.available_at_look = available_memory();
    h.allocated_since_look = 0;
  }
  h.allocated_since_look += bytes;
  return h.allocated_since_look <= h.available_at_look;
}

// Is the current device's share of the machine's memory large enough for `bytes` more?
bool fits_in_share(size_t bytes) {
  static const size_t share = total_memory() / static_cast<size_t>(device_count);
  const size_t used = heap().of[current_device()].bytes;
  return device_count == 1 || (used <= share && bytes <= share - used);
}

hipError_t allocate(void** pointer, size_t bytes, PointerKind kind, const char* file, int line) {
  if (const hipError_t lost = device_state(); lost != hipSuccess) return lost;
  if (pointer == nullptr) return set_error(hipErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return hipSuccess;

  Buffer b;
  b.device = current_device();
  b.kind = kind, b.bytes = bytes, b.file = file, b.line = line, b.owner = getpid();
  Heap& h = heap();
  {
    const Lock lock(h.mutex);
    if (bytes > PTRDIFF_MAX / 4 || !fits_in_memory(bytes)) return set_error(hipErrorOutOfMemory);
    if (kind == PointerKind::device && !fits_in_share(bytes)) return set_error(hipErrorOutOfMemory);
  }
  const size_t aligned_bytes = round_up(bytes, kAlignment);
  b.page_bytes = round_up(aligned_bytes, page());
  b.guard_bytes = std::clamp(b.page_bytes, kMinGuard, kMaxGuard);
  void* map =
      mmap(nullptr, b.map_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return set_error(hipErrorOutOfMemory);
  b.pages = static_cast<char*>(map) + b.guard_bytes;
  b.data = b.pages;
  if (device().guard == Device::Guard::end) b.data += b.page_bytes - aligned_bytes;
  if (device().guard == Device::Guard::exact) b.data += b.page_bytes - bytes;
  if (mprotect(b.pages, b.page_bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(map, b.map_bytes());
    return set_error(hipErrorOutOfMemory);
  }
  constexpr size_t kHugePage = size_t{2} << 20;
  if (b.page_bytes >= 2 * kHugePage) madvise(b.pages, b.page_bytes, MADV_HUGEPAGE);
  fill_bytes(b.data, kPoison, bytes);
  fill_with_pattern(b);
  forbid(b.pages, b.pad());
  forbid(b.data_end(), b.slack());

  const Lock lock(h.mutex);
  const bool open = h.opened != 0 && (h.open_devices >> b.device & 1) != 0;
  if (device().strict && kind == PointerKind::device && !open)
    mprotect(b.pages, b.page_bytes, PROT_NONE);
  b.number = h.allocations++;
  h.live[address_of(map)] = b;
  Heap::PerDevice& owner = h.of[b.device];
  owner.bytes += kind == PointerKind::device ? bytes : 0;
  owner.most_bytes = std::max(owner.most_bytes, owner.bytes);
  *pointer = b.data;
  return hipSuccess;
}

// The first two bytes right, and all others equal to the one two before.
bool holds_pattern(const char* first, const char* last) {
  const auto is_right = [](const char* p) {
    return static_cast<unsigned char>(*p) == kPattern[address_of(p) % 2];
  };
  const size_t bytes = static_cast<size_t>(last - first);
  if (bytes == 0) return true;
  if (bytes == 1) return is_right(first);
  return is_right(first) && is_right(first + 1) && std::memcmp(first, first + 2, bytes - 2) == 0;
}

// Is the pattern around the buffer as it was? Looks at `reach` bytes on either side of it. If not,
// *what tells which side was written, and the pattern is made good.
bool check_redzone(const Buffer& b, size_t reach, std::string* what) {
  if (kAddressSanitizer) return true;
  const bool before = holds_pattern(b.data - std::min(reach, b.pad()), b.data);
  const bool behind = holds_pattern(b.data_end(), b.data_end() + std::min(reach, b.slack()));
  if (before && behind) return true;
  *what = std::string("memory just ") + (before ? "behind" : "in front of") + " the " + name_of(b) +
          " was written";
  fill_with_pattern(b);
  return false;
}

// Moves a live buffer to the quarantine: its memory goes back, its addresses stay taken.
void bury(Heap& h, Buffer b) {
  h.live.erase(address_of(b.map_begin()));
  h.of[b.device].bytes -= b.kind == PointerKind::device ? b.bytes : 0;
  permit(b.pages, b.page_bytes);
  mmap(b.pages, b.page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
  b.kind = PointerKind::freed;
  h.freed[address_of(b.map_begin())] = b;
  h.freed_order.push_back(address_of(b.map_begin()));
  h.freed_bytes += b.map_bytes();
  while (h.freed_order.size() > kQuarantineBuffers || h.freed_bytes > kQuarantineBytes) {
    const auto oldest = h.freed.find(h.freed_order.front());
    h.freed_order.pop_front();
    h.freed_bytes -= oldest->second.map_bytes();
    munmap(oldest->second.map_begin(), oldest->second.map_bytes());
    h.freed.erase(oldest);
  }
}

hipError_t release(const char* function, void* pointer, PointerKind kind) {
  if (pointer == nullptr) return device_state();
  const std::string call = std::string(function) + "(" + hex(pointer) + "): ";
  const OpenMemory open;
  Heap& h = heap();
  const Lock lock(h.mutex);
  Buffer* b = find(h.live, pointer);
  if (b == nullptr) {
    const Buffer* old = find(h.freed, pointer);
    if (old != nullptr && old->freed_by_reset)  // as on a GPU an error, but an innocent one
      return set_error(hipErrorInvalidValue);
    if (old != nullptr)
      return fail(hipErrorInvalidValue, call + "freed twice: the " + name_of(*old));
    return fail(hipErrorInvalidValue, call + "this is host memory");
  }
  if (pointer != b->data)
    return fail(hipErrorInvalidValue,
                call + "not the beginning of a buffer, but " + place_in(*b, pointer));
  if (kind != b->kind)
    return fail(hipErrorInvalidValue,
                call + "the " + name_of(*b) + " is freed by " +
                    (kind == PointerKind::device ? "hipHostFree" : "hipFree"));
  std::string damage;
  const int device = b->device;
  if (!check_redzone(*b, b->page_bytes, &damage))
    raise_fault(hipErrorIllegalAddress, call + damage + " since it was allocated", device);
  bury(h, *b);
  return device_state(device);
}

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

// ---- What the other files ask -----------------------------------------------------------------

std::string count_bytes(size_t n) { return std::to_string(n) + (n == 1 ? " byte" : " bytes"); }

PointerKind pointer_kind(const void* pointer) {
  if (pointer == nullptr) return PointerKind::null;
  Heap& h = heap();
  const Lock lock(h.mutex);
  if (const Buffer* b = find(h.live, pointer)) return b->kind;
  return find(h.freed, pointer) != nullptr ? PointerKind::freed : PointerKind::host;
}

std::string describe_address(const void* address) {
  Heap& h = heap();
  const Lock lock(h.mutex);
  if (const Buffer* b = find(h.live, address)) return place_in(*b, address);
  if (const Buffer* old = find(h.freed, address)) return place_in(*old, address);
  return "";
}

int owner_of(const void* pointer) {
  Heap& h = heap();
  const Lock lock(h.mutex);
  const Buffer* b = find(h.live, pointer);
  return b == nullptr ? -1 : b->device;
}

bool is_reachable(const void* address, std::string* why) {
  Heap& h = heap();
  const Lock lock(h.mutex);
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

bool check_range(const std::string& function, const char* role, const void* pointer, size_t bytes,
                 Place place, std::string* why) {
  const auto refuse = [&](const std::string& reason) {
    *why = function + ": the " + role + " " + reason;
    return false;
  };
  if (pointer == nullptr) return refuse("is a null pointer");
  Heap& h = heap();
  const Lock lock(h.mutex);
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

bool check_redzones(DeviceSet devices, std::string* what) {
  if (kAddressSanitizer) return true;
  constexpr size_t kAtMost = 64;
  Heap& h = heap();
  const Lock lock(h.mutex);
  if (h.live.empty()) return true;
  bool good = true;
  auto next = h.live.lower_bound(h.next_check);
  for (size_t i = 0; good && i < std::min(kAtMost, h.live.size()); ++i, ++next) {
    if (next == h.live.end()) next = h.live.begin();
    if ((devices >> next->second.device & 1) != 0)
      good = check_redzone(next->second, kRedzone, what);
  }
  h.next_check = next == h.live.end() ? 0 : next->first;
  return good;
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
  const Lock lock(h.mutex);
  if (--h.opened != 0) return;
  protect_device_memory(h, PROT_NONE);
  h.closed.notify_all();
}

void free_all_memory() {
  Heap& h = heap();
  const Lock lock(h.mutex);
  const int device = current_device();
  for (auto at = h.live.begin(); at != h.live.end();) {
    Buffer& b = (at++)->second;  // first on to the next one: this one leaves the map
    if (b.device != device) continue;
    b.freed_by_reset = true;
    bury(h, b);
  }
}

size_t used_memory() {
  Heap& h = heap();
  const Lock lock(h.mutex);
  return h.of[current_device()].bytes;
}

std::vector<std::string> describe_leaks(size_t most) {
  Heap& h = heap();
  const Lock lock(h.mutex);
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

hipError_t hipMalloc(void** pointer, size_t bytes, const char* file, int line) {
  if (const hipError_t error = cpu::check_not_capturing(); error != hipSuccess) return error;
  return cpu::allocate(pointer, bytes, PointerKind::device, file, line);
}

hipError_t hipHostMalloc(void** pointer, size_t bytes, unsigned flags, const char* file, int line) {
  constexpr unsigned kKnown =
      hipHostMallocPortable | hipHostMallocMapped | hipHostMallocWriteCombined;
  if (const hipError_t error = cpu::check_not_capturing(); error != hipSuccess) return error;
  if ((flags & ~kKnown) != 0) return set_error(hipErrorInvalidValue);
  return cpu::allocate(pointer, bytes, PointerKind::pinned, file, line);
}

hipError_t hipFree(void* pointer) {
  if (const hipError_t error = cpu::check_not_capturing(); error != hipSuccess) return error;
  return cpu::release("hipFree", pointer, PointerKind::device);
}

hipError_t hipHostFree(void* pointer) {
  if (const hipError_t error = cpu::check_not_capturing(); error != hipSuccess) return error;
  return cpu::release("hipHostFree", pointer, PointerKind::pinned);
}

// Allocating in stream order: since all work is done at once, the same as allocating. A GPU's pool
// would hand a freed buffer out again; here it stays out of reach, so that its late users are
// caught.
hipError_t hipMallocAsync(void** pointer, size_t bytes, hipStream_t stream, const char* file,
                          int line) {
  if (const hipError_t error = cpu::check_stream(stream); error != hipSuccess) return error;
  const cpu::OnDevice scope(cpu::device_of(stream));
  return hipMalloc(pointer, bytes, file, line);
}

hipError_t hipFreeAsync(void* pointer, hipStream_t stream) {
  if (const hipError_t error = cpu::check_stream(stream); error != hipSuccess) return error;
  if (const hipError_t error = cpu::check_not_capturing(); error != hipSuccess) return error;
  return cpu::release("hipFreeAsync", pointer, PointerKind::device);
}

namespace {

hipMemPool_t pool_of(int device) {  // each device's only one
  return reinterpret_cast<hipMemPool_t>((static_cast<std::uintptr_t>(device) + 1) * 0x10);
}

int device_of(hipMemPool_t pool) {  // -1: there is no such pool
  for (int device = 0; device < cpu::device_count; ++device)
    if (pool == pool_of(device)) return device;
  return -1;
}

}  // namespace

hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (pool == nullptr) return set_error(hipErrorInvalidValue);
  if (!cpu::exists(device)) return set_error(hipErrorInvalidDevice);
  *pool = pool_of(device);
  return hipSuccess;
}

hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t) {  // freed memory never stays in the pool
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  return set_error(device_of(pool) >= 0 ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  const int device = device_of(pool);
  if (device < 0 || value == nullptr) return set_error(hipErrorInvalidValue);
  cpu::Heap& h = cpu::heap();
  const cpu::Lock lock(h.mutex);
  cpu::Heap::PerDevice& owner = h.of[device];
  const auto answer = [&](std::uint64_t bytes) { return std::memcpy(value, &bytes, sizeof bytes); };
  switch (attribute) {
    case hipMemPoolAttrReleaseThreshold:
      answer(owner.release_threshold);
      return hipSuccess;
    case hipMemPoolAttrReservedMemCurrent:
    case hipMemPoolAttrUsedMemCurrent:
      answer(owner.bytes);
      return hipSuccess;
    case hipMemPoolAttrReservedMemHigh:
    case hipMemPoolAttrUsedMemHigh:
      answer(owner.most_bytes);
      return hipSuccess;
    default:
      return set_error(hipErrorInvalidValue);
  }
}

hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  const int device = device_of(pool);
  if (device < 0 || value == nullptr) return set_error(hipErrorInvalidValue);
  cpu::Heap& h = cpu::heap();
  const cpu::Lock lock(h.mutex);
  cpu::Heap::PerDevice& owner = h.of[device];
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, value, sizeof bytes);
  switch (attribute) {
    case hipMemPoolAttrReleaseThreshold:
      owner.release_threshold = bytes;
      return hipSuccess;
    case hipMemPoolAttrReservedMemHigh:
    case hipMemPoolAttrUsedMemHigh:  // the high-water mark can only be reset
      if (bytes != 0) return set_error(hipErrorInvalidValue);
      owner.most_bytes = owner.bytes;
      return hipSuccess;
    default:
      return set_error(hipErrorInvalidValue);
  }
}

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
