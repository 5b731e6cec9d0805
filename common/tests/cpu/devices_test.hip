// Several devices in one process: whose streams, events, graphs, shares of memory and faults are
// whose.
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "common/cpu/internal.h"
#include "common/gpu.h"
#include "common/testing.h"
#include "common/tests/child.h"
#include "common/tests/cpu/devices.h"

using namespace tests;

namespace {

// The sum of each wave's threads, by shuffles, in each of its lanes.
static __global__ void sum_waves(int* out) {
  int sum = static_cast<int>(threadIdx.x);
  for (int mask = gpu::wave_size() / 2; mask > 0; mask /= 2) sum += gpu::wave_shfl_xor(sum, mask);
  __syncthreads();  // all waves have summed
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace

TEST_CASE("devices: there are as many as asked for, and each says which it is", "[strict]") {
  const Fresh fresh;
  int count = 0, current = -1;
  HIP_CHECK(hipGetDeviceCount(&count));
  REQUIRE(count == kDevices);
  HIP_CHECK(hipGetDevice(&current));
  REQUIRE(current == 0);
  int multiprocessors = 0;
  size_t free_bytes = 0, total_bytes = 0;
  for (int device = 0; device < count; ++device) {
    hipDeviceProp_t properties;
    HIP_CHECK(hipGetDeviceProperties(&properties, device));
    const std::string name = properties.name,
                      which = ", device " + std::to_string(device) + " of 4";
    REQUIRE(name.size() > which.size());
    REQUIRE(name.substr(name.size() - which.size()) == which);
    HIP_CHECK(
        hipDeviceGetAttribute(&multiprocessors, hipDeviceAttributeMultiprocessorCount, device));
    REQUIRE(multiprocessors == properties.multiProcessorCount);
    set_device(device);
    HIP_CHECK(hipMemGetInfo(&free_bytes, &total_bytes));
    REQUIRE(total_bytes == properties.totalGlobalMem);
    REQUIRE(total_bytes == cpu::total_memory() / kDevices);
    REQUIRE(free_bytes <= total_bytes);
  }
}

TEST_CASE("devices: numbers that name none are refused", "[strict]") {
  const Fresh fresh;
  set_device(2);
  hipDeviceProp_t properties;
  int value = 0, current = -1;
  hipMemPool_t pool = nullptr;
  for (const int wrong : {-1, kDevices, kDevices + 1, 1 << 30}) {
    REQUIRE(hipSetDevice(wrong) == hipErrorInvalidDevice);
    REQUIRE(hipGetDeviceProperties(&properties, wrong) == hipErrorInvalidDevice);
    REQUIRE(hipDeviceGetAttribute(&value, hipDeviceAttributeWarpSize, wrong) ==
            hipErrorInvalidDevice);
    REQUIRE(hipDeviceGetDefaultMemPool(&pool, wrong) == hipErrorInvalidDevice);
    REQUIRE(hipDeviceCanAccessPeer(&value, 0, wrong) == hipErrorInvalidDevice);
    REQUIRE(hipDeviceCanAccessPeer(&value, wrong, 0) == hipErrorInvalidDevice);
    REQUIRE(hipDeviceEnablePeerAccess(wrong, 0) == hipErrorInvalidDevice);
    REQUIRE(hipDeviceDisablePeerAccess(wrong) == hipErrorInvalidDevice);
    REQUIRE(hipMemcpyPeer(nullptr, wrong, nullptr, 0, 1) == hipErrorInvalidDevice);
    REQUIRE(hipMemcpyPeerAsync(nullptr, 0, nullptr, wrong, 1) == hipErrorInvalidDevice);
  }
  HIP_CHECK(hipGetDevice(&current));
  REQUIRE(current == 2);
}

TEST_CASE("devices: host threads work at the same time, each on a device of its own", "[strict]") {
  const Fresh fresh;
  set_device(3);
  const int wave = static_cast<int>(gpu::device_wave_size());
  constexpr int kRounds = kFaultEndsProcess ? 3 : 50;
  const auto work = [&](int device) -> std::string {
    int current = -1;
    HIP_CHECK(hipGetDevice(&current));
    if (current != 0) return "a host thread does not begin with device 0";
    set_device(device);
    hipStream_t stream = nullptr;
    HIP_CHECK(hipStreamCreate(&stream));
    int* const data = make_array(device, device);
    int* sums = nullptr;
    HIP_CHECK(hipMallocAsync(&sums, 512 * sizeof(int), stream));
    for (int round = 0; round < kRounds; ++round) {
      launch_add(data, data, 1, round % 2 == 0 ? stream : nullptr);
      LAUNCH_ON(stream, sum_waves, 2, 256, 0, sums);
    }
    HIP_CHECK(hipStreamSynchronize(stream));
    if (!holds(data, device + kRounds)) return "wrong elements";
    for (int i = 0; i < 512; ++i) {
      const int first = i % 256 / wave * wave;
      if (to_host(sums, 512)[static_cast<size_t>(i)] != wave * first + wave * (wave - 1) / 2)
        return "wrong sum of a wave";
    }
    hipPointerAttribute_t attributes;
    HIP_CHECK(hipPointerGetAttributes(&attributes, data));
    if (attributes.device != device) return "the pointer belongs to another device";
    HIP_CHECK(hipGetDevice(&current));
    if (current != device) return "another thread has changed this one's device";
    HIP_CHECK(hipFreeAsync(sums, stream));
    HIP_CHECK(hipFree(data));
    HIP_CHECK(hipStreamDestroy(stream));
    return "";
  };
  std::vector<std::thread> threads;
  std::vector<std::string> wrong(2 * kDevices);  // two for each device
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      try {
        wrong[t] = work(static_cast<int>(t) % kDevices);
      } catch (const std::exception& error) {
        wrong[t] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(wrong == std::vector<std::string>(2 * kDevices));
  int current = -1;
  HIP_CHECK(hipGetDevice(&current));
  REQUIRE(current == 3);
}

TEST_CASE("devices: a launch takes streams of the current device only, a copy takes any",
          "[strict][two]") {
  const Fresh fresh;
  int* const data = make_array(0, 5);
  set_device(1);
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  set_device(0);
  hipError_t error = hipSuccess;
  try {
    launch_add(data, data, 1, stream);
  } catch (const gpu::Error& refusal) {
    error = static_cast<hipError_t>(refusal.code);
  }
  REQUIRE(error == hipErrorInvalidHandle);
  REQUIRE(diagnosed("kernel add_number: the stream belongs to device 1, the current device is 0"));
  REQUIRE(holds(data, 5));  // and device 0 is as it was
  std::vector<int> host(kCount, 6);
  const size_t bytes = kCount * sizeof(int);
  HIP_CHECK(hipMemcpyAsync(data, host.data(), bytes, hipMemcpyHostToDevice, stream));
  HIP_CHECK(hipStreamSynchronize(stream));
  REQUIRE(hipStreamQuery(stream) == hipSuccess);
  REQUIRE(holds(data, 6));
  HIP_CHECK(hipMemsetAsync(data, 0, bytes, stream));
  HIP_CHECK(hipStreamSynchronize(stream));
  REQUIRE(holds(data, 0));
  int current = -1;
  HIP_CHECK(hipGetDevice(&current));
  REQUIRE(current == 0);
  set_device(1);
  int* const there = make_array(1, 7);
  launch_add(there, there, 1, stream);
  REQUIRE(holds(there, 8));
}

TEST_CASE("devices: an event is recorded on its own device, and waited for anywhere",
          "[strict][two]") {
  const Fresh fresh;
  hipStream_t streams[2];
  hipEvent_t events[2][2];
  for (int device = 0; device < 2; ++device) {
    set_device(device);
    HIP_CHECK(hipStreamCreate(&streams[device]));
    for (hipEvent_t& event : events[device]) HIP_CHECK(hipEventCreate(&event));
  }
  REQUIRE(hipEventRecord(events[0][0], streams[1]) == hipErrorInvalidHandle);
  REQUIRE(diagnosed("the event belongs to device 0, the stream to device 1"));
  REQUIRE(hipEventRecord(events[0][0], nullptr) == hipErrorInvalidHandle);  // device 1 is current
  for (int device = 0; device < 2; ++device)
    for (const hipEvent_t event : events[device]) HIP_CHECK(hipEventRecord(event, streams[device]));
  HIP_CHECK(hipEventSynchronize(events[0][0]));
  HIP_CHECK(hipEventQuery(events[0][1]));
  HIP_CHECK(hipStreamWaitEvent(streams[1], events[0][0]));
  float ms = -1;
  HIP_CHECK(hipEventElapsedTime(&ms, events[0][0], events[0][1]));
  REQUIRE(ms >= 0);
  REQUIRE(hipEventElapsedTime(&ms, events[0][0], events[1][0]) == hipErrorInvalidHandle);
  REQUIRE(diagnosed("the events belong to devices 0 and 1"));
}

TEST_CASE("devices: a graph runs each node where it was captured", "[strict][two]") {
  const Fresh fresh;
  int* const first = make_array(0, 0);
  int* const second = make_array(1, 0);
  hipStream_t origin = nullptr, joined = nullptr;
  hipEvent_t begin = nullptr, end = nullptr;
  HIP_CHECK(hipStreamCreate(&origin));
  HIP_CHECK(hipEventCreate(&begin));
  set_device(1);
  HIP_CHECK(hipStreamCreate(&joined));
  HIP_CHECK(hipEventCreate(&end));
  set_device(0);
  HIP_CHECK(hipStreamBeginCapture(origin, hipStreamCaptureModeGlobal));
  launch_add(first, first, 1, origin);
  HIP_CHECK(hipEventRecord(begin, origin));
  HIP_CHECK(hipStreamWaitEvent(joined, begin));
  set_device(1);
  launch_add(second, second, 2, joined);
  HIP_CHECK(hipEventRecord(end, joined));
  set_device(0);
  HIP_CHECK(hipStreamWaitEvent(origin, end));
  hipGraph_t graph = nullptr;
  HIP_CHECK(hipStreamEndCapture(origin, &graph));
  hipGraphExec_t executable = nullptr;
  HIP_CHECK(hipGraphInstantiateWithFlags(&executable, graph, 0));
  for (int i = 0; i < 3; ++i) HIP_CHECK(hipGraphLaunch(executable, origin));
  HIP_CHECK(hipStreamSynchronize(origin));
  REQUIRE(holds(first, 3));
  REQUIRE(holds(second, 6));
  int current = -1;
  HIP_CHECK(hipGetDevice(&current));
  REQUIRE(current == 0);

  // What a node may reach is asked when it runs: the capture itself runs nothing.
  if (kFaultEndsProcess) return;
  HIP_CHECK(hipStreamBeginCapture(origin, hipStreamCaptureModeGlobal));
  launch_add(first, second, 0, origin);
  HIP_CHECK(hipStreamEndCapture(origin, &graph));
  HIP_CHECK(hipGraphInstantiateWithFlags(&executable, graph, 0));
  HIP_CHECK(hipDeviceEnablePeerAccess(1, 0));
  HIP_CHECK(hipGraphLaunch(executable, origin));
  HIP_CHECK(hipStreamSynchronize(origin));
  REQUIRE(holds(first, 6));
  HIP_CHECK(hipDeviceDisablePeerAccess(1));
  HIP_CHECK(hipGraphLaunch(executable, origin));
  REQUIRE(hipStreamSynchronize(origin) == hipErrorIllegalAddress);
  REQUIRE(diagnosed("device 0 has no peer access to device 1"));
}

TEST_CASE("devices: a capture does not hold up the default stream of another device",
          "[strict][two]") {
  const Fresh fresh;
  int* const second = make_array(1, 1);
  hipStream_t stream = nullptr;
  hipGraph_t graph = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeThreadLocal));
  set_device(1);
  launch_add(second, second, 1);
  set_device(0);
  HIP_CHECK(hipStreamEndCapture(stream, &graph));
  REQUIRE(holds(second, 2));
}

TEST_CASE("devices: a reset takes what is the current device's, and nothing else",
          "[strict][two]") {
  const Fresh fresh;
  int* const first = make_array(0, 1);
  int* const second = make_array(1, 2);
  hipStream_t streams[2];
  hipEvent_t events[2];
  for (int device = 0; device < 2; ++device) {
    set_device(device);
    HIP_CHECK(hipStreamCreate(&streams[device]));
    HIP_CHECK(hipEventCreate(&events[device]));
  }
  HIP_CHECK(hipDeviceReset());  // device 1
  REQUIRE(cpu::pointer_kind(second) == cpu::PointerKind::freed);
  REQUIRE(hipStreamSynchronize(streams[1]) == hipErrorInvalidHandle);
  REQUIRE(hipEventQuery(events[1]) == hipErrorInvalidHandle);
  set_device(0);
  forget_error();
  launch_add(first, first, 1, streams[0]);
  HIP_CHECK(hipEventRecord(events[0], streams[0]));
  HIP_CHECK(hipEventSynchronize(events[0]));
  REQUIRE(holds(first, 2));
}

TEST_CASE("devices: each has its share of the memory, and a pool", "[strict]") {
  const Fresh fresh;
  size_t free_bytes = 0, total_bytes = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total_bytes));
  void* pointer = nullptr;
  REQUIRE(hipMalloc(&pointer, total_bytes + 1) == hipErrorOutOfMemory);
  forget_error();
  constexpr size_t kBytes = size_t{8} << 20;
  set_device(1);
  HIP_CHECK(hipMalloc(&pointer, kBytes));
  size_t left = 0;
  HIP_CHECK(hipMemGetInfo(&left, &total_bytes));
  REQUIRE(left <= total_bytes - kBytes);
  for (int device = 0; device < kDevices; ++device) {
    hipMemPool_t pool = nullptr;
    std::uint64_t used = 0;
    HIP_CHECK(hipDeviceGetDefaultMemPool(&pool, device));
    HIP_CHECK(hipMemPoolGetAttribute(pool, hipMemPoolAttrUsedMemCurrent, &used));
    REQUIRE(used == (device == 1 ? kBytes : 0));
  }
  set_device(0);
  HIP_CHECK(hipFree(pointer));  // from wherever
}

