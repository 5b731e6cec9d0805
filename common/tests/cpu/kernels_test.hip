// What the CPU backend tells about a kernel that is wrong: always one line, never a hang, and the
// device can be used again after hipDeviceReset().
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>

#include "common/cpu/internal.h"
#include "common/gpu.h"
#include "common/testing.h"
#include "common/tests/child.h"

namespace {

constexpr int kNeverReached = __LINE__ + 2;  // where the barrier below stands
__global__ void some_never_arrive(int limit) {
  if (static_cast<int>(threadIdx.x) < limit) __syncthreads();
}

constexpr int kFirstBarrier = __LINE__ + 3, kSecondBarrier = kFirstBarrier + 2;
__global__ void different_barriers(int limit) {
  if (static_cast<int>(threadIdx.x) < limit)
    __syncthreads();
  else
    __syncthreads();
}

__global__ void barrier_against_shuffle(int* out) {
  if (threadIdx.x == 3) __syncthreads();
  out[threadIdx.x] = gpu::wave_shfl_xor(1, 1);
}

__global__ void different_shuffles(int* out) {
  if (threadIdx.x % 2 == 0)
    out[threadIdx.x] = gpu::wave_shfl_xor(1, 1);
  else
    out[threadIdx.x] = gpu::wave_shfl_down(2, 1);
}

__global__ void exited_lanes(int* out) {
  const int lane = gpu::lane_id();
  if (lane >= 20) return;
  out[lane] = gpu::wave_shfl_down(lane, 4);
}

__global__ void write_at(float* out, size_t index, unsigned by) {
  if (blockIdx.x * blockDim.x + threadIdx.x == by) out[index] = 1;
}
__global__ void read_at(float* out, const float* in, size_t index) {
  out[threadIdx.x] = in[index + threadIdx.x];
}
__global__ void write_after_barrier(float* out, size_t index) {
  __syncthreads();
  if (threadIdx.x == 9) out[index] = 1;
}
__global__ void write_through(float** out) { **out = 1; }
__global__ void dynamic_overrun(float* out, int index) {
  DYNAMIC_SHARED(float, values);
  values[threadIdx.x] = 1;
  out[threadIdx.x] = values[index];
}
__global__ void read_dynamic(float* out) {
  DYNAMIC_SHARED(float, values);
  out[threadIdx.x] = values[threadIdx.x];
}
__global__ void divide(int* out, int by) { out[threadIdx.x] = 7 / by; }
__global__ void recurse(int* out, int depth) {
  struct Deep {
    static int down(int n) {
      volatile char frame[4096];
      frame[n % 4096] = 1;
      return n <= 0 ? frame[0] : down(n - 1) + frame[n % 4096];
    }
  };
  __syncthreads();
  out[threadIdx.x] = Deep::down(depth);
}
__global__ void spin(volatile int* flag) {
  while (*flag == 0) {
  }
}
__global__ void spin_over_barriers(volatile int* flag) {
  while (*flag == 0) __syncthreads();
}
__global__ void sleep_long(int* out) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  *out = 42;
}
// Adds to a sum that nothing has set to zero.
__global__ void accumulate(float* out) {
  __shared__ float sum;
  sum += 1;
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
__global__ void accumulate_from_zero(float* out) {
  __shared__ float sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();  // the sum is zero
  atomicAdd(&sum, 1.0f);
  __syncthreads();  // all have added
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
// Block 0 fills the tile, the others read it. So large that not all of it is looked at.
template <int kSide>
__global__ void read_tile_of_before(float* out) {
  __shared__ float tile[kSide][kSide + 1];
  for (unsigned row = 0; row < kSide && blockIdx.x == 0; ++row) tile[row][threadIdx.x] = 1;
  float sum = 0;
  for (unsigned row = 0; row < kSide; ++row) sum += tile[row][threadIdx.x];
  if (threadIdx.x == 3) out[blockIdx.x] = sum;
}
__global__ void read_around(unsigned long long* out, const unsigned long long* one) {
  out[0] = one[-1], out[1] = one[1];
}
__global__ void grid_diverges(int* out) {
  if (blockIdx.x == 0) return;
  gpu::grid_sync();
  out[blockIdx.x] = 1;
}
__global__ void set(int* out, int value) { out[threadIdx.x] = value; }

// Runs `launch`, expects the waiting call to return `error`, and gives what was said. The device is
// whole again afterwards, which a launch proves.
template <class Launch>
std::string diagnosis_of(hipError_t error, Launch&& launch) {
  launch();
  REQUIRE(hipDeviceSynchronize() == error);
  REQUIRE(hipDeviceSynchronize() == error);  // sticky
  const std::string line = cpu::last_diagnosis();
  REQUIRE(hipDeviceReset() == hipSuccess);
  int* check;
  HIP_CHECK(hipMalloc(&check, 64 * sizeof(int)));
  LAUNCH(set, 1, 64, 0, check, 42);
  int host[64];
  HIP_CHECK(hipMemcpy(host, check, sizeof host, hipMemcpyDeviceToHost));
  for (const int value : host) REQUIRE(value == 42);
  HIP_CHECK(hipFree(check));
  return line;
}

template <class T = float>
T* device_array(size_t n) {
  T* pointer;
  HIP_CHECK(hipMalloc(&pointer, n * sizeof(T)));
  return pointer;
}

}  // namespace

TEST_CASE("a barrier that some threads never reach is reported, not waited for") {
  for (const int limit : {1, 31, 32, 63}) {
    const std::string line =
        diagnosis_of(hipErrorLaunchFailure, [&] { LAUNCH(some_never_arrive, 2, 64, 0, limit); });
    CHECK(contains_text(line, "kernel some_never_arrive, block ("));
    CHECK(contains_text(line, "thread (0,0,0) waits at __syncthreads() "));
    CHECK(contains_text(line, "kernels_test.hip:" + std::to_string(kNeverReached)));
    CHECK(contains_text(line, "thread (" + std::to_string(limit) + ",0,0) has returned"));
  }
}

TEST_CASE("threads at different barriers are reported with both lines") {
  const std::string line =
      diagnosis_of(hipErrorLaunchFailure, [&] { LAUNCH(different_barriers, 1, 64, 0, 20); });
  CHECK(contains_text(line, "thread (0,0,0) waits at __syncthreads() "));
  CHECK(contains_text(
      line, "kernels_test.hip:" + std::to_string(kFirstBarrier) + " while thread (20,0,0)"));
  CHECK(contains_text(line, "kernels_test.hip:" + std::to_string(kSecondBarrier)));
}

TEST_CASE("lanes that can't meet are reported") {
  const std::string barrier = diagnosis_of(hipErrorLaunchFailure, [&] {
    LAUNCH(barrier_against_shuffle, 1, 64, 0, device_array<int>(64));
  });
  CHECK(contains_text(barrier, "waits at wave_shfl_xor()"));
  CHECK(contains_text(barrier, "thread (3,0,0) of the same wave waits at __syncthreads()"));
  const std::string shuffle = diagnosis_of(
      hipErrorLaunchFailure, [&] { LAUNCH(different_shuffles, 1, 64, 0, device_array<int>(64)); });
  CHECK(contains_text(shuffle, "wave_shfl_xor()"));
  CHECK(contains_text(shuffle, "wave_shfl_down()"));
}

TEST_CASE("lanes that have returned are left out of a wave operation, and read as poison") {
  int* out = device_array<int>(20);
  LAUNCH(exited_lanes, 1, static_cast<unsigned>(cpu::device().wave), 0, out);
  int host[20];
  HIP_CHECK(hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost));
  for (int lane = 0; lane < 20; ++lane) REQUIRE(host[lane] == (lane + 4 < 20 ? lane + 4 : -1));
  HIP_CHECK(hipFree(out));
}

