// What a launch costs, and what three clocks say about the same copy.
#pragma once

#include "stage0_infra/03_timing/timing.h"

namespace timing {

// Microseconds of launching a kernel that does nothing.
struct LaunchCost {
  double first = 0;   // the program's first launch of it, until it has finished: loads its code
  double queue = 0;   // host time to queue one of many
  double device = 0;  // time of one of many on the device, between events
  double wait = 0;    // host time to launch one and wait for it: the round trip
};
LaunchCost measure_launch_cost(bool quick);

// The time of a copy of memory.from by three clocks, in milliseconds.
struct Clocks {
  double events = 0;        // recorded in the queue before and after the work
  double host = 0;          // the host's clock, stopped after waiting for the device
  double host_no_wait = 0;  // the common mistake: stopped when the work has been queued
};
Clocks compare_clocks(const Memory& memory);

}  // namespace timing
