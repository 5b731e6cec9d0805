// What the launchers share on the host: checks and grids.
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "common/gpu_runtime.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {
namespace {

void check_array(const std::string& name, const float* data, size_t cols, size_t ld) {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument("gemm: " + why); };
  if (ld < cols)
    refuse("ld" + name + " = " + std::to_string(ld) + " is less than the " + std::to_string(cols) +
           " elements of a row of " + name);
  if (data == nullptr) refuse(name + " is null");
  if (reinterpret_cast<std::uintptr_t>(data) % sizeof(float) != 0)
    refuse(name + " is not aligned to 4 bytes");
}

}  // namespace

Product contiguous(float* c, const float* a, const float* b, size_t M, size_t N, size_t K) {
  Product p;
  p.M = M, p.N = N, p.K = K;
  p.a = a, p.lda = K, p.b = b, p.ldb = N, p.c = c, p.ldc = N;
  return p;
}

void check(const Product& p) {
  if (p.M == 0 || p.N == 0 || p.batch == 0) return;
  check_array("c", p.c, p.N, p.ldc);
  if (p.K == 0 || p.alpha == 0) return;
  check_array("a", p.a, p.layout == Layout::TN ? p.M : p.K, p.lda);
  check_array("b", p.b, p.layout == Layout::NT ? p.K : p.N, p.ldb);
}

dim3 tile_grid(size_t x, size_t tile_x, size_t y, size_t tile_y) {
  constexpr size_t kMostX = std::numeric_limits<std::int32_t>::max();
  const size_t blocks_x = gpu::ceil_div(x, tile_x), blocks_y = gpu::ceil_div(y, tile_y);
  if (blocks_x > kMostX || blocks_y > gpu::kMaxGridY)
    throw std::invalid_argument("gemm: C has too many tiles");
  return dim3(static_cast<unsigned>(blocks_x), static_cast<unsigned>(blocks_y));
}

void Launch::operator()(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                        hipStream_t stream) const {
  if (contiguous != nullptr) return contiguous(c, a, b, M, N, K, stream);
  general(gemm::contiguous(c, a, b, M, N, K), stream);
}

void best(Layout layout, size_t M, size_t N, size_t K, float alpha, const float* a, size_t lda,
          const float* b, size_t ldb, float beta, float* c, size_t ldc, hipStream_t stream) {
  best(Product{layout, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc}, stream);
}

}  // namespace gemm
