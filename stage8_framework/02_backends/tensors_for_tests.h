// Tensors that tests make.
#pragma once

#include <cstdint>
#include <vector>

#include "common/testing.h"
#include "stage8_framework/01_tensor/handle.h"

namespace tensors_test {

using framework::Tensor;

inline std::vector<float> host(const Tensor& t) { return t.to_host<float>(); }

// Random numbers in [-1, 1), other ones for each stream.
inline Tensor random_on(framework::Device& on, const framework::Shape& shape,
                        std::uint32_t stream) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return Tensor::from_host(on, testing::random_floats(static_cast<size_t>(count), stream), shape);
}

}  // namespace tensors_test
