// Copies of views, by 8.1, where a step wants its input in another order.
#pragma once

#include "stage8_framework/01_tensor/tensor.h"
#include "stage8_framework/02_backends/own/own.h"

namespace own {

// The copy of x into y, which has its shape, in any order.
inline tensor::Problem copy_of(const CourseTensor& x, const CourseTensor& y) {
  tensor::Problem p;
  p.rank = static_cast<unsigned>(x.rank);
  for (int axis = 0; axis < x.rank; ++axis) {
    p.extent[axis] = x.extent[axis];
    p.out_stride[axis] = y.stride[axis], p.a_stride[axis] = x.stride[axis];
  }
  return p;
}

// The copy of x into memory without gaps, with the axes of the mask behind all others.
inline tensor::Problem with_axes_last(const CourseTensor& x, unsigned mask) {
  tensor::Problem p;
  for (const unsigned wanted : {0u, 1u})
    for (int axis = 0; axis < x.rank; ++axis)
      if ((mask >> axis & 1) == wanted)
        p.extent[p.rank] = x.extent[axis], p.a_stride[p.rank++] = x.stride[axis];
  std::int64_t step = 1;
  for (unsigned axis = p.rank; axis-- > 0; step *= p.extent[axis]) p.out_stride[axis] = step;
  return p;
}

}  // namespace own
