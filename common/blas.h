// The vendor's BLAS, as a peer to hold the course's kernels against: cuBLAS or rocBLAS where CMake
// found one (COURSE_HAVE_CUBLAS, COURSE_HAVE_ROCBLAS), else nothing is linked and available() is
// false.
//
// All arrays are float and on the device; the work is queued on the default stream. A failed call,
// or a call where there is no library, throws std::runtime_error. The library's handle is made at
// the first call and belongs to the device that is current then. rocBLAS takes n up to 2^31 - 1.
#pragma once

#include <cstddef>

namespace blas {

const char* name();  // "cuBLAS", "rocBLAS", or "" where there is neither
bool available();

// y[i] = alpha * x[i] + y[i] for i in [0, n).
void axpy(std::size_t n, float alpha, const float* x, float* y);
// x[i] = alpha * x[i] for i in [0, n).
void scal(std::size_t n, float alpha, float* x);
// *device_result = sum of x[i] * y[i] over i in [0, n). The host does not wait for it.
void dot(std::size_t n, const float* x, const float* y, float* device_result);

}  // namespace blas
