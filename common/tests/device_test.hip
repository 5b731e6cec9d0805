// What kernels may rely on, the same on every backend: waves, barriers, shared memory, atomics,
// grids.
#include <cstdint>
#include <vector>

#include "common/gpu.h"
#include "common/testing.h"

namespace {

// A device array of the test's own, so that these tests need nothing but HIP.
template <class T>
class Array {
 public:
  explicit Array(size_t n, int byte = 0) : n_(n) {
    HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T)));
    HIP_CHECK(hipMemset(data_, byte, n * sizeof(T)));
  }
  ~Array() { static_cast<void>(hipFree(data_)); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  T* data() { return data_; }
  std::vector<T> host() const {
    std::vector<T> values(n_);
    HIP_CHECK(hipMemcpy(values.data(), data_, n_ * sizeof(T), hipMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t n_;
};

int device_wave_size() {
  int device = 0, size = 0;
  HIP_CHECK(hipGetDevice(&device));
  HIP_CHECK(hipDeviceGetAttribute(&size, hipDeviceAttributeWarpSize, device));
  return size;
}

// ---- Waves ------------------------------------------------------------------------------------

// One block; thread t writes what each operation gave it to out[t * 4 ...].
template <class T>
__global__ void shuffle_all(T* out, int argument) {
  const int t = gpu::thread_rank();
  const T mine = static_cast<T>(1000 + t);
  out[4 * t + 0] = gpu::wave_shfl(mine, argument);
  out[4 * t + 1] = gpu::wave_shfl_up(mine, argument);
  out[4 * t + 2] = gpu::wave_shfl_down(mine, argument);
  out[4 * t + 3] = gpu::wave_shfl_xor(mine, argument);
}

template <class T>
void test_shuffles() {
  const int wave = device_wave_size();
  const int threads = 3 * wave;
  for (int argument = 0; argument < wave; ++argument) {
    CAPTURE(argument);
    Array<T> out(static_cast<size_t>(4 * threads));
    LAUNCH((shuffle_all<T>), 1, static_cast<unsigned>(threads), 0, out.data(), argument);
    const std::vector<T> got = out.host();
    for (int t = 0; t < threads; ++t) {
      const int lane = t % wave, base = t - lane;
      const auto of = [&](int source) {  // outside the wave a lane keeps its own value
        return static_cast<T>(1000 + (source >= 0 && source < wave ? base + source : t));
      };
      const auto at = [&](int k) { return got[static_cast<size_t>(4 * t + k)]; };
      const bool right = at(0) == of(argument) && at(1) == of(lane - argument) &&
                         at(2) == of(lane + argument) && at(3) == of(lane ^ argument);
      if (!right)
        FAIL("thread " << t << ": " << at(0) << " " << at(1) << " " << at(2) << " " << at(3));
    }
  }
}

__global__ void vote(gpu::WaveMask* ballot, int* any_all) {
  const int t = gpu::thread_rank();
  ballot[t] = gpu::wave_ballot(gpu::lane_id() % 3 == 0);
  any_all[4 * t + 0] = gpu::wave_any(gpu::lane_id() == gpu::wave_size() - 1);
  any_all[4 * t + 1] = gpu::wave_any(false);
  any_all[4 * t + 2] = gpu::wave_all(gpu::lane_id() >= 0);
  any_all[4 * t + 3] = gpu::wave_all(gpu::lane_id() != 1);
}

__global__ void who_am_i(int* rank, int* lane, int* wave) {
  const int t = gpu::thread_rank();
  rank[t] = t;
  lane[t] = gpu::lane_id();
  wave[t] = gpu::wave_id();
}

// ---- Barriers and shared memory ---------------------------------------------------------------

// Reverses each row of a block through a 2-D array, in two phases, `rounds` times.
__global__ void reverse_rows(int* out, int rounds) {
  __shared__ int tile[8][33];
  const unsigned x = threadIdx.x, y = threadIdx.y, width = blockDim.x;
  int value = static_cast<int>(100 * y + x);
  for (int round = 0; round < rounds; ++round) {
    tile[y][x] = value;
    __syncthreads();  // the whole tile is written
    value = tile[y][width - 1 - x];
    __syncthreads();  // the whole tile is read and may be written again
  }
  out[(blockIdx.x * blockDim.y + y) * width + x] = value;
}

__global__ void dynamic_sum(int* out, int count) {
  DYNAMIC_SHARED(int, values);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x))
    values[i] = i;
  __syncthreads();  // all values are there
  if (threadIdx.x != 0) return;
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += values[i];
  out[blockIdx.x] = sum;
}

__global__ void counted_barriers(int* out) {
  const int t = static_cast<int>(threadIdx.x);
  const int odd = __syncthreads_count(t % 2);
  const int any = __syncthreads_or(t == 5);
  const int all = __syncthreads_and(t != 5);
  const int none = __syncthreads_or(0);
  out[t] = odd * 8 + (any != 0) * 4 + (all != 0) * 2 + (none != 0);
}

// A wave sums while the other waves wait at the barrier for it.
__global__ void mixed(int* out) {
  __shared__ int partial[gpu::kMaxWaveSize];
  int sum = static_cast<int>(threadIdx.x);
  for (int distance = gpu::wave_size() / 2; distance > 0; distance /= 2)
    sum += gpu::wave_shfl_down(sum, distance);
  if (gpu::lane_id() == 0) partial[gpu::wave_id()] = sum;
  __syncthreads();  // one sum per wave
  if (threadIdx.x != 0) return;
  int total = 0;
  for (int w = 0; w * gpu::wave_size() < static_cast<int>(blockDim.x); ++w) total += partial[w];
  out[blockIdx.x] = total;
}

// ---- Atomics ----------------------------------------------------------------------------------

template <class T>
__global__ void contend(T* cells) {
  const T t = static_cast<T>(blockIdx.x * blockDim.x + threadIdx.x + 1);
  atomicAdd(&cells[0], T{1});
  atomicMax(&cells[1], t);
  atomicMin(&cells[2], t);
  atomicExch(&cells[3], t);
}

__global__ void contend_float(float* single, double* doubles) {
  atomicAdd(single, 1.0f);
  atomicAdd(doubles, 1.0);
}

// A lock per cell out of compare-and-swap: adds one to a plain counter.
__global__ void compare_and_swap(unsigned* counter) {
  unsigned seen = atomicAdd(counter, 0u), assumed;
  do {
    assumed = seen;
    seen = atomicCAS(counter, assumed, assumed + 1);
  } while (seen != assumed);
}

// Blocks that contend. ThreadSanitizer takes some 10 ms for each.
#if defined(COURSE_SANITIZE_THREAD)
constexpr unsigned kContending = 8;
#else
constexpr unsigned kContending = 64;
#endif

template <class T>
void test_atomics() {
  constexpr unsigned kBlocks = kContending, kThreads = 256;
  Array<T> cells(4, 0);
  const T large = static_cast<T>(1 << 30);
  HIP_CHECK(hipMemcpy(cells.data() + 2, &large, sizeof large, hipMemcpyHostToDevice));
  LAUNCH((contend<T>), kBlocks, kThreads, 0, cells.data());
  const std::vector<T> got = cells.host();
  REQUIRE(got[0] == static_cast<T>(kBlocks * kThreads));
  REQUIRE(got[1] == static_cast<T>(kBlocks * kThreads));
  REQUIRE(got[2] == static_cast<T>(1));
  const bool somebody = got[3] >= 1 && got[3] <= static_cast<T>(kBlocks * kThreads);
  REQUIRE(somebody);
}

// ---- Grids ------------------------------------------------------------------------------------

__global__ void mark(unsigned char* seen) {
  const size_t block =
      blockIdx.x + size_t{gridDim.x} * (blockIdx.y + size_t{gridDim.y} * blockIdx.z);
  const size_t threads = size_t{blockDim.x} * blockDim.y * blockDim.z;
  ++seen[block * threads + static_cast<size_t>(gpu::thread_rank())];
}

// Each block adds its neighbour's value of the round before, `rounds` times.
__global__ void pass_round(int* values, int rounds) {
  const unsigned me = blockIdx.x, next = (blockIdx.x + 1) % gridDim.x;
  for (int round = 0; round < rounds; ++round) {
    const int sum = values[me] + values[next];
    gpu::grid_sync();  // every block has read
    if (threadIdx.x == 0) values[me] = sum;
    gpu::grid_sync();  // every block has written
  }
}

}  // namespace

