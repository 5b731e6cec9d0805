// What the asynchronous units of the CPU backend must know of a matrix: the part of NVIDIA's tensor
// maps that the course uses. Plain C++.
#pragma once

#include <cstdint>

#include "common/cpu/types.h"

namespace cpu {

// Up to four dimensions, from the innermost outwards, as all of a map's arguments. A row of a box
// has 128 bytes. In shared memory its 16-byte chunk j stands at place j, or `swizzled` at place
// j ^ r, where bits 7 to 9 of the row's address are r.
struct TensorMap {
  static constexpr unsigned kRowBytes = 128;

  char* data;
  std::uint64_t sizes[4], strides[4];  // in elements, in bytes; strides[0]: of an element
  unsigned box[4];
  bool swizzled;

  unsigned box_rows() const { return box[1] * box[2] * box[3]; }
};

// Throws std::runtime_error where the driver of a GPU refuses the map as well. `row_bytes`: strides
// from the second dimension on.
TensorMap tensor_map(void* data, unsigned element_bytes, unsigned dimensions,
                     const std::uint64_t* sizes, const std::uint64_t* row_bytes,
                     const unsigned* box, bool swizzled = true);

}  // namespace cpu
