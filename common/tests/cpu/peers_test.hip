// Memory of several devices in one process: which kernels may use it, and copies between devices.
#include <algorithm>
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

struct Arrays {
  int count;
  int* out;
  const int* in;
};
static __global__ void add_one_in(Arrays arrays) {
  const int i = static_cast<int>(threadIdx.x);
  if (i < arrays.count) arrays.out[i] = arrays.in[i] + 1;
}

// Takes the addresses from memory: nothing among the arguments tells where they lead.
static __global__ void read_table(int* out, const int* const* table) {
  const unsigned i = threadIdx.x;
  out[i] = table[0][i];
}

// Between the pointer and what must lie at a multiple of 16 there are 8 bytes that nobody sets.
static __global__ void fill_vectors(float4* out, float4 value) { out[threadIdx.x] = value; }

}  // namespace

TEST_CASE("devices: a kernel uses another device's memory with peer access, and else faults",
          "[strict][two]") {
  const Fresh fresh;
  int* const mine = make_array(0, 1);
  int* const theirs = make_array(1, 10);
  HIP_CHECK(hipDeviceEnablePeerAccess(1, 0));
  launch_add(mine, theirs, 1);
  launch_add(theirs, mine, 1);
  HIP_CHECK(hipDeviceSynchronize());
  REQUIRE(holds(mine, 11));
  REQUIRE(holds(theirs, 12));
  LAUNCH(add_one_in, 1, 1000, 0, (Arrays{1000, mine, theirs}));
  REQUIRE(holds(mine, 13));
  if (kFaultEndsProcess) return;

  HIP_CHECK(hipDeviceDisablePeerAccess(1));
  launch_add(mine, theirs, 1);
  REQUIRE(hipDeviceSynchronize() == hipErrorIllegalAddress);
  REQUIRE(diagnosed("kernel add_number on device 0"));
  REQUIRE(diagnosed("at byte 0 of the 4000-byte buffer of device 1 allocated at"));
  REQUIRE(diagnosed("device 0 has no peer access to device 1 (hipDeviceEnablePeerAccess)"));
  REQUIRE(hipDeviceSynchronize() == hipErrorIllegalAddress);  // until the device is reset
  int* const none = nullptr;
  REQUIRE(hipFree(none) == hipErrorIllegalAddress);

  set_device(1);  // whose memory was wanted, and who is none the worse
  forget_error();
  launch_add(theirs, theirs, 1);
  REQUIRE(holds(theirs, 13));
  std::vector<int> host(kCount);
  REQUIRE(hipMemcpy(host.data(), mine, 4, hipMemcpyDeviceToHost) == hipErrorIllegalAddress);
  REQUIRE(hipMemcpy(theirs, mine, 4, hipMemcpyDefault) == hipErrorIllegalAddress);
  REQUIRE(hipMemset(mine, 0, 4) == hipErrorIllegalAddress);
  forget_error();

  // It is one way: device 1 may not either, until it says so itself; and the other way stays shut.
  REQUIRE(hipSetDevice(0) == hipErrorIllegalAddress);
  HIP_CHECK(hipDeviceReset());
  int* const again = make_array(0, 20);
  set_device(1);
  HIP_CHECK(hipDeviceEnablePeerAccess(0, 0));
  launch_add(again, again, 1);
  REQUIRE(holds(again, 21));
  set_device(0);
  LAUNCH(add_one_in, 1, 1000, 0, (Arrays{1000, again, theirs}));  // inside of a structure
  REQUIRE(hipDeviceSynchronize() == hipErrorIllegalAddress);
  REQUIRE(diagnosed("kernel add_one_in on device 0"));
  REQUIRE(diagnosed("of device 1 allocated at"));
}

