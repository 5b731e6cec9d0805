#include "common/gpu.h"
#include "stage0_infra/03_timing/timing.h"

namespace timing {

// ---- Probes of the copy limit -----------------------------------------------------------------

// to[i] = from[i]    from, to: n vectors of 16 bytes; n is a multiple of kBlock * kVectors.
// Fixes : -
// Idea  : bandwidth is bytes in flight over latency (Little's law): wide loads, several at once.
// Thread: t of a block holds vectors t, t + kBlock, ... of each tile that the block owns.
// Costs : 4 * kVectors registers.
template <int kVectors>
static __global__ void copy_vectors(uint4* to, const uint4* from, size_t n) {
  constexpr size_t kTile = size_t{kBlock} * kVectors;
  for (size_t tile = blockIdx.x * kTile; tile < n; tile += gridDim.x * kTile) {
    // exercise: load kVectors vectors, kBlock apart, before storing the first (about 6 lines)
    const size_t first = tile + threadIdx.x;
    uint4 held[kVectors];
    for (int v = 0; v < kVectors; ++v) held[v] = from[first + size_t{kBlock} * v];
    for (int v = 0; v < kVectors; ++v) to[first + size_t{kBlock} * v] = held[v];
    // end exercise
  }
}

// How many blocks walk over `tiles` tiles when each multiprocessor gets `per_multiprocessor` of
// them. The CPU backend runs the threads of a block one after the other: there a block stays in one
// tile, so that its threads share the cache lines.
inline unsigned resident_blocks(size_t tiles, unsigned per_multiprocessor) {
#if defined(GPU_BACKEND_CPU)
  static_cast<void>(per_multiprocessor);
  return static_cast<unsigned>(tiles);
#else
  return static_cast<unsigned>(
      std::min(tiles, size_t{gpu::multiprocessors()} * per_multiprocessor));
#endif
}

// Copies the first half of the arena onto the second. kPerMultiprocessor 0: a block for each tile.
template <int kVectors, unsigned kPerMultiprocessor>
inline double launch_copy(Arena& arena) {
  const size_t tiles = arena.half() / (size_t{kBlock} * kVectors);
  const unsigned blocks = kPerMultiprocessor == 0 ? static_cast<unsigned>(tiles)
                                                  : resident_blocks(tiles, kPerMultiprocessor);
  LAUNCH((copy_vectors<kVectors>), blocks, kBlock, 0, arena.to(),
         static_cast<const uint4*>(arena.from()), arena.half());
  return 2.0 * static_cast<double>(arena.half_bytes());
}

inline double launch_copy_runtime(Arena& arena) {
  HIP_CHECK(hipMemcpyAsync(arena.to(), arena.from(), arena.half_bytes(), hipMemcpyDeviceToDevice,
                           nullptr));
  return 2.0 * static_cast<double>(arena.half_bytes());
}

// ---- Probes of the read limit -----------------------------------------------------------------

// sums[thread] = sum of the words that the thread read (mod 2^32, so that the order is free)
//                 from: n vectors of 16 bytes; n is a multiple of kThreads * kVectors.
// Fixes : a copy can't show what a reduction may reach: writing costs the memory extra turns.
// Idea  : kVectors loads that do not wait for each other; the sum proves that every byte arrived.
// Thread: t of a block of kThreads reads vectors t, t + kThreads, ... of each tile of the block.
// Costs : one word written per thread.
template <int kThreads, int kVectors>
static __global__ void read_vectors(unsigned* sums, const uint4* from, size_t n) {
  constexpr size_t kTile = size_t{kThreads} * kVectors;
  uint4 sum = make_uint4(0, 0, 0, 0);
  for (size_t tile = blockIdx.x * kTile; tile < n; tile += gridDim.x * kTile) {
    const uint4* first = from + tile + threadIdx.x;
    for (int v = 0; v < kVectors; ++v) {
      const uint4 x = first[size_t{kThreads} * v];
      sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
  }
  sums[size_t{blockIdx.x} * kThreads + threadIdx.x] = sum.x + sum.y + sum.z + sum.w;
}

// Reads both halves of the arena.
template <int kThreads, int kVectors, unsigned kPerMultiprocessor>
inline double launch_read(Arena& arena) {
  const size_t n = 2 * arena.half();
  const size_t tiles = n / (size_t{kThreads} * kVectors);
  const unsigned blocks = resident_blocks(tiles, kPerMultiprocessor);
  const size_t threads = size_t{blocks} * kThreads;
  LAUNCH((read_vectors<kThreads, kVectors>), blocks, kThreads, 0, arena.sums(threads).data(),
         static_cast<const uint4*>(arena.from()), n);
  return static_cast<double>(n * sizeof(uint4));
}

// ---- Probes of the arithmetic limit -----------------------------------------------------------

// Multiply-adds of one thread. A chain counts up by one a step: exact in float up to 2^24.
constexpr int kMultiplyAdds = 1 << 15;

// ends[thread] = sum over c of x_c after `steps` steps of x_c = x_c * a + b, from x_c = c.
// Fixes : -
// Idea  : an FMA's result comes some cycles late, so each thread keeps kChains independent chains.
// Thread: owns its chains; nothing is read from memory.
// Costs : kChains registers.
template <int kChains>
static __global__ void fma_chains(float* ends, int steps, float a, float b) {
  float x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = static_cast<float>(c);
  for (int step = 0; step < steps; ++step)
    for (int c = 0; c < kChains; ++c) x[c] = x[c] * a + b;  // contracted to one FMA
  float sum = 0;
  for (int c = 0; c < kChains; ++c) sum += x[c];
  ends[size_t{blockIdx.x} * kBlock + threadIdx.x] = sum;
}

template <int kChains>
inline double launch_fma(Arena& arena) {
  constexpr unsigned kBlocksPerMultiprocessor = 16;
  const unsigned blocks = gpu::multiprocessors() * kBlocksPerMultiprocessor;
  const size_t threads = size_t{blocks} * kBlock;
  LAUNCH((fma_chains<kChains>), blocks, kBlock, 0, arena.chain_ends(threads).data(),
         kMultiplyAdds / kChains, 1.0f, 1.0f);
  return 2.0 * kMultiplyAdds * static_cast<double>(threads);
}

// ---- Transfers between host and device --------------------------------------------------------

inline double transfer(Arena& arena, void* host, hipMemcpyKind kind) {
  const bool upload = kind == hipMemcpyHostToDevice;
  void* device = arena.to();
  HIP_CHECK(hipMemcpyAsync(upload ? device : host, upload ? host : device, arena.host_bytes(), kind,
                           nullptr));
  return static_cast<double>(arena.host_bytes());
}
inline double upload_pageable(Arena& arena) {
  return transfer(arena, arena.pageable(), hipMemcpyHostToDevice);
}
inline double upload_pinned(Arena& arena) {
  return transfer(arena, arena.pinned(), hipMemcpyHostToDevice);
}
inline double download_pageable(Arena& arena) {
  return transfer(arena, arena.pageable(), hipMemcpyDeviceToHost);
}
inline double download_pinned(Arena& arena) {
  return transfer(arena, arena.pinned(), hipMemcpyDeviceToHost);
}

// ---- All of them ------------------------------------------------------------------------------

const std::vector<Version<Launch>> kVersions = {
    {"copy_runtime", {kCopy, launch_copy_runtime}, "hipMemcpy within the device"},
    {"copy_1_vector", {kCopy, launch_copy<1, 0>}, "16 bytes per thread, a block for each tile"},
    {"copy_4_vectors", {kCopy, launch_copy<4, 0>}, "64 bytes in flight per thread"},
    {"copy_resident", {kCopy, launch_copy<8, 8>}, "only as many blocks as fit, each walks on"},
    {"read_4_vectors", {kRead, launch_read<kBlock, 4, 8>}, "64 bytes in flight per thread"},
    {"read_8_vectors", {kRead, launch_read<kBlock, 8, 8>}, "128 bytes in flight per thread"},
    {"read_16_vectors", {kRead, launch_read<kBlock, 16, 4>}, "256 bytes, in half the threads"},
    {"read_stream", {kRead, launch_read<1, kWholeTiles, 16>}, "one thread a block: for processors"},
    {"fma_32_chains", {kFma, launch_fma<32>}, "32 independent multiply-adds per thread"},
    {"fma_128_chains", {kFma, launch_fma<128>}, "128 of them: fills a processor's vector units"},
    {"upload_pageable",
     {kTransfer, upload_pageable},
     "the driver copies it to pinned memory first"},
    {"upload_pinned", {kTransfer, upload_pinned}, "the device fetches it from where it lies"},
    {"download_pageable", {kTransfer, download_pageable}, "into ordinary host memory"},
    {"download_pinned", {kTransfer, download_pinned}, "into pinned host memory"},
};

// Bytes of each half of the probes' memory: far beyond any last-level cache on a GPU (1 GiB, or a
// quarter of what is free), on the CPU backend what half a second allows.
size_t arena_bytes(bool quick) {
  constexpr size_t kMiB = size_t{1} << 20;
#if defined(GPU_BACKEND_CPU)
  return (quick ? 8 : 64) * kMiB;
#else
  static_cast<void>(quick);  // a GPU needs milliseconds for either
  size_t free_bytes = 0, total = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total));
  return std::min(1024 * kMiB, free_bytes / 4);
#endif
}

