#include "stage8_framework/05_capture/planner.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace framework {

size_t lower_bound_of(const std::vector<Interval>& intervals) {
  std::map<int, std::pair<size_t, size_t>> at;  // what begins with a call, what ended before it
  for (const Interval& buffer : intervals)
    at[buffer.first].first += buffer.room(), at[buffer.last + 1].second += buffer.room();
  size_t live = 0, most = 0;
  for (const auto& [call, change] : at) {
    live += change.first, live -= change.second;
    most = std::max(most, live);
  }
  return most;
}

std::string fault_of(const MemoryPlan& plan, const std::vector<Interval>& intervals) {
  if (plan.offsets.size() != intervals.size())
    return std::to_string(plan.offsets.size()) + " places for " + std::to_string(intervals.size()) +
           " buffers";
  for (size_t i = 0; i < intervals.size(); ++i) {
    const std::string name = "buffer " + std::to_string(i);
    if (plan.offsets[i] % kBufferAlignment != 0) return name + " is not aligned";
    if (plan.offsets[i] + intervals[i].bytes > plan.bytes) return name + " leaves the block";
  }
  // Buffers in the order in which they begin, beside those that are in use then, by their place.
  std::vector<size_t> order(intervals.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return intervals[a].first < intervals[b].first; });
  std::set<std::pair<size_t, size_t>> live;  // place, buffer
  std::multimap<int, size_t> ends;
  for (const size_t i : order) {
    const Interval& buffer = intervals[i];
    while (!ends.empty() && ends.begin()->first < buffer.first) {
      live.erase({plan.offsets[ends.begin()->second], ends.begin()->second});
      ends.erase(ends.begin());
    }
    if (buffer.bytes == 0) continue;
    const auto clash = [&](size_t other) {
      return "buffers " + std::to_string(std::min(i, other)) + " and " +
             std::to_string(std::max(i, other)) + " overlap at call " +
             std::to_string(buffer.first);
    };
    const auto next = live.lower_bound({plan.offsets[i], 0});
    if (next != live.end() && next->first < plan.offsets[i] + buffer.bytes)
      return clash(next->second);
    if (next != live.begin()) {
      const auto& [place, other] = *std::prev(next);
      if (place + intervals[other].bytes > plan.offsets[i]) return clash(other);
    }
    live.insert({plan.offsets[i], i});
    ends.emplace(buffer.last, i);
  }
  return "";
}

}  // namespace framework
