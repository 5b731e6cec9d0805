// 8.1  tensor: a storage, and how its elements lie in it. A view is another layout of the same
// storage and costs nothing; sooner or later one is copied, and that costs what a careless kernel
// makes of it.
//
//   handle.h    Tensor, what the framework is built on      layout.h   the arithmetic of views
//   storage.h   Device and Storage                          splitting.h, gpu_device.h   memory
//
// This file has the two ladders. The first copies any view:
//
//   out[i] = a[i] for every index i below the extents       out, a: strides of their own
//
// Elements of 1, 2, 4 or 8 bytes are moved, whatever they mean. Any strides of `a`: 0 repeats an
// element, negative ones go backwards. No two indices lead to one element of out, and out overlaps
// nothing that is read. `out` and `a` are the addresses of element (0, ..., 0), aligned to an
// element. Errors: gpu::Error where a launch is refused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/version.h"
#include "stage0_infra/05_memory_pool/memory_pool.h"
#include "stage8_framework/01_tensor/layout.h"
#include "stage8_framework/01_tensor/splitting.h"

namespace tensor {

using framework::Dtype;
using framework::kMaxRank;

struct Problem {
  unsigned rank = 0;
  std::int64_t extent[kMaxRank] = {};
  std::int64_t out_stride[kMaxRank] = {}, a_stride[kMaxRank] = {};  // in elements

  __host__ __device__ std::int64_t elements() const {
    std::int64_t product = 1;
    for (unsigned axis = 0; axis < rank; ++axis) product *= extent[axis];
    return product;
  }
};

// The copy between two layouts of one shape.
Problem problem_of(const framework::Layout& out, const framework::Layout& a);

void launch_per_element(void* out, const void* a, size_t bytes, const Problem& p,
                        hipStream_t stream = nullptr);
void launch_collapsed(void* out, const void* a, size_t bytes, const Problem& p,
                      hipStream_t stream = nullptr);
void launch_tiled(void* out, const void* a, size_t bytes, const Problem& p,
                  hipStream_t stream = nullptr);
// The best of them: what later steps call.
void launch_vectorized(void* out, const void* a, size_t bytes, const Problem& p,
                       hipStream_t stream = nullptr);

using Launch = void (*)(void* out, const void* a, size_t bytes, const Problem& p,
                        hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"per_element", launch_per_element, "a thread per element divides by every extent"},
    {"collapsed", launch_collapsed, "axes that lie alike are one; division by an invariant"},
    {"tiled", launch_tiled, "where the two sides run along different axes: a tile turns them"},
    {"vectorized", launch_vectorized, "16 bytes per access where the layouts allow it"},
};

// The same with a conversion; the types are arguments, not templates. A number is rounded to the
// nearest, ties to even; on the way to 16 bits it is an f32 first. Towards integers it is cut off
// and kept in range, and NaN becomes 0. To bool: whether it is not 0.
void launch_cast(void* out, Dtype out_type, const void* a, Dtype a_type, const Problem& p,
                 hipStream_t stream = nullptr);

// The second ladder: where storages come from. Its lower rungs are those of 0.5.
inline constexpr Version<memory_pool::Launch> kMemoryVersions[] = {
    {"raw", memory_pool::make_raw, "hipMalloc and hipFree: the driver is asked each time"},
    {"pool", memory_pool::make_pool, "free lists by size class: a block serves its class alone"},
    {"splitting", make_splitting, "the best fit is cut to size, and free neighbours are joined"},
};

}  // namespace tensor