// The limits of the selected device: for each the best probe's rate, from the median of its runs.
// Takes about 0.3 s on two processor cores and less on a GPU; allocates 2 GiB there and frees it.
// Throws gpu::Error where the device fails.
Limits measure_limits(bool quick) {
  constexpr double kWarmUpMs = 20;  // until the clocks have left their idle state
  const int repeat = gpu::kBackend == std::string("cpu") ? (quick ? 3 : 5) : (quick ? 5 : 20);
  Arena arena(arena_bytes(quick));
  for (HostTimer timer; timer.ms() < kWarmUpMs;) {
    launch_copy<1, 0>(arena);
    HIP_CHECK(hipDeviceSynchronize());
  }
  Limits limits;
  GpuTimer timer;
  for (const auto& version : kVersions) {
    const Probe& probe = version.launch;
    if (probe.limit == kTransfer) continue;
    double& limit = probe.limit == kCopy   ? limits.copy
                    : probe.limit == kRead ? limits.read
                                           : limits.fma;
    const double amount = probe.queue(arena);  // untimed: loads the code, allocates the results
    std::vector<double> ms;
    for (int r = 0; r < repeat; ++r) {
      timer.start();
      probe.queue(arena);
      ms.push_back(std::max(timer.stop(), 1e-6));
      const double best_ms = *std::min_element(ms.begin(), ms.end());
      if (r == 1 && amount / (best_ms / 1e3) < 0.5 * limit) break;  // far behind: no more runs
    }
    limit = std::max(limit, amount / (summarize(ms).median / 1e3));
  }
  return limits;
}

