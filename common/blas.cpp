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

// Where the next call is queued. Setting it takes the library a while. A stream may be another one
// at the same address.
void use(void* stream) {
  static void* now = nullptr;  // the default stream, as in a new handle
  if (stream == nullptr && now == nullptr) return;
  check(cublasSetStream(handle(), static_cast<cudaStream_t>(stream)), "cublasSetStream");
  now = stream;
}

void scalars_on(cublasPointerMode_t where) {
  check(cublasSetPointerMode(handle(), where), "cublasSetPointerMode");
}

}  // namespace

const char* name() { return "cuBLAS"; }
bool available() { return true; }

void axpy(std::size_t n, float alpha, const float* x, float* y, void* stream) {
  use(stream);
  scalars_on(CUBLAS_POINTER_MODE_HOST);
  check(cublasSaxpy_64(handle(), static_cast<std::int64_t>(n), &alpha, x, 1, y, 1), "cublasSaxpy");
}

void scal(std::size_t n, float alpha, float* x, void* stream) {
  use(stream);
  scalars_on(CUBLAS_POINTER_MODE_HOST);
  check(cublasSscal_64(handle(), static_cast<std::int64_t>(n), &alpha, x, 1), "cublasSscal");
}

void dot(std::size_t n, const float* x, const float* y, float* device_result, void* stream) {
  use(stream);
  scalars_on(CUBLAS_POINTER_MODE_DEVICE);
  check(cublasSdot_64(handle(), static_cast<std::int64_t>(n), x, 1, y, 1, device_result),
        "cublasSdot");
}

// cuBLAS stores matrices by columns, so a row-major matrix is its own transpose there: instead of
// C = A B the calls below ask for the transpose of C, the product of the transposes of B and A.

