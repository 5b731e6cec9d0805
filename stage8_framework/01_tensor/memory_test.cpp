// The allocator that splits and joins, on a source that counts; tensors that run out of memory.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/testing.h"
#include "stage0_infra/05_memory_pool/trace.h"
#include "stage8_framework/01_tensor/gpu_device.h"
#include "stage8_framework/01_tensor/handle.h"
#include "stage8_framework/01_tensor/tensor.h"
#include "stage8_framework/01_tensor/views_for_tests.h"

using framework::Tensor;
using tensor::Splitting;
using tensor_test::Random;

namespace {

// What a source has handed out. Its addresses are never followed.
struct Books {
  std::map<char*, size_t> segments;
  size_t capacity = size_t{1} << 40, used = 0, calls = 0;
  bool is_sound = true;  // only what was handed out came back, once

  bool holds(const char* begin, size_t bytes) const {
    for (const auto& [segment, size] : segments)
      if (begin >= segment && begin + bytes <= segment + size) return true;
    return false;
  }
};

class Counted : public memory_pool::Allocator {
 public:
  explicit Counted(Books& books) : books_(books) {}
  void* allocate(size_t bytes) override {
    ++books_.calls;
    if (books_.used + bytes > books_.capacity) HIP_CHECK(hipErrorOutOfMemory);
    char* const block = next_;
    next_ += bytes + 4096;  // segments are no neighbours
    books_.segments[block] = bytes;
    books_.used += bytes;
    return block;
  }
  void free(void* block) override {
    const auto found = books_.segments.find(static_cast<char*>(block));
    books_.is_sound = books_.is_sound && found != books_.segments.end();
    if (found == books_.segments.end()) return;
    books_.used -= found->second;
    books_.segments.erase(found);
  }

 private:
  Books& books_;
  char* next_ = reinterpret_cast<char*>(std::uintptr_t{1} << 32);
};

hipStream_t stream(std::uintptr_t number) { return reinterpret_cast<hipStream_t>(number * 64); }

}  // namespace

TEST_CASE("100000 random requests: no two blocks overlap, and everything goes back") {
  Books books;
  Random random(5);
  {
    Splitting pool(std::make_unique<Counted>(books));
    std::map<char*, size_t> live;
    std::vector<char*> blocks;
    for (int event = 0; event < 100000; ++event) {
      if (blocks.size() < 300 && random(100) < (event / 5000 % 2 == 0 ? 60u : 40u)) {
        const size_t bytes = size_t{1} << random(20), wanted = bytes + random(bytes);
        char* block = static_cast<char*>(pool.allocate(wanted, stream(random(3))));
        REQUIRE(reinterpret_cast<std::uintptr_t>(block) % 256 == 0);
        const auto after = live.lower_bound(block);
        REQUIRE((after == live.end() || block + wanted <= after->first));
        if (after != live.begin())
          REQUIRE(std::prev(after)->first + std::prev(after)->second <= block);
        if (event % 100 == 0) REQUIRE(books.holds(block, wanted));
        live[block] = wanted;
        blocks.push_back(block);
      } else if (!blocks.empty()) {
        std::swap(blocks[random(blocks.size())], blocks.back());
        pool.free(blocks.back());
        live.erase(blocks.back());
        blocks.pop_back();
      }
    }
    REQUIRE(pool.statistics().reserved == books.used);
    for (char* block : blocks) pool.free(block);
    REQUIRE(pool.statistics().live == 0);
    pool.release();
    REQUIRE(pool.statistics().reserved == 0);
    REQUIRE(books.segments.empty());
    static_cast<void>(pool.allocate(1));  // it goes on
  }
  REQUIRE(books.is_sound);
}

