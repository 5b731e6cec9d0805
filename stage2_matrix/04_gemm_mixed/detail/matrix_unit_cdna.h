// 2.4  AMD's matrix units, CDNA 2 and newer (gfx90a, gfx940 to gfx950), through MFMA builtins.
//
// v_mfma_f32_16x16x16 multiplies with all 64 lanes of a wave. Lane l holds
//
//   of A   row    l % 16, the 4 elements k = 4 (l / 16), ... + 3
//   of B   column l % 16, the 4 elements k = 4 (l / 16), ... + 3
//   of C   column l % 16, the 4 rows         4 (l / 16), ... + 3
//
// (AMD: "AMD Instinct MI200" instruction set architecture, chapter on matrix arithmetic; the
// amd_matrix_instruction_calculator prints these layouts.) There is no tf32 before gfx940: it is
// multiplied as float here, 4 elements of K at a time, which is exact as well.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/software_unit.h"

#if defined(__gfx90a__) || defined(__gfx940__) || defined(__gfx941__) || defined(__gfx942__) || \
    defined(__gfx950__)

namespace gemm_mixed {

using Floats4 = __attribute__((__vector_size__(4 * sizeof(float)))) float;
using Halves4 = __attribute__((__vector_size__(4 * sizeof(_Float16)))) _Float16;
using Shorts4 = __attribute__((__vector_size__(4 * sizeof(short)))) short;

// C += A B along 4 elements of K per lane of 16-bit types, along 1 of float.
__device__ inline Floats4 mfma(const gpu::half (&a)[4], const gpu::half (&b)[4], Floats4 c) {
  Halves4 a_bits, b_bits;
  memcpy(&a_bits, a, sizeof a_bits);
  memcpy(&b_bits, b, sizeof b_bits);
  return __builtin_amdgcn_mfma_f32_16x16x16f16(a_bits, b_bits, c, 0, 0, 0);
}
__device__ inline Floats4 mfma(const gpu::bfloat16 (&a)[4], const gpu::bfloat16 (&b)[4],
                               Floats4 c) {
  Shorts4 a_bits, b_bits;
  memcpy(&a_bits, a, sizeof a_bits);
  memcpy(&b_bits, b, sizeof b_bits);
  return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a_bits, b_bits, c, 0, 0, 0);
}
__device__ inline Floats4 mfma(const float (&a)[1], const float (&b)[1], Floats4 c) {
  return __builtin_amdgcn_mfma_f32_16x16x4f32(a[0], b[0], c, 0, 0, 0);
}

// Elements: how many a lane holds of A or B for one instruction.
template <class T, int kElements>
struct MfmaUnit {
  static constexpr int kTile = SoftwareUnit<T>::kTile, kDepth = SoftwareUnit<T>::kDepth;
  static constexpr int kGroups = 4;  // of 16 lanes each
  static constexpr int kInstructions = kDepth / (kGroups * kElements);

  struct A {
    T elements[kInstructions][kElements];
  };
  struct B {
    T elements[kInstructions][kElements];
  };
  using C = Floats4;

  static __device__ void clear(C& c) { c = C{0, 0, 0, 0}; }
  static __device__ void load(A& a, const T* tile, size_t stride) {
    for (int i = 0; i < kInstructions; ++i)
      for (int e = 0; e < kElements; ++e) a.elements[i][e] = tile[place() * stride + k(i, e)];
  }
  static __device__ void load(B& b, const T* tile, size_t stride) {
    for (int i = 0; i < kInstructions; ++i)
      for (int e = 0; e < kElements; ++e) b.elements[i][e] = tile[k(i, e) * stride + place()];
  }
  static __device__ void multiply_add(C& c, const A& a, const B& b) {
    for (int i = 0; i < kInstructions; ++i) c = mfma(a.elements[i], b.elements[i], c);
  }
  static __device__ void store(float* tile, size_t stride, const C& c) {
    for (int j = 0; j < kGroups; ++j) tile[(4 * group() + j) * stride + place()] = c[j];
  }

 private:
  static __device__ size_t place() { return static_cast<size_t>(gpu::lane_id() % kTile); }
  static __device__ size_t group() { return static_cast<size_t>(gpu::lane_id() / kTile); }
  static __device__ size_t k(int instruction, int element) {
    return (instruction * kGroups + group()) * kElements + element;
  }
};

template <>
struct MatrixUnit<gpu::half> : MfmaUnit<gpu::half, 4> {};
template <>
struct MatrixUnit<gpu::bfloat16> : MfmaUnit<gpu::bfloat16, 4> {};
template <>
struct MatrixUnit<float> : MfmaUnit<float, 1> {};

}  // namespace gemm_mixed
#endif
