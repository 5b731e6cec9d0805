#include "common/sizes.h"

#include <fmt/format.h>

#include <limits>

#include "common/host_memory.h"
#include "common/options.h"

namespace sizes {

std::optional<std::size_t> product(const std::vector<std::size_t>& extents, std::size_t most) {
  std::size_t product = 1;
  bool is_empty = false;
  for (const std::size_t extent : extents) {
    if (extent == 0)
      is_empty = true;
    else if (extent > most / product)
      return {};
    else
      product *= extent;
  }
  return is_empty ? 0 : product;
}

void require_product(const std::vector<std::size_t>& extents) {
  if (!product(extents, kMostProduct))
    throw UsageError("--size: the product of the dimensions is above 2^56: choose smaller ones");
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
