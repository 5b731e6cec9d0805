// Device memory. First what every backend does; then what the CPU backend catches besides.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "common/gpu.h"
#include "common/testing.h"

namespace {
void forget_error() { static_cast<void>(hipGetLastError()); }
}  // namespace

TEST_CASE("nothing is allocated and freed") {
  void* pointer = &pointer;
  REQUIRE(hipMalloc(&pointer, 0) == hipSuccess);
  REQUIRE(pointer == nullptr);
  REQUIRE(hipFree(nullptr) == hipSuccess);
}

TEST_CASE("what does not fit is refused") {
  for (const size_t bytes : {size_t{1} << 50, SIZE_MAX, SIZE_MAX - 4095}) {
    void* pointer = nullptr;
    REQUIRE(hipMalloc(&pointer, bytes) == hipErrorOutOfMemory);
    forget_error();
  }
  size_t free_bytes = 0, total_bytes = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total_bytes));
  REQUIRE(free_bytes > 0);
  REQUIRE(free_bytes <= total_bytes);
}

TEST_CASE("copies in all directions") {
  constexpr size_t kBytes = 1000003;
  std::vector<unsigned char> sent(kBytes), received(kBytes);
  for (size_t i = 0; i < kBytes; ++i) sent[i] = static_cast<unsigned char>(i * 7 + i / 256);
  void *first = nullptr, *second = nullptr;
  HIP_CHECK(hipMalloc(&first, kBytes));
  HIP_CHECK(hipMalloc(&second, kBytes));
  HIP_CHECK(hipMemcpy(first, sent.data(), kBytes, hipMemcpyHostToDevice));
  HIP_CHECK(hipMemcpy(second, first, kBytes, hipMemcpyDeviceToDevice));
  HIP_CHECK(hipMemcpy(received.data(), second, kBytes, hipMemcpyDeviceToHost));
  REQUIRE(received == sent);
  HIP_CHECK(hipMemset(second, 0xA5, kBytes - 1));
  HIP_CHECK(hipMemcpy(received.data(), second, kBytes, hipMemcpyDefault));
  REQUIRE(received[0] == 0xA5);
  REQUIRE(received[kBytes - 2] == 0xA5);
  REQUIRE(received[kBytes - 1] == sent[kBytes - 1]);
  REQUIRE(hipMemcpy(first, nullptr, 0, hipMemcpyHostToDevice) == hipSuccess);
  HIP_CHECK(hipFree(first));
  HIP_CHECK(hipFree(second));
}

TEST_CASE("a rectangle is copied out of a larger array") {
  constexpr size_t kRows = 5, kColumns = 7, kPitch = 16;
  std::vector<int> host(kRows * kPitch, -1), back(kRows * kColumns, 0);
  for (size_t row = 0; row < kRows; ++row)
    for (size_t column = 0; column < kColumns; ++column)
      host[row * kPitch + column] = static_cast<int>(row * 100 + column);
  int* device = nullptr;
  HIP_CHECK(hipMalloc(&device, back.size() * sizeof(int)));
  HIP_CHECK(hipMemcpy2D(device, kColumns * sizeof(int), host.data(), kPitch * sizeof(int),
                        kColumns * sizeof(int), kRows, hipMemcpyHostToDevice));
  HIP_CHECK(hipMemcpy(back.data(), device, back.size() * sizeof(int), hipMemcpyDeviceToHost));
  HIP_CHECK(hipFree(device));
  for (size_t i = 0; i < back.size(); ++i)
    REQUIRE(back[i] == static_cast<int>(i / kColumns * 100 + i % kColumns));
}