TEST_CASE("freed neighbours are one block again, in whatever order they are freed") {
  std::vector<int> order{0, 1, 2, 3};
  do {
    Books books;
    Splitting pool(std::make_unique<Counted>(books));
    // A segment to cut up: what was live before makes room for it.
    pool.free(pool.allocate(8192));
    pool.release();
    void* blocks[4];
    for (void*& block : blocks) block = pool.allocate(2048);
    REQUIRE(books.segments.size() == 1);
    for (const int i : order) pool.free(blocks[i]);
    const size_t calls = books.calls;
    void* const all = pool.allocate(8192);
    REQUIRE(books.calls == calls);
    pool.free(all);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("the smallest block that fits is taken") {
  Books books;
  Splitting pool(std::make_unique<Counted>(books));
  pool.free(pool.allocate(337 << 10));
  pool.release();
  // Free blocks of 40, 12, 20 and 80 KB, parted by live ones.
  const std::vector<size_t> sizes{40 << 10, 45 << 10, 12 << 10, 45 << 10,
                                  20 << 10, 45 << 10, 80 << 10, 45 << 10};
  std::vector<char*> blocks;
  for (const size_t bytes : sizes) blocks.push_back(static_cast<char*>(pool.allocate(bytes)));
  for (const size_t i : {0, 2, 4, 6}) pool.free(blocks[i]);
  REQUIRE(books.segments.size() == 1);
  const auto is_from = [&](size_t bytes, size_t i) {
    char* const block = static_cast<char*>(pool.allocate(bytes));
    const bool result = block >= blocks[i] && block + bytes <= blocks[i] + sizes[i];
    pool.free(block);
    return result;
  };
  REQUIRE(is_from(12 << 10, 2));
  REQUIRE(is_from((12 << 10) + 1, 4));
  REQUIRE(is_from(39 << 10, 0));
  REQUIRE(is_from(41 << 10, 6));
}

TEST_CASE("of equally good blocks the first one in memory is taken") {
  for (const bool is_first_freed_last : {false, true}) {
    Books books;
    Splitting pool(std::make_unique<Counted>(books));
    pool.free(pool.allocate(4 << 12));
    pool.release();
    void* blocks[4];
    for (void*& block : blocks) block = pool.allocate(1 << 12);
    REQUIRE(books.segments.size() == 1);
    pool.free(blocks[is_first_freed_last ? 2 : 0]);
    pool.free(blocks[is_first_freed_last ? 0 : 2]);
    REQUIRE(pool.allocate(1 << 12) == blocks[0]);
  }
}

TEST_CASE("a stream gets no memory that another one has freed") {
  Books books;
  Splitting pool(std::make_unique<Counted>(books));
  void* const first = pool.allocate(5000, stream(1));
  pool.free(first);
  void* const other = pool.allocate(5000, stream(2));
  REQUIRE(other != first);
  REQUIRE(pool.allocate(5000, stream(1)) == first);
}

TEST_CASE("out of memory leaves everything usable") {
  Books books;
  books.capacity = 64 << 10;
  Splitting pool(std::make_unique<Counted>(books));
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(pool.allocate(4096, stream(1)));
  for (int i = 0; i < 8; ++i) pool.free(blocks[static_cast<size_t>(i)]);
  // Fits only once the other stream's idle segments are back.
  void* const large = pool.allocate(60 << 10, stream(2));
  for (int round = 0; round < 3; ++round) {
    const auto before = pool.statistics();
    int code = hipSuccess;
    try {
      pool.allocate(8 << 10, stream(1));
    } catch (const gpu::Error& error) {
      code = error.code;
    }
    REQUIRE(code == hipErrorOutOfMemory);
    REQUIRE(
        (pool.statistics().live == before.live && pool.statistics().reserved == before.reserved));
  }
  pool.free(large);
  pool.free(pool.allocate(8 << 10, stream(1)));
  REQUIRE_THROWS_AS(pool.allocate(~size_t{0}), gpu::Error);
  pool.release();
  REQUIRE((books.used == 0 && books.is_sound));
}

TEST_CASE("a block that is not handed out is refused; nothing asked for, nothing given") {
  Books books;
  Splitting pool(std::make_unique<Counted>(books));
  REQUIRE(pool.allocate(0) == nullptr);
  pool.free(nullptr);
  REQUIRE(books.calls == 0);
  void* const block = pool.allocate(100);
  int other = 0;
  REQUIRE_THROWS_AS(pool.free(&other), std::invalid_argument);
  pool.free(block);
  REQUIRE_THROWS_AS(pool.free(block), std::invalid_argument);
  REQUIRE(pool.statistics().live == 0);
}

TEST_CASE("a training takes a tenth more than is live at most, and then asks no more",
          "[harness]") {
  const auto trace = memory_pool::training_trace(100, 1024, 1);  // of 0.5's program
  Books books;
  Splitting pool(std::make_unique<Counted>(books));
  std::vector<void*> blocks(trace.blocks);
  memory_pool::replay(trace, pool, blocks);
  const auto first = pool.statistics();
  REQUIRE(first.peak_reserved <= trace.peak_bytes * 11 / 10);
  memory_pool::replay(trace, pool, blocks);
  REQUIRE(pool.statistics().misses == first.misses);
}

TEST_CASE("every allocator keeps the blocks of a training apart") {
  const auto trace = memory_pool::training_trace(2, 65, 1);
  for (const auto& version : testing::chosen(tensor::kMemoryVersions)) {
    CAPTURE(version.name);
    const auto allocator = version.launch();
    REQUIRE(memory_pool::count_damaged(trace, *allocator) == 0);
  }
}

TEST_CASE("threads share an allocator") {
  constexpr int kThreads = 4, kRounds = 2000;
  Books books;
  {
    Splitting pool(std::make_unique<Counted>(books));
    std::mutex mutex;
    std::set<void*> handed_out;
    bool is_shared = false;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        Random random(t);
        for (int round = 0; round < kRounds; ++round) {
          void* const block = pool.allocate(1 + random(100000), stream(t % 2));
          {
            const std::lock_guard<std::mutex> lock(mutex);
            is_shared = is_shared || !handed_out.insert(block).second;
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
    REQUIRE(!is_shared);
    REQUIRE(pool.statistics().live == 0);
  }
  REQUIRE((books.segments.empty() && books.is_sound));
}

TEST_CASE("a tensor that does not fit says so in one line, and the others live on") {
  // A device of 64 KB, in memory that is there.
  class Small : public memory_pool::Allocator {
   public:
    void* allocate(size_t bytes) override {
      if (used_ + bytes > (64 << 10)) HIP_CHECK(hipErrorOutOfMemory);
      void* const block = raw_->allocate(bytes);
      sizes_[block] = bytes, used_ += bytes;
      return block;
    }
    void free(void* block) override {
      used_ -= sizes_.at(block);
      sizes_.erase(block);
      raw_->free(block);
    }

   private:
    std::unique_ptr<memory_pool::Allocator> raw_ = memory_pool::make_raw();
    std::map<void*, size_t> sizes_;
    size_t used_ = 0;
  };
  tensor::GpuDevice device(nullptr, std::make_unique<Small>());
  const std::vector<float> values = testing::random_floats(10000, 0);
  const Tensor x = Tensor::from_host(device, values, {100, 100});
  const std::string want =
      "a tensor of f32 (100,100), 40000 bytes on " + std::string(gpu::kBackend);
  for (int round = 0; round < 2; ++round) {
    std::string text;
    try {
      static_cast<void>(x.transpose(0, 1).contiguous());
    } catch (const gpu::Error& error) {
      text = error.what();
      REQUIRE(error.code == hipErrorOutOfMemory);
    }
    CHECK(contains_text(text, want));
    CHECK(text.find('\n') == std::string::npos);
    // The copy within a storage needs room for what it reads: refused, and nothing is written.
    REQUIRE_THROWS_AS(x.copy_from(x.transpose(0, 1)), gpu::Error);
    REQUIRE(x.version() == 0);
    REQUIRE(x.to_host<float>() == values);
  }
  const Tensor small = Tensor::empty(device, {1000});
  small.copy_from(x.select(0, 3).expand({10, 100}).contiguous().reshape({1000}));
  REQUIRE(small.to_host<float>()[199] == values[399]);
}
