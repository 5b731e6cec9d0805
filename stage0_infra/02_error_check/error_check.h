// Stage 0.2: what goes wrong, and where it is noticed.
//
// Every HIP call returns an error code and nothing else happens: a program that does not look goes
// on with garbage. HIP_CHECK (common/check.h) looks, and throws gpu::Error with expression, file,
// line, name and text of the error. A kernel returns nothing at all. What is wrong with its launch
// is left for hipGetLastError, which LAUNCH reads at once; what goes wrong while it runs is found
// by a later call that waits for the device:
//
//   host    LAUNCH -----> hipGetLastError: ok -----> hipDeviceSynchronize: error, reported HERE
//   device           \--> kernel ... writes to an address that does not exist: fault
//
// Each version below provokes one error and returns what HIP_CHECK made of it.
#pragma once

#include <cstdint>
#include <string>

#include "common/gpu.h"
#include "common/program.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"

namespace error_check {

// Runs `provoke` and returns the gpu::Error that it throws; one of code hipSuccess if it throws
// none.
template <class Provoke>
gpu::Error caught(Provoke&& provoke) {
  // exercise: run it, and return the error if it throws one (about 5 lines)
  try {
    provoke();
  } catch (const gpu::Error& error) {
    return error;
  }
  // end exercise
  return {hipSuccess, "not reported by this runtime"};
}

// Does nothing, in as many threads as it is asked to.
static __global__ void idle(int) {}

// Writes one word to an address, whatever it is.
static __global__ void write_word(std::uint64_t address) {
  *reinterpret_cast<unsigned*>(static_cast<std::uintptr_t>(address)) = 1;
}

// More threads in a block than any device has room for. The kernel never starts.
inline gpu::Error provoke_bad_launch() {
  return caught([] { LAUNCH(idle, 1, 2048, 0, 0); });
}

// A pebibyte. hipMalloc fails and leaves the pointer as it was.
inline gpu::Error provoke_impossible_allocation() {
  return caught([] {
    void* memory = nullptr;
    HIP_CHECK(hipMalloc(&memory, size_t{1} << 50));
  });
}

// From the device to the host, announced as the other way round. AMD's runtime looks at the
// pointers only and copies all the same.
inline gpu::Error provoke_wrong_direction() {
  device_matrix::DeviceBuffer<int> device(std::vector<int>(16, 1));
  std::vector<int> host(16);
  return caught([&] {
    HIP_CHECK(hipMemcpy(host.data(), device.data(), device.bytes(), hipMemcpyHostToDevice));
  });
}

// A kernel that faults. Launching it succeeds; the fault is an asynchronous error, reported by the
// next call that waits. After it the device is lost to this process: every later call returns the
// same error. AMD's runtime does not return at all: it prints the address and ends the process.
inline gpu::Error provoke_kernel_fault() {
  constexpr std::uint64_t kUnmapped = 64;  // in the first page, where no system maps memory
  return caught([] {
    LAUNCH(write_word, 1, 1, 0, kUnmapped);
    HIP_CHECK(hipDeviceSynchronize());
  });
}

using Launch = gpu::Error (*)();

inline constexpr Version<Launch> kVersions[] = {
    {"bad_launch", provoke_bad_launch, "2048 threads in a block"},
    {"impossible_allocation", provoke_impossible_allocation, "a pebibyte of device memory"},
    {"wrong_direction", provoke_wrong_direction, "device to host, announced as host to device"},
    {"kernel_fault", provoke_kernel_fault, "found only when the host waits; costs the device"},
};

// True for the version after which the process has no device any more: it must be the last.
inline bool loses_device(const std::string& version) { return version == "kernel_fault"; }

// True if AMD's runtime lets the version pass or ends the process, so there is nothing to catch.
inline bool uncaught_on_amd(const std::string& version) {
  return version == "kernel_fault" || version == "wrong_direction";
}

// The place that the error names: its text begins with "file:line: ".
struct Place {
  std::string file;
  int line = 0;  // 0: the text names none
};
inline Place place_of(const gpu::Error& error) {
  const std::string text = error.what();
  const size_t end = text.find(": ");
  const size_t colon = end == std::string::npos ? end : text.rfind(':', end - 1);
  if (colon == std::string::npos) return {};
  int line = 0;
  for (size_t i = colon + 1; i < end; ++i) {
    if (text[i] < '0' || text[i] > '9') return {};
    line = 10 * line + (text[i] - '0');
  }
  return {text.substr(0, colon), line};
}

}  // namespace error_check
