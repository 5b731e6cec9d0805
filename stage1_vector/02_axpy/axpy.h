// 1.2  scale: y = alpha * x, and axpy: y = alpha * x + y, over n floats.
//
// axpy ("a x plus y") is the update step of gradient descent, and the first routine of BLAS level 1
// (Lawson, Hanson, Kincaid, Krogh: Basic linear algebra subprograms for Fortran usage, 1979). scale
// moves 8 bytes per element (read x, write y), axpy 12 (read x and y, write y).
//
// Every launcher takes device arrays of n floats: any n (0 too), aligned to 4 bytes. y is x or does
// not overlap it: scale with y == x is BLAS's scal. The work is queued on `stream`. Errors:
// gpu::Error where the launch is refused.
#pragma once

#include <cstddef>

#include "common/version.h"

namespace axpy {

// versions/naive.hip: one element per thread.
void launch_naive_scale(float* y, float alpha, const float* x, size_t n,
                        hipStream_t stream = nullptr);
void launch_naive_axpy(float* y, float alpha, const float* x, size_t n,
                       hipStream_t stream = nullptr);

// versions/grid_stride.hip: a grid of fixed size walks over the elements.
void launch_grid_stride_scale(float* y, float alpha, const float* x, size_t n,
                              hipStream_t stream = nullptr);
void launch_grid_stride_axpy(float* y, float alpha, const float* x, size_t n,
                             hipStream_t stream = nullptr);

// versions/vectorized.hip: 16 bytes per load and store.
void launch_vectorized_scale(float* y, float alpha, const float* x, size_t n,
                             hipStream_t stream = nullptr);
void launch_vectorized_axpy(float* y, float alpha, const float* x, size_t n,
                            hipStream_t stream = nullptr);

struct Launch {
  using Function = void (*)(float* y, float alpha, const float* x, size_t n, hipStream_t stream);
  Function scale, axpy;
};

inline constexpr Version<Launch> kVersions[] = {
    {"naive", {launch_naive_scale, launch_naive_axpy}, "one element per thread"},
    {"grid_stride",
     {launch_grid_stride_scale, launch_grid_stride_axpy},
     "a grid that fits the device walks over the elements"},
    {"vectorized",
     {launch_vectorized_scale, launch_vectorized_axpy},
     "16 bytes per load and store"},
};

}  // namespace axpy