TEST_CASE("pinned host memory is used by host and device alike") {
  int *pinned = nullptr, *device = nullptr;
  HIP_CHECK(hipHostMalloc(&pinned, 100 * sizeof(int), hipHostMallocDefault));
  HIP_CHECK(hipMalloc(&device, 100 * sizeof(int)));
  for (int i = 0; i < 100; ++i) pinned[i] = i;
  HIP_CHECK(hipMemcpy(device, pinned, 100 * sizeof(int), hipMemcpyHostToDevice));
  for (int i = 0; i < 100; ++i) pinned[i] = -1;
  HIP_CHECK(hipMemcpy(pinned, device, 100 * sizeof(int), hipMemcpyDeviceToHost));
  for (int i = 0; i < 100; ++i) REQUIRE(pinned[i] == i);
  HIP_CHECK(hipFree(device));
  HIP_CHECK(hipHostFree(pinned));
}

TEST_CASE("memory in stream order comes from the pool") {
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  hipMemPool_t pool = nullptr;
  HIP_CHECK(hipDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t threshold = 1 << 20, used = 0;
  HIP_CHECK(hipMemPoolSetAttribute(pool, hipMemPoolAttrReleaseThreshold, &threshold));
  threshold = 0;
  HIP_CHECK(hipMemPoolGetAttribute(pool, hipMemPoolAttrReleaseThreshold, &threshold));
  REQUIRE(threshold == 1 << 20);
  void* pointer = nullptr;
  HIP_CHECK(hipMallocAsync(&pointer, 5000, stream));
  HIP_CHECK(hipMemsetAsync(pointer, 0, 5000, stream));
  HIP_CHECK(hipMemPoolGetAttribute(pool, hipMemPoolAttrUsedMemCurrent, &used));
  REQUIRE(used >= 5000);
  HIP_CHECK(hipFreeAsync(pointer, stream));
  HIP_CHECK(hipStreamSynchronize(stream));
  HIP_CHECK(hipMemPoolTrimTo(pool, 0));
  threshold = 0;
  HIP_CHECK(hipMemPoolSetAttribute(pool, hipMemPoolAttrReleaseThreshold, &threshold));
  HIP_CHECK(hipStreamDestroy(stream));
}

#if defined(GPU_BACKEND_CPU)

#include <unistd.h>

#include "common/cpu/internal.h"
#include "common/tests/child.h"

namespace {

// Under AddressSanitizer the access to a redzone, under ThreadSanitizer any fault ends the process.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kAddressSanitizer = true, kThreadSanitizer = false;
#elif defined(__SANITIZE_THREAD__)
constexpr bool kAddressSanitizer = false, kThreadSanitizer = true;
#elif defined(__has_feature)
constexpr bool kAddressSanitizer = __has_feature(address_sanitizer);
constexpr bool kThreadSanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool kAddressSanitizer = false, kThreadSanitizer = false;
#endif

bool diagnosed(const std::string& text) {
  INFO("the diagnosis is: " << cpu::last_diagnosis());
  const bool found = cpu::last_diagnosis().find(text) != std::string::npos;
  CHECK(found);
  return found;
}

struct Buffer {
  explicit Buffer(size_t size) : bytes(size) { HIP_CHECK(hipMalloc(&data, size)); }
  ~Buffer() {
    if (cpu::pointer_kind(data) == cpu::PointerKind::device) static_cast<void>(hipFree(data));
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  size_t bytes;
  unsigned char* data = nullptr;
};

static __global__ void store(unsigned char* data, long long offset) { data[offset] = 1; }
static __global__ void load(float* out, const float* in, long long offset) { *out = in[offset]; }

}  // namespace

TEST_CASE("cpu: a buffer ends where no access is possible and holds poison") {
  const std::uintptr_t page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const size_t bytes : {1, 15, 16, 17, 100, 4095, 4096, 4097, 100000, 1 << 20, 40000001}) {
    const Buffer buffer(bytes);
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data);
    REQUIRE(begin % 16 == 0);
    if (bytes % 256 == 0) REQUIRE(begin % 256 == 0);
    REQUIRE((begin + bytes + 15) / 16 * 16 % page == 0);
    std::vector<unsigned char> host(bytes);
    HIP_CHECK(hipMemcpy(host.data(), buffer.data, bytes, hipMemcpyDeviceToHost));
    REQUIRE(host == std::vector<unsigned char>(bytes, 0xFF));
  }
}

