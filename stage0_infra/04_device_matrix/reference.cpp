#include "stage0_infra/04_device_matrix/reference.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace device_matrix {

Comparison compare_fill(const std::vector<float>& got, float value) {
  return compare(
      got.size(), [&](std::size_t i) { return got[i]; },
      [&](std::size_t) { return static_cast<double>(value); }, [](std::size_t) { return 0.0; });
}

Comparison compare_bits(const std::vector<float>& got, const std::vector<float>& want) {
  const auto bits = [](const std::vector<float>& values, std::size_t i) {
    std::uint32_t word;
    std::memcpy(&word, &values[i], sizeof word);
    return static_cast<double>(word);
  };
  return compare(
      want.size(), [&](std::size_t i) { return bits(got, i); },
      [&](std::size_t i) { return bits(want, i); }, [](std::size_t) { return 0.0; });
}

}  // namespace device_matrix