TEST_CASE("shuffles give the right lane for every argument and type") {
  test_shuffles<int>();
  test_shuffles<float>();
  test_shuffles<unsigned long long>();
  test_shuffles<double>();
}

TEST_CASE("ballots and votes see every lane of their own wave") {
  const int wave = device_wave_size(), threads = 2 * wave;
  Array<gpu::WaveMask> ballot(static_cast<size_t>(threads));
  Array<int> any_all(static_cast<size_t>(4 * threads));
  LAUNCH(vote, 1, static_cast<unsigned>(threads), 0, ballot.data(), any_all.data());
  gpu::WaveMask thirds = 0;
  for (int lane = 0; lane < wave; lane += 3) thirds |= gpu::WaveMask{1} << lane;
  for (const gpu::WaveMask got : ballot.host()) REQUIRE(got == thirds);
  const std::vector<int> got = any_all.host();
  for (size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == (i % 4 == 0 || i % 4 == 2));
}

TEST_CASE("threads of a 3-D block are numbered x fastest and split into waves in that order") {
  const int wave = device_wave_size();
  const dim3 block(5, 7, 4);
  Array<int> rank(140), lane(140), number(140);
  LAUNCH(who_am_i, 1, block, 0, rank.data(), lane.data(), number.data());
  const std::vector<int> r = rank.host(), l = lane.host(), w = number.host();
  for (int t = 0; t < 140; ++t) {
    const size_t i = static_cast<size_t>(t);
    const bool right = r[i] == t && l[i] == t % wave && w[i] == t / wave;
    REQUIRE(right);
  }
}

