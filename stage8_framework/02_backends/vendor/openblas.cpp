// OpenBLAS, the BLAS of the CPU backend's plug-in.
#include <cblas.h>

#include <algorithm>

#include "stage8_framework/02_backends/vendor/vendor.h"

namespace vendor {

void gemm(std::size_t M, std::size_t N, std::size_t K, const Matrix& a, const Matrix& b, float beta,
          float* c, void*) {
  const auto to_int = [](std::size_t n) { return static_cast<blasint>(n); };
  cblas_sgemm(CblasRowMajor, a.is_transposed ? CblasTrans : CblasNoTrans,
              b.is_transposed ? CblasTrans : CblasNoTrans, to_int(M), to_int(N), to_int(K), 1,
              a.data, to_int(a.ld), b.data, to_int(b.ld), beta, c, to_int(N));
}

void repeat_row(float* y, const float* row, std::size_t rows, std::size_t cols, void*) {
  for (std::size_t r = 0; r < rows; ++r) std::copy_n(row, cols, y + r * cols);
}

}  // namespace vendor
