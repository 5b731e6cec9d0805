// What all programs refuse before they allocate or print anything.
#include "common/program.h"
#include "common/testing.h"

TEST_CASE("a dimension of 0 is refused, wherever it stands") {
  using Sizes = std::vector<size_t>;
  Options options;
  for (const Sizes& sizes : {Sizes{0}, Sizes{0, 5}, Sizes{5, 0}, Sizes{5, 5, 0}}) {
    options.sizes = sizes;
    REQUIRE_THROWS_AS(require_work(options), UsageError);
  }
  options.sizes = {1, 1, 1};
  REQUIRE_NOTHROW(require_work(options));
}

TEST_CASE("more memory than the device has is refused") {
  REQUIRE_NOTHROW(require_device_memory(1));
  REQUIRE_THROWS_AS(require_device_memory(1e18), UsageError);
}
