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

}  // namespace tensor
