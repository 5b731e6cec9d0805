// The largest first: each buffer lies as low as those allow that are in use with it.
//
//   in use with C:   | A    |       | B  |          C goes into the gap, or behind B
//   not with C:             | D  |                  D is no obstacle: another time
//
// Fixes: greedy places a buffer before it knows which larger ones are still to come.
// Idea:  the whole life of every buffer is known. Large ones are hard to place, so they come first,
//        and small ones fill what is left between them (Pisarchyk and Lee: Efficient memory
//        management for deep neural net inference, arXiv:2001.03288, greedy by size). What lives
//        long is hard to place, too: bytes x calls is tried, and what is in between, and the
//        smallest block is taken.
// Costs: for each buffer a walk over those that meet it, three times at most for a graph.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "stage8_framework/05_capture/planner.h"

namespace framework {

namespace {

// Buffers that have a place, found by the time of their lives.
class Placed {
 public:
  // Those that are in use with `buffer`, the lowest first.
  std::vector<size_t> meeting(const Interval& buffer, const std::vector<Interval>& intervals,
                              const std::vector<size_t>& offsets) const {
    std::vector<size_t> found;
    const size_t begin = span_of(buffer.first);
    for (size_t span = begin; span <= span_of(buffer.last) && span < spans_.size(); ++span)
      for (const size_t other : spans_[span]) {
        const bool is_first_time = span == std::max(begin, span_of(intervals[other].first));
        if (is_first_time && intervals[other].meets(buffer)) found.push_back(other);
      }
    std::sort(found.begin(), found.end(),
              [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
    return found;
  }
  void add(size_t number, const Interval& buffer) {
    spans_.resize(std::max(spans_.size(), span_of(buffer.last) + 1));
    for (size_t span = span_of(buffer.first); span <= span_of(buffer.last); ++span)
      spans_[span].push_back(number);
  }

 private:
  static size_t span_of(int call) { return static_cast<size_t>(call) / 16; }
  std::vector<std::vector<size_t>> spans_;  // of 16 calls each: what is in use there
};

MemoryPlan placed_in(const std::vector<size_t>& order, const std::vector<Interval>& intervals) {
  MemoryPlan plan{std::vector<size_t>(intervals.size()), 0};
  Placed placed;
  for (const size_t i : order) {
    const Interval& buffer = intervals[i];
    if (buffer.room() == 0) continue;
    const std::vector<size_t> in_the_way = placed.meeting(buffer, intervals, plan.offsets);
    // exercise: the lowest place that is free for the buffer's whole life (about 6 lines)
    size_t begin = 0;
    for (const size_t other : in_the_way) {
      if (begin + buffer.room() <= plan.offsets[other]) break;
      begin = std::max(begin, plan.offsets[other] + intervals[other].room());
    }
    plan.offsets[i] = begin;
    // end exercise
    plan.bytes = std::max(plan.bytes, plan.offsets[i] + buffer.room());
    placed.add(i, buffer);
  }
  return plan;
}

}  // namespace

MemoryPlan plan_by_size(const std::vector<Interval>& intervals) {
  const size_t bound = lower_bound_of(intervals);
  MemoryPlan best;
  for (const double weight : {0.0, 0.5, 1.0}) {  // of the life, as a power
    std::vector<double> size;
    for (const Interval& buffer : intervals)
      size.push_back(static_cast<double>(buffer.room()) *
                     std::pow(buffer.last - buffer.first + 1, weight));
    std::vector<size_t> order(intervals.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return size[a] > size[b]; });
    MemoryPlan plan = placed_in(order, intervals);
    if (best.bytes == 0 || plan.bytes < best.bytes) best = std::move(plan);
    if (best.bytes == bound) break;
  }
  return best;
}

}  // namespace framework