TEST_CASE("cpu: a kernel that leaves its buffer is caught and named") {
  if (kThreadSanitizer) return;
  struct Case {
    size_t bytes;
    long long offset;
    const char* place;
  };
  const Case cases[] = {{4096, 4096, "just past the end of the 4096-byte buffer"},
                        {4096, 5000, "904 bytes past the end of the 4096-byte buffer"},
                        {4096, -1, "1 byte before the 4096-byte buffer"},
                        {1 << 20, (1 << 20) + 70000, "70000 bytes past the end of the"}};
  for (const Case& c : cases) {
    const Buffer buffer(c.bytes);
    LAUNCH(store, 1, 1, 0, buffer.data, c.offset);
    REQUIRE(hipDeviceSynchronize() == hipErrorIllegalAddress);
    REQUIRE(diagnosed(c.place));
    REQUIRE(diagnosed("store"));
    REQUIRE(diagnosed("cpu_memory_test.hip:"));
    REQUIRE(hipDeviceSynchronize() == hipErrorIllegalAddress);  // until the device is reset
    HIP_CHECK(hipDeviceReset());
  }
}

TEST_CASE("cpu: writing to the bytes around a buffer is found after the launch") {
  if (kAddressSanitizer) return;
  for (const long long offset : {-1, -64, 1000, 1007}) {
    const Buffer buffer(1000);
    LAUNCH(store, 1, 1, 0, buffer.data, offset);
    REQUIRE(hipDeviceSynchronize() == hipErrorIllegalAddress);
    REQUIRE(
        diagnosed(offset < 0 ? "in front of the 1000-byte buffer" : "behind the 1000-byte buffer"));
    HIP_CHECK(hipDeviceReset());
  }
}

TEST_CASE("cpu: what nobody wrote is NaN") {
  float *in = nullptr, *out = nullptr, got = 0;
  HIP_CHECK(hipMalloc(&in, 64));
  HIP_CHECK(hipMalloc(&out, 4));
  LAUNCH(load, 1, 1, 0, out, in, 3LL);
  HIP_CHECK(hipMemcpy(&got, out, sizeof got, hipMemcpyDeviceToHost));
  REQUIRE(got != got);
  HIP_CHECK(hipFree(in));
  HIP_CHECK(hipFree(out));
}

TEST_CASE("cpu: a freed buffer stays out of reach") {
  float *in = nullptr, *out = nullptr;
  HIP_CHECK(hipMalloc(&in, 64));
  HIP_CHECK(hipMalloc(&out, 4));
  HIP_CHECK(hipFree(in));
  REQUIRE(cpu::pointer_kind(in) == cpu::PointerKind::freed);
  REQUIRE(cpu::describe_address(in + 3).find("at byte 12 of the freed 64-byte buffer") == 0);
  REQUIRE(hipMemcpy(out, in, 4, hipMemcpyDeviceToDevice) == hipErrorInvalidValue);
  REQUIRE(diagnosed("the source is at byte 0 of the freed 64-byte buffer"));
  REQUIRE(hipFree(in) == hipErrorInvalidValue);
  REQUIRE(diagnosed("freed twice: the freed 64-byte buffer"));
  forget_error();
  HIP_CHECK(hipFree(out));
}

TEST_CASE("cpu: only buffers can be freed, by what belongs to them") {
  const Buffer buffer(4096);
  int on_stack = 0;
  void* pinned = nullptr;
  HIP_CHECK(hipHostMalloc(&pinned, 100));
  REQUIRE(hipFree(&on_stack) == hipErrorInvalidValue);
  REQUIRE(diagnosed("this is host memory"));
  REQUIRE(hipFree(buffer.data + 16) == hipErrorInvalidValue);
  REQUIRE(diagnosed("not the beginning of a buffer, but at byte 16 of the 4096-byte buffer"));
  REQUIRE(hipFree(pinned) == hipErrorInvalidValue);
  REQUIRE(diagnosed("is freed by hipHostFree"));
  REQUIRE(hipHostFree(buffer.data) == hipErrorInvalidValue);
  HIP_CHECK(hipHostFree(pinned));
  forget_error();
}

