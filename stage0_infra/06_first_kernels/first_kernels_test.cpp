// Every kernel of 0.6 on awkward shapes.
#include "stage0_infra/06_first_kernels/first_kernels.h"

#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/testing.h"

using first_kernels::kBlock;
using first_kernels::kGroup;
using first_kernels::kValues;
using first_kernels::kVersions;

namespace {

using Version = std::decay_t<decltype(kVersions[0])>;

// Launches on guarded arrays; what is written outside them is a failure, too.
Comparison check(const Version& version, const std::vector<int>& x, size_t rows, size_t cols) {
  const std::vector<double> want = version.launch.want(x, rows, cols);
  Guarded<int> d_x(x, 1), out(want.size(), 3);
  version.launch.run(out.data(), d_x.data(), rows, cols, nullptr);
  HIP_CHECK(hipDeviceSynchronize());
  const std::vector<int> got = out.to_host();
  Comparison result = compare(
      want.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [](size_t) { return 0.0; });
  result.ok = result.ok && d_x.intact() && out.intact();
  return result;
}

}  // namespace

TEST_CASE("every kernel is right at any shape") {
  const size_t shapes[][2] = {{0, 0},   {0, 7},   {7, 0},    {1, 1},    {1, 7},   {1, 127},
                              {1, 128}, {1, 129}, {8, 16},   {9, 17},   {17, 9},  {3, 43},
                              {64, 64}, {257, 1}, {31, 101}, {1, 1025}, {1026, 1}};
  for (const auto& version : testing::chosen(kVersions))
    for (const auto& [rows, cols] : shapes) {
      CAPTURE(version.name, rows, cols);
      REQUIRE_OK(check(version, first_kernels::random_elements(rows, cols, 7), rows, cols));
    }
}

TEST_CASE("every kernel takes more rows than a grid has blocks along y") {
  constexpr size_t kRows = 65535 * 8 + 9;
  const std::vector<int> x = first_kernels::random_elements(kRows, 1, 3);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    REQUIRE_OK(check(version, x, kRows, 1));
  }
}

TEST_CASE("every element may be the largest: all are counted at one place") {
  const std::vector<int> x(1000, static_cast<int>(kValues) - 1);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    REQUIRE_OK(check(version, x, 20, 50));
  }
}

TEST_CASE("the references of a small array are those worked by hand") {
  const std::vector<int> x = {3, 1, 2, 0, 5, 4};  // 2 rows of 3
  using Values = std::vector<double>;
  REQUIRE(first_kernels::doubled(x, 2, 3) == Values{6, 2, 4, 0, 10, 8});
  REQUIRE(first_kernels::one_more(x, 2, 3) == Values{4, 2, 3, 1, 6, 5});
  REQUIRE(first_kernels::mirrored(x, 2, 3) == Values{2, 1, 3, 4, 5, 0});
  REQUIRE(first_kernels::squared(x, 2, 3) == Values{9, 1, 4, 0, 25, 16});
  REQUIRE(first_kernels::reversed(x, 2, 3) == Values{4, 5, 0, 2, 1, 3});
  REQUIRE(first_kernels::summed_up(x, 2, 3) == Values{3, 4, 6, 6, 11, 15});
  REQUIRE(first_kernels::counted(x, 2, 3) == Values{1, 1, 1, 1, 1, 1, 0, 0});
  REQUIRE(first_kernels::summed_in_groups(x, 2, 3) == Values(6, 15));
}

TEST_CASE("blocks and groups begin anew in the references") {
  const std::vector<int> x(kBlock + 3, 1);
  REQUIRE(first_kernels::summed_up(x, 1, x.size())[kBlock - 1] == kBlock);
  REQUIRE(first_kernels::summed_up(x, 1, x.size())[kBlock] == 1);
  REQUIRE(first_kernels::summed_in_groups(x, 1, x.size())[kBlock - 1] == 8);
  REQUIRE(first_kernels::summed_in_groups(x, 1, x.size())[kBlock] == 3);
  std::vector<int> marked(kBlock + 3, 0);
  marked[0] = 1, marked[kBlock] = 2;
  REQUIRE(first_kernels::reversed(marked, 1, marked.size())[kBlock - 1] == 1);
  REQUIRE(first_kernels::reversed(marked, 1, marked.size())[kBlock + 2] == 2);
}

TEST_CASE("the check refuses missing, doubled and swapped results, and zeros", "[harness]") {
  const std::vector<int> x = first_kernels::random_elements(8, 17, 1);
  for (const auto& version : kVersions) {
    CAPTURE(version.name);
    const std::vector<double> all = version.launch.want(x, 8, 17);
    // The eight neighbours of a group share their sum: one of each will do.
    const size_t step = version.name == std::string("shuffle") ? kGroup : 1;
    std::vector<double> want;
    for (size_t i = 0; i < all.size(); i += step) want.push_back(all[i]);
    testing::require_refusals<int>(want, 0.0, 1, [&](size_t i) { return want[i]; });
  }
}

TEST_CASE("every kernel may be recorded in a graph") {
  const std::vector<int> x = first_kernels::random_elements(9, 43, 1);
  Guarded<int> d_x(x, 0);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    Guarded<int> out(version.launch.want(x, 9, 43).size(), 0);
    testing::require_same_in_graph(
        [&] { gpu::poison(out.data(), out.size() * sizeof(int)); },
        [&](hipStream_t stream) { version.launch.run(out.data(), d_x.data(), 9, 43, stream); },
        [&] { return out.to_host(); });
  }
}
