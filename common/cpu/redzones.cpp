// Redzones: the pattern in front of and behind each buffer, by which a stray write is found out.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

#include "common/cpu/heap.h"

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

constexpr size_t kRedzone = 64;  // how much of pad and slack is looked at after each launch
// What pad and slack hold, at even and at odd addresses: 0x7FF5 is NaN in each of the formats fp16,
// bf16, float and double, at every place where one of them can lie.
constexpr unsigned char kPattern[2] = {0xF5, 0x7F};

#if defined(CPU_ADDRESS_SANITIZER)
constexpr bool kAddressSanitizer = true;  // reports a touched redzone itself, with the line
void forbid(const char* p, size_t bytes) { ASAN_POISON_MEMORY_REGION(p, bytes); }
void permit(const char* p, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(p, bytes); }
#else
constexpr bool kAddressSanitizer = false;
void forbid(const char*, size_t) {}
void permit(const char*, size_t) {}
#endif

void fill_with_pattern(const Buffer& b) {
  const auto fill = [](char* first, const char* last) {
    for (char* p = first; p != last; ++p) *p = static_cast<char>(kPattern[address_of(p) % 2]);
  };
  fill(b.pages, b.data);
  fill(b.data_end(), b.pages + b.page_bytes);
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

}  // namespace

void make_redzones(const Buffer& b) {
  fill_with_pattern(b);
  forbid(b.pages, b.pad());
  forbid(b.data_end(), b.slack());
}

void forget_redzones(const Buffer& b) { permit(b.pages, b.page_bytes); }

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

bool check_redzones(DeviceSet devices, std::string* what) {
  if (kAddressSanitizer) return true;
  constexpr size_t kAtMost = 64;
  Heap& h = heap();
  const std::lock_guard lock(h.mutex);
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

}  // namespace cpu
