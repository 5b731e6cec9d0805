// The host threads that help with a launch. For common/cpu/*.cpp and the backend's benchmark only.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace cpu {

// Threads that wait for work. The caller of run() works too and never waits for a helper that has
// not begun: on a busy machine that may take milliseconds, in which the caller is done by itself.
class Pool {
 public:
  explicit Pool(int helpers) {
    for (int i = 0; i < helpers; ++i) std::thread([this] { help(); }).detach();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Calls work(argument) here and on every helper that is free in time; it must return when nothing
  // is left to do. Returns when all who have begun have returned. One caller at a time: others do
  // their work alone.
  void run(void (*work)(void*), void* argument) {
    const std::unique_lock<std::mutex> caller(callers_, std::try_to_lock);
    if (!caller.owns_lock()) return work(argument);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      work_ = work, argument_ = argument;
      ++task_;
    }
    begun_.notify_all();
    work(argument);
    std::unique_lock<std::mutex> lock(mutex_);
    work_ = nullptr;  // whoever wakes up now goes back to sleep
    ended_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  [[noreturn]] void help() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (unsigned long last = 0;;) {
      begun_.wait(lock, [&] { return work_ != nullptr && task_ != last; });
      last = task_;
      ++busy_;
      void (*const work)(void*) = work_;
      void* const argument = argument_;
      lock.unlock();
      work(argument);
      lock.lock();
      if (--busy_ == 0) ended_.notify_one();
    }
  }

  std::mutex callers_, mutex_;
  std::condition_variable begun_, ended_;
  void (*work_)(void*) = nullptr;
  void* argument_ = nullptr;
  unsigned long task_ = 0;
  int busy_ = 0;
};

// The one pool, as many threads as device().threads together with the caller. Never destroyed: its
// threads wait until the process ends.
Pool& pool();

}  // namespace cpu
