// __half (IEEE binary16) and __hip_bfloat16 on the CPU backend, under HIP's names.
//
//              sign exponent fraction   largest     smallest normal   roundoff
//   __half       1      5       10      65504       2^-14             2^-11
//   bfloat16     1      8        7      3.4e38      2^-126            2^-8     a float cut in half
//
// Conversions and arithmetic round to the nearest, ties to the even one, after every operation, as
// the hardware does. Computing in float and rounding once more is exact for + - * /, because float
// keeps more than twice the bits plus two (Figueroa, When is double rounding innocuous?, SIGNUM
// 1995); a fused multiply-add needs the care of fused() below.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/cpu/types.h"

namespace cpu {

template <class To, class From>
To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

// ---- binary16 as bits -------------------------------------------------------------------------

inline float half_bits_to_float_portable(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7FFFu;
  if (rest > 0x7C00u)  // NaN, made quiet
    return bit_cast<float>(sign | 0x7FC00000u | rest << 13);
  if (rest == 0x7C00u) return bit_cast<float>(sign | 0x7F800000u);
  if (rest < 0x0400u) {  // zero or subnormal: so many steps of 2^-24
    const float magnitude = static_cast<float>(rest) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return bit_cast<float>(sign | ((rest << 13) + ((127 - 15) << 23)));
}

inline std::uint16_t float_to_half_bits_portable(float value) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, rest = bits & 0x7FFFFFFFu;
  if (rest > 0x7F800000u)  // NaN, made quiet
    return static_cast<std::uint16_t>(sign | 0x7E00u | (rest >> 13 & 0x03FFu));
  if (rest >= 0x477FF000u)  // 65520, half a step above the largest: infinity
    return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (rest < 0x38800000u) {
    // Below 2^-14 a half counts steps of 2^-24. A float just above 0.5 counts the same steps with
    // its last bit, so the addition rounds for us.
    const float steps = bit_cast<float>(rest) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bit_cast<std::uint32_t>(steps) - 0x3F000000u));
  }
  // Add just less than half a step, and the last kept bit, so that ties go to the even one; a carry
  // runs into the exponent, which is right.
  const std::uint32_t odd = rest >> 13 & 1;
  return static_cast<std::uint16_t>(sign | ((rest + 0x0FFFu + odd - ((127 - 15) << 23)) >> 13));
}

// Where the processor has the conversion and the compiler the type, it is one instruction.
#if defined(__F16C__) && defined(__FLT16_MAX__)
inline float half_bits_to_float(std::uint16_t bits) {
  return static_cast<float>(bit_cast<_Float16>(bits));
}
inline std::uint16_t float_to_half_bits(float value) {
  return bit_cast<std::uint16_t>(static_cast<_Float16>(value));
}
#else
inline float half_bits_to_float(std::uint16_t bits) { return half_bits_to_float_portable(bits); }
inline std::uint16_t float_to_half_bits(float value) { return float_to_half_bits_portable(value); }
#endif

// ---- bfloat16 as bits -------------------------------------------------------------------------

inline float bfloat16_bits_to_float(std::uint16_t bits) {
  return bit_cast<float>(std::uint32_t{bits} << 16);
}

inline std::uint16_t float_to_bfloat16_bits(float value) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)  // NaN: rounding could carry it into infinity
    return static_cast<std::uint16_t>(bits >> 16 | 0x0040u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

// ---- One rounding for two operations ----------------------------------------------------------

// Rounding to odd: of the two neighbours of an inexact value the one whose last bit is set. It
// never makes a tie and never hides one, so rounding on to fewer bits then rounds the exact value.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  std::uint32_t bits = bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero
  return bit_cast<float>(bits | 1);
}

// a * b + c rounded to odd. The product of two halves or bfloat16 is exact in double; what the sum
// loses is recovered by Knuth's two-sum.
inline float fused(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, addend = c;
  double sum = product + addend;
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double part = sum - product;
  const double lost = (product - (sum - part)) + (addend - part);
  if (lost != 0 && (bit_cast<std::uint64_t>(sum) & 1) == 0)
    sum = std::nextafter(sum, lost > 0 ? HUGE_VAL : -HUGE_VAL);
  return round_to_odd(sum);
}

// ---- The two types ----------------------------------------------------------------------------

// What both have in common: 16 bits and two conversions. Format supplies these.
template <class Format>
struct Float16 {
  std::uint16_t bits;

  Float16() = default;  // uninitialised, so that it can live in shared memory
  explicit Float16(float value) : bits(Format::from_float(value)) {}
  operator float() const { return Format::to_float(bits); }

  static Float16 from_bits(std::uint16_t bits) {
    Float16 result;
    result.bits = bits;
    return result;
  }

