// The reference of 8.1: where an element of a copy comes from, worked out from its indices without
// a stride.
#pragma once

#include <cstddef>

#include "stage8_framework/01_tensor/problem.h"

namespace tensor {

// Element i of the case's row-major out is element source_of(c, i) of a.
std::size_t source_of(const Case& c, std::size_t i);

}  // namespace tensor
