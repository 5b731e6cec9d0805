// Planners: no two buffers in use at one time overlap, and how much memory they need.
#include <algorithm>
#include <vector>

#include "common/random.h"
#include "common/testing.h"
#include "stage8_framework/05_capture/capture.h"

using capturing::kPlanners;
using framework::fault_of;
using framework::Interval;
using framework::kBufferAlignment;
using framework::lower_bound_of;
using framework::MemoryPlan;

namespace {

// Buffers of a random graph: many small ones, some large, lives short and long.
std::vector<Interval> random_graph(std::uint64_t seed) {
  std::uint32_t drawn = 0;
  const auto draw = [&](std::uint64_t below) {
    return random_numbers::word(seed, 5, drawn++) % below;
  };
  const int calls = static_cast<int>(1 + draw(24));
  std::vector<Interval> buffers(draw(20));
  for (Interval& buffer : buffers) {
    buffer.bytes = draw(8) == 0 ? 0 : 1 + draw(std::uint64_t{1} << (4 + draw(14)));
    buffer.first = static_cast<int>(draw(static_cast<std::uint64_t>(calls)));
    const auto most = static_cast<std::uint64_t>(calls - buffer.first);
    buffer.last = buffer.first +
                  static_cast<int>(draw(draw(3) == 0 ? most : std::min<std::uint64_t>(most, 4)));
  }
  return buffers;
}

// Runs the calls on memory: at its first call each buffer is written with its number, at its last
// one it must still be there. In between everything that is in use by nobody is poison.
bool survives(const MemoryPlan& plan, const std::vector<Interval>& buffers) {
  constexpr unsigned char kPoison = 0xFF;
  std::vector<unsigned char> memory(plan.bytes / kBufferAlignment, kPoison);  // a byte for a line
  int end = 0;
  for (const Interval& buffer : buffers) end = std::max(end, buffer.last + 1);
  const auto over = [&](size_t i, auto use) {
    for (size_t k = 0; k < buffers[i].room() / kBufferAlignment; ++k)
      use(memory.at(plan.offsets[i] / kBufferAlignment + k));
  };
  bool is_whole = true;
  for (int call = 0; call < end; ++call) {
    for (size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i].first == call)
        over(i, [&](unsigned char& at) { at = static_cast<unsigned char>(i); });
    for (size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i].last == call)
        over(i, [&](unsigned char& at) {
          is_whole = is_whole && at == static_cast<unsigned char>(i);
        });
    for (size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i].last == call) over(i, [&](unsigned char& at) { at = kPoison; });
  }
  return is_whole;
}

void check_random_graphs(std::uint64_t first, std::uint64_t end) {
  double greedy_over = 0, by_size_over = 0, graphs = 0;
  for (std::uint64_t seed = first; seed < end; ++seed) {
    const std::vector<Interval> buffers = random_graph(seed);
    const size_t bound = lower_bound_of(buffers);
    size_t bytes[3];
    for (size_t k = 0; k < 3; ++k) {
      const MemoryPlan plan = kPlanners[k].launch(buffers);
      bytes[k] = plan.bytes;
      const std::string fault = fault_of(plan, buffers);
      if (fault.empty() && survives(plan, buffers) && bytes[k] >= bound) continue;
      FAIL("seed " << seed << ", " << kPlanners[k].name << ": " << fault);
    }
    if (bytes[1] > bytes[0] || bytes[2] > bytes[0]) FAIL("seed " << seed << ": worse than none");
    if (bound == 0) continue;
    ++graphs;
    greedy_over += static_cast<double>(bytes[1]) / static_cast<double>(bound);
    by_size_over += static_cast<double>(bytes[2]) / static_cast<double>(bound);
  }
  CHECK(by_size_over / graphs < 1.02);
  CHECK(by_size_over < greedy_over);
}

}  // namespace

TEST_CASE("planners: random graphs without overlap") { check_random_graphs(0, 2000); }
TEST_CASE("planners: 10^5 random graphs without overlap", "[long]") {
  check_random_graphs(2000, 100000);
}

TEST_CASE("planners: known graphs") {
  const auto bytes = [](const char* planner, const std::vector<Interval>& buffers) {
    for (const auto& version : kPlanners)
      if (std::string(version.name) == planner) return version.launch(buffers).bytes;
    return size_t{0};
  };
  SECTION("nothing") {
    for (const auto& version : kPlanners) CHECK(version.launch({}).bytes == 0);
    CHECK(lower_bound_of({}) == 0);
    CHECK(bytes("by_size", {{0, 0, 3}}) == 0);
  }
  SECTION("a chain keeps two at a time") {
    std::vector<Interval> chain;
    for (int i = 0; i < 10; ++i) chain.push_back({1000, i, i + 1});
    CHECK(lower_bound_of(chain) == 2048);
    CHECK(bytes("none", chain) == 10240);
    CHECK(bytes("greedy", chain) == 2048);
    CHECK(bytes("by_size", chain) == 2048);
  }
  SECTION("greedy places a small one where a large one would fit") {
    const std::vector<Interval> buffers{{512, 0, 1}, {512, 0, 9}, {1024, 2, 9}};
    CHECK(lower_bound_of(buffers) == 1536);
    CHECK(bytes("greedy", buffers) == 2048);
    CHECK(bytes("by_size", buffers) == 1536);
  }
  SECTION("by_size finds what the order of bytes alone does not") {  // that order takes 2304
    const std::vector<Interval> buffers{{768, 0, 5}, {768, 2, 3}, {512, 3, 3}, {1024, 4, 5}};
    CHECK(bytes("by_size", buffers) == 2048);
  }
  SECTION("the last call of one and the first of another are the same call") {
    CHECK(lower_bound_of({{256, 0, 1}, {256, 1, 2}}) == 512);
    CHECK(bytes("greedy", {{256, 0, 1}, {256, 1, 2}}) == 512);
    CHECK(bytes("by_size", {{256, 0, 1}, {256, 1, 2}}) == 512);
    CHECK(bytes("by_size", {{256, 0, 1}, {256, 2, 2}}) == 256);
  }
}

TEST_CASE("fault_of sees what is wrong with a plan") {
  const std::vector<Interval> buffers{{300, 0, 2}, {256, 2, 3}, {256, 3, 4}};
  CHECK(fault_of({{0, 512, 0}, 768}, buffers) == "");
  CHECK(fault_of({{0, 256, 0}, 768}, buffers) == "buffers 0 and 1 overlap at call 2");
  CHECK(fault_of({{256, 0, 0}, 768}, buffers) == "buffers 1 and 2 overlap at call 3");
  CHECK(fault_of({{0, 512, 64}, 768}, buffers) == "buffer 2 is not aligned");
  CHECK(fault_of({{0, 512, 768}, 768}, buffers) == "buffer 2 leaves the block");
  CHECK(fault_of({{0, 512}, 768}, buffers) == "2 places for 3 buffers");
}
