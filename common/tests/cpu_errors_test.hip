// Errors: which there are, who is told of them, and for how long.
#include <string>
#include <thread>

#include "common/gpu.h"
#include "common/testing.h"

namespace {
static __global__ void nothing(int) {}
}  // namespace

TEST_CASE("the last error is told once, and success does not hide it") {
  static_cast<void>(hipGetLastError());
  REQUIRE(hipSetDevice(-1) == hipErrorInvalidDevice);
  REQUIRE(hipPeekAtLastError() == hipErrorInvalidDevice);
  REQUIRE(hipPeekAtLastError() == hipErrorInvalidDevice);
  REQUIRE(hipGetLastError() == hipErrorInvalidDevice);
  REQUIRE(hipGetLastError() == hipSuccess);
}

TEST_CASE("impossible launches are refused and leave the device as it was") {
  const auto error_of = [](dim3 grid, dim3 block, size_t shared_bytes) {
    try {
      LAUNCH(nothing, grid, block, shared_bytes, 0);
    } catch (const gpu::Error& error) {
      return static_cast<hipError_t>(error.code);
    }
    return hipSuccess;
  };
  // CUDA 13 calls some impossible shapes an invalid value; the CPU backend is held to HIP's answer.
  const auto refused = [](hipError_t error) {
    return error == hipErrorInvalidConfiguration ||
           (std::string(gpu::kBackend) != "cpu" && error == hipErrorInvalidValue);
  };
  REQUIRE(error_of(1, 1, 0) == hipSuccess);
  REQUIRE(refused(error_of(1, 1025, 0)));
  REQUIRE(refused(error_of(1, dim3(1, 1, 65), 0)));
  REQUIRE(refused(error_of(1, 0, 0)));
  REQUIRE(refused(error_of(0, 1, 0)));
  REQUIRE(refused(error_of(dim3(1, 65536), 1, 0)));
  REQUIRE(error_of(1, 1, 1 << 20) == hipErrorInvalidValue);
  REQUIRE(hipDeviceSynchronize() == hipSuccess);
  REQUIRE(error_of(1, 1, 0) == hipSuccess);
}

TEST_CASE("errors have names and texts") {
  const std::string name = hipGetErrorName(hipErrorInvalidValue);
  REQUIRE(name.find("ErrorInvalidValue") != std::string::npos);
  REQUIRE(std::string(hipGetErrorString(hipErrorInvalidValue)) == "invalid argument");
}

TEST_CASE("the device answers") {
  int count = 0, device = -1, version = 0;
  HIP_CHECK(hipGetDeviceCount(&count));
  REQUIRE(count >= 1);
  HIP_CHECK(hipGetDevice(&device));
  REQUIRE(device == 0);
  HIP_CHECK(hipRuntimeGetVersion(&version));
  REQUIRE(version > 0);
  REQUIRE(hipSetDevice(count) == hipErrorInvalidDevice);
  static_cast<void>(hipGetLastError());
  hipDeviceProp_t properties;
  HIP_CHECK(hipGetDeviceProperties(&properties, 0));
  REQUIRE(std::string(properties.name) != "");
  REQUIRE((properties.warpSize == 32 || properties.warpSize == 64));
  REQUIRE(properties.maxThreadsPerBlock == 1024);
  REQUIRE(properties.totalGlobalMem > 0);
  int value = 0;
  HIP_CHECK(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, 0));
  REQUIRE(value == properties.warpSize);
  HIP_CHECK(hipDeviceGetAttribute(&value, hipDeviceAttributeMultiprocessorCount, 0));
  REQUIRE(value == properties.multiProcessorCount);
}

TEST_CASE("occupancy") {
  int blocks = -1, grid = 0, size = 0;
  HIP_CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 256, 0));
  REQUIRE(blocks >= 4);
  int with_shared = -1;
  HIP_CHECK(hipOccupancyMaxActiveBlocksPerMultiprocessor(&with_shared, nothing, 256, 32768));
  REQUIRE(with_shared >= 1);
  REQUIRE(with_shared <= blocks);
  HIP_CHECK(hipOccupancyMaxPotentialBlockSize(&grid, &size, nothing, 0, 0));
  REQUIRE(grid >= 1);
  REQUIRE(size >= 32);
  REQUIRE(size <= 1024);
  hipFuncAttributes attributes;
  HIP_CHECK(hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(nothing)));
  REQUIRE(attributes.maxThreadsPerBlock >= 256);
}

#if defined(GPU_BACKEND_CPU)

#include "common/cpu/internal.h"
#include "common/tests/child.h"

TEST_CASE("cpu: names are HIP's, for every code") {
  REQUIRE(std::string(hipGetErrorName(hipErrorIllegalAddress)) == "hipErrorIllegalAddress");
  REQUIRE(std::string(hipGetErrorName(hipErrorCapturedEvent)) == "hipErrorCapturedEvent");
  REQUIRE(std::string(hipGetErrorName(static_cast<hipError_t>(12345))) == "hipErrorUnknown");
}

