// The pool alone, on a source that counts; every allocator on the trace of a training run.
#include "stage0_infra/05_memory_pool/memory_pool.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <unordered_map>
#include <vector>

#include "common/device_buffer.h"
#include "common/testing.h"
#include "stage0_infra/05_memory_pool/pool.h"
#include "stage0_infra/05_memory_pool/trace.h"

using memory_pool::Pool;
using memory_pool::Source;

namespace {

// A source that counts its calls and has only so much memory. It hands out host memory: the pool
// never looks into a block.
namespace counted {
std::atomic<size_t> calls{0}, live_blocks{0};
size_t capacity = 0, used = 0;
std::unordered_map<void*, size_t> sizes;

hipError_t allocate(void** block, size_t bytes) {
  ++calls;
  if (used + bytes > capacity) return hipErrorOutOfMemory;
  *block = std::malloc(1);
  sizes[*block] = bytes;
  used += bytes;
  ++live_blocks;
  return hipSuccess;
}
hipError_t free(void* block) {
  used -= sizes.at(block);
  sizes.erase(block);
  --live_blocks;
  std::free(block);
  return hipSuccess;
}

Source source(size_t bytes) {
  calls = 0, live_blocks = 0, used = 0, capacity = bytes;
  sizes.clear();
  return {allocate, free};
}
}  // namespace counted

constexpr size_t kPlenty = size_t{1} << 40;

}  // namespace

TEST_CASE("a size class holds what was asked for, and at most a quarter more") {
  for (size_t c = 1; c < memory_pool::kClasses; ++c)
    REQUIRE(memory_pool::class_bytes(c) > memory_pool::class_bytes(c - 1));
  std::vector<size_t> sizes{1, 255, 256, 257, 1000003, size_t{1} << 33, (size_t{1} << 40) + 1};
  for (size_t c = 0; c + 1 < memory_pool::kClasses; ++c)
    for (const size_t near : {size_t{0}, size_t{1}})
      sizes.push_back(memory_pool::class_bytes(c) + near);
  for (const size_t bytes : sizes) {
    CAPTURE(bytes);
    const size_t c = memory_pool::class_of(bytes);
    REQUIRE(c < memory_pool::kClasses);
    REQUIRE(memory_pool::class_bytes(c) >= bytes);
    if (c > 0) {
      REQUIRE(memory_pool::class_bytes(c - 1) < bytes);  // the smallest that holds it
      REQUIRE(memory_pool::class_bytes(c) - bytes <= bytes / 4);
    }
  }
  REQUIRE(memory_pool::class_of(~size_t{0}) == memory_pool::kClasses);
}

TEST_CASE("a freed block serves the next request of its class") {
  Pool pool(counted::source(kPlenty));
  void* first = pool.allocate(1000);
  pool.free(first);
  void* second = pool.allocate(900);
  REQUIRE(second == first);
  REQUIRE(counted::calls == 1);
  void* third = pool.allocate(900);  // the list is empty again
  REQUIRE(third != second);
  REQUIRE(counted::calls == 2);
  void* other_class = pool.allocate(5000);
  REQUIRE(counted::calls == 3);
  pool.free(second), pool.free(third), pool.free(other_class);
}

TEST_CASE("the books balance") {
  Pool pool(counted::source(kPlenty));
  void* a = pool.allocate(1000);  // class of 1024
  void* b = pool.allocate(256);
  REQUIRE(pool.statistics().live == 1256);
  REQUIRE(pool.statistics().waste == 24);
  REQUIRE(pool.statistics().cached == 0);
  REQUIRE(pool.statistics().misses == 2);
  REQUIRE(pool.statistics().peak == 1280);
  pool.free(a);
  REQUIRE(pool.statistics().live == 256);
  REQUIRE(pool.statistics().waste == 0);
  REQUIRE(pool.statistics().cached == 1024);
  void* c = pool.allocate(1020);
  REQUIRE(pool.statistics().hits == 1);
  REQUIRE(pool.statistics().cached == 0);
  REQUIRE(pool.statistics().peak == 1280);
  pool.free(b), pool.free(c);
  REQUIRE(pool.statistics().live == 0);
  REQUIRE(pool.statistics().cached == 1280);
  pool.release();
  REQUIRE(pool.statistics().cached == 0);
  REQUIRE(counted::live_blocks == 0);
}

TEST_CASE("nothing asked for, nothing given") {
  Pool pool(counted::source(kPlenty));
  REQUIRE(pool.allocate(0) == nullptr);
  pool.free(nullptr);
  REQUIRE(counted::calls == 0);
}

TEST_CASE("a block that is not the pool's, or was freed already, is refused") {
  Pool pool(counted::source(kPlenty));
  void* block = pool.allocate(100);
  int other = 0;
  REQUIRE_THROWS_AS(pool.free(&other), std::invalid_argument);
  pool.free(block);
  REQUIRE_THROWS_AS(pool.free(block), std::invalid_argument);
  REQUIRE(pool.statistics().cached == 256);
}