#if !defined(COURSE_SANITIZE_ADDRESS) && !defined(COURSE_SANITIZE_THREAD)
// Under a sanitizer these end the process with the sanitizer's own report.
TEST_CASE("an access outside a buffer names kernel, block, thread, buffer and distance") {
  const std::string past = diagnosis_of(hipErrorIllegalAddress, [&] {
    LAUNCH(write_at, 4, 64, 0, device_array(1024), size_t{1030}, 3 * 64 + 17u);
  });
  CHECK(
      contains_text(past, "kernel write_at, block (3,0,0), thread (17,0,0): writes 24 bytes past"));
  CHECK(contains_text(past, "4096-byte buffer allocated at "));
  const std::string read = diagnosis_of(hipErrorIllegalAddress, [&] {
    LAUNCH(read_at, 1, 64, 0, device_array(64), device_array(1024), size_t{1000});
  });
  CHECK(contains_text(read, "kernel read_at, block (0,0,0), thread (24,0,0): reads "));
  const std::string after = diagnosis_of(hipErrorIllegalAddress, [&] {
    LAUNCH(write_after_barrier, 1, 64, 0, device_array(1024), size_t{5000});
  });
  CHECK(contains_text(after, "thread (9,0,0): writes "));
}

TEST_CASE("one element behind a buffer that ends inside a redzone is found after the launch") {
  const std::string line = diagnosis_of(hipErrorIllegalAddress, [&] {
    LAUNCH(write_at, 1, 64, 0, device_array(1001), size_t{1001}, 5u);
  });
  CHECK(contains_text(line, "kernel write_at"));
  CHECK(contains_text(line, "4004-byte buffer"));
}