TEST_CASE("devices: peer access is enabled once, disabled once, and gone with a reset",
          "[strict]") {
  const Fresh fresh;
  int can = -1;
  HIP_CHECK(hipDeviceCanAccessPeer(&can, 0, 1));
  REQUIRE(can == 1);
  HIP_CHECK(hipDeviceCanAccessPeer(&can, 2, 2));
  REQUIRE(can == 0);
  REQUIRE(hipDeviceCanAccessPeer(nullptr, 0, 1) == hipErrorInvalidValue);
  REQUIRE(hipDeviceEnablePeerAccess(0, 0) == hipErrorInvalidDevice);  // itself
  REQUIRE(hipDeviceEnablePeerAccess(1, 1) == hipErrorInvalidValue);
  REQUIRE(hipDeviceDisablePeerAccess(1) == hipErrorPeerAccessNotEnabled);
  REQUIRE(hipDeviceEnablePeerAccess(1, 0) == hipSuccess);
  REQUIRE(hipDeviceEnablePeerAccess(1, 0) == hipErrorPeerAccessAlreadyEnabled);
  REQUIRE(hipGetLastError() == hipErrorPeerAccessAlreadyEnabled);
  REQUIRE(std::string(hipGetErrorName(hipErrorPeerAccessNotEnabled)) ==
          "hipErrorPeerAccessNotEnabled");
  REQUIRE(hipDeviceDisablePeerAccess(1) == hipSuccess);
  REQUIRE(hipDeviceDisablePeerAccess(1) == hipErrorPeerAccessNotEnabled);
  HIP_CHECK(hipDeviceEnablePeerAccess(1, 0));
  set_device(1);
  HIP_CHECK(hipDeviceEnablePeerAccess(2, 0));
  HIP_CHECK(hipDeviceReset());
  REQUIRE(hipDeviceDisablePeerAccess(2) == hipErrorPeerAccessNotEnabled);
  set_device(0);
  REQUIRE(hipDeviceDisablePeerAccess(1) == hipErrorPeerAccessNotEnabled);
}

TEST_CASE("devices: copies between devices need no peer access", "[strict]") {
  const Fresh fresh;
  constexpr size_t kBytes = kCount * sizeof(int);
  int* const first = make_array(0, 1);
  int* const second = make_array(1, 2);
  int* const third = make_array(2, 3);
  HIP_CHECK(hipMemcpy(first, second, kBytes, hipMemcpyDeviceToDevice));
  REQUIRE(holds(first, 2));
  HIP_CHECK(hipMemcpy(second, third, kBytes, hipMemcpyDefault));  // neither is the current device's
  REQUIRE(holds(second, 3));
  HIP_CHECK(hipMemset(third, 0, kBytes));
  HIP_CHECK(hipMemcpyPeer(second, 1, third, 2, kBytes));
  REQUIRE(holds(second, 0));
  set_device(2);
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  HIP_CHECK(hipMemcpyPeerAsync(third, 2, first, 0, kBytes, stream));
  HIP_CHECK(hipStreamSynchronize(stream));
  REQUIRE(holds(third, 2));
  REQUIRE(hipMemcpyPeer(second, 1, second + 500, 1, kBytes / 2) == hipSuccess);
  REQUIRE(hipMemcpyPeer(second, 1, nullptr, 0, 0) == hipSuccess);

  REQUIRE(hipMemcpyPeer(second, 0, third, 2, kBytes) == hipErrorInvalidValue);
  REQUIRE(diagnosed("the destination is on device 1, not on device 0"));
  REQUIRE(hipMemcpyPeer(second, 1, third, 3, kBytes) == hipErrorInvalidValue);
  REQUIRE(diagnosed("the source is on device 2, not on device 3"));
  REQUIRE(hipMemcpyPeer(second, 1, third, 2, kBytes + 1) == hipErrorInvalidValue);
  REQUIRE(diagnosed("past the end of the 4000-byte buffer of device 2"));
  std::vector<int> host(kCount);
  REQUIRE(hipMemcpyPeer(second, 1, host.data(), 0, kBytes) == hipErrorInvalidValue);
  REQUIRE(diagnosed("is host memory, where device memory belongs"));
}

TEST_CASE("devices: pinned memory is everybody's", "[strict]") {
  const Fresh fresh;
  int* pinned = nullptr;
  HIP_CHECK(hipHostMalloc(&pinned, kCount * sizeof(int)));
  std::fill(pinned, pinned + kCount, 0);
  for (int device = 0; device < kDevices; ++device) {
    set_device(device);
    launch_add(pinned, pinned, 1);
    HIP_CHECK(hipDeviceSynchronize());
  }
  REQUIRE(std::count(pinned, pinned + kCount, kDevices) == kCount);
  HIP_CHECK(hipHostFree(pinned));
}

