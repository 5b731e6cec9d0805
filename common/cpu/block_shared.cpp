// The shared memory of one block: where it lies, and the poison that it begins with.
#include <algorithm>
#include <cstring>

#include "common/cpu/block.h"
#include "common/cpu/guard_pages.h"
#include "common/cpu/internal.h"
#include "common/cpu/static_shared.h"

namespace cpu {

namespace {

// What nobody has written reads as NaN in every type, but not as what fills new buffers: a result
// that was computed from it is not taken for one that was never written.
constexpr unsigned char kPoison[] = {0xFF, 0xFF, 0xFF, 0x7F};

void poison(void* memory, size_t bytes) {
  char* begin = static_cast<char*>(memory);
  size_t at = 0;
  for (; at + sizeof(kPoison) <= bytes; at += sizeof(kPoison))
    std::memcpy(begin + at, kPoison, sizeof(kPoison));
  std::memcpy(begin + at, kPoison, bytes - at);
}

bool is_poisoned(const char* begin, size_t bytes) {
  const size_t first = std::min(bytes, sizeof(kPoison));
  return std::memcmp(begin, kPoison, first) == 0 &&
         std::memcmp(begin, begin + first, bytes - first) == 0;
}

// Is each of these bytes poison? Of many of them, is each of some? Whoever writes an array writes
// more than single words of it, and nearly always its first one.
bool looks_poisoned(const char* begin, size_t bytes) {
  constexpr size_t kFew = 1024, kSamples = 8, kWord = 8;
  if (bytes <= kFew) return bytes == 0 || is_poisoned(begin, bytes);
  for (size_t i = 0; i < kSamples; ++i)
    if (!is_poisoned(begin + (bytes - kWord) * i / (kSamples - 1) / kWord * kWord, kWord))
      return false;
  return true;
}

}  // namespace

void BlockRunner::place_shared_memory() {
  if (device().poison) poison_static_shared();
  if (launch_->shared_bytes > 0) {
    const size_t bytes = (launch_->shared_bytes + 15) / 16 * 16;
    const bool at_begin = device().guard == Device::Guard::begin;
    dynamic_shared_ = shared_arena_ + (at_begin ? 0 : kSharedArena - bytes);
    poison(dynamic_shared_, bytes);
  } else {
    dynamic_shared_ = shared_arena_ + kSharedArena;  // the guard page
  }
}

// A program may have a megabyte of shared variables, of which a kernel uses few; the others still
// are poison.
void BlockRunner::poison_static_shared() {
  if (thread_locals_ == nullptr) thread_locals_ = thread_local_variables();
  for (const SharedVariable& variable : shared_variables()) {
    char* begin = thread_locals_ + variable.offset;
    if (!looks_poisoned(begin, variable.bytes)) poison(begin, variable.bytes);
  }
}

bool BlockRunner::is_shared_guard(const void* address) const {
  const char* a = static_cast<const char*>(address);
  const char* end = shared_arena_ + kSharedArena;
  return a >= shared_arena_ - kGuard && a < end + kGuard && !(a >= shared_arena_ && a < end);
}

}  // namespace cpu