TEST_CASE("devices: memory in stream order is that of the stream's device", "[strict]") {
  const Fresh fresh;
  set_device(2);
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  set_device(0);
  void* pointer = nullptr;
  HIP_CHECK(hipMallocAsync(&pointer, 100, stream));
  hipPointerAttribute_t attributes;
  HIP_CHECK(hipPointerGetAttributes(&attributes, pointer));
  REQUIRE(attributes.device == 2);
  HIP_CHECK(hipFreeAsync(pointer, stream));
}

TEST_CASE(
    "devices: a kernel that leaves its buffer loses its own device, whoever runs its blocks") {
  if (kFaultEndsProcess) return;
  const Fresh fresh;
  int* const first = make_array(0, 1);
  set_device(3);
  char* data = nullptr;
  HIP_CHECK(hipMalloc(&data, 4096));
  LAUNCH(write_at, 64, 64, 0, data, 4096LL);
  set_device(0);
  launch_add(first, first, 1);
  REQUIRE(holds(first, 2));
  REQUIRE_FALSE(cpu::device_lost(0));
  REQUIRE(cpu::device_lost(3));
  set_device(3);  // nobody has waited yet
  REQUIRE(hipDeviceSynchronize() == hipErrorIllegalAddress);
  REQUIRE(diagnosed("just past the end of the 4096-byte buffer of device 3"));
}

