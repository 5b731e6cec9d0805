// wgmma, the instruction of sm_90's matrix units: four warps multiply two tiles that lie in shared
// memory and add the product to sums in their registers. It runs while the warps go on.
//
//   C (64, n) += A (64, 16) · B (16, n)      n = 128 or 256, A and B fp16 or bf16, C float
//   C (64, n) += A (64, 8) · B (8, n)        A and B tf32
//
// A tile in shared memory is as the TMA puts it there: rows of 128 bytes, in which the 16-byte
// chunk j of row r stands at place j ^ r % 8. Eight rows, 1024 bytes, are the unit of that pattern.
//
// clang-format off
//   A, 64 elements along K in a row:     B, 64 columns of C in a row. Where a tile is wider,
//                                        the next 64 columns are the next box:
//         k 0 .. 15  16 .. 31 ...              column 0 .. 63        column 64 .. 127
//   row 0   [step 0] [step 1]            k  0  [            ]        [             ]
//   row 1   [step 0] [step 1]            ..    [   step 0   ]        [   step 0    ]
//   ...                                  k 16  [            ]        [             ]
//                                        ..    [   step 1   ]        [   step 1    ]
// clang-format on
//
// The next step is 32 bytes further in A, and 16 rows further, 2048 bytes, in B. Either matrix may
// lie as either of them does: bits of the instruction say which. The hardware applies the swizzle
// to the address that results. PTX ISA, section "Asynchronous warpgroup level matrix instructions".
// Tiles of tf32 and fp8 have K along their rows. A may come from registers, of every type.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm90.h"

#if !defined(GPU_BACKEND_HIP)

namespace gemm_mixed {

// Boxes are swizzled by their addresses: tiles begin at multiples of 1024 bytes, which a block's
// dynamic shared memory need not. A launch asks for kBoxAlignment bytes more.
inline constexpr unsigned kBoxAlignment = 1024;
template <class Shared>
__device__ inline Shared& aligned_shared(unsigned char* dynamic) {
  const unsigned behind = shared_address(dynamic) % kBoxAlignment;
  return *reinterpret_cast<Shared*>(dynamic + (kBoxAlignment - behind) % kBoxAlignment);
}

inline constexpr int kBoxRowBytes = 128;
template <class T>
inline constexpr int kBoxColumns = kBoxRowBytes / static_cast<int>(sizeof(T));

// A tile that wgmma reads, as 64 bits: bits 0 to 13 the address, 16 to 29 the distance from one box
// of 64 columns to the next, 32 to 45 that from eight rows to the next eight, all in units of 16
// bytes; bits 62 and 63 the swizzle, 1: of 128 bytes.
using Descriptor = std::uint64_t;

__device__ inline Descriptor describe(const void* tile, unsigned box_bytes) {
  constexpr Descriptor kEightRows = 8 * kBoxRowBytes / 16, kSwizzle128 = 1;
  const Descriptor address = (shared_address(tile) & 0x3FFFFu) / 16;
  return address | Descriptor{box_bytes / 16} << 16 | kEightRows << 32 | kSwizzle128 << 62;
}
// Step `step` along K of 64 rows of A. A is one box wide, so the distance of boxes is not used.
__device__ inline Descriptor describe_a(const void* rows, int step) {
  return describe(rows, 16) + static_cast<Descriptor>(step * 2);
}
// Step `step` along K of B, whose boxes of 64 columns have box_bytes each.
__device__ inline Descriptor describe_b(const void* boxes, unsigned box_bytes, int step) {
  return describe(boxes, box_bytes) + static_cast<Descriptor>(step * 16 * kBoxRowBytes / 16);
}
// Either matrix; kAcross: its rows lie across K, as B's above.
template <bool kAcross>
__device__ inline Descriptor describe_either(const void* tile, unsigned box_bytes, int step) {
  return kAcross ? describe_b(tile, box_bytes, step) : describe_a(tile, step);
}

}  // namespace gemm_mixed

#if defined(GPU_BACKEND_CPU)

#include "stage2_matrix/04_gemm_mixed/detail/wgmma_sm90_cpu.h"

#else

namespace gemm_mixed {

// Before a thread's first wgmma, and after it has touched the sums otherwise.
__device__ inline void begin_wgmma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// What was issued since the last end_wgmma() is a group.
__device__ inline void end_wgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits for all groups but the last kLate. The sums may be read if kLate is 0.
template <int kLate>
__device__ inline void wait_for_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLate) : "memory");
}

// The instruction's text and operands, since it names each of its 8 to 128 registers.
#define WGMMA_TEN(t)                                                                               \
  "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t \
  "9, "