TEST_CASE("out of memory: the cache is given back before the pool gives up") {
  Pool pool(counted::source(4096));
  void* small[4];
  for (void*& block : small) block = pool.allocate(1024);
  for (void* block : small) pool.free(block);
  REQUIRE(counted::live_blocks == 4);
  void* large = pool.allocate(4096);  // fits only once the four are gone
  REQUIRE(counted::live_blocks == 1);
  REQUIRE(pool.statistics().cached == 0);

  int code = hipSuccess;
  try {
    pool.allocate(256);
  } catch (const gpu::Error& error) {
    code = error.code;
  }
  REQUIRE(code == hipErrorOutOfMemory);
  REQUIRE(pool.statistics().live == 4096);  // a failed request leaves no trace
  pool.free(large);
  pool.free(pool.allocate(256));  // and the pool goes on
}

TEST_CASE("a size beyond every class is out of memory without asking") {
  Pool pool(counted::source(kPlenty));
  REQUIRE_THROWS_AS(pool.allocate(~size_t{0}), gpu::Error);
  REQUIRE(counted::calls == 0);
}

TEST_CASE("the destructor gives back every cached block") {
  {
    Pool pool(counted::source(kPlenty));
    std::vector<void*> blocks;
    for (size_t i = 0; i < 100; ++i) blocks.push_back(pool.allocate(100 + 37 * i));
    for (void* block : blocks) pool.free(block);
    REQUIRE(counted::live_blocks == 100);
  }
  REQUIRE(counted::live_blocks == 0);
}

TEST_CASE("the trace frees what it allocates, once, and is the same for the same seed") {
  const auto trace = memory_pool::training_trace(10, 100, 3);
  std::set<size_t> live;
  for (const auto& event : trace.events) {
    if (event.bytes != 0)
      REQUIRE(live.insert(event.id).second);
    else
      REQUIRE(live.erase(event.id) == 1);
  }
  REQUIRE(live.empty());
  REQUIRE(trace.blocks == trace.events.size() / 2);
  const auto sum = [](const memory_pool::Trace& t) {
    size_t total = 0;
    for (const auto& event : t.events) total += event.bytes;
    return total;
  };
  REQUIRE(sum(memory_pool::training_trace(10, 100, 3)) == sum(trace));
  REQUIRE(sum(memory_pool::training_trace(10, 100, 4)) != sum(trace));
}

TEST_CASE("every allocator keeps the blocks of a training run apart") {
  const auto trace = memory_pool::training_trace(2, 65, 1);
  for (const auto& version : memory_pool::kVersions) {
    CAPTURE(version.name);
    const auto allocator = version.launch();
    if (allocator == nullptr) continue;
    REQUIRE(memory_pool::count_damaged(trace, *allocator) == 0);
  }
}

TEST_CASE("an allocator that hands out one block twice is found out") {
  class Faulty : public memory_pool::Allocator {
   public:
    void* allocate(size_t) override { return shared_.data(); }
    void free(void*) override {}

   private:
    gpu::DeviceBuffer<unsigned char> shared_{size_t{1} << 20};
  } faulty;
  REQUIRE(memory_pool::count_damaged(memory_pool::training_trace(1, 16, 1), faulty) > 0);
}

TEST_CASE("after one step of training the pool asks the device no more") {
  Pool pool;
  const auto trace = memory_pool::training_trace(1, 64, 1);
  std::vector<void*> blocks(trace.blocks);
  memory_pool::replay(trace, pool, blocks);
  const size_t misses = pool.statistics().misses;
  REQUIRE(misses > 0);
  REQUIRE(misses < trace.blocks);
  memory_pool::replay(trace, pool, blocks);
  REQUIRE(pool.statistics().misses == misses);
  REQUIRE(pool.statistics().live == 0);
}

TEST_CASE("threads share a pool") {
  constexpr int kThreads = 4, kRounds = 2000;
  Pool pool(memory_pool::kDeviceMemory);
  std::mutex mutex;
  std::set<void*> handed_out;
  std::atomic<int> shared_blocks{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        void* block = pool.allocate(static_cast<size_t>(256 * (1 + (t + round) % 5)));
        {
          const std::lock_guard<std::mutex> lock(mutex);
          if (!handed_out.insert(block).second) ++shared_blocks;
        }
        std::this_thread::yield();
        {
          const std::lock_guard<std::mutex> lock(mutex);
          handed_out.erase(block);
        }
        pool.free(block);
      }
    });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(shared_blocks == 0);
  const auto books = pool.statistics();
  REQUIRE(books.hits + books.misses == kThreads * kRounds);
  REQUIRE(books.live == 0);
  REQUIRE(books.misses <= 5 * kThreads);
}
