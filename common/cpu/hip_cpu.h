// HIP on host threads: the CPU backend's one header. What it implements, and where:
//   types.h        qualifiers, vector types, error codes      (runtime_api.h needs them)
//   runtime_api.h  the host's functions: memory, streams, events, graphs, devices
//   launch.h       how a kernel becomes a loop over threads
//   device.h       what kernels call: barriers, wave operations, atomics, arithmetic
#pragma once

#include "common/cpu/device.h"
#include "common/cpu/launch.h"
#include "common/cpu/runtime_api.h"
#include "common/cpu/types.h"