// The same, or none where the command line wants none.
Limits measure_limits(const Options& options) {
  return options.no_limits ? Limits{} : measure_limits(options.quick);
}

// ---- What a launch costs ----------------------------------------------------------------------

// Does nothing: what is left is the cost of launching.
static __global__ void empty(int) {}

LaunchCost measure_launch_cost(bool quick) {
  const int launches = quick ? 100 : 1000;
  const double us = 1e3 / launches;
  LaunchCost cost;
  HIP_CHECK(hipDeviceSynchronize());  // so that no start-up work of the runtime is counted
  HostTimer first;
  LAUNCH(empty, 1, 1, 0, 0);
  HIP_CHECK(hipDeviceSynchronize());
  cost.first = 1e3 * first.ms();

  GpuTimer events;
  HostTimer host;
  events.start();
  for (int i = 0; i < launches; ++i) LAUNCH(empty, 1, 1, 0, 0);
  cost.queue = host.ms() * us;
  cost.device = events.stop() * us;

  const auto round_trip = [] {
    LAUNCH(empty, 1, 1, 0, 0);
    HIP_CHECK(hipDeviceSynchronize());
  };
  cost.wait = 1e3 * time_host(round_trip, launches).median;
  return cost;
}

Clocks compare_clocks(Arena& arena) {
  constexpr int kRepeat = 5;
  const auto queue = [&] { launch_copy<1, 0>(arena); };
  const auto queue_and_wait = [&] {
    queue();
    HIP_CHECK(hipDeviceSynchronize());
  };
  Clocks clocks;
  clocks.events = time_gpu(queue, kRepeat).median;
  clocks.host = time_host(queue_and_wait, kRepeat).median;
  HostTimer timer;
  queue();
  clocks.host_no_wait = timer.ms();
  HIP_CHECK(hipDeviceSynchronize());
  return clocks;
}

}  // namespace timing
