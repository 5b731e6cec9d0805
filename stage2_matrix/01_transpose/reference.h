// The reference of 2.1.
#pragma once

#include <cstddef>
#include <vector>

namespace transpose {

// out[col, row] = a[row, col]. A transpose moves floats and computes nothing: a result must be
// equal bit for bit.
std::vector<float> transpose_cpu(const std::vector<float>& a, std::size_t rows, std::size_t cols);

}  // namespace transpose
