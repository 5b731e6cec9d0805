// The orders in which blocks and threads run. A kernel writes down when which thread was where;
// under ThreadSanitizer that would be a race, and the order is that of the blocks alone.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "common/cpu/block.h"
#include "common/gpu.h"
#include "common/testing.h"
#include "common/tests/child.h"

namespace {

constexpr int kThreads = 96, kPlaces = 4;  // three waves of 32

// At each of its four places a thread notes place * kThreads + thread: with a wave operation
// between the first two, a barrier, and a wave operation between the last two.
__global__ void note_places(int* notes, int* count) {
  const int thread = static_cast<int>(threadIdx.x);
  notes[(*count)++] = thread;
  gpu::wave_sync();
  notes[(*count)++] = kThreads + thread;
  __syncthreads();
  notes[(*count)++] = 2 * kThreads + thread;
  gpu::wave_sync();
  notes[(*count)++] = 3 * kThreads + thread;
}

__global__ void note_block(int* notes, int* count) {
  notes[(*count)++] = static_cast<int>(blockIdx.x + gridDim.x * blockIdx.y);
}

// The second wave reads what the first one writes.
__global__ void hand_on(int* out, int with_barrier) {
  __shared__ int values[32];
  if (threadIdx.x < 32) values[threadIdx.x] = 7;
  if (with_barrier != 0) __syncthreads();  // the values are there
  if (threadIdx.x >= 32) out[threadIdx.x - 32] = values[threadIdx.x - 32];
}

template <class Launch>
std::vector<int> notes_of(size_t n, Launch&& launch) {
  int *notes, *count;
  HIP_CHECK(hipMalloc(&notes, n * sizeof(int)));
  HIP_CHECK(hipMalloc(&count, sizeof(int)));
  HIP_CHECK(hipMemset(count, 0, sizeof(int)));
  launch(notes, count);
  std::vector<int> host(n);
  HIP_CHECK(hipMemcpy(host.data(), notes, n * sizeof(int), hipMemcpyDeviceToHost));
  HIP_CHECK(hipFree(notes));
  HIP_CHECK(hipFree(count));
  return host;
}

void print_notes(const std::vector<int>& notes) {
  std::printf("notes:");
  for (const int note : notes) std::printf(" %d", note);
  std::printf("\n");
}

// What the child `name` notes in that order, on one host thread.
std::vector<int> notes_in(const std::string& order, const std::string& name) {
  const Outcome outcome =
      run_child(name, "HIP_CPU_THREADS=1 HIP_CPU_WAVE=32 HIP_CPU_ORDER=" + order);
  const size_t begin = outcome.text.find("notes:");
  INFO(outcome.text);
  REQUIRE(begin != std::string::npos);
  std::istringstream numbers(outcome.text.substr(begin + 6));
  std::vector<int> notes;
  for (int note; numbers >> note;) notes.push_back(note);
  return notes;
}

std::vector<int> places_in(const std::string& order) { return notes_in(order, "child: places"); }
std::vector<int> blocks_in(const std::string& order) { return notes_in(order, "child: blocks"); }

// Those notes for which `wanted` holds, in their order.
template <class Wanted>
std::vector<int> only(const std::vector<int>& notes, Wanted&& wanted) {
  std::vector<int> some;
  std::copy_if(notes.begin(), notes.end(), std::back_inserter(some), wanted);
  return some;
}

int place_of(int note) { return note / kThreads; }
int wave_of(int note) { return note % kThreads / 32; }

std::vector<int> sorted(std::vector<int> notes) {
  std::sort(notes.begin(), notes.end());
  return notes;
}

std::vector<int> count_up(int n) {
  std::vector<int> numbers(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) numbers[static_cast<size_t>(i)] = i;
  return numbers;
}

std::vector<int> count_down(int n) {
  std::vector<int> numbers = count_up(n);
  std::reverse(numbers.begin(), numbers.end());
  return numbers;
}

}  // namespace

TEST_CASE("child: places", "[.child]") {
  print_notes(notes_of(kPlaces * kThreads, [](int* notes, int* count) {
    LAUNCH(note_places, 1, kThreads, 0, notes, count);
  }));
}
TEST_CASE("child: blocks", "[.child]") {
  print_notes(notes_of(
      15, [](int* notes, int* count) { LAUNCH(note_block, dim3(5, 3), 1, 0, notes, count); }));
}
TEST_CASE("child: hands on without a barrier", "[.child]") {
  const std::vector<int> values =
      notes_of(32, [](int* out, int*) { LAUNCH(hand_on, 1, 64, 0, out, 0); });
  REQUIRE(values == std::vector<int>(32, 7));
}
TEST_CASE("child: hands on behind a barrier", "[.child]") {
  const std::vector<int> values =
      notes_of(32, [](int* out, int*) { LAUNCH(hand_on, 1, 64, 0, out, 1); });
  REQUIRE(values == std::vector<int>(32, 7));
}

