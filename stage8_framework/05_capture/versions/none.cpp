// No plan: every buffer has a place of its own.
//
// Idea:  one buffer behind the other.
// Costs: the sum of all buffers. A step of a model makes dozens, of which a few are in use at one
//        time.
#include "stage8_framework/05_capture/planner.h"

namespace framework {

MemoryPlan plan_none(const std::vector<Interval>& intervals) {
  MemoryPlan plan;
  for (const Interval& buffer : intervals) {
    plan.offsets.push_back(plan.bytes);
    plan.bytes += buffer.room();
  }
  return plan;
}

}  // namespace framework
