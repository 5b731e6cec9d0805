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

#include "common/gpu.h"
#include "common/program.h"

namespace device_matrix {

// Owns `size` elements of device memory. Errors: gpu::Error with hipErrorOutOfMemory where the
// device has no such block, std::out_of_range where more is copied in than fits.
template <class T>
class DeviceBuffer {
  // Elements are copied byte by byte. (HIP's vector types are not trivially copyable to the
  // letter.)
  static_assert(std::is_trivially_destructible_v<T>, "device memory holds plain data");
  static_assert(!std::is_same_v<T, bool>, "std::vector<bool> has no array to copy from");

 public:
  DeviceBuffer() = default;

  // Uninitialised memory (the CPU backend fills it with NaN). Size 0 allocates nothing.
  explicit DeviceBuffer(size_t size) : size_(size) {
    // A product that wraps around would allocate a small block under a large size.
    if (size > std::numeric_limits<size_t>::max() / sizeof(T)) HIP_CHECK(hipErrorOutOfMemory);
    if (size != 0) HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&data_), bytes()));
  }

  explicit DeviceBuffer(const std::vector<T>& host) : DeviceBuffer(host.size()) {
    to_device(host.data(), host.size());
  }

  // Waits until the device has finished, so no queued kernel loses its memory. A destructor must
  // not throw; this call fails only after a fault that an earlier call has reported.
  ~DeviceBuffer() {
    if (data_ != nullptr) static_cast<void>(hipFree(data_));
  }

  // Two owners would free the memory twice: it can be moved, never copied.
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer(std::move(other)).swap(*this);  // the temporary frees what this object had
    return *this;
  }

  void swap(DeviceBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  // A device address: kernels may follow it, host code must not. nullptr if the size is 0.
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }

  // Copies host[0, count) into the first `count` elements.
  void to_device(const T* host, size_t count) {
    if (count > size_)
      throw std::out_of_range("to_device: " + std::to_string(count) +
                              " elements do not fit into a buffer of " + std::to_string(size_));
    if (count != 0) HIP_CHECK(hipMemcpy(data_, host, count * sizeof(T), hipMemcpyHostToDevice));
  }

  // Waits for the default stream's work and returns a copy of all elements.
  std::vector<T> to_host() const {
    std::vector<T> host(size_);
    if (size_ != 0) HIP_CHECK(hipMemcpy(host.data(), data_, bytes(), hipMemcpyDeviceToHost));
    return host;
  }

  // Fills every byte with 0xFF, so that an element nobody writes reads as NaN.
  void poison() {
    if (size_ != 0) gpu::poison(data_, bytes());
  }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

// out[row, col] = value    out (rows, cols), row-major, any sizes.
// Fixes : -
// Idea  : the grid has the matrix's own two dimensions, so no thread divides to find its place.
// Thread: (x, y) owns column x of the rows y, y + gridDim.y * blockDim.y, ...
// Costs : threads beyond the last column do nothing; a matrix of one column wastes nearly all.
template <class T>
static __global__ void fill_2d(T* out, size_t rows, size_t cols, T value) {
  const size_t col = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (col >= cols) return;
  // exercise: write value into this thread's column of every row it owns (about 4 lines)
  const size_t first_row = size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const size_t row_stride = size_t{gridDim.y} * blockDim.y;
  for (size_t row = first_row; row < rows; row += row_stride) out[row * cols + col] = value;
  // end exercise
}

// out[i] = value    out: n elements; a row-major matrix is one array of rows * cols elements.
// Fixes : fill_2d leaves threads idle beyond the last column.
// Idea  : where an element's row and column do not matter, walk the matrix as flat memory.
// Thread: t owns the elements t, t + all threads, t + 2 * all threads, ...
// Costs : nothing is idle but at most the last block.
template <class T>
static __global__ void fill_flat(T* out, size_t n, T value) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = value;
}

// Sets all of out (rows, cols) to value.
template <class T>
inline void launch_fill_2d(T* out, size_t rows, size_t cols, T value) {
  constexpr size_t kColsPerBlock = 64, kRowsPerBlock = 4, kMaxGridY = 65535;
  if (rows == 0 || cols == 0) return;  // a grid of 0 blocks is an error
  const dim3 block(kColsPerBlock, kRowsPerBlock);
  const dim3 grid(static_cast<unsigned>(gpu::ceil_div(cols, kColsPerBlock)),
                  static_cast<unsigned>(std::min(gpu::ceil_div(rows, kRowsPerBlock), kMaxGridY)));
  LAUNCH((fill_2d<T>), grid, block, 0, out, rows, cols, value);
}

template <class T>
inline void launch_fill_flat(T* out, size_t rows, size_t cols, T value) {
  constexpr size_t kBlock = 256, kMaxBlocks = size_t{1} << 20;
  const size_t n = rows * cols;
  if (n == 0) return;
  const size_t blocks = std::min(gpu::ceil_div(n, kBlock), kMaxBlocks);
  LAUNCH((fill_flat<T>), static_cast<unsigned>(blocks), static_cast<unsigned>(kBlock), 0, out, n,
         value);
}

using Launch = void (*)(float* out, size_t rows, size_t cols, float value);

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
