// Planted races, each of which the cpu-tsan build must report with both of its lines, and right
// kernels of the same shapes, about which it must be silent. In other builds the orders of
// execution stand in: a race that depends on the order changes the result between forward and
// reverse.
#include <string>

#include "common/cpu/events.h"
#include "common/gpu.h"
#include "common/testing.h"
#include "common/tests/child.h"

namespace {

// Reads its neighbour's element: right only behind a barrier.
[[maybe_unused]] constexpr int kNeighbourWrites = __LINE__ + 4;
[[maybe_unused]] constexpr int kNeighbourReads = kNeighbourWrites + 1;
__global__ void neighbour_racy(int* out) {
  __shared__ int values[64];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = values[(threadIdx.x + 1) % 64];
}
__global__ void neighbour(int* out) {
  __shared__ int values[64];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();  // all values are there
  out[threadIdx.x] = values[(threadIdx.x + 1) % 64];
}

// A tree over shared memory whose last levels trust that a wave runs in step.
[[maybe_unused]] constexpr int kTreeAdds = __LINE__ + 7;
__global__ void tree_racy(int* out) {
  __shared__ volatile int sum[64];
  const unsigned t = threadIdx.x;
  sum[t] = 1;
  __syncthreads();
  for (unsigned half = 32; half > 0; half /= 2) {
    if (t < half) sum[t] = sum[t] + sum[t + half];
    if (half > 16) __syncthreads();
  }
  if (t == 0) *out = sum[0];
}
__global__ void tree(int* out) {
  __shared__ int sum[64];
  const unsigned t = threadIdx.x;
  sum[t] = 1;
  __syncthreads();  // all ones are there
  for (unsigned half = 32; half > 0; half /= 2) {
    if (t < half) sum[t] += sum[t + half];
    __syncthreads();  // this level is complete
  }
  if (t == 0) *out = sum[0];
}

// Counts without and with an atomic, over blocks.
[[maybe_unused]] constexpr int kCounts = __LINE__ + 1;
__global__ void count_racy(int* counter) { *counter += 1; }
__global__ void count(int* counter) { atomicAdd(counter, 1); }

// Adds what a block has: no two threads of a block meet, but two blocks do.
[[maybe_unused]] constexpr int kAddsUp = __LINE__ + 2;
__global__ void add_up_racy(int* sum) {
  if (threadIdx.x == 0) *sum += 1;
}

// A block reads what another block writes in the same launch.
[[maybe_unused]] constexpr int kReadsAcross = __LINE__ + 4;
__global__ void across_blocks_racy(int* cells) {
  if (threadIdx.x != 0) return;
  const unsigned next = (blockIdx.x + 1) % gridDim.x;
  cells[blockIdx.x] = cells[next];
}

// Many blocks, of which only the last two meet.
[[maybe_unused]] constexpr int kMeetLate = __LINE__ + 2;
__global__ void meet_late_racy(int* cell) {
  if (blockIdx.x + 2 >= gridDim.x && threadIdx.x == 0) *cell = static_cast<int>(blockIdx.x);
}

// The last block to finish adds up what all have left: ordered by the counter.
__global__ void last_block(int* partial, unsigned* counter, int* out) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = static_cast<int>(blockIdx.x);
    __threadfence();
    last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();  // last is known to the block
  if (!last || threadIdx.x != 0) return;
  int sum = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) sum += partial[b];
  *out = sum;
}

// A wave exchanges through shared memory between two wave_sync().
__global__ void wave_exchange(int* out) {
  __shared__ int values[64];
  const int t = static_cast<int>(threadIdx.x), base = t - gpu::lane_id();
  for (int round = 0; round < 3; ++round) {
    values[t] = t + round;
    gpu::wave_sync();  // the wave has written
    out[t] = values[base + (gpu::lane_id() + 1) % gpu::wave_size()];
    gpu::wave_sync();  // the wave has read
  }
}

__global__ void meet(int* values) {
  if (threadIdx.x == 0) values[blockIdx.x] = 1;
  gpu::grid_sync();  // every block has written
  if (threadIdx.x == 1) values[gridDim.x + blockIdx.x] = values[(blockIdx.x + 1) % gridDim.x];
}

// A block of a cluster reads what another one writes.
[[maybe_unused]] constexpr int kWritesInCluster = __LINE__ + 3;
[[maybe_unused]] constexpr int kReadsInCluster = kWritesInCluster + 1;
__global__ void cluster_racy(int* values) {
  if (threadIdx.x == 0) values[blockIdx.x] = 1;
  if (threadIdx.x == 1) values[gridDim.x + blockIdx.x] = values[blockIdx.x ^ 1];
}
__global__ void cluster(int* values) {
  const uint3 self = threadIdx;
  const cpu::Site site{__FILE__, __LINE__, "arrive_at_cluster()"};
  if (self.x == 0) values[blockIdx.x] = 1;
  cpu::wait(cpu::arrive_at_cluster({cpu::caller_number(), site}), self);  // both have written
  if (threadIdx.x == 1) values[gridDim.x + blockIdx.x] = values[blockIdx.x ^ 1];
}

