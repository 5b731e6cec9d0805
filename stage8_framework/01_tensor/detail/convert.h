// From a number of any type to one of any other, both types being arguments. Plain C++ and kernels
// both include this.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/half.h"
#include "stage8_framework/01_tensor/layout.h"

namespace tensor {

using framework::Dtype;

// Integers travel as std::int64_t, f64 as double, the other floating types as float: each
// conversion is then from one number to one other.
template <class Carrier>
__host__ __device__ inline Carrier load_as(const void* a, Dtype type, std::int64_t i);

template <>
__host__ __device__ inline float load_as<float>(const void* a, Dtype type, std::int64_t i) {
  if (type == Dtype::f16) return gpu::to_float(static_cast<const gpu::half*>(a)[i]);
  if (type == Dtype::bf16) return gpu::to_float(static_cast<const gpu::bfloat16*>(a)[i]);
  return static_cast<const float*>(a)[i];
}
template <>
__host__ __device__ inline double load_as<double>(const void* a, Dtype, std::int64_t i) {
  return static_cast<const double*>(a)[i];
}
template <>
__host__ __device__ inline std::int64_t load_as<std::int64_t>(const void* a, Dtype type,
                                                              std::int64_t i) {
  if (type == Dtype::i64) return static_cast<const std::int64_t*>(a)[i];
  if (type == Dtype::i32) return static_cast<const std::int32_t*>(a)[i];
  const std::uint8_t byte = static_cast<const std::uint8_t*>(a)[i];
  return type == Dtype::u8 ? byte : byte != 0;
}

// Cut off towards 0, kept in [least, most]; 0 for NaN. Beyond the range the processors' own
// conversions differ.
template <class Integer, class Carrier>
__host__ __device__ inline Integer to_integer(Carrier value, Integer least, Integer most) {
  if constexpr (std::is_integral_v<Carrier>) {
    return value < static_cast<Carrier>(least)  ? least
           : value > static_cast<Carrier>(most) ? most
                                                : static_cast<Integer>(value);
  } else {
    const Carrier beyond = static_cast<Carrier>(most / 2 + 1) * 2;  // a power of two: exact
    if (!(value == value)) return 0;
    if (value >= beyond) return most;
    if (value <= static_cast<Carrier>(least)) return least;
    return static_cast<Integer>(value);
  }
}

template <class Carrier>
__host__ __device__ inline void store_as(void* out, Dtype type, std::int64_t i, Carrier value) {
  switch (type) {
    case Dtype::f32:
      static_cast<float*>(out)[i] = static_cast<float>(value);
      break;
    case Dtype::f64:
      static_cast<double*>(out)[i] = static_cast<double>(value);
      break;
    case Dtype::f16:
      static_cast<gpu::half*>(out)[i] = gpu::from_float<gpu::half>(static_cast<float>(value));
      break;
    case Dtype::bf16:
      static_cast<gpu::bfloat16*>(out)[i] =
          gpu::from_float<gpu::bfloat16>(static_cast<float>(value));
      break;
    case Dtype::i32:
      static_cast<std::int32_t*>(out)[i] = to_integer<std::int32_t>(value, INT32_MIN, INT32_MAX);
      break;
    case Dtype::i64:
      static_cast<std::int64_t*>(out)[i] = to_integer<std::int64_t>(value, INT64_MIN, INT64_MAX);
      break;
    case Dtype::u8:
      static_cast<std::uint8_t*>(out)[i] = to_integer<std::uint8_t>(value, 0, UINT8_MAX);
      break;
    case Dtype::boolean:
      static_cast<std::uint8_t*>(out)[i] = value != Carrier{0};
      break;
  }
}

}  // namespace tensor
