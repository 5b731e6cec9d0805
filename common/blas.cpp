#include "common/blas.h"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#if defined(COURSE_HAVE_CUBLAS)
#include <cublas_v2.h>
#elif defined(COURSE_HAVE_ROCBLAS)
#if __has_include(<rocblas/rocblas.h>)
#include <rocblas/rocblas.h>
#else
#include <rocblas.h>  // ROCm before 5.3
#endif
#endif

namespace blas {

#if defined(COURSE_HAVE_CUBLAS)

namespace {

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + cublasGetStatusName(status) + " (" +
                             cublasGetStatusString(status) + ")");
}

// Never destroyed: at the program's end the CUDA runtime may be gone before it.
cublasHandle_t handle() {
  static const cublasHandle_t once = [] {
    cublasHandle_t made = nullptr;
    check(cublasCreate(&made), "cublasCreate");
    return made;
  }();
  return once;
}

void scalars_on(cublasPointerMode_t where) {
  check(cublasSetPointerMode(handle(), where), "cublasSetPointerMode");
}

}  // namespace

const char* name() { return "cuBLAS"; }
bool available() { return true; }

void axpy(std::size_t n, float alpha, const float* x, float* y) {
  scalars_on(CUBLAS_POINTER_MODE_HOST);
  check(cublasSaxpy_64(handle(), static_cast<std::int64_t>(n), &alpha, x, 1, y, 1), "cublasSaxpy");
}

void scal(std::size_t n, float alpha, float* x) {
  scalars_on(CUBLAS_POINTER_MODE_HOST);
  check(cublasSscal_64(handle(), static_cast<std::int64_t>(n), &alpha, x, 1), "cublasSscal");
}

void dot(std::size_t n, const float* x, const float* y, float* device_result) {
  scalars_on(CUBLAS_POINTER_MODE_DEVICE);
  check(cublasSdot_64(handle(), static_cast<std::int64_t>(n), x, 1, y, 1, device_result),
        "cublasSdot");
}

#elif defined(COURSE_HAVE_ROCBLAS)

namespace {

void check(rocblas_status status, const char* call) {
  if (status != rocblas_status_success)
    throw std::runtime_error(std::string(call) + ": " + rocblas_status_to_string(status));
}

// Never destroyed: at the program's end the HIP runtime may be gone before it.
rocblas_handle handle() {
  static const rocblas_handle once = [] {
    rocblas_handle made = nullptr;
    check(rocblas_create_handle(&made), "rocblas_create_handle");
    return made;
  }();
  return once;
}

void scalars_on(rocblas_pointer_mode where) {
  check(rocblas_set_pointer_mode(handle(), where), "rocblas_set_pointer_mode");
}

// Only newer releases of rocBLAS take 64-bit sizes.
rocblas_int to_int(std::size_t n) {
  if (n > static_cast<std::size_t>(std::numeric_limits<rocblas_int>::max()))
    throw std::runtime_error("rocBLAS is called with at most 2^31 - 1 elements");
  return static_cast<rocblas_int>(n);
}

}  // namespace

const char* name() { return "rocBLAS"; }
bool available() { return true; }

void axpy(std::size_t n, float alpha, const float* x, float* y) {
  scalars_on(rocblas_pointer_mode_host);
  check(rocblas_saxpy(handle(), to_int(n), &alpha, x, 1, y, 1), "rocblas_saxpy");
}

void scal(std::size_t n, float alpha, float* x) {
  scalars_on(rocblas_pointer_mode_host);
  check(rocblas_sscal(handle(), to_int(n), &alpha, x, 1), "rocblas_sscal");
}

void dot(std::size_t n, const float* x, const float* y, float* device_result) {
  scalars_on(rocblas_pointer_mode_device);
  check(rocblas_sdot(handle(), to_int(n), x, 1, y, 1, device_result), "rocblas_sdot");
}

#else

namespace {

[[noreturn]] void none() {
  throw std::runtime_error("this program was built without cuBLAS or rocBLAS");
}

}  // namespace

const char* name() { return ""; }
bool available() { return false; }
void axpy(std::size_t, float, const float*, float*) { none(); }
void scal(std::size_t, float, float*) { none(); }
void dot(std::size_t, const float*, const float*, float*) { none(); }

#endif

}  // namespace blas
