// What every main shares: options, the device, the report, and errors as one line and an exit code.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/exit_code.h"
#include "common/gpu_runtime.h"
#include "common/options.h"
#include "common/printable.h"
#include "common/report.h"
#include "common/timer.h"
#include "common/version.h"

// Of one list of versions, or of several, one behind the other.
template <class... Versions>
std::vector<VersionInfo> version_infos(const Versions&... lists) {
  std::vector<VersionInfo> infos;
  const auto add = [&](const auto& versions) {
    for (const auto& v : versions) infos.push_back({v.name, v.lesson});
  };
  (add(lists), ...);
  return infos;
}

// The selected device, or NoDevice with the reason.
inline DeviceInfo describe_device() {
  int count = 0;
  const hipError_t error = hipGetDeviceCount(&count);
  if (error != hipSuccess || count == 0) {
    static_cast<void>(hipGetLastError());
    throw NoDevice(std::string("no ") + gpu::kBackend + " device: " +
                   (error != hipSuccess ? hipGetErrorString(error) : "none is visible") +
                   "; build with GPU_BACKEND=cpu to run on the processor");
  }
  int device = 0, version = 0;
  HIP_CHECK(hipGetDevice(&device));
  hipDeviceProp_t properties;
  HIP_CHECK(hipGetDeviceProperties(&properties, device));
  HIP_CHECK(hipRuntimeGetVersion(&version));
#if defined(GPU_BACKEND_HIP)
  const int major = version / 10000000, minor = version / 100000 % 100;
#else
  const int major = version / 1000, minor = version % 1000 / 10;
#endif
  return {properties.name, gpu::kBackend, std::to_string(major) + "." + std::to_string(minor),
          properties.warpSize, properties.multiProcessorCount};
}

// Throws UsageError where `bytes` of device memory are more than is free: before anything is
// allocated or printed.
inline void require_device_memory(double bytes) {
  size_t free_bytes = 0, total = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total));
  if (bytes <= static_cast<double>(free_bytes)) return;
  char line[160];
  std::snprintf(
      line, sizeof line,
      "this size needs %.1f GB of device memory and %.1f GB are free: choose a smaller --size",
      bytes / 1e9, static_cast<double>(free_bytes) / 1e9);
  throw UsageError(line);
}

// Throws UsageError where a dimension is 0: the kernels take it, but there is nothing to check or
// to time, and whoever typed it meant something else.
inline void require_work(const Options& options) {
  for (const size_t size : options.sizes)
    if (size == 0) throw UsageError("--size: every dimension must be at least 1");
}

// Whether the user wants one of these versions at least.
template <class Versions>
bool wants_any(const Options& options, const Versions& versions) {
  for (const auto& version : versions)
    if (options.wants(version.name)) return true;
  return false;
}

// Empty if this device can run a version that needs `needs`, else what is missing.
inline std::string missing(Needs needs) {
  if (needs == Needs::Any) return "";
#if defined(GPU_BACKEND_CUDA)
  const int major = gpu::device_attribute(hipDeviceAttributeComputeCapabilityMajor);
  if (needs == Needs::Sm80 && major >= 8) return "";
  if (needs == Needs::Sm90 && major == 9) return "";
#elif defined(GPU_BACKEND_HIP)
  if (needs == Needs::Cdna) {
    hipDeviceProp_t properties;
    HIP_CHECK(hipGetDeviceProperties(&properties, 0));
    if (std::string(properties.gcnArchName).rfind("gfx9", 0) == 0) return "";
  }
#endif
  switch (needs) {
    case Needs::Sm80:
      return "needs sm_80";
    case Needs::Sm90:
      return "needs sm_90";
    case Needs::Bits16:
      return "needs 16-bit numbers";
    case Needs::Tf32:
      return "needs tf32";
    default:
      return "needs CDNA";
  }
}

// Poisons the outputs ({pointer, bytes} of what the launch must write), launches, waits, and has
// `verify` compare what came out.
template <class Launch, class Verify>
Comparison check_launch(const std::vector<std::pair<void*, size_t>>& outputs, Launch&& launch,
                        Verify&& verify) {
  for (const auto& [pointer, bytes] : outputs) gpu::poison(pointer, bytes);
  launch();
  HIP_CHECK(hipDeviceSynchronize());
  return verify();
}

// One version from first launch to table row: checks it, then times it alone. A version out of
// bound is not timed. common/measure.h measures a whole table, in rounds.
//   launch()  queues the version's work on the default stream
//   verify()  copies the result back and returns the Comparison
//   settle_ms is time_gpu's
template <class Launch, class Verify>
Row measure(const std::string& name, const std::string& lesson, Needs needs, Work work,
            const std::vector<std::pair<void*, size_t>>& outputs, int repeat, Launch&& launch,
            Verify&& verify, double settle_ms = 20) {
  Row row;
  row.name = name, row.lesson = lesson, row.work = work;
  row.skipped = missing(needs);
  if (!row.skipped.empty()) return row;
  row.check = check_launch(outputs, launch, verify);
  if (!row.check.ok || !kTimes) return row;
  const Timing timing = time_gpu(launch, repeat, settle_ms);
  row.ms = timing.median, row.ms_p10 = timing.p10, row.ms_p90 = timing.p90;
  return row;
}

// Parses the options, finds the device and runs `body(options, report)`. Whatever goes wrong
// becomes one line on stderr and an ExitCode.
template <class Body>
int run_program(int argc, char** argv, const ProgramInfo& program, Body&& body) {
  const auto fail = [&](const char* text, ExitCode code) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", program.name.c_str(), printable(text).c_str());
    return static_cast<int>(code);
  };
  constexpr const char* kTooLarge = "what was asked for needs more memory than this machine gives";
  try {
    Options options;
    if (!parse_options(argc, argv, program, gpu::kBackend, &options)) return kExitOk;
    Report report(program, options, describe_device());
    body(options, report);
    return report.finish();
  } catch (const UsageError& error) {
    return fail(error.what(), kExitUsage);
  } catch (const NoDevice& error) {
    return fail(error.what(), kExitNoDevice);
  } catch (const training::Interrupted& error) {
    return fail(error.what(), error.code);
  } catch (const std::bad_alloc&) {
    return fail(kTooLarge, kExitUsage);
  } catch (const std::length_error&) {  // a vector of more elements than a process has addresses
    return fail(kTooLarge, kExitUsage);
  } catch (const std::exception& error) {
    return fail(error.what(), kExitFailed);
  }
}
