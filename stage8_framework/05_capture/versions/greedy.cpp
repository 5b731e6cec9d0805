// In the order of time, as an allocator would: each buffer takes the smallest gap that fits.
//
//   A ends, B stays, C begins       | gap of A   | B    |  C larger than the gap:   | gap | B | C |
//
// Fixes: none gives the memory of a buffer that is no longer needed to nobody.
// Idea:  walk through the calls. A buffer whose last call is over leaves a gap. The next one takes
//        the smallest gap in which it fits, or makes the block longer.
// Costs: what comes later is not known. A small buffer that lives long may lie in the middle of
//        what a large one would need: the block grows, though there is enough room in pieces.
#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include "stage8_framework/05_capture/planner.h"

namespace framework {

namespace {

using Gaps = std::map<size_t, size_t>;  // bytes of each, by where it begins

// Gives [begin, begin + bytes) back, and joins it with the gaps beside it.
void give_back(Gaps& gaps, size_t begin, size_t bytes) {
  auto next = gaps.lower_bound(begin);
  if (next != gaps.end() && begin + bytes == next->first) {
    bytes += next->second;
    next = gaps.erase(next);
  }
  if (next != gaps.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += bytes;
      return;
    }
  }
  gaps.emplace(begin, bytes);
}

}  // namespace

MemoryPlan plan_greedy(const std::vector<Interval>& intervals) {
  MemoryPlan plan{std::vector<size_t>(intervals.size()), 0};
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return intervals[a].first < intervals[b].first; });
  Gaps gaps;
  std::multimap<int, size_t> ends;  // buffers in use, by their last call
  for (const size_t i : order) {
    const Interval& buffer = intervals[i];
    while (!ends.empty() && ends.begin()->first < buffer.first) {
      const size_t over = ends.begin()->second;
      give_back(gaps, plan.offsets[over], intervals[over].room());
      ends.erase(ends.begin());
    }
    if (buffer.room() == 0) continue;
    auto best = gaps.end();
    for (auto gap = gaps.begin(); gap != gaps.end(); ++gap)
      if (gap->second >= buffer.room() && (best == gaps.end() || gap->second < best->second))
        best = gap;
    if (best == gaps.end()) {  // the block grows, by what its last gap lacks
      const bool ends_with_gap =
          !gaps.empty() && gaps.rbegin()->first + gaps.rbegin()->second == plan.bytes;
      const size_t begin = ends_with_gap ? gaps.rbegin()->first : plan.bytes;
      if (ends_with_gap) gaps.erase(std::prev(gaps.end()));
      best = gaps.emplace(begin, buffer.room()).first;
      plan.bytes = begin + buffer.room();
    }
    const auto [begin, bytes] = *best;
    gaps.erase(best);
    if (bytes > buffer.room()) gaps.emplace(begin + buffer.room(), bytes - buffer.room());
    plan.offsets[i] = begin;
    ends.emplace(buffer.last, i);
  }
  return plan;
}

}  // namespace framework
