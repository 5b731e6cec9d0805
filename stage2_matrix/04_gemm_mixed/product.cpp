// What products of 16-bit matrices refuse.
#include "stage2_matrix/04_gemm_mixed/product.h"

#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/program.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {
namespace {

template <class T>
void check_array(const std::string& name, const T* data, size_t columns, size_t ld) {
  const auto refuse = [](const std::string& why) {
    throw std::invalid_argument("gemm_mixed: " + why);
  };
  if (ld < columns)
    refuse("ld" + name + " = " + std::to_string(ld) + " is less than the " +
           std::to_string(columns) + " elements of a row of " + name);
  if (data == nullptr) refuse(name + " is null");
  if (reinterpret_cast<std::uintptr_t>(data) % sizeof(T) != 0)
    refuse(name + " is not aligned to " + std::to_string(sizeof(T)) + " bytes");
}

}  // namespace

template <class T, class C>
void check(const Product<T, C>& p) {
  if (p.M == 0 || p.N == 0 || p.batch == 0) return;
  check_array("c", p.c, p.N, p.ldc);
  if (p.K == 0 || p.alpha == 0) return;
  check_array("a", p.a, p.a_is_transposed() ? p.M : p.K, p.lda);
  check_array("b", p.b, p.b_is_transposed() ? p.K : p.N, p.ldb);
}

bool has(Kernel kernel) {
  static const bool has_sm90 = missing(kNeedsOfSm90).empty();
  static const bool has_sm80 = missing(kNeedsOfMmaSync).empty();
  return kernel == Kernel::pairs ? has_sm90 : kernel == Kernel::mma ? has_sm80 : true;
}

template void check(const Product<gpu::half, float>&);
template void check(const Product<gpu::half, gpu::half>&);
template void check(const Product<gpu::bfloat16, float>&);
template void check(const Product<gpu::bfloat16, gpu::bfloat16>&);

}  // namespace gemm_mixed
