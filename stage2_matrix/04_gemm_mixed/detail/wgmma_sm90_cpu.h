// wgmma on the CPU backend: what detail/wgmma_sm90.h has for NVIDIA's, with the same names. A
// product is computed when the warp group waits for it; until then its sums are NaN.
#pragma once

#include "common/gpu_runtime.h"

#if defined(GPU_BACKEND_CPU)

#include <type_traits>

#include "common/half.h"
#include "stage2_matrix/04_gemm_mixed/detail/wgmma_sm90.h"

namespace gemm_mixed {

__device__ inline void begin_wgmma() { cpu::begin_products(cpu::caller_number()); }
__device__ inline void end_wgmma() { cpu::end_products(cpu::caller_number()); }
template <int kLate>
__device__ inline void wait_for_wgmma(CPU_SITE("wait_for_wgmma()")) {
  const uint3 self = threadIdx;
  cpu::wait(cpu::arrive_for_products({cpu::caller_number(), site}, kLate), self);
}

__device__ inline void begin_product(float* sums, const cpu::Product& product, const unsigned* held,
                                     const cpu::Site& site) {
  cpu::begin_product({cpu::caller_number(), site}, product, sums, held);
  cpu::go_on();
}

template <class T>
inline constexpr cpu::Element kElement =
    std::is_same_v<T, gpu::bfloat16> ? cpu::Element::bfloat16 : cpu::Element::half;

template <class T>
__device__ __forceinline__ void multiply_64x128(float (&sums)[64], Descriptor a, Descriptor b,
                                                bool add, CPU_SITE("multiply_64x128()")) {
  begin_product(sums, {a, b, 128, kElement<T>, false, false, add}, nullptr, site);
}
template <class T, bool kAcrossA = false, bool kAcrossB = true>
__device__ __forceinline__ void multiply_64x256(float (&sums)[128], Descriptor a, Descriptor b,
                                                bool add, CPU_SITE("multiply_64x256()")) {
  begin_product(sums, {a, b, 256, kElement<T>, false, !kAcrossB, add, kAcrossA}, nullptr, site);
}
template <bool kAcrossA, bool kAcrossB>
__device__ __forceinline__ void multiply_64x64(float (&sums)[32], Descriptor a, Descriptor b,
                                               bool add, CPU_SITE("multiply_64x64()")) {
  begin_product(sums, {a, b, 64, cpu::Element::bfloat16, false, !kAcrossB, add, kAcrossA}, nullptr,
                site);
}
__device__ __forceinline__ void multiply_rows(float (&sums)[64], Descriptor a, Descriptor b,
                                              bool add, CPU_SITE("multiply_rows()")) {
  begin_product(sums, {a, b, 128, cpu::Element::bfloat16, false, true, add}, nullptr, site);
}
template <class T, int kSums>
__device__ __forceinline__ void multiply_swapped(float (&sums)[kSums], Descriptor a, Descriptor b,
                                                 bool add, CPU_SITE("multiply_swapped()")) {
  begin_product(sums, {a, b, 2 * kSums, kElement<T>, false, true, add, true}, nullptr, site);
}
template <bool kAcrossB = true, int kSums>
__device__ __forceinline__ void multiply_held(float (&sums)[kSums], const unsigned (&a)[4],
                                              Descriptor b, bool add, CPU_SITE("multiply_held()")) {
  begin_product(sums, {0, b, 2 * kSums, cpu::Element::bfloat16, true, !kAcrossB, add}, a, site);
}
template <int kSums>
__device__ __forceinline__ void multiply_held_rows(float (&sums)[kSums], const unsigned (&a)[4],
                                                   Descriptor b, bool add,
                                                   CPU_SITE("multiply_held_rows()")) {
  begin_product(sums, {0, b, 2 * kSums, cpu::Element::tf32, true, true, add}, a, site);
}

__device__ __forceinline__ void multiply_fp8_64x256(float (&sums)[128], Descriptor a, Descriptor b,
                                                    bool add, CPU_SITE("multiply_fp8_64x256()")) {
  begin_product(sums, {a, b, 256, cpu::Element::e4m3, false, true, add}, nullptr, site);
}

}  // namespace gemm_mixed

#endif
