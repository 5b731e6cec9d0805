// Tests of several devices in one process: their arrays, and devices as they were before and after.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "common/cpu/internal.h"
#include "common/gpu.h"
#include "common/testing.h"
#include "common/tests/child.h"

namespace tests {

inline constexpr int kDevices = 4;
// Before the first call asks for the devices. A child's own environment comes first.
[[maybe_unused]] inline const int kAsked =
    setenv("HIP_CPU_DEVICES", std::to_string(kDevices).c_str(), /*overwrite=*/0);

#if defined(COURSE_SANITIZE_THREAD)
inline constexpr bool kFaultEndsProcess = true;
#else
inline constexpr bool kFaultEndsProcess = false;
#endif

inline constexpr unsigned kCount = 1000;

inline void forget_error() { static_cast<void>(hipGetLastError()); }
inline void set_device(int device) { HIP_CHECK(hipSetDevice(device)); }

inline bool diagnosed(const std::string& text) {
  INFO("the diagnosis is: " << cpu::last_diagnosis());
  const bool found = cpu::last_diagnosis().find(text) != std::string::npos;
  CHECK(found);
  return found;
}

// Makes each test case begin and end with devices as they were.
struct Fresh {
  Fresh() { reset(); }
  ~Fresh() { reset(); }
  Fresh(const Fresh&) = delete;
  Fresh& operator=(const Fresh&) = delete;
  static void reset() {
    for (int device = cpu::device_count; device-- > 0;) {
      static_cast<void>(hipSetDevice(device));
      static_cast<void>(hipDeviceReset());
    }
    forget_error();
  }
};

// An array of one device, of `value` throughout. Fresh frees it.
inline int* make_array(int device, int value, unsigned n = kCount) {
  int before = 0;
  HIP_CHECK(hipGetDevice(&before));
  set_device(device);
  int* data = nullptr;
  const std::vector<int> host(n, value);
  HIP_CHECK(hipMalloc(&data, n * sizeof(int)));
  HIP_CHECK(hipMemcpy(data, host.data(), n * sizeof(int), hipMemcpyHostToDevice));
  set_device(before);
  return data;
}

inline std::vector<int> to_host(const int* data, unsigned n = kCount) {
  std::vector<int> host(n);
  HIP_CHECK(hipMemcpy(host.data(), data, n * sizeof(int), hipMemcpyDefault));
  return host;
}

inline bool holds(const int* data, int value) {
  return to_host(data) == std::vector<int>(kCount, value);
}

static __global__ void add_number(int* out, const int* in, int number, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] + number;
}

static void launch_add(int* out, const int* in, int number, hipStream_t stream = nullptr) {
  LAUNCH_ON(stream, add_number, 8, 128, 0, out, in, number, kCount);
}

static __global__ void write_at(char* data, long long offset) { data[offset] = 1; }

// Checks that these test cases of this program pass in a process of that environment.
inline void passes(const char* cases, const char* environment) {
  const Outcome outcome = run_child(cases, environment);
  INFO(outcome.text);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE(outcome.says("All tests passed"));
}

}  // namespace tests
