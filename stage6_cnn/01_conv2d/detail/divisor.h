// Division by a number that is known before the launch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/gpu_runtime.h"

namespace conv2d {

// n / value and n % value for 0 <= n < 2^31 and 1 <= value < 2^31: the upper half of a product, an
// addition and a shift, in place of some twenty instructions. (Granlund and Montgomery: Division by
// invariant integers using multiplication. PLDI 1994.) With s = ceil(log2 value) the exact factor
// is 2^(32+s) / value, between 2^32 and 2^33. `factor` is its excess over 2^32, rounded up, and
// adding n stands for 2^32 n.
struct Divisor {
  unsigned value = 1, factor = 1, shift = 0;

  Divisor() = default;
  // A divisor of 0 counts as 1: what has no elements is never divided.
  explicit Divisor(size_t divisor) : value(static_cast<unsigned>(std::max(divisor, size_t{1}))) {
    while ((std::uint64_t{1} << shift) < value) ++shift;
    factor = static_cast<unsigned>(
        (std::uint64_t{1} << 32) * ((std::uint64_t{1} << shift) - value) / value + 1);
  }

  __host__ __device__ unsigned quotient(unsigned n) const {
    const unsigned upper = static_cast<unsigned>(std::uint64_t{n} * factor >> 32);
    return (upper + n) >> shift;
  }
  __host__ __device__ int quotient(int n) const {
    return static_cast<int>(quotient(static_cast<unsigned>(n)));
  }
  // n % value, where the quotient is known.
  __host__ __device__ int remainder(int n, int quotient) const {
    return n - quotient * static_cast<int>(value);
  }
};

}  // namespace conv2d
