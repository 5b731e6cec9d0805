// What the threads of a block wait for beside the block's barrier: phases, barriers with numbers,
// and asynchronous units. A block has this once it uses any of it. For common/cpu/*.cpp only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "common/cpu/async_copies.h"
#include "common/cpu/async_products.h"
#include "common/cpu/async_view.h"

namespace cpu {

// A barrier with a number, that of a warp group which waits for its products, or the cluster's.
struct EventNumber {
  unsigned threads = 0, arrived = 0, phase = 0, late = 0;
  bool any = false;
  struct Waiting {
    unsigned fiber;
    bool* any;
  };
  std::vector<Waiting> waiting;
  char sync[2] = {};
};

struct Events {
  static constexpr unsigned kNumbers = 16;  // of the kernel; warp groups have those behind
  static constexpr unsigned kMostWarpGroups = 1024 / kWarpGroupThreads;
  static constexpr unsigned kOfCluster =
      kNumbers + kMostWarpGroups;  // the cluster has the last one

  // A barrier that counts phases. It is known by its address and by what init_phases leaves there.
  struct Phases {
    const std::uint64_t* state;
    unsigned arrivals, missing, phase = 0;
    std::int64_t bytes =
        0;  // that are expected and have not arrived; less than 0: not yet expected
    bool is_published = false;
    std::vector<unsigned> waiting{};  // fibers
    char sync[2] = {};                // addresses that ThreadSanitizer ties their order to
  };
  void begin_block(char* arena, unsigned first, unsigned threads) {
    phases.clear();
    for (EventNumber& number : numbers) number = EventNumber{};
    due.clear();
    view.begin_block(arena, first);
    copies.begin_block();
    products.begin_block(threads);
    registers.assign(threads, 0);
  }

  std::deque<Phases> phases;
  std::array<EventNumber, kOfCluster + 1> numbers;
  std::vector<unsigned> due;        // of those numbers: all threads of the warp group wait
  std::vector<unsigned> registers;  // of each thread, where it has said so
  AsyncView view;
  AsyncCopies copies{view};
  AsyncProducts products{view, copies};
  char copies_sync = 0;
};

}  // namespace cpu
