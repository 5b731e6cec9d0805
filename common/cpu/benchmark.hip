// What the CPU backend costs: kernels on host threads beside the plain C++ loops they stand for.
//
//   vector add       16 M floats against the loop on as many threads       bar 1.25x
//   naive GEMM       512x512x512 against the triple loop, likewise         bar 1.1x
//   barrier          per GPU thread and __syncthreads                      bar 12 ns
//   empty launch     64 blocks                                             bar 10 us
//
// The two sides of a ratio are run in turns, so that a machine that changes its pace changes both.
#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

#include "common/cpu/internal.h"
#include "common/gpu.h"
#include "common/timer.h"

#if !defined(GPU_BACKEND_CPU)
#error "this program measures the CPU backend: configure with GPU_BACKEND=cpu"
#endif

namespace {

constexpr unsigned kBlock = 256;
constexpr size_t kElements = size_t{16} << 20;
constexpr int kSide = 512;
constexpr int kBarriers = 1000;
constexpr int kTurns = 15;

// c = a + b, one element per thread.
__global__ void add(float* c, const float* a, const float* b, size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

// Calls part(first, last) for an equal part of [0, n) on each host thread.
template <class Part>
void on_all_threads(size_t n, Part&& part) {
  const size_t count = static_cast<size_t>(cpu::device().threads);
  std::vector<std::thread> threads;
  for (size_t t = 1; t < count; ++t)
    threads.emplace_back([&, t] { part(n * t / count, n * (t + 1) / count); });
  part(size_t{0}, n / count);
  for (std::thread& thread : threads) thread.join();
}

void add_loop(float* c, const float* a, const float* b, size_t n) {
  on_all_threads(n, [=](size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) c[i] = a[i] + b[i];
  });
}

// C = A B, one element of C per thread.
__global__ void multiply(float* c, const float* a, const float* b, int n) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (row >= n || column >= n) return;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
  c[row * n + column] = sum;
}

void multiply_loop(float* c, const float* a, const float* b, int n) {
  on_all_threads(static_cast<size_t>(n), [=](size_t first, size_t last) {
    for (int row = static_cast<int>(first); row < static_cast<int>(last); ++row)
      for (int column = 0; column < n; ++column) {
        float sum = 0;
        for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
        c[row * n + column] = sum;
      }
  });
}

__global__ void only_barriers(int count) {
  for (int i = 0; i < count; ++i) __syncthreads();
}

__global__ void nothing() {}

// Milliseconds of both, in turns.
template <class A, class B>
void race(A&& a, B&& b, Timing* time_a, Timing* time_b) {
  std::vector<double> ms_a, ms_b;
  a(), b();
  for (int turn = 0; turn < kTurns; ++turn) {
    HostTimer timer_a;
    a();
    ms_a.push_back(timer_a.ms());
    HostTimer timer_b;
    b();
    ms_b.push_back(timer_b.ms());
  }
  *time_a = summarize(std::move(ms_a));
  *time_b = summarize(std::move(ms_b));
}

bool print(const char* what, double value, const char* unit, double bar, const char* detail) {
  const bool met = value <= bar;
  std::printf("%-14s %8.2f %-2s   bar %5.2f   %-8s %s\n", what, value, unit, bar,
              met ? "met" : "MISSED", detail);
  return met;
}

}  // namespace

int main() {
  hipDeviceProp_t properties;
  HIP_CHECK(hipGetDeviceProperties(&properties, 0));
  std::printf("CPU backend on %s, %d threads, wave %d\n", properties.name,
              properties.multiProcessorCount, properties.warpSize);
  float *a, *b, *c;
  HIP_CHECK(hipMalloc(&a, kElements * sizeof(float)));
  HIP_CHECK(hipMalloc(&b, kElements * sizeof(float)));
  HIP_CHECK(hipMalloc(&c, kElements * sizeof(float)));
  for (float* buffer : {a, b, c}) HIP_CHECK(hipMemset(buffer, 0, kElements * sizeof(float)));

  bool met = true;
  char detail[96];
  Timing kernel, loop;
  race([&] { LAUNCH(add, kElements / kBlock, kBlock, 0, c, a, b, kElements); },
       [&] { add_loop(c, a, b, kElements); }, &kernel, &loop);
  std::snprintf(detail, sizeof detail, "%.2f ms, plain loop %.2f ms", kernel.median, loop.median);
  met &= print("vector add", kernel.median / loop.median, "x", 1.25, detail);

  const dim3 tile(16, 16), tiles(kSide / 16, kSide / 16);
  race([&] { LAUNCH(multiply, tiles, tile, 0, c, a, b, kSide); },
       [&] { multiply_loop(c, a, b, kSide); }, &kernel, &loop);
  std::snprintf(detail, sizeof detail, "%.2f ms, triple loop %.2f ms", kernel.median, loop.median);
  met &= print("naive GEMM", kernel.median / loop.median, "x", 1.1, detail);

  // Blocks for two host threads; the time is that of one of them.
  const auto threads = static_cast<unsigned>(properties.multiProcessorCount);
  for (const unsigned block : {32u, 256u, 1024u}) {
    const Timing time = time_gpu([&] { LAUNCH(only_barriers, 8 * threads, block, 0, kBarriers); });
    std::snprintf(detail, sizeof detail, "per thread, blocks of %u", block);
    met &= print("barrier", time.median * 1e6 / (8.0 * block * kBarriers), "ns", 12, detail);
  }
  const Timing time = time_gpu([&] { LAUNCH(nothing, 64, kBlock, 0); });
  met &= print("empty launch", time.median * 1e3, "us", 10, "64 blocks of 256");

  for (float* buffer : {a, b, c}) HIP_CHECK(hipFree(buffer));
  return met ? 0 : 1;
}
