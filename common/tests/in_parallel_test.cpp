#include "common/in_parallel.h"

#include <atomic>
#include <mutex>
#include <set>

#include "common/testing.h"

TEST_CASE("the parts of in_parallel are all of it, once") {
  for (const size_t count : {0, 1, 2, 7, 64, 1000})
    for (const size_t least : {1, 3, 64})
      for (const size_t threads : {1, 2, 5}) {
        CAPTURE(count, least, threads);
        std::vector<std::atomic<int>> times(count);
        std::atomic<size_t> parts{0};
        std::atomic<bool> is_short{false};
        in_parallel(count, least, threads, [&](size_t first, size_t last) {
          ++parts;
          if (last - first < std::min(least, count)) is_short = true;
          for (size_t i = first; i < last; ++i) ++times[i];
        });
        REQUIRE(parts == std::min(threads, std::max<size_t>(1, count / least)));
        REQUIRE(!is_short);
        for (const std::atomic<int>& of : times) REQUIRE(of == 1);
      }
}

TEST_CASE("in_parallel runs each part on a thread of its own, and one on the caller's") {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  in_parallel(4, 1, 4, [&](size_t, size_t) {
    const std::lock_guard<std::mutex> lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  REQUIRE(threads.count(std::this_thread::get_id()) == 1);
  REQUIRE(threads.size() > 1);
}
