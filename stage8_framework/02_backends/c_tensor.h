// What the plug-ins share: what they ask of a CourseTensor, and how they refuse.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "stage8_framework/01_tensor/layout.h"
#include "stage8_framework/02_backends/abi.h"

namespace framework {

inline bool is_absent(const CourseTensor& t) { return t.rank < 0; }
inline bool is_of(const CourseTensor& t, Dtype dtype) {
  return t.dtype == static_cast<std::int32_t>(dtype);
}

template <class T>
T* data_of(const CourseTensor& t) {
  return static_cast<T*>(t.data);
}
inline float* floats(const CourseTensor& t) { return data_of<float>(t); }

// Of an axis from the front, or from the end: -1 is the last one.
inline size_t extent(const CourseTensor& t, int axis) {
  return static_cast<size_t>(t.extent[axis < 0 ? t.rank + axis : axis]);
}

// The product of the first extents. Ends at a 0, as Layout::elements() does, and for its reason.
inline size_t product_of_extents(const CourseTensor& t, int axes) {
  size_t product = 1;
  for (int axis = 0; axis < axes && product != 0; ++axis) product *= extent(t, axis);
  return product;
}
inline size_t elements(const CourseTensor& t) { return product_of_extents(t, t.rank); }

// Row-major without gaps. An absent tensor is, and one of no elements.
inline bool is_contiguous(const CourseTensor& t) {
  bool follows = true;
  std::int64_t expected = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    follows = follows && (t.extent[axis] == 1 || t.stride[axis] == expected);
    expected *= t.extent[axis];
  }
  return follows || expected == 0;
}

// Has `a`, which is broadcast to `b`, an element of its own for each of b's, and does it lie as b
// does? Its axes are b's last ones; where b has one element, the stride says nothing.
inline bool lies_as(const CourseTensor& a, const CourseTensor& b) {
  const int first = b.rank - a.rank;
  for (int axis = 0; axis < b.rank; ++axis) {
    if (b.extent[axis] == 1) continue;
    if (axis < first || a.extent[axis - first] != b.extent[axis] ||
        a.stride[axis - first] != b.stride[axis])
      return false;
  }
  return true;
}

// As rows of the last axis.
inline size_t columns(const CourseTensor& t) { return t.rank == 0 ? 1 : extent(t, -1); }
inline size_t rows(const CourseTensor& t) { return product_of_extents(t, t.rank - 1); }

// The last two axes of a tensor as a BLAS takes a matrix: row-major, or transposed.
struct Matrix {
  const float* data;
  size_t ld;           // between the starts of two stored rows
  bool is_transposed;  // stored as (columns, rows)
};
// False where neither of the two axes has stride 1, or rows overlap. The stride of an axis of one
// element is never used.
inline bool to_matrix(const CourseTensor& t, Matrix* matrix) {
  const std::int64_t rows = t.extent[t.rank - 2], cols = t.extent[t.rank - 1];
  const std::int64_t down = t.stride[t.rank - 2], along = t.stride[t.rank - 1];
  const bool are_rows = (along == 1 || cols == 1) && (down >= cols || rows == 1);
  const bool are_columns = (down == 1 || rows == 1) && (along >= rows || cols == 1);
  const std::int64_t ld = are_rows ? (rows == 1 ? cols : down) : (cols == 1 ? rows : along);
  *matrix = {floats(t), static_cast<size_t>(std::max(ld, std::int64_t{1})), !are_rows};
  return are_rows || are_columns;
}

// Says why a function of the table has failed, and returns what the function then returns. `code`:
// the device's error, or -1.
inline std::int32_t fail(CourseError* error, std::int32_t code, const char* reason) {
  error->code = code;
  std::snprintf(error->text, sizeof error->text, "%s", reason);
  return 1;
}

}  // namespace framework