TEST_CASE("cpu: copies are held against their direction and the buffers' sizes") {
  const Buffer buffer(4096), other(4096);
  std::vector<unsigned char> host(8192);
  const auto refused = [&](void* to, const void* from, size_t bytes, hipMemcpyKind kind) {
    return hipMemcpy(to, from, bytes, kind) == hipErrorInvalidValue;
  };
  REQUIRE(refused(host.data(), buffer.data, 4096, hipMemcpyHostToDevice));
  REQUIRE(diagnosed("the source"));
  REQUIRE(diagnosed("is device memory, where host memory belongs"));
  REQUIRE(refused(host.data(), host.data() + 4096, 4096, hipMemcpyDeviceToHost));
  REQUIRE(diagnosed("is host memory, where device memory belongs"));
  REQUIRE(refused(buffer.data, host.data(), 4096, hipMemcpyDeviceToDevice));
  REQUIRE(refused(buffer.data, host.data(), 4097, hipMemcpyHostToDevice));
  REQUIRE(diagnosed("the destination ends 1 byte past the end of the 4096-byte buffer"));
  REQUIRE(refused(buffer.data - 4, host.data(), 8, hipMemcpyHostToDevice));
  REQUIRE(diagnosed("the destination begins 4 bytes before"));
  REQUIRE(refused(buffer.data, nullptr, 8, hipMemcpyHostToDevice));
  REQUIRE(diagnosed("the source is a null pointer"));
  REQUIRE(refused(buffer.data, buffer.data + 100, 101, hipMemcpyDeviceToDevice));
  REQUIRE(diagnosed("source and destination overlap"));
  REQUIRE(hipMemcpy(buffer.data, buffer.data + 100, 100, hipMemcpyDeviceToDevice) == hipSuccess);
  REQUIRE(hipMemcpy(buffer.data, other.data, 1, static_cast<hipMemcpyKind>(9)) ==
          hipErrorInvalidMemcpyDirection);
  REQUIRE(hipMemset(host.data(), 0, 10) == hipErrorInvalidValue);
  REQUIRE(hipMemset(buffer.data, 0, 4097) == hipErrorInvalidValue);
  REQUIRE(hipMemcpy2D(buffer.data, 10, host.data(), 20, 16, 4, hipMemcpyHostToDevice) ==
          hipErrorInvalidPitchValue);
  REQUIRE(hipMemcpy2D(buffer.data, 1024, host.data(), 1024, 1025, 4, hipMemcpyHostToDevice) ==
          hipErrorInvalidPitchValue);
  forget_error();
}

TEST_CASE("cpu: pointers know what they are") {
  const Buffer buffer(100);
  hipPointerAttribute_t attributes;
  HIP_CHECK(hipPointerGetAttributes(&attributes, buffer.data + 99));
  REQUIRE(attributes.type == hipMemoryTypeDevice);
  int on_stack = 0;
  REQUIRE(hipPointerGetAttributes(&attributes, &on_stack) == hipErrorInvalidValue);
  REQUIRE(cpu::pointer_kind(&on_stack) == cpu::PointerKind::host);
  REQUIRE(cpu::pointer_kind(nullptr) == cpu::PointerKind::null);
  REQUIRE(cpu::describe_address(&on_stack).empty());
  forget_error();
}

TEST_CASE("cpu: there is one device unless more are asked for") {
  if (std::getenv("HIP_CPU_DEVICES") != nullptr) return;
  int count = 0;
  HIP_CHECK(hipGetDeviceCount(&count));
  REQUIRE(count == 1);
  const Buffer buffer(100);
  hipPointerAttribute_t attributes;
  HIP_CHECK(hipPointerGetAttributes(&attributes, buffer.data));
  REQUIRE(attributes.device == 0);
  size_t free_bytes = 0, total_bytes = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total_bytes));
  REQUIRE(total_bytes == cpu::total_memory());
}

