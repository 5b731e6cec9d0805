// Shared memory as the asynchronous units see it: they have a way of their own to it, and see what
// threads store only behind a fence. For common/cpu/*.cpp only.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

namespace cpu {

class AsyncView {
 public:
  static constexpr unsigned kRow = 128, kBytes = 256 * 1024, kRows = kBytes / kRow;

  // The block's dynamic shared memory is [first, kBytes) or so of `arena`.
  void begin_block(char* arena, unsigned first) {
    if (content_.empty()) content_.resize(kBytes);
    arena_ = arena, first_ = first, fences_ = 0;
    known_.fill(false), fenced_.fill(0);
  }

  char* arena() const { return arena_; }
  bool holds(unsigned offset, unsigned bytes) const {
    return offset >= first_ && bytes <= kBytes && offset <= kBytes - bytes;
  }
  bool holds(const void* pointer, unsigned bytes) const {
    const char* p = static_cast<const char*>(pointer);
    return p >= arena_ && p < arena_ + kBytes && holds(offset(pointer), bytes);
  }
  unsigned offset(const void* pointer) const {
    return static_cast<unsigned>(static_cast<const char*>(pointer) - arena_);
  }

  void fence() { ++fences_; }
  // A unit has written these rows.
  void learn(unsigned offset, unsigned bytes) {
    for_each_row(offset, bytes, [&](unsigned row) { take(row); });
  }
  // A unit reads them. What it would not see: what threads have stored and no thread has called the
  // fence since. Empty if there is nothing of that.
  std::string read(unsigned offset, unsigned bytes) {
    std::string mistake;
    for_each_row(offset, bytes, [&](unsigned row) {
      const bool changed = !known_[row] || !is_same(row);
      if (changed && fenced_[row] == fences_)
        mistake = known_[row] ? "reads what threads have changed, without fence_for_tma() behind it"
                              : "reads what no copy and no thread with fence_for_tma() has filled";
      if (changed) take(row);
    });
    return mistake;
  }
  // A unit is about to write them. What threads have stored may still be on its way then, and land
  // on top of it, unless a thread has called the fence since.
  bool may_be_stored_late(unsigned offset, unsigned bytes) const {
    bool late = false;
    for_each_row(offset, bytes, [&](unsigned row) {
      late = late || (known_[row] && fenced_[row] == fences_ && !is_same(row));
    });
    return late;
  }
  // Are they as they were when a unit last wrote or read them?
  bool is_unchanged(unsigned offset, unsigned bytes) const {
    bool same = true;
    for_each_row(offset, bytes, [&](unsigned row) { same = same && is_same(row); });
    return same;
  }

 private:
  template <class Action>
  static void for_each_row(unsigned offset, unsigned bytes, Action&& action) {
    for (unsigned row = offset / kRow; row * kRow < offset + bytes; ++row) action(row);
  }
  bool is_same(unsigned row) const {
    return std::memcmp(arena_ + row * kRow, content_.data() + row * kRow, kRow) == 0;
  }
  void take(unsigned row) {
    std::memcpy(content_.data() + row * kRow, arena_ + row * kRow, kRow);
    known_[row] = true, fenced_[row] = fences_;
  }

  char* arena_ = nullptr;
  unsigned first_ = 0, fences_ = 0;
  std::vector<char> content_;        // of each row, when a unit last wrote or read it
  std::array<bool, kRows> known_{};  // has one done so in this block?
  std::array<unsigned, kRows> fenced_{};
};

}  // namespace cpu
