// sizes::product() and the memory that a process may take.
#include "common/sizes.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "common/options.h"
#include "common/testing.h"
#include "common/tests/emulator.h"

namespace {

constexpr std::size_t kMost = sizes::kMostProduct;

bool is_refused(const std::vector<std::size_t>& extents) {
  try {
    sizes::require_product(extents);
    return false;
  } catch (const UsageError&) {
    return true;
  }
}

// Bytes of addresses that this process has mapped.
std::size_t addresses_held() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("a product is exact up to its limit, and refused above it") {
  constexpr std::size_t kHalf = kMost / 2, kLargest = ~std::size_t{0};
  CHECK(sizes::product({}, kMost) == 1);
  CHECK(sizes::product({3, 5, 7}, kMost) == 105);
  CHECK(sizes::product({3, 5, 7}, 105) == 105);
  CHECK_FALSE(sizes::product({3, 5, 7}, 104));
  CHECK(sizes::product({0, 5, 7}, kMost) == 0);
  CHECK(sizes::product({2, kHalf}, kMost) == kMost);
  CHECK(sizes::product({kLargest}, kLargest) == kLargest);
  CHECK_FALSE(is_refused({2, kHalf}));
  CHECK_FALSE(is_refused({0, kMost}));
  CHECK(is_refused({2, kHalf + 1}));
  CHECK(is_refused({kLargest}));
  CHECK(is_refused({kLargest, kLargest}));
  CHECK(is_refused({std::size_t{1} << 32, std::size_t{1} << 32}));  // 0 where it wraps
  CHECK(is_refused({0, kLargest}));
  CHECK(is_refused({kLargest, 0}));
}

TEST_CASE("what a process may not take is refused before it is taken") {
  CHECK_NOTHROW(sizes::require_host_memory(1));
  CHECK_THROWS_AS(sizes::require_host_memory(1e30), UsageError);
  if (emulator::leaves_out(emulator::kLimit)) return;
  rlimit old{};
  REQUIRE(getrlimit(RLIMIT_AS, &old) == 0);
  // A little more than this process has: the sanitizers, which hold terabytes of addresses, go on.
  constexpr std::size_t kMore = std::size_t{1} << 26;
  const rlimit small{addresses_held() + kMore, old.rlim_max};
  REQUIRE(setrlimit(RLIMIT_AS, &small) == 0);
  const std::size_t left = sizes::host_memory();
  REQUIRE(setrlimit(RLIMIT_AS, &old) == 0);
  CHECK(left > 0);
  CHECK(left <= kMore);
}
