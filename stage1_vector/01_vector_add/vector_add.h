// 1.1  c = a + b and c = a * b, element by element, over n floats.
//
// Each element moves 12 bytes (two reads, one write) for one operation, so memory sets the time.
// The versions differ only in how they ask the memory for the bytes.
//
// Every launcher takes device arrays of n floats: any n (0 too), aligned to 4 bytes. c must not
// overlap a or b. The work is queued on `stream`. Errors: gpu::Error where the launch is refused.
#pragma once

#include <cstddef>

#include "common/version.h"

namespace vector_add {

// versions/naive.hip: one element per thread.
void launch_naive_add(float* c, const float* a, const float* b, size_t n,
                      hipStream_t stream = nullptr);
void launch_naive_multiply(float* c, const float* a, const float* b, size_t n,
                           hipStream_t stream = nullptr);

// versions/grid_stride.hip: a grid of fixed size walks over the elements.
void launch_grid_stride_add(float* c, const float* a, const float* b, size_t n,
                            hipStream_t stream = nullptr);
void launch_grid_stride_multiply(float* c, const float* a, const float* b, size_t n,
                                 hipStream_t stream = nullptr);

// versions/vectorized.hip: 16 bytes per load and store.
void launch_vectorized_add(float* c, const float* a, const float* b, size_t n,
                           hipStream_t stream = nullptr);
void launch_vectorized_multiply(float* c, const float* a, const float* b, size_t n,
                                hipStream_t stream = nullptr);

struct Launch {
  using Function = void (*)(float* c, const float* a, const float* b, size_t n, hipStream_t stream);
  Function add, multiply;
};

inline constexpr Version<Launch> kVersions[] = {
    {"naive", {launch_naive_add, launch_naive_multiply}, "one element per thread"},
    {"grid_stride",
     {launch_grid_stride_add, launch_grid_stride_multiply},
     "a grid that fits the device walks over the elements"},
    {"vectorized",
     {launch_vectorized_add, launch_vectorized_multiply},
     "16 bytes per load and store, addresses in order"},
};

}  // namespace vector_add