TEST_CASE("null pointers and deep stacks are named") {
  const std::string null = diagnosis_of(hipErrorIllegalAddress, [&] {
    LAUNCH(write_at, 1, 64, 0, static_cast<float*>(nullptr), size_t{0}, 7u);
  });
  CHECK(contains_text(null, "thread (7,0,0): writes through a null pointer"));
  const std::string deep = diagnosis_of(
      hipErrorIllegalAddress, [&] { LAUNCH(recurse, 1, 2, 0, device_array<int>(2), 100000); });
  CHECK(contains_text(deep, "needs more stack"));
}

#if !defined(__aarch64__)  // where it is no fault, and the result is 0
TEST_CASE("divisions by zero are named") {
  const std::string zero = diagnosis_of(
      hipErrorIllegalAddress, [&] { LAUNCH(divide, 1, 32, 0, device_array<int>(32), 0); });
  CHECK(contains_text(zero, "integer division by zero"));
}
#endif

TEST_CASE("dynamic shared memory ends where the launch said") {
  const std::string line = diagnosis_of(hipErrorIllegalAddress, [&] {
    LAUNCH(dynamic_overrun, 1, 32, 32 * sizeof(float), device_array(32), 32);
  });
  CHECK(contains_text(line, "outside the launch's dynamic shared memory"));
}

TEST_CASE("an endless loop is interrupted, and told from one over barriers") {
  const Outcome loop = run_child("spins for ever", "HIP_CPU_TIMEOUT=0.5");
  CHECK(contains_text(loop.text,
                      "kernel spin, block (0,0,0), thread (0,0,0): still running after 0.5 s "
                      "without reaching a barrier or its end: an endless loop?"));
  const Outcome barriers = run_child("spins over barriers", "HIP_CPU_TIMEOUT=0.5");
  CHECK(contains_text(barriers.text, "kernel spin_over_barriers, block (0,0,0), thread ("));
  CHECK(contains_text(barriers.text,
                      ": still running after 0.5 s, through one barrier after another"));
}

TEST_CASE("only a processor's time counts against a kernel") {
  const Outcome outcome = run_child("sleeps long", "HIP_CPU_TIMEOUT=0.5");
  INFO(outcome.text);
  CHECK(outcome.exit_code == 0);
}

TEST_CASE("a time limit that is none is refused") {
  for (const char* limit : {"x", "", "-1", "2s", "nan"}) {
    const Outcome outcome = run_child("sleeps long", std::string("HIP_CPU_TIMEOUT=") + limit);
    CAPTURE(limit, outcome.text);
    CHECK(outcome.exit_code == 2);
  }
}

