// What threads wait for beside the block's barrier: phases, barriers with numbers, copies, the
// other blocks of a cluster. What is said where they wait for ever.
#include <string>

#include "common/cpu/events.h"
#include "common/cpu/internal.h"
#include "common/early_launch_sm90.h"
#include "common/gpu.h"
#include "common/testing.h"

namespace {

constexpr unsigned kThreads = 64, kBytes = 4096;

__device__ inline cpu::Caller caller(const cpu::Site& site) { return {cpu::caller_number(), site}; }
#define HERE caller({__FILE__, __LINE__, "events_test"})

__device__ inline void wait_for_phase(std::uint64_t* state, unsigned parity,
                                      int line = __builtin_LINE()) {
  const uint3 self = threadIdx;
  const cpu::Site site{"events_test.hip", line, "wait_for_phase()"};
  cpu::wait(cpu::arrive_for_phase(caller(site), state, parity), self);
}
__device__ inline bool meet(int number, int threads, bool vote, int line = __builtin_LINE()) {
  const uint3 self = threadIdx;
  const cpu::Site site{"events_test.hip", line, "meet()"};
  bool any = false;
  cpu::wait(cpu::arrive_at_number(caller(site), number, threads, false, vote, &any), self);
  return any;
}

__device__ inline void meet_cluster(int line = __builtin_LINE()) {
  const uint3 self = threadIdx;
  const cpu::Site site{"events_test.hip", line, "meet_cluster()"};
  cpu::wait(cpu::arrive_at_cluster(caller(site)), self);
}

// Thread 0 counts `rounds` up, the others wait for each of them; then all arrive for the next.
__global__ void count_in_phases(int* seen, int rounds, int arrivals) {
  DYNAMIC_SHARED(std::uint64_t, barriers);  // full, empty, and the number between them
  int* number = reinterpret_cast<int*>(barriers + 2);
  if (threadIdx.x == 0) {
    cpu::init_phases(HERE, barriers, 1);
    cpu::init_phases(HERE, barriers + 1, arrivals);
  }
  __syncthreads();  // the barriers are there
  for (int round = 0; round < rounds; ++round) {
    const unsigned parity = static_cast<unsigned>(round) & 1;
    if (threadIdx.x == 0) {
      wait_for_phase(barriers + 1, parity ^ 1);
      *number = round;
      cpu::arrive_in_phase(HERE, barriers, 0);
      cpu::go_on();
    } else {
      wait_for_phase(barriers, parity);
      seen[threadIdx.x] += *number;
      cpu::arrive_in_phase(HERE, barriers + 1, 0);
      cpu::go_on();
    }
  }
}

// The threads of each half meet, and know how one of them voted.
__global__ void meet_in_halves(int* seen, unsigned who) {
  const int half = threadIdx.x < kThreads / 2 ? 0 : 1;
  for (int round = 0; round < 5; ++round)
    seen[threadIdx.x] += meet(1 + half, kThreads / 2, threadIdx.x == who);
}

__global__ void meet_as(int others) { meet(3, threadIdx.x == 9 ? others : kThreads, false); }

// A number goes round in a cluster: each block waits for the one before it, adds its own number to
// what that has left in global memory and tells the next one. An arrival at another block's barrier
// orders no memory: the accesses are atomic.
__global__ void pass_round(int* sum, int rounds, unsigned blocks) {
  DYNAMIC_SHARED(std::uint64_t, barriers);
  const unsigned rank = cpu::block_of_cluster();
  if (threadIdx.x == 0) cpu::init_phases(HERE, barriers, 1);
  meet_cluster();  // all barriers are there
  for (int round = 0; threadIdx.x == 0 && round < rounds; ++round) {
    if (rank > 0 || round > 0)
      wait_for_phase(barriers, static_cast<unsigned>(round - (rank == 0 ? 1 : 0)) & 1);
    atomicExch(sum, atomicAdd(sum, 0) * 2 + static_cast<int>(rank));
    cpu::arrive_in_phase_of(HERE, (rank + 1) % blocks, barriers);
    cpu::go_on();
  }
  meet_cluster();  // nobody arrives any more
}

__global__ void tell_rank(int* out) {
  meet_cluster();
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<int>(cpu::block_of_cluster());
}

// Each block reads what all blocks of its cluster have left in shared memory.
__global__ void read_each_other(int* sums, unsigned blocks, bool too_late) {
  DYNAMIC_SHARED(int, numbers);
  const unsigned rank = cpu::block_of_cluster();
  if (threadIdx.x == 0) numbers[1] = static_cast<int>(10 * rank + 1);
  meet_cluster();  // all numbers are there
  if (too_late && rank > 0) return;
  for (unsigned block = 0; threadIdx.x == 0 && block < blocks; ++block) {
    const void* there = cpu::find_in_block(HERE, block, numbers + 1, sizeof(int));
    cpu::go_on();
    sums[rank] += *static_cast<const int*>(there);
  }
  meet_cluster();  // nobody reads any more
}

// What goes wrong in a cluster of two blocks.
enum class Wrong { leaves_early, never_meets, is_not_there, has_no_barrier };
__global__ void wrong_in_cluster(Wrong what) {
  DYNAMIC_SHARED(std::uint64_t, barriers);
  const unsigned rank = cpu::block_of_cluster();
  if (threadIdx.x == 0 && what != Wrong::has_no_barrier) cpu::init_phases(HERE, barriers, 1);
  __syncthreads();  // this block's barrier is there
  if (what == Wrong::leaves_early && rank == 1) return;
  if (what == Wrong::never_meets && rank == 1) wait_for_phase(barriers, 0);
  if (what == Wrong::has_no_barrier) meet_cluster();
  if (what == Wrong::is_not_there || what == Wrong::has_no_barrier)
    cpu::arrive_in_phase_of(HERE, 1 - rank, barriers);
  cpu::go_on();
  meet_cluster();
}

// Where the first row of 128 bytes begins that a unit takes.
__device__ inline float* first_row(float* dynamic) {
  const unsigned behind = cpu::shared_address(dynamic) % 128;
  return dynamic + (128 - behind) % 128 / sizeof(float);
}

// What may go wrong where thread 0 adds 32 floats, 0 to 31, to those at `to`.
enum class AddMistake { none, no_fence, not_ended, beside_chunks };
__global__ void add_floats(float* to, bool adds, AddMistake mistake) {
  DYNAMIC_SHARED(float, dynamic);
  float* from = first_row(dynamic);
  from[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (mistake != AddMistake::no_fence) cpu::fence_for_units();
  __syncthreads();  // all of them are there, for the units too
  if (threadIdx.x > 0) return;
  cpu::begin_store(HERE, to + (mistake == AddMistake::beside_chunks ? 1 : 0), from, 128, adds);
  cpu::go_on();
  if (mistake != AddMistake::not_ended) cpu::end_stores(cpu::caller_number());
  cpu::wait_for_stores(HERE, true);
  cpu::go_on();
}

// A unit loads 32 floats, the threads add 1 to them, and the unit loads them once more.
__global__ void load_twice(const cpu::TensorMap map, int* out, bool fenced) {
  DYNAMIC_SHARED(float, dynamic);
  float* box = first_row(dynamic);
  auto* full = reinterpret_cast<std::uint64_t*>(box + 32);
  if (threadIdx.x == 0) {
    cpu::init_phases(HERE, full, 1);
    cpu::publish_phases();
  }
  for (unsigned round = 0; round < 2; ++round) {
    __syncthreads();  // the barrier is there, or nobody changes the box any more
    if (threadIdx.x == 0) {
      const int at[] = {0, 0, 0, 0};
      cpu::arrive_in_phase(HERE, full, 128);
      cpu::begin_load(HERE, box, map, at, full);
      cpu::go_on();
    }
    wait_for_phase(full, round);
    out[threadIdx.x] = static_cast<int>(box[threadIdx.x]);
    box[threadIdx.x] += 1;
    if (fenced) cpu::fence_for_units();
  }
}

__global__ void wait_for_nothing() {
  DYNAMIC_SHARED(std::uint64_t, barriers);
  wait_for_phase(barriers, 0);
}

__global__ void uses_shared(int* out) {
  DYNAMIC_SHARED(int, shared);
  shared[threadIdx.x] = 1;
  out[threadIdx.x] = shared[threadIdx.x];
}

struct Numbers {
  Numbers() {
    HIP_CHECK(hipMalloc(&data, kThreads * sizeof(int)));
    HIP_CHECK(hipMemset(data, 0, kThreads * sizeof(int)));
  }
  ~Numbers() {
    static_cast<void>(hipFree(data));
    static_cast<void>(hipGetLastError());  // after a reset it is freed already
  }
  int at(unsigned thread) {
    int host[kThreads];
    HIP_CHECK(hipMemcpy(host, data, sizeof host, hipMemcpyDeviceToHost));
    return host[thread];
  }
  int* data = nullptr;
};

// seen[b]: has block b waited for the launch before this one? Block `waits` does.
__global__ void tell_waiting(int* seen, unsigned waits) {
  if (blockIdx.x == waits) gpu::wait_for_launch_before();
  if (threadIdx.x == 0) seen[blockIdx.x] = blockIdx.x == waits ? 1 : 0;
}

template <class Launch>
std::string diagnosis_of(Launch&& launch) {
  launch();
  REQUIRE(hipDeviceSynchronize() == hipErrorLaunchFailure);
  const std::string line = cpu::last_diagnosis();
  REQUIRE(hipDeviceReset() == hipSuccess);
  return line;
}

}  // namespace

TEST_CASE("threads wait for phases, round after round") {
  Numbers seen;
  LAUNCH(count_in_phases, 1, kThreads, kBytes, seen.data, 10, int{kThreads} - 1);
  for (unsigned thread = 1; thread < kThreads; ++thread) CHECK(seen.at(thread) == 45);
}

TEST_CASE("barriers with numbers let a part of a block meet, and tell its vote") {
  Numbers seen;
  LAUNCH(meet_in_halves, 1, kThreads, 0, seen.data, 3u);
  CHECK(seen.at(0) == 5);
  CHECK(seen.at(kThreads / 2 - 1) == 5);
  CHECK(seen.at(kThreads / 2) == 0);
}

TEST_CASE("a launch that begins early waits for the one before it, in some block", "[early]") {
  Numbers seen;
  const auto launch = [&](unsigned waits) {
    LAUNCH_EARLY(nullptr, tell_waiting, 3, 32, 0, seen.data, waits);
  };
  launch(1);  // the others have nothing to read
  for (unsigned block = 0; block < 3; ++block) CHECK(seen.at(block) == (block == 1 ? 1 : 0));
  CHECK(contains_text(diagnosis_of([&] { launch(3); }),
                      "kernel tell_waiting: it begins early, and none of its threads calls "
                      "wait_for_launch_before()"));
}

TEST_CASE("blocks of a cluster wait for one another", "[clusters]") {
  for (const unsigned blocks : {1u, 2u, 5u, 8u}) {
    CAPTURE(blocks);
    Numbers sum;
    LAUNCH_ON_CPU(nullptr, blocks, pass_round, blocks, kThreads, kBytes, sum.data, 3, blocks);
    HIP_CHECK(hipDeviceSynchronize());
    int want = 0;
    for (unsigned i = 0; i < 3 * blocks; ++i) want = want * 2 + static_cast<int>(i % blocks);
    CHECK(sum.at(0) == want);
  }
}

TEST_CASE("blocks of a cluster read one another's shared memory, as long as it is there",
          "[clusters]") {
  Numbers sums;
  const auto launch = [&](unsigned blocks, bool too_late) {
    LAUNCH_ON_CPU(nullptr, blocks, read_each_other, blocks, 32, kBytes, sums.data, blocks,
                  too_late);
  };
  launch(5, false);
  for (unsigned block = 0; block < 5; ++block) CHECK(sums.at(block) == 105);
  // It is there as long as the block; who reads before it ends waits for it in vain.
  CHECK(contains_text(diagnosis_of([&] { launch(2, true); }), "has ended"));
}

TEST_CASE("many clusters run, each on its own", "[clusters]") {
  Numbers seen;
  const auto launch = [&](unsigned blocks, unsigned together) {
    LAUNCH_ON_CPU(nullptr, together, tell_rank, blocks, 32, 0, seen.data);
    HIP_CHECK(hipDeviceSynchronize());
  };
  launch(24, 3);
  for (unsigned i = 0; i < 24; ++i) CHECK(seen.at(i) == static_cast<int>(i % 3));
  REQUIRE_THROWS_AS(launch(24, 5), gpu::Error);
  REQUIRE_THROWS_AS(launch(18, 9), gpu::Error);
}

TEST_CASE("who waits for ever in a cluster is named, and whose memory is not there", "[clusters]") {
  const auto say = [](Wrong what) {
    return diagnosis_of(
        [&] { LAUNCH_ON_CPU(nullptr, 2, wrong_in_cluster, 2, kThreads, kBytes, what); });
  };
  CHECK(contains_text(say(Wrong::leaves_early),
                      "for all threads of the cluster, where block (0,0,0) has 64 of 64 there, "
                      "block (1,0,0) has ended, and no other thread can go on"));
  const std::string meets = say(Wrong::never_meets);
  CHECK(contains_text(meets, "block (1,0,0): thread ("));
  CHECK(contains_text(meets, "for phase 0 of barrier 0 in the order of init(), which has 0 of 1"));
  CHECK(contains_text(say(Wrong::has_no_barrier), "the barrier is not initialized in block ("));
  CHECK(contains_text(say(Wrong::is_not_there), "of the cluster has not begun"));
}

TEST_CASE("a unit stores floats, or adds them to those that are there") {
  float* sums = nullptr;
  HIP_CHECK(hipMalloc(&sums, 33 * sizeof(float)));
  const auto launch = [&](bool adds, AddMistake mistake) {
    LAUNCH(add_floats, 1, 32, 512, sums, adds, mistake);
  };
  launch(false, AddMistake::none), launch(true, AddMistake::none), launch(true, AddMistake::none);
  float host[32];
  HIP_CHECK(hipMemcpy(host, sums, sizeof host, hipMemcpyDeviceToHost));
  for (int i = 0; i < 32; ++i) CHECK(host[i] == static_cast<float>(3 * i));
  const auto say = [&](AddMistake mistake) {
    const std::string line = diagnosis_of([&] { launch(true, mistake); });
    HIP_CHECK(hipMalloc(&sums, 33 * sizeof(float)));  // after the reset
    return line;
  };
  CHECK(contains_text(say(AddMistake::no_fence), "no thread with fence_for_tma() has filled"));
  CHECK(contains_text(say(AddMistake::not_ended), "stores have not read its shared memory yet"));
  CHECK(contains_text(say(AddMistake::beside_chunks), "to multiples of 16 bytes"));
  HIP_CHECK(hipFree(sums));
}

TEST_CASE("a unit overwrites what threads have changed, if they have called the fence") {
  float* numbers = nullptr;
  HIP_CHECK(hipMalloc(&numbers, 32 * sizeof(float)));
  float host[32];
  for (int i = 0; i < 32; ++i) host[i] = static_cast<float>(i);
  HIP_CHECK(hipMemcpy(numbers, host, sizeof host, hipMemcpyHostToDevice));
  Numbers seen;
  const std::uint64_t sizes[] = {32, 1}, row_bytes[] = {128};
  const unsigned box[] = {32, 1};
  const auto map = cpu::tensor_map(numbers, sizeof(float), 2, sizes, row_bytes, box, false);
  LAUNCH(load_twice, 1, 32, 512, map, seen.data, true);
  for (unsigned thread = 0; thread < 32; ++thread)
    CHECK(seen.at(thread) == static_cast<int>(thread));
  const std::string line =
      diagnosis_of([&] { LAUNCH(load_twice, 1, 32, 512, map, seen.data, false); });
  CHECK(contains_text(line, "overwrites what threads have changed, without fence_for_tma()"));
}

TEST_CASE("who waits for ever is named, with barrier and phase") {
  Numbers seen;
  const std::string late = diagnosis_of(
      [&] { LAUNCH(count_in_phases, 1, kThreads, kBytes, seen.data, 10, int{kThreads}); });
  CHECK(contains_text(late, "kernel count_in_phases, block (0,0,0): thread ("));
  CHECK(contains_text(late, "waits at wait_for_phase() events_test.hip:"));
  CHECK(contains_text(late, "for phase 1 of barrier 0 in the order of init(), which has 0 of 1"));
  const std::string number = diagnosis_of([&] { LAUNCH(meet_as, 1, kThreads - 1, 0, kThreads); });
  CHECK(contains_text(number, "barrier number 3, where 63 of 64 threads have arrived"));
}

TEST_CASE("barriers used in ways that do not fit are reported") {
  const std::string counts = diagnosis_of([] { LAUNCH(meet_as, 1, kThreads, 0, 32); });
  CHECK(contains_text(counts, "barrier 3 of "));
  const std::string none = diagnosis_of([] { LAUNCH(wait_for_nothing, 1, 1, kBytes); });
  CHECK(contains_text(none, "thread (0,0,0) at wait_for_phase() events_test.hip:"));
  CHECK(contains_text(none, "the barrier is not initialized"));
}

TEST_CASE("a kernel that asks gets more shared memory, up to what sm_90 has") {
  Numbers out;
  constexpr size_t kMuch = 200 * 1024;
  const auto launch = [&] {
    LAUNCH(uses_shared, 1, kThreads, kMuch, out.data);
    HIP_CHECK(hipDeviceSynchronize());
  };
  REQUIRE_THROWS_AS(launch(), gpu::Error);
  REQUIRE_THROWS_AS(gpu::allow_shared_bytes(uses_shared, cpu::Device::kMostSharedBytes + 1),
                    gpu::Error);
  gpu::allow_shared_bytes(uses_shared, kMuch);
  launch();
  CHECK(out.at(kThreads - 1) == 1);
}