TEST_CASE("devices: what lies between a kernel's arguments is no pointer", "[strict][two]") {
  const Fresh fresh;
  for (int round = 0; round < 100; ++round)
    for (int device = 0; device < 2; ++device) {
      set_device(device);
      float4* data = nullptr;
      HIP_CHECK(hipMalloc(&data, 64 * sizeof(float4)));
      const float4* const stale[16] = {data, data, data, data, data, data, data, data,
                                       data, data, data, data, data, data, data, data};
      set_device(1 - device);
      float4* other = nullptr;
      HIP_CHECK(hipMalloc(&other, 64 * sizeof(float4)));
      LAUNCH(fill_vectors, 1, 64, 0, other, make_float4(1, 2, 3, 4));
      HIP_CHECK(hipDeviceSynchronize());
      HIP_CHECK(hipFree(other));
      HIP_CHECK(hipFree(const_cast<float4*>(stale[round % 16])));
    }
}

TEST_CASE("devices: a peer that writes around a buffer is found out", "[strict][two]") {
#if !defined(COURSE_SANITIZE_ADDRESS) && !defined(COURSE_SANITIZE_THREAD)  // they end the process
  const Fresh fresh;
  set_device(1);
  char* data = nullptr;
  HIP_CHECK(hipMalloc(&data, 1000));
  set_device(0);
  HIP_CHECK(hipDeviceEnablePeerAccess(1, 0));
  LAUNCH(write_at, 1, 1, 0, data, 1000LL);
  REQUIRE(hipDeviceSynchronize() == hipErrorIllegalAddress);
  REQUIRE(diagnosed("memory just behind the 1000-byte buffer of device 1"));
  REQUIRE_FALSE(cpu::device_lost(1));
#endif
}

// ---- What depends on the environment -----------------------------------------------------------

// Two devices and several host threads; the addresses come out of a table in memory.
TEST_CASE("child: kernels reach through a table", "[.child]") {
  const Fresh fresh;
  int* const mine = make_array(0, 0);
  int* const theirs = make_array(1, 7);
  const int** table = nullptr;
  HIP_CHECK(hipMalloc(&table, sizeof *table));
  HIP_CHECK(hipMemcpy(table, &theirs, sizeof theirs, hipMemcpyHostToDevice));
  const auto read = [&] { LAUNCH(read_table, 1, kCount, 0, mine, table); };
  HIP_CHECK(hipDeviceEnablePeerAccess(1, 0));
  read();
  REQUIRE(holds(mine, 7));
  std::fprintf(stderr, "read with peer access\n");
  HIP_CHECK(hipDeviceDisablePeerAccess(1));

  std::thread other([&] {  // launches of device 1 open its memory, but never to device 0
    set_device(1);
    for (int i = 0; i < 200; ++i) launch_add(theirs, theirs, 0);
    HIP_CHECK(hipDeviceSynchronize());
  });
  hipError_t error = hipSuccess;
  for (int i = 0; i < 50 && error == hipSuccess; ++i) {
    read();
    error = hipDeviceSynchronize();
  }
  other.join();
  std::fprintf(stderr, "without: %s\n", hipGetErrorName(error));
  set_device(1);
  forget_error();
  REQUIRE(holds(theirs, 7));
}

TEST_CASE("devices: a strict one sees every access, by whatever way the kernel came to it") {
  if (kFaultEndsProcess) return;
  const auto run = [](const char* environment) {
    return run_child("child: kernels reach through a table", environment);
  };
  const Outcome strict = run("HIP_CPU_DEVICES=2 HIP_CPU_STRICT=1");
  INFO(strict.text);
  REQUIRE(strict.exit_code == 0);
  REQUIRE(strict.says("read with peer access"));
  REQUIRE(strict.says("without: hipErrorIllegalAddress"));
  REQUIRE(
      strict.says("kernel read_table, block (0,0,0), thread (0,0,0): reads at byte 0 of the "
                  "4000-byte buffer of device 1 allocated at "));
  REQUIRE(strict.says(": device 0 has no peer access to device 1 (hipDeviceEnablePeerAccess)"));
  const Outcome lenient = run("HIP_CPU_DEVICES=2 HIP_CPU_STRICT=0");
  INFO(lenient.text);
  REQUIRE(lenient.says("without: hipSuccess"));  // the limit that runtime_api.h states
}

TEST_CASE("devices: all of this with strict memory, and with two devices") {
  if (kFaultEndsProcess) return;
  passes("[strict]", "HIP_CPU_STRICT=1");
  passes("[strict]", "HIP_CPU_STRICT=1 HIP_CPU_ORDER=reverse");
  passes("[two]", "HIP_CPU_DEVICES=2");
  passes("[two]", "HIP_CPU_DEVICES=2 HIP_CPU_STRICT=1");
}