TEST_CASE("the guard is where HIP_CPU_GUARD says, to the byte") {
  const auto text_of = [](const char* child, const char* guard) {
    return run_child(child, std::string("HIP_CPU_GUARD=") + guard).text;
  };
  for (const char* guard : {"end", "exact", "begin"}) {
    CAPTURE(guard);
    const Outcome outcome =
        run_child("uses all of a buffer", std::string("HIP_CPU_GUARD=") + guard);
    INFO(outcome.text);
    CHECK(outcome.exit_code == 0);
    CHECK(contains_text(text_of("writes just behind", guard), "the 4004-byte buffer allocated at"));
    CHECK(contains_text(text_of("writes just before", guard), "the 4004-byte buffer allocated at"));
  }
  CHECK(contains_text(text_of("reads just behind", "exact"),
                      "thread (0,0,0): reads just past the end of the 4004-byte buffer"));
  CHECK(contains_text(text_of("reads just before", "begin"),
                      "thread (0,0,0): reads 4 bytes before the 4004-byte buffer"));
  CHECK(contains_text(text_of("reads before dynamic shared memory", "begin"),
                      "reads outside the launch's dynamic shared memory"));
  // What no guard page stops is NaN.
  for (const char* guard : {"end", "begin"})
    CHECK(contains_text(text_of("reads just behind", guard), "read nan"));
  for (const char* guard : {"end", "exact"})
    CHECK(contains_text(text_of("reads just before", guard), "read nan"));
  CHECK(run_child("reads just before", "HIP_CPU_GUARD=both").exit_code == 2);
}

TEST_CASE("the memory around a buffer reads as NaN in every format") {
  auto* one = device_array<unsigned long long>(1);
  auto* out = device_array<unsigned long long>(2);
  LAUNCH(read_around, 1, 1, 0, out, one);
  unsigned long long around[2];
  HIP_CHECK(hipMemcpy(around, out, sizeof around, hipMemcpyDeviceToHost));
  for (const unsigned long long bits : around) {
    double number;
    float numbers[2];
    std::memcpy(&number, &bits, sizeof number);
    std::memcpy(numbers, &bits, sizeof numbers);
    CHECK(std::isnan(number));
    CHECK(std::isnan(numbers[0]));
    CHECK(std::isnan(numbers[1]));
    for (int part = 0; part < 64; part += 16) {
      const unsigned half = static_cast<unsigned>(bits >> part & 0xFFFF);
      CHECK(((half & 0x7C00) == 0x7C00 && (half & 0x03FF) != 0));  // fp16
      CHECK(((half & 0x7F80) == 0x7F80 && (half & 0x007F) != 0));  // bf16
    }
  }
  HIP_CHECK(hipFree(one));
  HIP_CHECK(hipFree(out));
}
#endif

TEST_CASE("uses all of a buffer", "[.child]") {
  for (const size_t n : {1, 2, 3, 4, 5, 1001, 1023, 1024, 1025, 5000}) {
    float *in = device_array(n), *out = device_array(n);
    HIP_CHECK(hipMemset(in, 0, n * sizeof(float)));
    LAUNCH(read_at, 1, 1, 0, out, in, n - 1);
    LAUNCH(write_at, 1, 1, 0, out, n - 1, 0u);
    HIP_CHECK(hipFree(in));
    HIP_CHECK(hipFree(out));
  }
}
TEST_CASE("writes just behind", "[.child]") {
  LAUNCH(write_at, 1, 1, 0, device_array(1001), size_t{1001}, 0u);
  CHECK(hipDeviceSynchronize() != hipSuccess);
}
TEST_CASE("writes just before", "[.child]") {
  LAUNCH(write_at, 1, 1, 0, device_array(1001), ~size_t{0}, 0u);
  CHECK(hipDeviceSynchronize() != hipSuccess);
}
// Reads one float at `index`, and says what it was.
static void print_float_at(size_t index) {
  float *in = device_array(1001), *out = device_array(1), read = 0;
  LAUNCH(read_at, 1, 1, 0, out, in, index);
  if (hipMemcpy(&read, out, sizeof read, hipMemcpyDeviceToHost) == hipSuccess)
    std::printf("read %s\n", std::isnan(read) ? "nan" : "a number");
}
TEST_CASE("reads just behind", "[.child]") { print_float_at(1001); }
TEST_CASE("reads just before", "[.child]") { print_float_at(~size_t{0}); }
TEST_CASE("reads before dynamic shared memory", "[.child]") {
  LAUNCH(dynamic_overrun, 1, 32, 32 * sizeof(float), device_array(32), -1);
  CHECK(hipDeviceSynchronize() != hipSuccess);
}

