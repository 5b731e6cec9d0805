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
// Costs: a walk over all that is placed, for each buffer: three times for a graph.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "stage8_framework/05_capture/planner.h"

namespace framework {

namespace {

Plan placed_in(const std::vector<size_t>& order, const std::vector<Interval>& intervals) {
  Plan plan{std::vector<size_t>(intervals.size()), 0};
  std::vector<size_t> placed;  // by their offset
  for (const size_t i : order) {
    const Interval& buffer = intervals[i];
    if (buffer.room() == 0) continue;
    // exercise: the lowest place that is free for the buffer's whole life (about 7 lines)
    size_t begin = 0;
    for (const size_t other : placed) {
      if (!intervals[other].meets(buffer)) continue;
      if (begin + buffer.room() <= plan.offsets[other]) break;
      begin = std::max(begin, plan.offsets[other] + intervals[other].room());
    }
    plan.offsets[i] = begin;
    // end exercise
    plan.bytes = std::max(plan.bytes, plan.offsets[i] + buffer.room());
    const auto behind = std::upper_bound(placed.begin(), placed.end(), i, [&](size_t a, size_t b) {
      return plan.offsets[a] < plan.offsets[b];
    });
    placed.insert(behind, i);
  }
  return plan;
}

}  // namespace

Plan plan_by_size(const std::vector<Interval>& intervals) {
  const size_t bound = lower_bound_of(intervals);
  Plan best;
  for (const double weight : {0.0, 0.5, 1.0}) {  // of the life, as a power
    std::vector<double> size;
    for (const Interval& buffer : intervals)
      size.push_back(static_cast<double>(buffer.room()) *
                     std::pow(buffer.last - buffer.first + 1, weight));
    std::vector<size_t> order(intervals.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return size[a] > size[b]; });
    Plan plan = placed_in(order, intervals);
    if (best.bytes == 0 || plan.bytes < best.bytes) best = std::move(plan);
    if (best.bytes == bound) break;
  }
  return best;
}

}  // namespace framework
