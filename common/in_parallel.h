// Work on the host that threads share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

// Calls work(first, last) for parts of [0, count) that make up all of it, each on a thread of its
// own: on `threads` of them, or on fewer so that no part is shorter than `least`. The caller's
// thread is one of them. Returns when all parts are done. `work` throws nothing.
template <class Work>
void in_parallel(std::size_t count, std::size_t least, std::size_t threads, Work work) {
  threads = std::min(threads, std::max<std::size_t>(1, count / least));
  const auto begin = [=](std::size_t part) {
    return count / threads * part + std::min(part, count % threads);
  };
  std::vector<std::thread> helpers;
  for (std::size_t t = 1; t < threads; ++t)
    helpers.emplace_back([=] { work(begin(t), begin(t + 1)); });
  work(std::size_t{0}, begin(1));
  for (std::thread& helper : helpers) helper.join();
}

// The same on all of the machine's processors.
template <class Work>
void in_parallel(std::size_t count, std::size_t least, Work work) {
  in_parallel(count, least, std::max(1u, std::thread::hardware_concurrency()), work);
}
