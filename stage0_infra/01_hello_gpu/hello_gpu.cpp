// Lists the devices that this build can see, then has blocks, waves and threads introduce
// themselves.
#include "stage0_infra/01_hello_gpu/hello_gpu.h"

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/measure.h"
#include "common/program.h"
#include "stage0_infra/01_hello_gpu/reference.h"

namespace {

int attribute(hipDeviceAttribute_t name, int device) {
  int value = 0;
  HIP_CHECK(hipDeviceGetAttribute(&value, name, device));
  return value;
}

void list_devices(Report& report) {
  int count = 0;
  HIP_CHECK(hipGetDeviceCount(&count));
  report.fact("devices", count, "");
  for (int device = 0; device < count; ++device) {
    hipDeviceProp_t properties;
    HIP_CHECK(hipGetDeviceProperties(&properties, device));
    report.line("device " + std::to_string(device) + ": " + properties.name);
    const std::string prefix = "device " + std::to_string(device) + " ";
    report.fact(prefix + "multiprocessors", properties.multiProcessorCount, "");
    report.fact(prefix + "wave size", properties.warpSize, "threads");
    report.fact(prefix + "threads per block, at most", properties.maxThreadsPerBlock, "threads");
    report.fact(prefix + "threads per multiprocessor",
                attribute(hipDeviceAttributeMaxThreadsPerMultiProcessor, device), "threads");
    report.fact(prefix + "memory", static_cast<double>(properties.totalGlobalMem) / 1e9, "GB");
    report.fact(prefix + "last-level cache", properties.l2CacheSize / 1048576.0, "MiB");
    report.fact(prefix + "shared memory per block",
                attribute(hipDeviceAttributeMaxSharedMemoryPerBlock, device) / 1024.0, "KiB");
    report.fact(prefix + "shared memory per multiprocessor",
                attribute(hipDeviceAttributeMaxSharedMemoryPerMultiprocessor, device) / 1024.0,
                "KiB");
  }
}

// Says what was looked for. The program then exits with 3.
void explain_no_device() {
  int count = 0;
  const hipError_t error = hipGetDeviceCount(&count);
  std::printf("looked for %s devices with hipGetDeviceCount: found %d (%s)\n", gpu::kBackend,
              error == hipSuccess ? count : 0, hipGetErrorString(error));
}

}  // namespace

int main(int argc, char** argv) {
  const ProgramInfo program{"0.1",
                            "hello_gpu",
                            "blocks, waves and threads introduce themselves",
                            {{"blocks", 2, 2, 2}, {"threads", 80, 80, 80}},
                            version_infos(hello_gpu::kVersions)};
  const auto body = [](const Options& options, Report& report) {
    const int max_threads = gpu::device_attribute(hipDeviceAttributeMaxThreadsPerBlock);
    constexpr size_t kMaxBlocks = 1024, kMostShown = 8;
    if (options.sizes[0] < 1 || options.sizes[0] > kMaxBlocks || options.sizes[1] < 1 ||
        options.sizes[1] > static_cast<size_t>(max_threads))
      throw UsageError("--size blocks x threads: 1 to 1024 blocks of 1 to " +
                       std::to_string(max_threads) + " threads");
    const auto blocks = static_cast<unsigned>(options.sizes[0]);
    const auto threads = static_cast<unsigned>(options.sizes[1]);
    list_devices(report);

    report.table(std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads");
    gpu::DeviceBuffer<hello_gpu::Greeting> out(size_t{blocks} * threads);
    const unsigned wave_size = gpu::device_wave_size();
    std::map<std::string, std::vector<hello_gpu::Greeting>> greetings;  // by version
    Measurement table(options);
    for (const auto& version : hello_gpu::kVersions) {
      const auto launch = [&](hipStream_t stream) {
        version.launch(out.data(), blocks, threads, stream);
      };
      const auto verify = [&] {
        greetings[version.name] = out.to_host();
        return hello_gpu::compare_greetings(
            greetings[version.name],
            hello_gpu::greetings_cpu(version.name, blocks, threads, wave_size));
      };
      table.version(version,
                    {{0, 0, Work::Limit::none}, launch, verify, {{out.data(), out.bytes()}}});
    }
    table.run(report);

    for (const auto& version : hello_gpu::kVersions) {
      if (!options.wants(version.name)) continue;
      report.line(std::string(version.name) + ":");
      size_t spoken = 0;
      for (const auto& greeting : greetings[version.name])
        if (greeting.block != hello_gpu::kSilent && spoken++ < kMostShown)
          report.line("    " + to_string(greeting));
      if (spoken > kMostShown)
        report.line("    ... and " + std::to_string(spoken - kMostShown) + " more");
    }
  };
  const int code = run_program(argc, argv, program, body);
  if (code == kExitNoDevice) explain_no_device();
  return code;
}