  friend Float16 operator+(Float16 a, Float16 b) { return Float16(float(a) + float(b)); }
  friend Float16 operator-(Float16 a, Float16 b) { return Float16(float(a) - float(b)); }
  friend Float16 operator*(Float16 a, Float16 b) { return Float16(float(a) * float(b)); }
  friend Float16 operator/(Float16 a, Float16 b) { return Float16(float(a) / float(b)); }
  friend Float16 operator-(Float16 a) {
    return from_bits(static_cast<std::uint16_t>(a.bits ^ 0x8000u));
  }
  friend Float16& operator+=(Float16& a, Float16 b) { return a = a + b; }
  friend Float16& operator-=(Float16& a, Float16 b) { return a = a - b; }
  friend Float16& operator*=(Float16& a, Float16 b) { return a = a * b; }
  friend Float16& operator/=(Float16& a, Float16 b) { return a = a / b; }
  friend bool operator==(Float16 a, Float16 b) { return float(a) == float(b); }
  friend bool operator!=(Float16 a, Float16 b) { return float(a) != float(b); }
  friend bool operator<(Float16 a, Float16 b) { return float(a) < float(b); }
  friend bool operator<=(Float16 a, Float16 b) { return float(a) <= float(b); }
  friend bool operator>(Float16 a, Float16 b) { return float(a) > float(b); }
  friend bool operator>=(Float16 a, Float16 b) { return float(a) >= float(b); }

  friend Float16 __hadd(Float16 a, Float16 b) { return a + b; }
  friend Float16 __hsub(Float16 a, Float16 b) { return a - b; }
  friend Float16 __hmul(Float16 a, Float16 b) { return a * b; }
  friend Float16 __hdiv(Float16 a, Float16 b) { return a / b; }
  friend Float16 __hneg(Float16 a) { return -a; }
  friend Float16 __habs(Float16 a) {
    return from_bits(static_cast<std::uint16_t>(a.bits & 0x7FFFu));
  }
  friend Float16 __hfma(Float16 a, Float16 b, Float16 c) { return Float16(fused(a, b, c)); }
  friend bool __heq(Float16 a, Float16 b) { return a == b; }
  friend bool __hne(Float16 a, Float16 b) { return a != b; }
  friend bool __hlt(Float16 a, Float16 b) { return a < b; }
  friend bool __hle(Float16 a, Float16 b) { return a <= b; }
  friend bool __hgt(Float16 a, Float16 b) { return a > b; }
  friend bool __hge(Float16 a, Float16 b) { return a >= b; }
  friend bool __hisnan(Float16 a) { return std::isnan(float(a)); }
  // As fmaxf and fminf: a number beats NaN.
  friend Float16 __hmax(Float16 a, Float16 b) { return Float16(std::fmax(float(a), float(b))); }
  friend Float16 __hmin(Float16 a, Float16 b) { return Float16(std::fmin(float(a), float(b))); }
};

struct HalfFormat {
  static float to_float(std::uint16_t bits) { return half_bits_to_float(bits); }
  static std::uint16_t from_float(float value) { return float_to_half_bits(value); }
};

struct Bfloat16Format {
  static float to_float(std::uint16_t bits) { return bfloat16_bits_to_float(bits); }
  static std::uint16_t from_float(float value) { return float_to_bfloat16_bits(value); }
};

}  // namespace cpu

using __half = cpu::Float16<cpu::HalfFormat>;
using half = __half;
using __hip_bfloat16 = cpu::Float16<cpu::Bfloat16Format>;
using hip_bfloat16 = __hip_bfloat16;

inline __half __float2half(float value) { return __half(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline float __half2float(__half value) { return value; }
inline __half __double2half(double value) { return __half(cpu::round_to_odd(value)); }
inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline __half __ushort_as_half(unsigned short bits) { return __half::from_bits(bits); }

inline __hip_bfloat16 __float2bfloat16(float value) { return __hip_bfloat16(value); }
inline float __bfloat162float(__hip_bfloat16 value) { return value; }
inline __hip_bfloat16 __double2bfloat16(double value) {
  return __hip_bfloat16(cpu::round_to_odd(value));
}

// Two halves that are loaded, stored and computed with together.
struct alignas(4) __half2 {
  __half x, y;
};
using half2 = __half2;

inline __half2 make_half2(__half x, __half y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline float2 __half22float2(__half2 v) { return {v.x, v.y}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline float __low2float(__half2 v) { return v.x; }
inline float __high2float(__half2 v) { return v.y; }
inline __half2 __hadd2(__half2 a, __half2 b) { return {a.x + b.x, a.y + b.y}; }
inline __half2 __hsub2(__half2 a, __half2 b) { return {a.x - b.x, a.y - b.y}; }
inline __half2 __hmul2(__half2 a, __half2 b) { return {a.x * b.x, a.y * b.y}; }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
