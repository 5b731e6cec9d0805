// How a thread finds its element in the axes that are left of a copy.
#pragma once

#include <cstdint>

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage6_cnn/01_conv2d/detail/divisor.h"
#include "stage8_framework/01_tensor/detail/collapse.h"

namespace tensor {

using conv2d::Divisor;

// From the number of an element, in out's order, to its place on both sides.
struct Walk {
  unsigned rank = 0;
  Divisor by[kMaxRank];  // the innermost axis first
  std::int64_t out_stride[kMaxRank] = {}, a_stride[kMaxRank] = {};

  Walk() = default;
  explicit Walk(const Problem& p) : rank(p.rank) {
    for (unsigned d = 0; d < rank; ++d) {
      const unsigned axis = rank - 1 - d;
      by[d] = Divisor(static_cast<size_t>(p.extent[axis]));
      out_stride[d] = p.out_stride[axis], a_stride[d] = p.a_stride[axis];
    }
  }

  struct Place {
    std::int64_t out = 0, a = 0;
  };
  __device__ Place operator()(unsigned i) const {
    Place place;
    GPU_UNROLL
    for (unsigned d = 0; d < kMaxRank; ++d) {
      if (d >= rank) break;
      const unsigned further = d + 1 < rank ? by[d].quotient(i) : 0;
      const std::int64_t index = i - further * by[d].value;
      place.out += index * out_stride[d], place.a += index * a_stride[d];
      i = further;
    }
    return place;
  }
};

}  // namespace tensor
