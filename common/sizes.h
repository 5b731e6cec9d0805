// Sizes that a person or a file gives: their products, and the memory that they need. Checked here
// before anything is computed from them or allocated.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace sizes {

// What the extents of one problem may multiply to: a device of 1e15 operations per second takes a
// minute for it, and a program's own factor of up to 128 still fits into 63 bits.
constexpr std::size_t kMostProduct = std::size_t{1} << 56;

// The product of the extents, 0 where one of them is 0. Nothing where the product of the others is
// above `most`, so that a 0 hides no number that is too large, in whichever order they come.
std::optional<std::size_t> product(const std::vector<std::size_t>& extents, std::size_t most);

// Throws UsageError where the extents of --size have no product() up to kMostProduct.
void require_product(const std::vector<std::size_t>& extents);

// Host memory in bytes that this process may still take: what the machine has available, or less
// where a control group (a container) or RLIMIT_AS says so. No limit is known where /proc is not
// there: then the largest number.
std::size_t host_memory();

// Throws UsageError where `bytes` are more than host_memory().
void require_host_memory(double bytes);

}  // namespace sizes
