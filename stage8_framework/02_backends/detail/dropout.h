// Which elements a dropout mask lets through: the same on every backend. Plain C++ and kernels both
// include this.
#pragma once

#include <cmath>
#include <cstdint>

#include "common/random.h"

namespace framework {

struct DropoutRule {
  std::uint64_t seed;
  std::uint64_t below;  // p 2^32, rounded up: so many words of 32 bits drop an element
  double kept;          // what the others are multiplied by

  DropoutRule(double p, std::uint64_t with_seed)
      : seed(with_seed),
        below(static_cast<std::uint64_t>(std::ceil(std::ldexp(p, 32)))),
        kept(1 / (1 - p)) {}

  // Of element i of the mask that is drawn after `steps` others. 2^32 masks are different.
  __host__ __device__ bool drops(std::int64_t steps, std::uint64_t i) const {
    return random_numbers::word(seed, static_cast<std::uint32_t>(steps), i) < below;
  }
};

}  // namespace framework
