// 0.4  Device memory with an owner.
//
//   DeviceBuffer<T>  `size` elements of device memory that belong to one object, which frees them
//                    (common/device_buffer.h, which all steps include)
//   Matrix<T>        rows x cols elements on top of it, row-major: element (row, col) is
//                    data()[row * cols + col]
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

// Sets all of out (rows, cols), row-major, to value; a size of 0 is nothing to do. T is float,
// double, int or unsigned. versions/fill_2d.hip: the grid has the shape of the matrix.
template <class T>
void launch_fill_2d(T* out, size_t rows, size_t cols, T value, hipStream_t stream = nullptr);
// versions/fill_flat.hip: the same as one flat array.
template <class T>
void launch_fill_flat(T* out, size_t rows, size_t cols, T value, hipStream_t stream = nullptr);

using gpu::DeviceBuffer;

using Launch = void (*)(float* out, size_t rows, size_t cols, float value, hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"fill_2d", launch_fill_2d<float>, "the grid has the shape of the matrix"},
    {"fill_flat", launch_fill_flat<float>, "a row-major matrix is one flat array"},
};

// rows x cols elements in device memory, row-major. Errors are those of DeviceBuffer.
template <class T>
class Matrix {
 public:
  Matrix() = default;
  Matrix(size_t rows, size_t cols) : rows_(rows), cols_(cols), elements_(product(rows, cols)) {}
  // From rows * cols values, row by row. Throws std::invalid_argument for any other number.
  Matrix(size_t rows, size_t cols, const std::vector<T>& host) : Matrix(rows, cols) {
    to_device(host);
  }

  // Moving leaves an empty 0 x 0 matrix behind. A matrix can't be copied, as a DeviceBuffer can't.
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
  // rows * cols. A product beyond 2^64 is out of memory.
  static size_t product(size_t rows, size_t cols) {
    if (cols != 0 && rows > std::numeric_limits<size_t>::max() / cols)
      HIP_CHECK(hipErrorOutOfMemory);
    return rows * cols;
  }

  size_t rows_ = 0, cols_ = 0;
  DeviceBuffer<T> elements_;
};

// The matrix as text, one line per row. Of more than max_shown rows or columns it shows the upper
// left corner, with dots where the matrix goes on.
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
