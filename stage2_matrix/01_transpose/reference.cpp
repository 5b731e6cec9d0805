#include "stage2_matrix/01_transpose/reference.h"

namespace transpose {

std::vector<float> transpose_cpu(const std::vector<float>& a, std::size_t rows, std::size_t cols) {
  std::vector<float> out(a.size());
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t col = 0; col < cols; ++col) out[col * rows + row] = a[row * cols + col];
  return out;
}

}  // namespace transpose
