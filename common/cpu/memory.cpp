// Device memory on the CPU backend: allocating and freeing. The guard pages and redzones around a
// buffer catch what a GPU lets pass.
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
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <string>

#include "common/cpu/heap.h"

namespace cpu {

namespace {

constexpr size_t kAlignment = 16;
constexpr unsigned char kPoison = 0xFF;
// Guards as long as the buffer, within reason, also catch an index that is wrong by whole rows.
// They are address space only.
constexpr size_t kMinGuard = size_t{64} << 10, kMaxGuard = size_t{16} << 20;
constexpr size_t kQuarantineBuffers = 1024;
constexpr size_t kQuarantineBytes = size_t{64} << 30;  // of address space

size_t page() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t round_up(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

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
    const std::lock_guard lock(h.mutex);
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
  make_redzones(b);

  const std::lock_guard lock(h.mutex);
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

// Moves a live buffer to the quarantine: its memory goes back, its addresses stay taken.
void bury(Heap& h, Buffer b) {
  h.live.erase(address_of(b.map_begin()));
  h.of[b.device].bytes -= b.kind == PointerKind::device ? b.bytes : 0;
  forget_redzones(b);
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
  const std::lock_guard lock(h.mutex);
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

}  // namespace

void free_all_memory() {
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
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
  const std::lock_guard lock(h.mutex);
  return h.of[current_device()].bytes;
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