int* cells(size_t n) {
  int* pointer;
  HIP_CHECK(hipMalloc(&pointer, n * sizeof(int)));
  HIP_CHECK(hipMemset(pointer, 0, n * sizeof(int)));
  return pointer;
}

}  // namespace

// One planted race per child: ThreadSanitizer reports them on stderr.
TEST_CASE("race neighbour", "[.child]") { LAUNCH(neighbour_racy, 1, 64, 0, cells(64)); }
TEST_CASE("race tree", "[.child]") { LAUNCH(tree_racy, 1, 64, 0, cells(1)); }
TEST_CASE("race count", "[.child]") { LAUNCH(count_racy, 4, 32, 0, cells(1)); }
TEST_CASE("race add up", "[.child]") { LAUNCH(add_up_racy, 4, 32, 0, cells(1)); }
TEST_CASE("race across blocks", "[.child]") { LAUNCH(across_blocks_racy, 4, 32, 0, cells(4)); }

TEST_CASE("race in cluster", "[.child]") {
  LAUNCH_ON_CPU(nullptr, 2, cluster_racy, 4, 32, 0, cells(8));
}

// More threads than fibers are kept for one launch.
TEST_CASE("race late", "[.child]") { LAUNCH(meet_late_racy, 12, 1024, 0, cells(1)); }

TEST_CASE("right kernels give no alarm and the right result", "[clean]") {
  int* out = cells(64);
  LAUNCH(neighbour, 1, 64, 0, out);
  LAUNCH(tree, 1, 64, 0, out);
  LAUNCH(count, 4, 32, 0, out);
  LAUNCH(wave_exchange, 1, 64, 0, out);
  int* partial = cells(8);
  auto* counter = reinterpret_cast<unsigned*>(cells(1));
  LAUNCH(last_block, 8, 64, 0, partial, counter, out);
  int sum = 0;
  HIP_CHECK(hipMemcpy(&sum, out, sizeof sum, hipMemcpyDeviceToHost));
  REQUIRE(sum == 28);
  int* values = cells(8);
  LAUNCH_COOPERATIVE(meet, 4, 32, 0, values);
  int host[8];
  HIP_CHECK(hipMemcpy(host, values, sizeof host, hipMemcpyDeviceToHost));
  for (const int value : host) REQUIRE(value == 1);
  HIP_CHECK(hipMemset(values, 0, sizeof host));
  LAUNCH_ON_CPU(nullptr, 2, cluster, 4, 32, 0, values);
  HIP_CHECK(hipMemcpy(host, values, sizeof host, hipMemcpyDeviceToHost));
  for (const int value : host) REQUIRE(value == 1);
  for (void* pointer : {static_cast<void*>(out), static_cast<void*>(partial),
                        static_cast<void*>(counter), static_cast<void*>(values)})
    HIP_CHECK(hipFree(pointer));
}

#if defined(COURSE_SANITIZE_THREAD)
TEST_CASE("each planted race is reported at its lines") {
  const struct {
    const char* name;
    int first, second;  // the two lines; the same one twice where a statement races with itself
  } races[] = {{"race neighbour", kNeighbourWrites, kNeighbourReads},
               {"race tree", kTreeAdds, kTreeAdds},
               {"race count", kCounts, kCounts},
               {"race add up", kAddsUp, kAddsUp},
               {"race across blocks", kReadsAcross, kReadsAcross},
               {"race in cluster", kWritesInCluster, kReadsInCluster},
               {"race late", kMeetLate, kMeetLate}};
  for (const auto& race : races) {
    CAPTURE(race.name);
    const Outcome outcome = run_child(race.name);
    CHECK(contains_text(outcome.text, "data race"));
    for (const int line : {race.first, race.second})
      CHECK(contains_text(outcome.text, "race_test.hip:" + std::to_string(line)));
  }
}
#else
TEST_CASE("the order of execution changes what a missing barrier gives", "[.child]") {
  int* out = cells(64);
  LAUNCH(neighbour_racy, 1, 64, 0, out);
  int host[64];
  HIP_CHECK(hipMemcpy(host, out, sizeof host, hipMemcpyDeviceToHost));
  for (int t = 0; t < 64; ++t) REQUIRE(host[t] == (t + 1) % 64);
  HIP_CHECK(hipFree(out));
}

TEST_CASE("a missing barrier shows in one order or another, a right kernel in none") {
  bool shown = false;
  for (const char* order : {"forward", "reverse", "waves", "random:1"}) {
    CAPTURE(order);
    const std::string environment = std::string("HIP_CPU_ORDER=") + order;
    shown |= run_child("the order of execution changes what a missing barrier gives", environment)
                 .exit_code != 0;
    CHECK(run_child("right kernels give no alarm and the right result", environment).exit_code ==
          0);
  }
  REQUIRE(shown);
}
#endif
