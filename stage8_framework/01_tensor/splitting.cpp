// The books of the allocator that splits and joins: its lists, its table and its segments.
// versions/splitting.hip has what it decides.
#include "stage8_framework/01_tensor/splitting.h"

#include <stdexcept>

namespace tensor {

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

// The list that a free block of `bytes` stands in: of the largest class that it can serve.
size_t Splitting::list_of(size_t bytes) { return memory_pool::class_of(bytes + 1) - 1; }

// The first list from `list` on that is not empty, or a number that is none.
size_t Splitting::Lane::next_full(size_t list) const {
  for (size_t word = list / kWordBits; word < full.size(); ++word, list = kWordBits * word) {
    const std::uint64_t left = full[word] >> list % kWordBits;
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
  block->lane->full[block->list / kWordBits] |= std::uint64_t{1} << block->list % kWordBits;
}

void Splitting::delist(Block* block) {
  Block*& first = block->lane->first[block->list];
  (block->previous != nullptr ? block->previous->next : first) = block->next;
  if (block->next != nullptr) block->next->previous = block->previous;
  block->is_free = false;
  if (first == nullptr)
    block->lane->full[block->list / kWordBits] &= ~(std::uint64_t{1} << block->list % kWordBits);
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

void Splitting::restart_peaks() {
  const std::lock_guard<std::mutex> lock(mutex_);
  statistics_.peak_live = statistics_.live, statistics_.peak_reserved = statistics_.reserved;
}

std::unique_ptr<memory_pool::Allocator> make_splitting() { return std::make_unique<Splitting>(); }

}  // namespace tensor