#define WGMMA_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_32 WGMMA_TEN() WGMMA_TEN(1) WGMMA_TEN(2) "%30, %31"
#define WGMMA_60 WGMMA_TEN() WGMMA_TEN(1) WGMMA_TEN(2) WGMMA_TEN(3) WGMMA_TEN(4) WGMMA_TEN(5)
#define WGMMA_64 WGMMA_60 "%60, %61, %62, %63"
#define WGMMA_128                                                            \
  WGMMA_60 WGMMA_TEN(6) WGMMA_TEN(7) WGMMA_TEN(8) WGMMA_TEN(9) WGMMA_TEN(10) \
      WGMMA_TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define WGMMA_SUMS_8(i) WGMMA_4(i), WGMMA_4(i + 4)
#define WGMMA_16(i) WGMMA_4(i), WGMMA_4(i + 4), WGMMA_4(i + 8), WGMMA_4(i + 12)
#define WGMMA_SUMS_32(i) WGMMA_16(i), WGMMA_16(i + 16)
#define WGMMA_SUMS_64(i) WGMMA_16(i), WGMMA_16(i + 16), WGMMA_16(i + 32), WGMMA_16(i + 48)
#define WGMMA_SUMS_128(i) WGMMA_SUMS_64(i), WGMMA_SUMS_64(i + 64)

// Behind the sums: A, a descriptor or registers; the descriptor of B; a predicate, whether to add
// to the sums; factors of 1 of A and B; then, of 16-bit numbers, 1 for a matrix whose rows do not
// lie along K: A, if it is a descriptor, and B.
#define WGMMA(shape, type, registers, sums_of, a_operand, a_values, b_operand, add_operand, lies) \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_operand                                    \
               ", 0;\n"                                                                           \
               "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" registers         \
               "}, " a_operand ", " b_operand ", p, 1, 1" lies ";\n}"                             \
               : sums_of(0)                                                                       \
               : a_values, "l"(b), "r"(static_cast<int>(add)))
#define WGMMA_DESCRIPTOR "l"(a)
#define WGMMA_MAJORS "l"(a), "n"(int{kAcrossA}), "n"(int{kAcrossB})
#define WGMMA_FRAGMENT "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define WGMMA_FRAGMENT_MAJOR WGMMA_FRAGMENT, "n"(int{kAcrossB})

// sums = a b, or sums += a b where `add`. All threads of the warp group call it. Thread t holds
// sums[4 j + i], i = 0, 1: row t/32*16 + t%32/4, column 8 j + t%4*2 + i; i = 2, 3: 8 rows further.
template <class T>
__device__ __forceinline__ void multiply_64x128(float (&sums)[64], Descriptor a, Descriptor b,
                                                bool add) {
  if constexpr (std::is_same_v<T, gpu::half>)
    WGMMA("m64n128k16", "f16", WGMMA_64, WGMMA_SUMS_64, "%64", WGMMA_DESCRIPTOR, "%65", "%66",
          ", 0, 1");
  else
    WGMMA("m64n128k16", "bf16", WGMMA_64, WGMMA_SUMS_64, "%64", WGMMA_DESCRIPTOR, "%65", "%66",
          ", 0, 1");
}
// kAcrossA, kAcrossB: whether the rows of the tile lie across K, as B's above, or along it, as A's.
template <class T, bool kAcrossA = false, bool kAcrossB = true>
__device__ __forceinline__ void multiply_64x256(float (&sums)[128], Descriptor a, Descriptor b,
                                                bool add) {
  if constexpr (std::is_same_v<T, gpu::half>)
    WGMMA("m64n256k16", "f16", WGMMA_128, WGMMA_SUMS_128, "%128", WGMMA_MAJORS, "%131", "%132",
          ", %129, %130");
  else
    WGMMA("m64n256k16", "bf16", WGMMA_128, WGMMA_SUMS_128, "%128", WGMMA_MAJORS, "%131", "%132",
          ", %129, %130");
}
// The same of 64 x 64 sums, for bf16.
template <bool kAcrossA, bool kAcrossB>
__device__ __forceinline__ void multiply_64x64(float (&sums)[32], Descriptor a, Descriptor b,
                                               bool add) {
  WGMMA("m64n64k16", "bf16", WGMMA_32, WGMMA_SUMS_32, "%32", WGMMA_MAJORS, "%35", "%36",
        ", %33, %34");
}

