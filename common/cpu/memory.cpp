// Device memory on the CPU backend: allocating, freeing, and catching what a GPU lets pass.
//
// Every buffer has a mapping of its own:
//
//   | guard pages | pad ... redzone | the buffer | slack | guard pages |
//     no access     known pattern     0xFF bytes   0..15   no access
//
// The buffer ends at a guard page, or at most 15 bytes before it because it must begin at a
// multiple of 16: an access behind it faults at once, and what is written to the pad or the slack
// is found after the launch. Fresh bytes are 0xFF: a float that nobody wrote is NaN. A freed buffer
// gives its memory back, but its addresses stay reserved and inaccessible until many others have
// been freed, so a pointer that outlived its buffer faults too and the fault can be explained.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
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
constexpr size_t kRedzone = 64;  // how much of the pad is looked at after each launch
constexpr unsigned char kPattern = 0xB5, kPoison = 0xFF;
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
  int opened = 0;  // how many launches and copies have device memory open (strict mode)
  size_t device_bytes = 0, most_device_bytes = 0;
  std::uint64_t allocations = 0;
  size_t allocated_since_look = 0, available_at_look = 0;
  std::uint64_t release_threshold = 0;
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
  return std::string(kind) + std::to_string(buffer.bytes) + "-byte buffer allocated at " +
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

hipError_t allocate(void** pointer, size_t bytes, PointerKind kind, const char* file, int line) {
  if (const hipError_t lost = device_state(); lost != hipSuccess) return lost;
  if (pointer == nullptr) return set_error(hipErrorInvalidValue);
  *pointer = nullptr;
  if (bytes == 0) return hipSuccess;

  Buffer b;
  b.kind = kind, b.bytes = bytes, b.file = file, b.line = line, b.owner = getpid();
  Heap& h = heap();
  {
    const Lock lock(h.mutex);
    if (bytes > PTRDIFF_MAX / 4 || !fits_in_memory(bytes)) return set_error(hipErrorOutOfMemory);
  }
  const size_t aligned_bytes = round_up(bytes, kAlignment);
  b.page_bytes = round_up(aligned_bytes, page());
  b.guard_bytes = std::clamp(b.page_bytes, kMinGuard, kMaxGuard);
  void* map =
      mmap(nullptr, b.map_bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return set_error(hipErrorOutOfMemory);
  b.pages = static_cast<char*>(map) + b.guard_bytes;
  b.data = b.pages + b.page_bytes - aligned_bytes;
  if (mprotect(b.pages, b.page_bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(map, b.map_bytes());
    return set_error(hipErrorOutOfMemory);
  }
  constexpr size_t kHugePage = size_t{2} << 20;
  if (b.page_bytes >= 2 * kHugePage) madvise(b.pages, b.page_bytes, MADV_HUGEPAGE);
  std::memset(b.pages, kPattern, b.pad());
  fill_bytes(b.data, kPoison, bytes);
  std::memset(b.data_end(), kPattern, b.slack());
  forbid(b.pages, b.pad());
  forbid(b.data_end(), b.slack());

  const Lock lock(h.mutex);
  if (device().strict && kind == PointerKind::device && h.opened == 0)
    mprotect(b.pages, b.page_bytes, PROT_NONE);
  b.number = h.allocations++;
  h.live[address_of(map)] = b;
  h.device_bytes += kind == PointerKind::device ? bytes : 0;
  h.most_device_bytes = std::max(h.most_device_bytes, h.device_bytes);
  *pointer = b.data;
  return hipSuccess;
}

// All equal to the next one, and the first one right.
bool holds_pattern(const char* first, const char* last) {
  if (first == last) return true;
  return static_cast<unsigned char>(*first) == kPattern &&
         std::memcmp(first, first + 1, static_cast<size_t>(last - first) - 1) == 0;
}

// Is the pattern around the buffer as it was? Looks at `reach` bytes in front of it. If not, *what
// tells which side was written, and the pattern is made good.
bool check_redzone(const Buffer& b, size_t reach, std::string* what) {
  if (kAddressSanitizer) return true;
  const size_t front = std::min(reach, b.pad());
  const bool before = holds_pattern(b.data - front, b.data);
  const bool behind = holds_pattern(b.data_end(), b.data_end() + b.slack());
  if (before && behind) return true;
  *what = std::string("memory just ") + (before ? "behind" : "in front of") + " the " + name_of(b) +
          " was written";
  std::memset(b.pages, kPattern, b.pad());
  std::memset(b.data_end(), kPattern, b.slack());
  return false;
}

// Moves a live buffer to the quarantine: its memory goes back, its addresses stay taken.
void bury(Heap& h, Buffer b) {
  h.live.erase(address_of(b.map_begin()));
  h.device_bytes -= b.kind == PointerKind::device ? b.bytes : 0;
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
  open_device_memory();
  if (!check_redzone(*b, b->pad(), &damage))
    raise_fault(hipErrorIllegalAddress, call + damage + " since it was allocated");
  close_device_memory();
  bury(h, *b);
  return device_state();
}

void protect_device_memory(Heap& h, int access) {
  for (const auto& [begin, b] : h.live)
    if (b.kind == PointerKind::device) mprotect(b.pages, b.page_bytes, access);
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

bool check_redzones(std::string* what) {
  if (kAddressSanitizer) return true;
  constexpr size_t kAtMost = 64;
  Heap& h = heap();
  const Lock lock(h.mutex);
  if (h.live.empty()) return true;
  open_device_memory();
  bool good = true;
  auto next = h.live.lower_bound(h.next_check);
  for (size_t i = 0; good && i < std::min(kAtMost, h.live.size()); ++i, ++next) {
    if (next == h.live.end()) next = h.live.begin();
    good = check_redzone(next->second, kRedzone, what);
  }
  h.next_check = next == h.live.end() ? 0 : next->first;
  close_device_memory();
  return good;
}

void open_device_memory() {
  if (!device().strict) return;
  Heap& h = heap();
  const Lock lock(h.mutex);
  if (h.opened++ == 0) protect_device_memory(h, PROT_READ | PROT_WRITE);
}

void close_device_memory() {
  if (!device().strict) return;
  Heap& h = heap();
  const Lock lock(h.mutex);
  if (--h.opened == 0) protect_device_memory(h, PROT_NONE);
}

void free_all_memory() {
  Heap& h = heap();
  const Lock lock(h.mutex);
  while (!h.live.empty()) {
    h.live.begin()->second.freed_by_reset = true;
    bury(h, h.live.begin()->second);
  }
}

std::vector<std::string> describe_leaks(size_t most) {
  Heap& h = heap();
  const Lock lock(h.mutex);
  std::map<std::uint64_t, const Buffer*> leaks;  // oldest first
  for (const auto& [begin, b] : h.live)
    if (b.owner == getpid()) leaks[b.number] = &b;
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
  return hipMalloc(pointer, bytes, file, line);
}

hipError_t hipFreeAsync(void* pointer, hipStream_t stream) {
  if (const hipError_t error = cpu::check_stream(stream); error != hipSuccess) return error;
  if (const hipError_t error = cpu::check_not_capturing(); error != hipSuccess) return error;
  return cpu::release("hipFreeAsync", pointer, PointerKind::device);
}

namespace {
const hipMemPool_t kPool = reinterpret_cast<hipMemPool_t>(0x10);  // the only one
}

hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int device) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (pool == nullptr) return set_error(hipErrorInvalidValue);
  if (device != 0) return set_error(hipErrorInvalidDevice);
  *pool = kPool;
  return hipSuccess;
}

hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t) {  // freed memory never stays in the pool
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  return set_error(pool == kPool ? hipSuccess : hipErrorInvalidValue);
}

hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (pool != kPool || value == nullptr) return set_error(hipErrorInvalidValue);
  cpu::Heap& h = cpu::heap();
  const cpu::Lock lock(h.mutex);
  const auto answer = [&](std::uint64_t bytes) { return std::memcpy(value, &bytes, sizeof bytes); };
  switch (attribute) {
    case hipMemPoolAttrReleaseThreshold:
      answer(h.release_threshold);
      return hipSuccess;
    case hipMemPoolAttrReservedMemCurrent:
    case hipMemPoolAttrUsedMemCurrent:
      answer(h.device_bytes);
      return hipSuccess;
    case hipMemPoolAttrReservedMemHigh:
    case hipMemPoolAttrUsedMemHigh:
      answer(h.most_device_bytes);
      return hipSuccess;
    default:
      return set_error(hipErrorInvalidValue);
  }
}

hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr attribute, void* value) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  if (pool != kPool || value == nullptr) return set_error(hipErrorInvalidValue);
  cpu::Heap& h = cpu::heap();
  const cpu::Lock lock(h.mutex);
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, value, sizeof bytes);
  switch (attribute) {
    case hipMemPoolAttrReleaseThreshold:
      h.release_threshold = bytes;
      return hipSuccess;
    case hipMemPoolAttrReservedMemHigh:
    case hipMemPoolAttrUsedMemHigh:  // the high-water mark can only be reset
      if (bytes != 0) return set_error(hipErrorInvalidValue);
      h.most_device_bytes = h.device_bytes;
      return hipSuccess;
    default:
      return set_error(hipErrorInvalidValue);
  }
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
  if (const hipError_t lost = cpu::device_state(); lost != hipSuccess) return lost;
  const PointerKind kind = cpu::pointer_kind(pointer);
  if (attributes == nullptr || (kind != PointerKind::device && kind != PointerKind::pinned))
    return set_error(hipErrorInvalidValue);
  *attributes = {};
  attributes->type = kind == PointerKind::device ? hipMemoryTypeDevice : hipMemoryTypeHost;
  attributes->devicePointer = const_cast<void*>(pointer);
  if (kind == PointerKind::pinned) attributes->hostPointer = const_cast<void*>(pointer);
  return hipSuccess;
}