TEST_CASE("barriers separate the phases of a 2-D shared array") {
  for (const unsigned width : {1u, 31u, 32u, 33u}) {
    Array<int> out(3 * 8 * width);
    LAUNCH(reverse_rows, 3, dim3(width, 8), 0, out.data(), 7);
    const std::vector<int> got = out.host();
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t x = i % width, y = i / width % 8;
      REQUIRE(got[i] == static_cast<int>(100 * y + (width - 1 - x)));
    }
  }
}

TEST_CASE("dynamic shared memory is as long as asked for") {
  for (const int count : {1, 100, 8192, 12288}) {
    Array<int> out(2);
    LAUNCH(dynamic_sum, 2, 96, static_cast<size_t>(count) * sizeof(int), out.data(), count);
    for (const int sum : out.host()) REQUIRE(sum == count * (count - 1) / 2);
  }
}

TEST_CASE("barriers with a vote count, or and and the predicates of the block") {
  Array<int> out(97);
  LAUNCH(counted_barriers, 1, 97, 0, out.data());
  for (const int got : out.host()) REQUIRE(got == 48 * 8 + 4);
}

TEST_CASE("waves reduce while others wait at the barrier") {
  Array<int> out(4);
  const unsigned threads = static_cast<unsigned>(4 * device_wave_size());
  LAUNCH(mixed, 4, threads, 0, out.data());
  for (const int sum : out.host()) REQUIRE(sum == static_cast<int>(threads * (threads - 1) / 2));
}

TEST_CASE("atomics lose no update under contention") {
  test_atomics<int>();
  test_atomics<unsigned>();
  test_atomics<unsigned long long>();
  Array<float> single(1);
  Array<double> twice(1);
  LAUNCH(contend_float, kContending, 256, 0, single.data(), twice.data());
  REQUIRE(single.host()[0] == 256.0f * kContending);
  REQUIRE(twice.host()[0] == 256.0 * kContending);
  Array<unsigned> counter(1);
  LAUNCH(compare_and_swap, kContending, 64, 0, counter.data());
  REQUIRE(counter.host()[0] == 64 * kContending);
}

TEST_CASE("every thread of a 3-D grid of 3-D blocks runs once") {
  const dim3 grid(3, 5, 2), block(4, 3, 7);
  Array<unsigned char> seen(30 * 84);
  LAUNCH(mark, grid, block, 0, seen.data());
  for (const unsigned char times : seen.host()) REQUIRE(times == 1);
}

TEST_CASE("a cooperative grid meets in grid_sync") {
  constexpr unsigned kBlocks = 4;
  constexpr int kRounds = 10;
  Array<int> values(kBlocks);
  std::vector<int> want = {1, 2, 3, 4};
  HIP_CHECK(hipMemcpy(values.data(), want.data(), kBlocks * sizeof(int), hipMemcpyHostToDevice));
  LAUNCH_COOPERATIVE(pass_round, kBlocks, 64, 0, values.data(), kRounds);
  HIP_CHECK(hipDeviceSynchronize());
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<int> old = want;
    for (size_t b = 0; b < kBlocks; ++b) want[b] = old[b] + old[(b + 1) % kBlocks];
  }
  REQUIRE(values.host() == want);
}

TEST_CASE("a graph replays kernels with the arguments that it captured") {
  hipStream_t stream;
  HIP_CHECK(hipStreamCreate(&stream));
  Array<unsigned> counter(1);
  hipGraph_t graph;
  hipGraphExec_t executable;
  HIP_CHECK(hipDeviceSynchronize());
  HIP_CHECK(hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal));
  for (int i = 0; i < 3; ++i) LAUNCH_ON(stream, compare_and_swap, 2, 32, 0, counter.data());
  HIP_CHECK(hipStreamEndCapture(stream, &graph));
  HIP_CHECK(hipGraphInstantiateWithFlags(&executable, graph, 0));
  REQUIRE(counter.host()[0] == 0u);
  for (int i = 0; i < 5; ++i) HIP_CHECK(hipGraphLaunch(executable, stream));
  HIP_CHECK(hipStreamSynchronize(stream));
  REQUIRE(counter.host()[0] == 5u * 3 * 64);
  HIP_CHECK(hipGraphExecDestroy(executable));
  HIP_CHECK(hipGraphDestroy(graph));
  HIP_CHECK(hipStreamDestroy(stream));
}
