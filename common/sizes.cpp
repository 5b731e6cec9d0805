#include "common/sizes.h"

#include <fmt/format.h>

#include <limits>

#include "common/host_memory.h"
#include "common/options.h"

namespace sizes {

std::size_t checked_product(const std::vector<std::size_t>& extents) {
  std::size_t product = 1;
  for (const std::size_t extent : extents) {
    if (extent == 0) continue;
    if (extent > kMostProduct / product)
      throw UsageError("--size: the product of the dimensions is above 2^56: choose smaller ones");
    product *= extent;
  }
  return product;
}

std::size_t host_memory() {
  const host::MemoryLimit memory = host::memory();
  return memory.total > 0 ? memory.available : std::numeric_limits<std::size_t>::max();
}

void require_host_memory(double bytes) {
  const double available = static_cast<double>(host_memory());
  if (bytes > available)
    throw UsageError(
        fmt::format("this size needs {:.1f} GB of host memory and {:.1f} GB are free: choose a "
                    "smaller --size",
                    bytes / 1e9, available / 1e9));
}

}  // namespace sizes
