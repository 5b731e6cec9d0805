// Stage 0.4: device memory that cleans up after itself.
//
//   DeviceBuffer<T>   `size` elements in device memory, owned by one object: RAII and move-only
//   Matrix<T>         rows x cols on top of it, row-major: element (row, col) is data()[row * cols
//   + col]
//
// Every later step keeps its device memory in one of the two.
#pragma once

#include <algorithm>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/device_buffer.h"
#include "common/version.h"

namespace device_matrix {

// Sets all of out (rows, cols), row-major, to value. T is float, double, int or unsigned.
template <class T>
void launch_fill_2d(T* out, size_t rows, size_t cols, T value, hipStream_t stream = nullptr);
template <class T>
void launch_fill_flat(T* out, size_t rows, size_t cols, T value, hipStream_t stream = nullptr);

using gpu::DeviceBuffer;

using Launch = void (*)(float* out, size_t rows, size_t cols, float value, hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"fill_2d", launch_fill_2d<float>, "the grid has the shape of the matrix"},
    {"fill_flat", launch_fill_flat<float>, "a row-major matrix is one flat array"},
};

// rows x cols elements in device memory, row-major.
template <class T>
class Matrix {
 public:
  Matrix() = default;
  Matrix(size_t rows, size_t cols) : rows_(rows), cols_(cols), elements_(product(rows, cols)) {}
  // From rows * cols values, row by row. Throws std::invalid_argument for any other number.
  Matrix(size_t rows, size_t cols, const std::vector<T>& host) : Matrix(rows, cols) {
    to_device(host);
  }

  // Moving leaves an empty 0 x 0 matrix behind; there is no copying, as in DeviceBuffer.
  Matrix(Matrix&& other) noexcept { swap(other); }
  Matrix& operator=(Matrix&& other) noexcept {
    Matrix(std::move(other)).swap(*this);
    return *this;
  }
  void swap(Matrix& other) noexcept {
    std::swap(rows_, other.rows_);
    std::swap(cols_, other.cols_);
    elements_.swap(other.elements_);
  }

  size_t rows() const { return rows_; }
  size_t cols() const { return cols_; }
  size_t size() const { return elements_.size(); }
  size_t bytes() const { return elements_.bytes(); }
  T* data() { return elements_.data(); }
  const T* data() const { return elements_.data(); }

  void to_device(const std::vector<T>& host) {
    if (host.size() != size())
      throw std::invalid_argument("to_device: " + std::to_string(host.size()) + " values for a " +
                                  std::to_string(rows_) + "x" + std::to_string(cols_) + " matrix");
    elements_.to_device(host.data(), host.size());
  }
  std::vector<T> to_host() const { return elements_.to_host(); }
  void fill(T value) { launch_fill_flat(data(), rows_, cols_, value); }

 private:
  // rows * cols, or the out-of-memory error that a product beyond 2^64 deserves.
  static size_t product(size_t rows, size_t cols) {
    if (cols != 0 && rows > std::numeric_limits<size_t>::max() / cols)
      HIP_CHECK(hipErrorOutOfMemory);
    return rows * cols;
  }

  size_t rows_ = 0, cols_ = 0;
  DeviceBuffer<T> elements_;
};

// The matrix as text, one line per row; of a matrix larger than max_shown only the upper left
// corner, with dots where it goes on.
template <class T>
std::string to_string(const Matrix<T>& matrix, size_t max_shown = 8) {
  const std::vector<T> host = matrix.to_host();
  std::string text;
  for (size_t row = 0; row < std::min(matrix.rows(), max_shown); ++row) {
    for (size_t col = 0; col < std::min(matrix.cols(), max_shown); ++col) {
      char number[32];
      std::snprintf(number, sizeof number, "%10.4g",
                    static_cast<double>(host[row * matrix.cols() + col]));
      text += number;
    }
    text += matrix.cols() > max_shown ? "  ...\n" : "\n";
  }
  if (matrix.rows() > max_shown) text += "       ...\n";
  return text;
}

template <class T>
void print(const Matrix<T>& matrix) {
  std::fputs(to_string(matrix).c_str(), stdout);
}

}  // namespace device_matrix