// ---- What depends on the environment -----------------------------------------------------------

TEST_CASE("child: counts devices", "[.child]") {
  int count = 0;
  HIP_CHECK(hipGetDeviceCount(&count));
  hipDeviceProp_t properties;
  HIP_CHECK(hipGetDeviceProperties(&properties, count - 1));
  std::fprintf(stderr, "%d devices, the last one called %s|\n", count, properties.name);
}

TEST_CASE("devices: the environment says how many, and one is the default") {
  const auto run = [](const char* environment) {
    return run_child("child: counts devices", environment);
  };
  for (const char* one : {"HIP_CPU_DEVICES=", "HIP_CPU_DEVICES=1"}) {
    const Outcome outcome = run(one);
    INFO(outcome.text);
    REQUIRE(outcome.exit_code == 0);
    REQUIRE(outcome.says("1 devices"));
    REQUIRE_FALSE(outcome.says("device 0 of"));
  }
  REQUIRE(run("HIP_CPU_DEVICES=2").says("device 1 of 2|"));
  REQUIRE(run("HIP_CPU_DEVICES=8").says("device 7 of 8|"));
  for (const char* wrong : {"HIP_CPU_DEVICES=0", "HIP_CPU_DEVICES=9", "HIP_CPU_DEVICES=two",
                            "HIP_CPU_DEVICES=2x", "HIP_CPU_DEVICES=-1", "HIP_CPU_DEVICES=10"}) {
    const Outcome outcome = run(wrong);
    INFO(outcome.text);
    REQUIRE(outcome.exit_code == 2);
    REQUIRE(
        outcome.says("cpu backend: " + std::string(wrong) + ": must be a number from 1 to 8\n"));
  }
}

TEST_CASE("child: leaves a buffer on device 1", "[.child]") { make_array(1, 0); }

TEST_CASE("devices: a leak is named with its device") {
  const Outcome outcome = run_child("child: leaves a buffer on device 1", "HIP_CPU_DEVICES=2");
  INFO(outcome.text);
  REQUIRE(outcome.exit_code == 1);
  REQUIRE(outcome.says("never freed: the 4000-byte buffer of device 1 allocated at "));
}

TEST_CASE("devices: all of this with strict memory, and with two devices") {
  if (kFaultEndsProcess) return;
  passes("[strict]", "HIP_CPU_STRICT=1");
  passes("[strict]", "HIP_CPU_STRICT=1 HIP_CPU_ORDER=reverse");
  passes("[two]", "HIP_CPU_DEVICES=2");
  passes("[two]", "HIP_CPU_DEVICES=2 HIP_CPU_STRICT=1");
}