TEST_CASE("cpu: each host thread has its own last error") {
  REQUIRE(hipSetDevice(7) == hipErrorInvalidDevice);
  hipError_t elsewhere = hipErrorUnknown;
  std::thread([&] { elsewhere = hipGetLastError(); }).join();
  REQUIRE(elsewhere == hipSuccess);
  REQUIRE(hipGetLastError() == hipErrorInvalidDevice);
}

TEST_CASE("cpu: a fault is told by the next call that waits, then by every call, until a reset") {
  void* pointer = nullptr;
  HIP_CHECK(hipMalloc(&pointer, 16));
  cpu::raise_fault(hipErrorLaunchFailure, "a test provokes a fault");
  cpu::raise_fault(hipErrorIllegalAddress, "and another one, which no longer counts");
  REQUIRE(cpu::device_lost());
  REQUIRE(hipGetLastError() == hipSuccess);  // nobody has waited yet
  REQUIRE(hipSetDevice(0) == hipSuccess);
  REQUIRE(hipDeviceSynchronize() == hipErrorLaunchFailure);
  REQUIRE(hipSetDevice(0) == hipErrorLaunchFailure);
  REQUIRE(hipMalloc(&pointer, 16) == hipErrorLaunchFailure);
  REQUIRE(hipGetLastError() == hipErrorLaunchFailure);
  REQUIRE(hipGetLastError() == hipErrorLaunchFailure);
  REQUIRE(hipDeviceReset() == hipSuccess);
  REQUIRE(hipGetLastError() == hipSuccess);
  REQUIRE(hipMalloc(&pointer, 16) == hipSuccess);
  REQUIRE(hipFree(pointer) == hipSuccess);
}

TEST_CASE("child: nobody asks for the error of a launch", "[.child]") {
  cpu::launch("nothing", 1, 2000, 0, nullptr, 1, [] { nothing(0); });
}

TEST_CASE("child: nobody waits for a kernel that fails", "[.child]") {
  cpu::raise_fault(hipErrorLaunchFailure, "a test provokes a fault");
}

TEST_CASE("child: asks for the error", "[.child]") {
  cpu::launch_failed(hipErrorInvalidConfiguration, "a test provokes an error");
  REQUIRE(hipGetLastError() == hipErrorInvalidConfiguration);
}

TEST_CASE("cpu: errors that nobody read are reported at exit and fail the program") {
  const Outcome launch = run_child("child: nobody asks for the error of a launch");
  INFO(launch.text);
  REQUIRE(launch.exit_code == 1);
  REQUIRE(
      launch.says("a launch failed and nobody asked for its error: hipErrorInvalidConfiguration"));
  const Outcome fault = run_child("child: nobody waits for a kernel that fails");
  INFO(fault.text);
  REQUIRE(fault.exit_code == 1);
  REQUIRE(fault.says("a kernel failed and no call waited for it: hipErrorLaunchFailure"));
  REQUIRE(run_child("child: asks for the error").exit_code == 0);
}

TEST_CASE("child: uses the device", "[.child]") {
  hipDeviceProp_t properties;
  HIP_CHECK(hipGetDeviceProperties(&properties, 0));
  std::fprintf(stderr, "waves of %d, %d multiprocessors, at most %u blocks\n", properties.warpSize,
               properties.multiProcessorCount, gpu::most_blocks());
}

TEST_CASE("cpu: the environment chooses waves, multiprocessors and grids, within what exists") {
  const auto run = [](const char* environment) {
    return run_child("child: uses the device", environment);
  };
  REQUIRE(run("HIP_CPU_WAVE=64").says("waves of 64"));
  REQUIRE(run("HIP_CPU_WAVE=32").says("waves of 32"));
  REQUIRE(run("HIP_CPU_THREADS=3").says("3 multiprocessors, at most 2147483647 blocks"));
  REQUIRE(run("HIP_CPU_THREADS=1 HIP_CPU_MULTIPROCESSORS=5 HIP_CPU_BLOCKS=2")
              .says("5 multiprocessors, at most 2 blocks"));
  for (const char* wrong :
       {"HIP_CPU_WAVE=33", "HIP_CPU_WAVE=x", "HIP_CPU_STRICT=yes", "HIP_CPU_THREADS=0",
        "HIP_CPU_MULTIPROCESSORS=1025", "HIP_CPU_BLOCKS=-1", "HIP_CPU_BLOCKS=2x"}) {
    const Outcome outcome = run(wrong);
    INFO(outcome.text);
    REQUIRE(outcome.exit_code == 2);
    REQUIRE(outcome.says(std::string(wrong) + ": must be "));
  }
}

#endif