TEST_CASE("static shared memory that the block has not written reads as NaN") {
  for (const char* threads : {"1", "2"}) {
    const Outcome outcome = run_child("reads static shared memory",
                                      std::string("HIP_CPU_POISON=1 HIP_CPU_THREADS=") + threads);
    INFO(outcome.text);
    CHECK(outcome.exit_code == 0);
  }
}
TEST_CASE("reads static shared memory", "[.child]") {
  constexpr unsigned kBlocks = 20;
  float* out = device_array(kBlocks);
  float host[kBlocks];
  LAUNCH(accumulate, kBlocks, 1, 0, out);
  HIP_CHECK(hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost));
  for (const float sum : host) CHECK(std::isnan(sum));
  LAUNCH(accumulate_from_zero, kBlocks, 64, 0, out);
  HIP_CHECK(hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost));
  for (const float sum : host) CHECK(sum == 64);
  LAUNCH(read_tile_of_before<64>, kBlocks, 64, 0, out);
  HIP_CHECK(hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost));
  for (unsigned block = 0; block < kBlocks; ++block) CHECK(std::isnan(host[block]) == (block != 0));
  HIP_CHECK(hipFree(out));
}

TEST_CASE("spins for ever", "[.child]") {
  int* flag = device_array<int>(1);
  HIP_CHECK(hipMemset(flag, 0, sizeof(int)));
  LAUNCH(spin, 1, 2, 0, flag);
  CHECK(hipDeviceSynchronize() != hipSuccess);
}

TEST_CASE("spins over barriers", "[.child]") {
  int* flag = device_array<int>(1);
  HIP_CHECK(hipMemset(flag, 0, sizeof(int)));
  LAUNCH(spin_over_barriers, 1, 64, 0, flag);
  CHECK(hipDeviceSynchronize() != hipSuccess);
}

TEST_CASE("sleeps long", "[.child]") {
  int* out = device_array<int>(1);
  LAUNCH(sleep_long, 1, 1, 0, out);
  CHECK(hipDeviceSynchronize() == hipSuccess);
  HIP_CHECK(hipFree(out));
}

TEST_CASE("dynamic shared memory that nothing wrote reads as NaN, in every block") {
  float* out = device_array(32);
  for (int i = 0; i < 3; ++i) {
    LAUNCH(read_dynamic, 3, 32, 32 * sizeof(float), out);
    float host[32];
    HIP_CHECK(hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost));
    for (const float value : host) REQUIRE(std::isnan(value));
  }
  HIP_CHECK(hipFree(out));
}

TEST_CASE("a host pointer among the arguments is refused before the kernel runs") {
  float host[64] = {};
  REQUIRE_THROWS_AS([&] { LAUNCH(write_at, 1, 64, 0, host, size_t{0}, 0u); }(), gpu::Error);
  CHECK(contains_text(cpu::last_diagnosis(), "pointer argument 1 points to host memory"));
  float* freed = device_array(64);
  HIP_CHECK(hipFree(freed));
  REQUIRE_THROWS_AS([&] { LAUNCH(write_at, 1, 64, 0, freed, size_t{0}, 0u); }(), gpu::Error);
  CHECK(contains_text(cpu::last_diagnosis(), "freed buffer"));
}

TEST_CASE("a grid barrier that a block never reaches is reported") {
  int* out = device_array<int>(4);
  LAUNCH_COOPERATIVE(grid_diverges, 4, 32, 0, out);
  REQUIRE(hipDeviceSynchronize() == hipErrorLaunchFailure);
  CHECK(contains_text(cpu::last_diagnosis(), "grid_sync()"));
  REQUIRE(hipDeviceReset() == hipSuccess);
}

TEST_CASE("more dynamic shared memory than a block has is refused") {
  REQUIRE_THROWS_AS([&] { LAUNCH(dynamic_overrun, 1, 32, 1u << 20, nullptr, 0); }(), gpu::Error);
  CHECK(contains_text(cpu::last_diagnosis(), "1048576 bytes of shared memory; a block has 65536"));
}

TEST_CASE("a cooperative grid that does not fit is refused") {
  REQUIRE_THROWS_AS([&] { LAUNCH_COOPERATIVE(grid_diverges, 1u << 20, 1024, 0, nullptr); }(),
                    gpu::Error);
}
