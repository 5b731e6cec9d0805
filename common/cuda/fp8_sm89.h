// The conversions of e4m3 that sm_89 and later have, as functions on its bits. PTX ISA, section
// "cvt". They convert two numbers at a time: the other one is not used.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890

#include <cstdint>

namespace gpu::detail {

__device__ inline float e4m3_to_float(std::uint8_t bits) {
  float result;
  asm("{\n"
      ".reg .b16 low, high;\n"
      ".reg .b32 both;\n"
      "cvt.rn.f16x2.e4m3x2 both, %1;\n"
      "mov.b32 {low, high}, both;\n"
      "cvt.f32.f16 %0, low;\n"
      "}"
      : "=f"(result)
      : "h"(static_cast<unsigned short>(bits)));
  return result;
}

__device__ inline std::uint8_t float_to_e4m3(float value) {
  unsigned short both;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(0.0f), "f"(value));
  return static_cast<std::uint8_t>(both);
}

}  // namespace gpu::detail

#endif
