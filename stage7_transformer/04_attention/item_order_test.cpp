// The order in which flash_persistent's blocks take tiles of queries.
#if defined(GPU_BACKEND_CPU)  // whose compiler takes device code

#include <algorithm>
#include <set>
#include <utility>

#include "common/device_buffer.h"
#include "common/testing.h"
#include "stage7_transformer/04_attention/detail/item_order_sm90.h"

namespace {

struct OrderedTile {
  static constexpr int kQueries = 192, kKeys = 128;
};

}  // namespace

TEST_CASE("every tile of every head is one item, and of heads at a time the longest come first") {
  for (const unsigned at_a_time : {1u, 2u, 3u, 5u}) {
    for (const bool causal : {true, false}) {
      CAPTURE(at_a_time, causal);
      const unsigned heads = 5, tiles = 4;  // 3 batches of 2 heads, the last one not there
      const attention::Sizes shape{2, 700, 800, 64, causal, 1, tiles};
      const attention::ItemOrder order{heads, at_a_time, nullptr};
      REQUIRE(order.count(shape) == heads * tiles);
      std::set<std::pair<size_t, int>> seen;
      int before = 0;
      for (unsigned number = 0; number < order.count(shape); ++number) {
        CAPTURE(number);
        const attention::Item item = attention::item_of<OrderedTile>(number, shape, order);
        const size_t head = item.block.batch * 2 + item.block.head;
        REQUIRE(seen.insert({head, item.block.tile}).second);
        REQUIRE(head / at_a_time == number / (at_a_time * tiles));
        REQUIRE(item.block.tile >= 0);
        REQUIRE(item.block.tile < static_cast<int>(tiles));
        // The last tile ends with the queries; the first one has what is left, 700 - 3 * 192.
        REQUIRE(item.end == 700 - (3 - item.block.tile) * OrderedTile::kQueries);
        REQUIRE(item.first == std::max(item.end - OrderedTile::kQueries, 0));
        const int keys = causal ? item.end + 100 : 800;  // query i sees the keys up to i + 100
        REQUIRE(item.tiles == (keys + 127) / 128);
        if (number % (at_a_time * tiles) > 0) REQUIRE(item.tiles <= before);
        before = item.tiles;
      }
    }
  }
}

TEST_CASE("as many heads at a time as L2 keeps the keys of, where the longest come first") {
  const auto at_a_time = [](size_t heads, size_t T, bool causal, float* tickets) {
    const attention::Problem p{heads, 1, T, T, 64, causal, 1};
    return attention::order_of(p, tickets, nullptr).at_a_time;
  };
  gpu::DeviceBuffer<float> tickets(1);
  tickets.poison();
  REQUIRE(at_a_time(128, 2048, true, tickets.data()) == 32);
  REQUIRE(tickets.to_host()[0] == 0);  // none has been drawn
  REQUIRE(at_a_time(20, 2048, true, tickets.data()) == 20);
  REQUIRE(at_a_time(9, size_t{1} << 20, true, tickets.data()) == 1);
  REQUIRE(at_a_time(128, 2048, false, nullptr) == 1);
  REQUIRE(at_a_time(128, 2048, true, nullptr) == 128);  // without tickets
}

#endif