TEST_CASE("cpu: many buffers come and go, from many threads") {
  std::vector<std::thread> threads;
  std::vector<int> failures(4, 0);
  for (size_t t = 0; t < failures.size(); ++t)
    threads.emplace_back([&failures, t] {
      for (size_t i = 0; i < 1000; ++i) {
        const size_t bytes = 1 + (i * 7919 + t * 104729) % 20000;
        const std::vector<unsigned char> sent(bytes, static_cast<unsigned char>(t + i));
        std::vector<unsigned char> received(bytes);
        void* pointer = nullptr;
        const bool good =
            hipMalloc(&pointer, bytes) == hipSuccess &&
            hipMemcpy(pointer, sent.data(), bytes, hipMemcpyHostToDevice) == hipSuccess &&
            hipMemcpy(received.data(), pointer, bytes, hipMemcpyDeviceToHost) == hipSuccess &&
            hipFree(pointer) == hipSuccess;
        failures[t] += !good || sent != received;
      }
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failures == std::vector<int>(4, 0));
}

// ---- What can only be seen from outside of the process -----------------------------------------

TEST_CASE("child: leaks", "[.child]") {
  void* pointer = nullptr;
  for (size_t i = 0; i < 15; ++i) HIP_CHECK(hipMalloc(&pointer, 1000 + i));
}

TEST_CASE("cpu: leaks are reported at exit and fail the program") {
  const Outcome outcome = run_child("child: leaks");
  INFO(outcome.text);
  REQUIRE(outcome.exit_code == 1);
  REQUIRE(outcome.says("never freed: the 1000-byte buffer allocated at "));
  REQUIRE(outcome.says("cpu_memory_test.hip:"));
  REQUIRE(outcome.says("never freed: 6 more buffers"));
}

TEST_CASE("child: writes a byte too many", "[.child]") {
  const Buffer buffer(1000);
  LAUNCH(store, 1, 1, 0, buffer.data, 1000LL);
}

TEST_CASE("cpu: a byte too many fails the program, whoever sees it first") {
  const Outcome outcome = run_child("child: writes a byte too many");
  INFO(outcome.text);
  REQUIRE(outcome.exit_code == 1);
  REQUIRE(outcome.says(kAddressSanitizer ? "AddressSanitizer: use-after-poison"
                                         : "behind the 1000-byte buffer"));
}

TEST_CASE("child: frees all", "[.child]") {
  void* pointer = nullptr;
  HIP_CHECK(hipMalloc(&pointer, 1000));
  HIP_CHECK(hipFree(pointer));
}

TEST_CASE("cpu: a tidy program ends quietly") {
  const Outcome outcome = run_child("child: frees all");
  INFO(outcome.text);
  REQUIRE(outcome.exit_code == 0);
  REQUIRE_FALSE(outcome.says("cpu backend"));
}

TEST_CASE("child: host code reads device memory", "[.child]") {
  const Buffer buffer(4096);
  HIP_CHECK(hipMemset(buffer.data, 1, buffer.bytes));
  LAUNCH(store, 1, 1, 0, buffer.data, 8LL);
  HIP_CHECK(hipDeviceSynchronize());
  std::vector<unsigned char> host(buffer.bytes);
  HIP_CHECK(hipMemcpy(host.data(), buffer.data, host.size(), hipMemcpyDeviceToHost));
  REQUIRE(host[8] == 1);
  volatile unsigned char* pointer = buffer.data;
  std::fprintf(stderr, "read %d\n", pointer[100]);
}

TEST_CASE("cpu: strict mode keeps host code out of device memory") {
  const Outcome lenient = run_child("child: host code reads device memory", "HIP_CPU_STRICT=0");
  INFO(lenient.text);
  REQUIRE(lenient.exit_code == 0);
  REQUIRE(lenient.says("read 1"));
  const Outcome strict = run_child("child: host code reads device memory", "HIP_CPU_STRICT=1");
  INFO(strict.text);
  REQUIRE(strict.exit_code != 0);
  REQUIRE_FALSE(strict.says("read 1"));
  REQUIRE(strict.says("host code reads device memory, at byte 100 of the 4096-byte buffer"));
}

#endif
