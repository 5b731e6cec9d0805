// The matrix units of a block: products of warp groups, which run while the threads go on. Each
// function that can find a mistake returns it, else an empty text. For common/cpu/*.cpp only.
#pragma once

#include <array>
#include <deque>
#include <list>
#include <string>
#include <vector>

#include "common/cpu/async_copies.h"
#include "common/cpu/async_view.h"
#include "common/cpu/events.h"

namespace cpu {

class AsyncProducts {
 public:
  AsyncProducts(AsyncView& view, const AsyncCopies& copies) : view_(view), copies_(copies) {}
  void begin_block(unsigned threads) { groups_.clear(), groups_.resize(threads / kGroup); }

  void fence(unsigned thread);
  std::string begin(unsigned thread, const Product& product, float* sums, const unsigned* held);
  void end_group(unsigned thread);
  // All threads of warp group `group` wait for all their groups of products but the last `late`.
  std::string complete(unsigned group, unsigned late);
  // Does a product that is not complete read any of these bytes?
  bool is_reading(unsigned offset, unsigned bytes) const;
  std::string end_block() const;

 private:
  static constexpr unsigned kGroup = kWarpGroupThreads, kRows = 64, kStepBytes = 32;  // along K

  // The sums of one array, gathered from all threads while products are under way.
  struct Sums {
    std::array<float*, kGroup> of_thread{};
    std::vector<float> values;  // row by row
    unsigned columns = 0, products = 0;
  };
  struct InFlight {
    Product product;
    Sums* sums;
    unsigned number;                           // of its group
    std::array<const unsigned*, kGroup> held;  // four words of each thread
    std::array<std::array<unsigned, 4>, kGroup> held_at_begin;
  };
  struct Thread {
    unsigned products = 0, groups = 0;
    bool fenced = false;
  };
  struct WarpGroup {
    std::deque<InFlight> in_flight;
    unsigned completed = 0;  // products
    std::list<Sums> sums;
    std::array<Thread, kGroup> threads;
  };
  static float& value(Sums& sums, unsigned thread, unsigned i);
  std::string check_operands(const Product& product);
  void multiply(InFlight& product);
  std::string deliver(WarpGroup& group);

  AsyncView& view_;
  const AsyncCopies& copies_;
  std::vector<WarpGroup> groups_;
};

}  // namespace cpu
