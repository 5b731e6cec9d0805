// splitting: blocks are cut to size out of large segments. splitting.h says what each promises.
#include <algorithm>
#include <stdexcept>

#include "stage8_framework/01_tensor/splitting.h"

namespace tensor {

// Fixes : a block of pool serves one size class only: what all classes have cached is half as much
//         again as was ever live.
// Idea  : the smallest free block that fits is cut in two; a block that is freed is joined with
//         free neighbours, so that any size can be cut from it again. Small blocks are cut off the
//         upper end: a short-lived one does not part two large ones.
// Costs : a lock, a table entry and a few list entries for each block; at most 255 bytes of it.
void* Splitting::allocate(size_t bytes, hipStream_t stream) {
  if (bytes == 0) return nullptr;
  if (memory_pool::class_of(bytes) == memory_pool::kClasses) HIP_CHECK(hipErrorOutOfMemory);
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes = gpu::ceil_div(bytes, memory_pool::kSmallestClass) * memory_pool::kSmallestClass;
  Lane& lane = lane_of(stream);
  Block* block = best_fit(lane, bytes);
  if (block == nullptr) block = grow(lane, bytes);
  delist(block);
  if (block->bytes > bytes && !block->is_whole) {
    const bool is_small = bytes < lane.peak_live / kSmallShare;
    Block* rest = split(block, is_small ? block->bytes - bytes : bytes);
    if (is_small) std::swap(block, rest);
    enlist(rest);
  }
  hand_out(block);
  return block->begin;
}

void Splitting::free(void* begin) {
  if (begin == nullptr) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  enlist(joined(take_back(begin)));
}

// The smallest free block that serves `bytes`, or nullptr. Blocks of one list differ in size by a
// quarter at most, and every block of a later list is larger.
Splitting::Block* Splitting::best_fit(const Lane& lane, size_t bytes) {
  Block* best = nullptr;
  for (size_t list = lane.next_full(list_of(bytes));
       list < memory_pool::kClasses && best == nullptr; list = lane.next_full(list + 1))
    for (Block* block = lane.first[list]; block != nullptr; block = block->next)
      if (block->serves(bytes) && (best == nullptr || block->bytes < best->bytes ||
                                   (block->bytes == best->bytes && block->begin < best->begin)))
        best = block;
  return best;
}

// Cuts `block` behind `bytes`. Returns what is left over.
Splitting::Block* Splitting::split(Block* block, size_t bytes) {
  Block* rest = new_block();
  rest->begin = block->begin + bytes, rest->bytes = block->bytes - bytes, rest->lane = block->lane;
  rest->before = block, rest->after = block->after;
  if (rest->after != nullptr) rest->after->before = rest;
  block->after = rest, block->bytes = bytes;
  return rest;
}

// `block` with its free neighbours, in no list.
Splitting::Block* Splitting::joined(Block* block) {
  // exercise: one block of it and of each neighbour that is free (about 12 lines)
  if (Block* left = block->before; left != nullptr && left->is_free) {
    delist(left);
    left->bytes += block->bytes, left->after = block->after;
    if (left->after != nullptr) left->after->before = left;
    forget(block);
    block = left;
  }
  if (Block* right = block->after; right != nullptr && right->is_free) {
    delist(right);
    block->bytes += right->bytes, block->after = right->after;
    if (block->after != nullptr) block->after->before = block;
    forget(right);
  }
  // end exercise
  return block;
}

// A free block of at least `bytes` from the source. What is idle goes back first: small segments
// become one large one. A stream may have a tenth more than was ever live on it at a time. If that
// leaves room for another request like this one, the new segment is all of it, to be cut up; else
// it is as large as the request, and stays whole, so that it can go back.
Splitting::Block* Splitting::grow(Lane& lane, size_t bytes) {
  ++statistics_.misses;
  release_idle(&lane);
  const size_t most = std::max(lane.peak_live, lane.live + bytes);
  const size_t allowed =
      (most + most / 10) / memory_pool::kSmallestClass * memory_pool::kSmallestClass;
  Block* block = new_block();
  block->lane = &lane;
  block->is_whole = allowed < lane.reserved + 2 * bytes;
  block->bytes = block->is_whole ? bytes : allowed - lane.reserved;
  block->begin = ask_source(block->bytes);
  if (block->begin == nullptr) {
    release_idle(nullptr);
    block->is_whole = true, block->bytes = bytes;
    try {
      block->begin = static_cast<char*>(source_->allocate(bytes));
    } catch (...) {
      forget(block);
      throw;
    }
  }
  lane.reserved += block->bytes, statistics_.reserved += block->bytes;
  statistics_.peak_reserved = std::max(statistics_.peak_reserved, statistics_.reserved);
  enlist(block);
  return block;
}

// nullptr where the source has no more.
char* Splitting::ask_source(size_t bytes) {
  try {
    return static_cast<char*>(source_->allocate(bytes));
  } catch (const gpu::Error&) {
    return nullptr;
  }
}

// Gives back the segments that are one free block: of one stream, or of all.
void Splitting::release_idle(const Lane* only) {
  for (Lane& lane : lanes_) {
    if (only != nullptr && only != &lane) continue;
    for (Block* first : lane.first)
      for (Block *block = first, *next = nullptr; block != nullptr; block = next) {
        next = block->next;
        if (block->before != nullptr || block->after != nullptr) continue;
        source_->free(block->begin);
        lane.reserved -= block->bytes, statistics_.reserved -= block->bytes;
        delist(block);
        forget(block);
      }
  }
}

// ---- Books ------------------------------------------------------------------------------------

// The list that a free block of `bytes` stands in: of the largest class that it can serve.
size_t Splitting::list_of(size_t bytes) { return memory_pool::class_of(bytes + 1) - 1; }

// The first list from `list` on that is not empty, or a number that is none.
size_t Splitting::Lane::next_full(size_t list) const {
  for (size_t word = list / 64; word < full.size(); ++word, list = 64 * word) {
    const std::uint64_t left = full[word] >> list % 64;
    if (left != 0) return list + static_cast<size_t>(__builtin_ctzll(left));
  }
  return memory_pool::kClasses;
}

void Splitting::enlist(Block* block) {
  block->list = list_of(block->bytes);
  Block*& first = block->lane->first[block->list];
  block->is_free = true, block->previous = nullptr, block->next = first;
  if (first != nullptr) first->previous = block;
  first = block;
  block->lane->full[block->list / 64] |= std::uint64_t{1} << block->list % 64;
}

void Splitting::delist(Block* block) {
  Block*& first = block->lane->first[block->list];
  (block->previous != nullptr ? block->previous->next : first) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
  block->is_free = false;
  if (first == nullptr)
    block->lane->full[block->list / 64] &= ~(std::uint64_t{1} << block->list % 64);
}

// Enters a block into the table of those that are handed out. The table's entries are used again.
void Splitting::hand_out(Block* block) {
  if (spare_entries_.empty()) {
    live_.emplace(block->begin, block);
  } else {
    auto entry = std::move(spare_entries_.back());
    spare_entries_.pop_back();
    entry.key() = block->begin, entry.mapped() = block;
    live_.insert(std::move(entry));
  }
  Lane& lane = *block->lane;
  lane.live += block->bytes, statistics_.live += block->bytes;
  lane.peak_live = std::max(lane.peak_live, lane.live);
  statistics_.peak_live = std::max(statistics_.peak_live, statistics_.live);
}

Splitting::Block* Splitting::take_back(void* begin) {
  const auto found = live_.find(begin);
  if (found == live_.end())
    throw std::invalid_argument(
        "free: the allocator has not handed out this block, or has it back");
  Block* block = found->second;
  spare_entries_.push_back(live_.extract(found));
  block->lane->live -= block->bytes, statistics_.live -= block->bytes;
  return block;
}

Splitting::Block* Splitting::new_block() {
  if (spare_.empty()) return &blocks_.emplace_back();
  Block* block = spare_.back();
  spare_.pop_back();
  *block = Block{};
  return block;
}

void Splitting::forget(Block* block) { spare_.push_back(block); }

Splitting::Lane& Splitting::lane_of(hipStream_t stream) {
  for (Lane& lane : lanes_)
    if (lane.stream == stream) return lane;
  lanes_.emplace_back().stream = stream;
  return lanes_.back();
}

void Splitting::release() {
  const std::lock_guard<std::mutex> lock(mutex_);
  release_idle(nullptr);
}

Splitting::Statistics Splitting::statistics() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return statistics_;
}

std::unique_ptr<memory_pool::Allocator> make_splitting() { return std::make_unique<Splitting>(); }

}  // namespace tensor