namespace {

std::int64_t size(std::size_t n) { return static_cast<std::int64_t>(n); }
cublasOperation_t operation(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

}  // namespace

void transpose(std::size_t rows, std::size_t cols, const float* a, float* out, void* stream) {
  use(stream);
  const float one = 1, zero = 0;
  scalars_on(CUBLAS_POINTER_MODE_HOST);
  check(cublasSgeam_64(handle(), CUBLAS_OP_T, CUBLAS_OP_N, size(rows), size(cols), &one, a,
                       size(cols), &zero, out, size(rows), out, size(rows)),
        "cublasSgeam");
}

void gemv(bool transposed, std::size_t rows, std::size_t cols, float alpha, const float* a,
          std::size_t lda, const float* x, float beta, float* y, void* stream) {
  use(stream);
  scalars_on(CUBLAS_POINTER_MODE_HOST);
  check(cublasSgemv_64(handle(), operation(!transposed), size(cols), size(rows), &alpha, a,
                       size(lda), x, 1, &beta, y, 1),
        "cublasSgemv");
}

void gemm(bool transposed_a, bool transposed_b, std::size_t M, std::size_t N, std::size_t K,
          float alpha, const float* a, std::size_t lda, const float* b, std::size_t ldb, float beta,
          float* c, std::size_t ldc, void* stream) {
  use(stream);
  scalars_on(CUBLAS_POINTER_MODE_HOST);
  check(cublasSgemm_64(handle(), operation(transposed_b), operation(transposed_a), size(N), size(M),
                       size(K), &alpha, b, size(ldb), a, size(lda), &beta, c, size(ldc)),
        "cublasSgemm");
}

void gemm_mixed(Input type, std::size_t M, std::size_t N, std::size_t K, const void* a,
                const void* b, float* c, void* stream, bool a_transposed, bool b_transposed) {
  use(stream);
  const float one = 1, zero = 0;
  const cudaDataType_t input = type == Input::float16    ? CUDA_R_16F
                               : type == Input::bfloat16 ? CUDA_R_16BF
                                                         : CUDA_R_32F;
  const cublasComputeType_t compute =
      type == Input::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  scalars_on(CUBLAS_POINTER_MODE_HOST);
  check(cublasGemmEx_64(handle(), b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                        a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, size(N), size(M), size(K), &one,
                        b, input, size(b_transposed ? K : N), a, input, size(a_transposed ? M : K),
                        &zero, c, CUDA_R_32F, size(N), compute, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
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

// Where the next call is queued. Setting it takes the library a while. A stream may be another one
// at the same address.
void use(void* stream) {
  static void* now = nullptr;  // the default stream, as in a new handle
  if (stream == nullptr && now == nullptr) return;
  check(rocblas_set_stream(handle(), static_cast<hipStream_t>(stream)), "rocblas_set_stream");
  now = stream;
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

void axpy(std::size_t n, float alpha, const float* x, float* y, void* stream) {
  use(stream);
  scalars_on(rocblas_pointer_mode_host);
  check(rocblas_saxpy(handle(), to_int(n), &alpha, x, 1, y, 1), "rocblas_saxpy");
}

void scal(std::size_t n, float alpha, float* x, void* stream) {
  use(stream);
  scalars_on(rocblas_pointer_mode_host);
  check(rocblas_sscal(handle(), to_int(n), &alpha, x, 1), "rocblas_sscal");
}

void dot(std::size_t n, const float* x, const float* y, float* device_result, void* stream) {
  use(stream);
  scalars_on(rocblas_pointer_mode_device);
  check(rocblas_sdot(handle(), to_int(n), x, 1, y, 1, device_result), "rocblas_sdot");
}

// rocBLAS stores matrices by columns, so a row-major matrix is its own transpose there: instead of
// C = A B the calls below ask for the transpose of C, the product of the transposes of B and A.

namespace {

rocblas_operation operation(bool transposed) {
  return transposed ? rocblas_operation_transpose : rocblas_operation_none;
}

}  // namespace

void transpose(std::size_t rows, std::size_t cols, const float* a, float* out, void* stream) {
  use(stream);
  const float one = 1, zero = 0;
  scalars_on(rocblas_pointer_mode_host);
  check(rocblas_sgeam(handle(), rocblas_operation_transpose, rocblas_operation_none, to_int(rows),
                      to_int(cols), &one, a, to_int(cols), &zero, out, to_int(rows), out,
                      to_int(rows)),
        "rocblas_sgeam");
}

void gemv(bool transposed, std::size_t rows, std::size_t cols, float alpha, const float* a,
          std::size_t lda, const float* x, float beta, float* y, void* stream) {
  use(stream);
  scalars_on(rocblas_pointer_mode_host);
  check(rocblas_sgemv(handle(), operation(!transposed), to_int(cols), to_int(rows), &alpha, a,
                      to_int(lda), x, 1, &beta, y, 1),
        "rocblas_sgemv");
}

void gemm(bool transposed_a, bool transposed_b, std::size_t M, std::size_t N, std::size_t K,
          float alpha, const float* a, std::size_t lda, const float* b, std::size_t ldb, float beta,
          float* c, std::size_t ldc, void* stream) {
  use(stream);
  scalars_on(rocblas_pointer_mode_host);
  check(rocblas_sgemm(handle(), operation(transposed_b), operation(transposed_a), to_int(N),
                      to_int(M), to_int(K), &alpha, b, to_int(ldb), a, to_int(lda), &beta, c,
                      to_int(ldc)),
        "rocblas_sgemm");
}

void gemm_mixed(Input type, std::size_t M, std::size_t N, std::size_t K, const void* a,
                const void* b, float* c, void* stream, bool a_transposed, bool b_transposed) {
  use(stream);
  if (type == Input::tf32) throw std::runtime_error("rocBLAS has no tf32");
  const float one = 1, zero = 0;
  const rocblas_datatype input =
      type == Input::float16 ? rocblas_datatype_f16_r : rocblas_datatype_bf16_r;
  scalars_on(rocblas_pointer_mode_host);
  const auto operation = [](bool transposed) {
    return transposed ? rocblas_operation_transpose : rocblas_operation_none;
  };
  check(rocblas_gemm_ex(handle(), operation(b_transposed), operation(a_transposed), to_int(N),
                        to_int(M), to_int(K), &one, b, input, to_int(b_transposed ? K : N), a,
                        input, to_int(a_transposed ? M : K), &zero, c, rocblas_datatype_f32_r,
                        to_int(N), c, rocblas_datatype_f32_r, to_int(N), rocblas_datatype_f32_r,
                        rocblas_gemm_algo_standard, 0, 0),
        "rocblas_gemm_ex");
}

#else

namespace {

[[noreturn]] void none() {
  throw std::runtime_error("this program was built without cuBLAS or rocBLAS");
}

}  // namespace

const char* name() { return ""; }
bool available() { return false; }
void axpy(std::size_t, float, const float*, float*, void*) { none(); }
void scal(std::size_t, float, float*, void*) { none(); }
void dot(std::size_t, const float*, const float*, float*, void*) { none(); }
void transpose(std::size_t, std::size_t, const float*, float*, void*) { none(); }
void gemv(bool, std::size_t, std::size_t, float, const float*, std::size_t, const float*, float,
          float*, void*) {
  none();
}
void gemm(bool, bool, std::size_t, std::size_t, std::size_t, float, const float*, std::size_t,
          const float*, std::size_t, float, float*, std::size_t, void*) {
  none();
}
void gemm_mixed(Input, std::size_t, std::size_t, std::size_t, const void*, const void*, float*,
                void*, bool, bool) {
  none();
}

#endif

}  // namespace blas