#if !defined(COURSE_SANITIZE_THREAD)
TEST_CASE("every thread is at every place once, in every order") {
  for (const char* order : {"forward", "reverse", "waves", "random:1", "random:2"}) {
    CAPTURE(order);
    CHECK(sorted(places_in(order)) == count_up(kPlaces * kThreads));
    CHECK(sorted(blocks_in(order)) == count_up(15));
  }
}

TEST_CASE("forward: threads start first to last, the waves take turns behind a barrier") {
  const std::vector<int> notes = places_in("forward");
  CHECK(only(notes, [](int note) { return place_of(note) == 0; }) == count_up(kThreads));
  const std::vector<int> behind = only(notes, [](int note) { return place_of(note) >= 2; });
  // The last wave reaches its wave operation before the first one has left its own.
  const auto reached = std::find(behind.begin(), behind.end(), 2 * kThreads + 64);
  const auto left = std::find(behind.begin(), behind.end(), 3 * kThreads);
  CHECK(reached < left);
  CHECK(blocks_in("forward") == count_up(15));
}

TEST_CASE("reverse: last to first, behind wave operations too") {
  const std::vector<int> notes = places_in("reverse");
  for (int place = 0; place < kPlaces; ++place) {
    CAPTURE(place);
    std::vector<int> here = only(notes, [&](int note) { return place_of(note) == place; });
    for (int& note : here) note %= kThreads;
    CHECK(here == count_down(kThreads));
  }
  CHECK(blocks_in("reverse") == count_down(15));
}

TEST_CASE("waves: a wave runs as far as it gets, the last one first") {
  std::vector<int> expected;
  for (const int first_place : {0, 2})  // before and behind the barrier
    for (int wave = 2; wave >= 0; --wave)
      for (const int place : {first_place, first_place + 1})
        for (int lane = 0; lane < 32; ++lane)
          expected.push_back(place * kThreads + wave * 32 + lane);
  CHECK(places_in("waves") == expected);
}

TEST_CASE("random: the seed says in which order, at every place and among the blocks") {
  const std::vector<int> first = places_in("random:1"), second = places_in("random:2");
  CHECK(first == places_in("random:1"));
  for (int place = 0; place < kPlaces; ++place) {
    CAPTURE(place);
    const auto here = [&](int note) { return place_of(note) == place; };
    CHECK(only(first, here) != only(second, here));
    CHECK(only(first, here) != sorted(only(first, here)));
    // The lanes of one wave, too, behind the barrier and behind the wave operations.
    const auto in_wave = [&](int note) { return here(note) && wave_of(note) == 1; };
    CHECK(only(first, in_wave) != only(second, in_wave));
    CHECK(only(first, in_wave) != sorted(only(first, in_wave)));
  }
  // Some thread gets behind its first wave operation before another one has started.
  const auto passed =
      std::find_if(first.begin(), first.end(), [](int n) { return place_of(n) == 1; });
  CHECK(std::any_of(passed, first.end(), [](int note) { return place_of(note) == 0; }));
  const std::vector<int> blocks = blocks_in("random:1");
  CHECK(blocks != count_up(15));
  CHECK(blocks != count_down(15));
  CHECK(blocks != blocks_in("random:2"));
}

TEST_CASE("waves that hand on without a barrier are told apart, with one they are right") {
  const auto is_right = [](const char* child, const std::string& order) {
    return run_child(child, "HIP_CPU_WAVE=32 HIP_CPU_POISON=1 HIP_CPU_ORDER=" + order).exit_code ==
           0;
  };
  CHECK(is_right("child: hands on without a barrier", "forward"));
  CHECK_FALSE(is_right("child: hands on without a barrier", "waves"));
  CHECK_FALSE(is_right("child: hands on without a barrier", "reverse"));
  for (const char* order : {"forward", "reverse", "waves", "random:1"}) {
    CAPTURE(order);
    CHECK(is_right("child: hands on behind a barrier", order));
  }
}
#endif
