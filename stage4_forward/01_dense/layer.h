// A dense layer's parameters. Plain C++.
#pragma once

#include <cstddef>

namespace dense {

// On the device, row-major without gaps.
struct Layer {
  std::size_t in, out;
  const float* w;     // (out, in)
  const float* bias;  // (out)
};

}  // namespace dense
