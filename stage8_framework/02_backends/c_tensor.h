// What the plug-ins ask of a CourseTensor.
#pragma once

#include <cstddef>
#include <cstdint>

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

inline size_t elements(const CourseTensor& t) {
  size_t product = 1;
  for (int axis = 0; axis < t.rank; ++axis) product *= extent(t, axis);
  return product;
}

// Row-major without gaps. An absent tensor is, and one of no elements.
inline bool is_contiguous(const CourseTensor& t) {
  if (elements(t) == 0) return true;
  std::int64_t expected = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    if (t.extent[axis] != 1 && t.stride[axis] != expected) return false;
    expected *= t.extent[axis];
  }
  return true;
}

// As rows of the last axis.
inline size_t columns(const CourseTensor& t) { return t.rank == 0 ? 1 : extent(t, -1); }
inline size_t rows(const CourseTensor& t) {
  size_t product = 1;
  for (int axis = 0; axis + 1 < t.rank; ++axis) product *= extent(t, axis);
  return product;
}

}  // namespace framework