// For bf16: a b^T, where b (128, 16) lies like A, with K along its rows.
__device__ __forceinline__ void multiply_rows(float (&sums)[64], Descriptor a, Descriptor b,
                                              bool add) {
  WGMMA("m64n128k16", "bf16", WGMMA_64, WGMMA_SUMS_64, "%64", WGMMA_DESCRIPTOR, "%65", "%66",
        ", 0, 0");
}
// The same of operands that have changed places: a (64, 16) lies like a box of B, with its rows
// across K, and b (n, 16) like A. The sums are a tile of C^T = B^T A^T, n = 16, 64 or 128.
template <class T>
__device__ __forceinline__ void multiply_swapped(float (&sums)[8], Descriptor a, Descriptor b,
                                                 bool add) {
  if constexpr (std::is_same_v<T, gpu::half>)
    WGMMA("m64n16k16", "f16", WGMMA_8, WGMMA_SUMS_8, "%8", WGMMA_DESCRIPTOR, "%9", "%10", ", 1, 0");
  else
    WGMMA("m64n16k16", "bf16", WGMMA_8, WGMMA_SUMS_8, "%8", WGMMA_DESCRIPTOR, "%9", "%10",
          ", 1, 0");
}
template <class T>
__device__ __forceinline__ void multiply_swapped(float (&sums)[32], Descriptor a, Descriptor b,
                                                 bool add) {
  if constexpr (std::is_same_v<T, gpu::half>)
    WGMMA("m64n64k16", "f16", WGMMA_32, WGMMA_SUMS_32, "%32", WGMMA_DESCRIPTOR, "%33", "%34",
          ", 1, 0");
  else
    WGMMA("m64n64k16", "bf16", WGMMA_32, WGMMA_SUMS_32, "%32", WGMMA_DESCRIPTOR, "%33", "%34",
          ", 1, 0");
}
template <class T>
__device__ __forceinline__ void multiply_swapped(float (&sums)[64], Descriptor a, Descriptor b,
                                                 bool add) {
  if constexpr (std::is_same_v<T, gpu::half>)
    WGMMA("m64n128k16", "f16", WGMMA_64, WGMMA_SUMS_64, "%64", WGMMA_DESCRIPTOR, "%65", "%66",
          ", 1, 0");
  else
    WGMMA("m64n128k16", "bf16", WGMMA_64, WGMMA_SUMS_64, "%64", WGMMA_DESCRIPTOR, "%65", "%66",
          ", 1, 0");
}

// For bf16: a b, with a in registers, as mma.sync has it: a warp holds 16 rows, a register two
// elements: row t%32/4, column t%4*2 and the next; 8 rows further; 8 columns further; both.
__device__ __forceinline__ void multiply_held(float (&sums)[32], const unsigned (&a)[4],
                                              Descriptor b, bool add) {
  WGMMA("m64n64k16", "bf16", WGMMA_32, WGMMA_SUMS_32, "{%32, %33, %34, %35}", WGMMA_FRAGMENT, "%36",
        "%37", ", 1");
}
template <bool kAcrossB = true>
__device__ __forceinline__ void multiply_held(float (&sums)[64], const unsigned (&a)[4],
                                              Descriptor b, bool add) {
  WGMMA("m64n128k16", "bf16", WGMMA_64, WGMMA_SUMS_64, "{%64, %65, %66, %67}", WGMMA_FRAGMENT_MAJOR,
        "%69", "%70", ", %68");
}

// For tf32: a b^T, where a (64, 8) is in registers and b (n, 8) has K along its rows, n = 128 or
// 256. A register is an element: row t%32/4, column t%4; 8 rows further; 4 columns further; both.
__device__ __forceinline__ void multiply_held_rows(float (&sums)[64], const unsigned (&a)[4],
                                                   Descriptor b, bool add) {
  WGMMA("m64n128k8", "tf32", WGMMA_64, WGMMA_SUMS_64, "{%64, %65, %66, %67}", WGMMA_FRAGMENT, "%68",
        "%69", "");
}
__device__ __forceinline__ void multiply_held_rows(float (&sums)[128], const unsigned (&a)[4],
                                                   Descriptor b, bool add) {
  WGMMA("m64n256k8", "tf32", WGMMA_128, WGMMA_SUMS_128, "{%128, %129, %130, %131}", WGMMA_FRAGMENT,
        "%132", "%133", "");
}

// For e4m3, which has no other layout: a b^T, a (64, 32), b (256, 32). An addition aligns products
// and sum to the largest of them, and cuts off what is more than 13 bits behind its first one.
__device__ __forceinline__ void multiply_fp8_64x256(float (&sums)[128], Descriptor a, Descriptor b,
                                                    bool add) {
  WGMMA("m64n256k32", "e4m3", WGMMA_128, WGMMA_SUMS_128, "%128", WGMMA_DESCRIPTOR, "%129", "%130",
        "");
}

#undef WGMMA_FRAGMENT_MAJOR
#undef WGMMA_FRAGMENT
#undef WGMMA_MAJORS
#undef WGMMA_DESCRIPTOR
#undef WGMMA
#undef WGMMA_SUMS_128
#undef WGMMA_SUMS_64
#undef WGMMA_SUMS_32
#undef WGMMA_16
#undef WGMMA_SUMS_8
#undef WGMMA_4
#undef WGMMA_128
#undef WGMMA_64
#undef WGMMA_60
#undef WGMMA_32
#undef WGMMA_8
#undef WGMMA_TEN

}  // namespace gemm_mixed

#endif

#endif
