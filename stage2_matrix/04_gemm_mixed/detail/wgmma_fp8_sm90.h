// wgmma for e4m3: C (64, 256) += A (64, 32) · B^T, B (256, 32). Both tiles lie as A does in
// detail/wgmma_sm90.h, with K along their rows: 128 numbers in a row of 128 bytes, 32 in a step.
// The type has no other layout.
//
// The sums are floats whose last bits nobody keeps: an addition aligns the products and the sum to
// the largest of them and cuts off what is more than 13 bits behind its first one.
#pragma once

#include "common/fp8.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/wgmma_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

#if defined(GPU_BACKEND_CPU)

__device__ __forceinline__ void multiply_fp8_64x256(float (&sums)[128], Descriptor a, Descriptor b,
                                                    bool add, CPU_SITE("multiply_fp8_64x256()")) {
  begin_product(sums, {a, b, 256, cpu::Element::e4m3, false, true, add}, nullptr, site);
}

#else

// The TMA copies bytes: it has no name for e4m3 and needs none.
template <>
inline constexpr CUtensorMapDataType kTensorType<gpu::fp8> = CU_TENSOR_MAP_DATA_TYPE_UINT8;

#define FP8_TEN(t)                                                                                 \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t \
  "9, "
#define FP8_128 \
  FP8_TEN() FP8_TEN(1) FP8_TEN(2) FP8_TEN(3) FP8_TEN(4) FP8_TEN(5) FP8_TEN(6) FP8_TEN(7)         \
      FP8_TEN(8) FP8_TEN(9) FP8_TEN(10) FP8_TEN(11) "%120, %121, %122, %123, %124, %125, %126, " \
                                                    "%127"
#define FP8_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define FP8_16(i) FP8_4(i), FP8_4(i + 4), FP8_4(i + 8), FP8_4(i + 12)
#define FP8_SUMS_64(i) FP8_16(i), FP8_16(i + 16), FP8_16(i + 32), FP8_16(i + 48)

// As multiply_64x256, which has the sums in the same places.
__device__ __forceinline__ void multiply_fp8_64x256(float (&sums)[128], Descriptor a, Descriptor b,
                                                    bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" FP8_128 "}, %128, %129, p, 1, 1;\n}"
      : FP8_SUMS_64(0), FP8_SUMS_64(64)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

#undef FP8_SUMS_64
#undef FP8_16
#undef FP8_4
#undef FP8_128
#undef FP8_TEN

#endif

}  // namespace gemm_mixed

#endif
