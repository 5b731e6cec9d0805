// Where buffers lie in one block of memory. A planner knows of each how large it is and while which
// calls it is in use: it is a function of numbers, and knows no device.
//
//   bytes |   C C C C            a buffer's life is a length of time,
//         | A A A   D D D        its bytes are a height:
//         | B B B B B   E        rectangles that slide up and down, and must not overlap
//         +-----------------> calls
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace framework {

// A line of the caches: no two buffers share one.
inline constexpr size_t kBufferAlignment = 128;

// A buffer, in use from call number `first` to call number `last`, both included.
struct Interval {
  size_t bytes;
  int first, last;

  // What it takes of a block: begins of buffers are aligned.
  size_t room() const {
    return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  }
  bool meets(const Interval& other) const { return first <= other.last && other.first <= last; }
};

// Where each buffer begins in the block, a multiple of kBufferAlignment, and how large that is.
struct MemoryPlan {
  std::vector<size_t> offsets;
  size_t bytes = 0;
};

using Planner = MemoryPlan (*)(const std::vector<Interval>& intervals);

MemoryPlan plan_none(const std::vector<Interval>& intervals);
MemoryPlan plan_greedy(const std::vector<Interval>& intervals);
MemoryPlan plan_by_size(const std::vector<Interval>& intervals);

// The most bytes that are in use at one time: no plan needs less.
size_t lower_bound_of(const std::vector<Interval>& intervals);

// What is wrong with a plan, in one line that names the buffers; empty where nothing is.
std::string fault_of(const MemoryPlan& plan, const std::vector<Interval>& intervals);

}  // namespace framework
