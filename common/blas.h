// The vendor's BLAS, as a peer to hold the course's kernels against: cuBLAS or rocBLAS where CMake
// found one (COURSE_HAVE_CUBLAS, COURSE_HAVE_ROCBLAS), else nothing is linked and available() is
// false.
//
// All arrays are float and on the device; the work is queued on `stream`, a hipStream_t, and can be
// captured. A failed call, or a call where there is no library, throws std::runtime_error. The
// library's handle is made at the first call and belongs to the device that is current then.
// rocBLAS takes n up to 2^31 - 1.
#pragma once

#include <cstddef>

namespace blas {

const char* name();  // "cuBLAS", "rocBLAS", or "" where there is neither
bool available();

// y[i] = alpha * x[i] + y[i] for i in [0, n).
void axpy(std::size_t n, float alpha, const float* x, float* y, void* stream = nullptr);
// x[i] = alpha * x[i] for i in [0, n).
void scal(std::size_t n, float alpha, float* x, void* stream = nullptr);
// *device_result = sum of x[i] * y[i] over i in [0, n). The host does not wait for it.
void dot(std::size_t n, const float* x, const float* y, float* device_result,
         void* stream = nullptr);

// Matrices are row-major; a leading dimension is the distance between the starts of two rows, in
// elements. An operand that is `transposed` is stored as (columns, rows) of what stands in the
// formula.

// out (cols, rows) = the transpose of a (rows, cols). Both without gaps between their rows.
void transpose(std::size_t rows, std::size_t cols, const float* a, float* out,
               void* stream = nullptr);
// y = alpha * A x + beta * y with A = a (rows, cols), or A = the transpose of a.
void gemv(bool transposed, std::size_t rows, std::size_t cols, float alpha, const float* a,
          std::size_t lda, const float* x, float beta, float* y, void* stream = nullptr);
// C = alpha * A B + beta * C with A (M, K), B (K, N), C (M, N), all in IEEE float: no tf32.
void gemm(bool transposed_a, bool transposed_b, std::size_t M, std::size_t N, std::size_t K,
          float alpha, const float* a, std::size_t lda, const float* b, std::size_t ldb, float beta,
          float* c, std::size_t ldc, void* stream = nullptr);

// What the matrix units multiply; sums and C are float. `tf32` is stored as float.
enum class Input { float16, bfloat16, tf32 };
// C = op(A) op(B) with op(A) (M, K), op(B) (K, N), C (M, N), none with gaps between rows. rocBLAS
// has no tf32: the call throws.
void gemm_mixed(Input type, std::size_t M, std::size_t N, std::size_t K, const void* a,
                const void* b, float* c, void* stream = nullptr, bool a_transposed = false,
                bool b_transposed = false);

}  // namespace blas
