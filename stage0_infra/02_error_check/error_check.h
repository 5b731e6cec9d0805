// 0.2  What goes wrong, and where it is noticed.
//
// Every HIP call returns an error code and does nothing else about an error: a program that does
// not look goes on with garbage. HIP_CHECK(call) (common/check.h) looks, and throws gpu::Error. Its
// text names the call, the file and line, and the error. A kernel returns nothing. A launch that
// can't start leaves its error for hipGetLastError, which LAUNCH reads at once. An error while the
// kernel runs is returned by a later call, one that waits for the device:
//
//   host    LAUNCH -----> hipGetLastError: ok -----> hipDeviceSynchronize: the error
//   device           \--> kernel ... writes to an address that does not exist
//
// Each version provokes one error and returns what HIP_CHECK made of it.
#pragma once

#include <functional>

#include "common/error.h"
#include "common/version.h"

namespace error_check {

// versions/bad_launch.hip. Runs `provoke` and returns the gpu::Error that it throws. Where it
// throws none, the result has the code hipSuccess.
gpu::Error caught(const std::function<void()>& provoke);

// versions/bad_launch.hip: a block of 2048 threads, more than any device takes.
gpu::Error provoke_bad_launch();
// versions/impossible_allocation.hip: a pebibyte of device memory.
gpu::Error provoke_impossible_allocation();
// versions/wrong_direction.hip: a copy from the device, announced as a copy to the device.
gpu::Error provoke_wrong_direction();
// versions/kernel_fault.hip: a kernel that writes to an address that does not exist.
gpu::Error provoke_kernel_fault();

struct Launch {
  gpu::Error (*provoke)();
  bool reported_on_amd = true;  // false: AMD's runtime lets it pass, or ends the process
  bool loses_device = false;    // true: every later call of this process fails, so it comes last
};

inline constexpr Version<Launch> kVersions[] = {
    {"bad_launch", {provoke_bad_launch}, "2048 threads in a block"},
    {"impossible_allocation", {provoke_impossible_allocation}, "a pebibyte of device memory"},
    {"wrong_direction",
     {provoke_wrong_direction, false},
     "device to host, announced as host to device"},
    {"kernel_fault",
     {provoke_kernel_fault, false, true},
     "found only when the host waits; costs the device"},
};

}  // namespace error_check
