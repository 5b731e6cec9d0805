// gpu::half and gpu::bfloat16: every value and every kind of rounding, in plain C++ and in a
// kernel.
#include "common/half.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/device_buffer.h"
#include "common/testing.h"

// half_test.hip: to[i] = the T nearest to from[i], back[i] = to[i] as a float.
namespace half_test {
template <class T>
void launch_convert(T* to, float* back, const float* from, size_t n);
}

namespace {

template <class To, class From>
To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(static_cast<void*>(&result), &value, sizeof result);
  return result;
}

// A format of 16 bits by its definition, in double: what every backend is held against.
struct Format {
  int fraction_bits, bias, exponents;  // exponents: how many there are, infinity's included

  // Not for NaN.
  double value(std::uint16_t bits) const {
    const int exponent = bits >> fraction_bits & (exponents - 1);
    const int fraction = bits & ((1 << fraction_bits) - 1);
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == exponents - 1) return sign * std::numeric_limits<double>::infinity();
    const int leading = exponent == 0 ? 0 : 1 << fraction_bits;
    return sign * std::ldexp(leading + fraction, std::max(exponent, 1) - bias - fraction_bits);
  }
  bool is_nan(std::uint16_t bits) const {
    return (bits & 0x7FFF) > (exponents - 1) << fraction_bits;
  }
  // The nearest value, of two equally near the one with an even last bit; infinity counts as the
  // value that would follow the largest.
  std::uint16_t round(double x) const {
    const std::uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const double magnitude = std::fabs(x);
    const std::uint16_t infinity = static_cast<std::uint16_t>((exponents - 1) << fraction_bits);
    std::uint16_t below = 0, above = infinity;  // value(below) <= magnitude
    if (std::isinf(x)) return sign | infinity;
    while (above - below > 1) {
      const std::uint16_t middle = static_cast<std::uint16_t>((below + above) / 2);
      (value(middle) <= magnitude ? below : above) = middle;
    }
    const double step_above =
        above == infinity ? std::ldexp(1.0, exponents - 1 - bias) : value(above);
    const double down = magnitude - value(below), up = step_above - magnitude;
    const bool take_above = up < down || (up == down && above % 2 == 0);
    return sign | (take_above ? above : below);
  }
};

template <class T>
constexpr Format format_of();
template <>
constexpr Format format_of<gpu::half>() {
  return {10, 15, 32};
}
template <>
constexpr Format format_of<gpu::bfloat16>() {
  return {7, 127, 256};
}

template <class T>
std::uint16_t rounded(float x) {
  return bits_as<std::uint16_t>(gpu::from_float<T>(x));
}

// The float of each value, its neighbours, the ties between values and the ties' neighbours.
std::vector<float> awkward_floats(const Format& format) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> floats{0.0f, -0.0f, 1e-45f, 3.4e38f, -3.4e38f, infinity, -infinity};
  for (std::uint32_t bits = 0; bits < 0x8000; ++bits) {
    const std::uint16_t lower = static_cast<std::uint16_t>(bits);
    if (format.is_nan(lower) || format.is_nan(static_cast<std::uint16_t>(bits + 1))) continue;
    const float value = static_cast<float>(format.value(lower));
    const float next = static_cast<float>(format.value(static_cast<std::uint16_t>(bits + 1)));
    const float tie = std::isinf(next) ? value : value + (next - value) / 2;
    for (const float x : {value, tie})
      for (const float y : {x, std::nextafter(x, 0.0f), std::nextafter(x, INFINITY)}) {
        floats.push_back(y);
        floats.push_back(-y);
      }
  }
  for (const float x : {65519.996f, 65520.0f, 65536.0f, 3.3961775e38f}) {
    floats.push_back(x);
    floats.push_back(-x);
  }
  return floats;
}

}  // namespace

TEMPLATE_TEST_CASE("every 16-bit value survives the way to float and back", "", gpu::half,
                   gpu::bfloat16) {
  const Format format = format_of<TestType>();
  size_t wrong = 0;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const std::uint16_t bits = static_cast<std::uint16_t>(i);
    const float value = gpu::to_float(bits_as<TestType>(bits));
    if (format.is_nan(bits)) {
      wrong += !std::isnan(value) || !format.is_nan(rounded<TestType>(value));
    } else {
      wrong += static_cast<double>(value) != format.value(bits);
      wrong += rounded<TestType>(value) != bits;
    }
  }
  REQUIRE(wrong == 0);
}

TEMPLATE_TEST_CASE("floats round to the nearest value, ties to even", "", gpu::half,
                   gpu::bfloat16) {
  const Format format = format_of<TestType>();
  for (const float x : awkward_floats(format)) {
    if (rounded<TestType>(x) == format.round(x)) continue;
    CAPTURE(x);
    REQUIRE(rounded<TestType>(x) == format.round(x));
  }
}

TEMPLATE_TEST_CASE("NaN stays NaN", "", gpu::half, gpu::bfloat16) {
  const Format format = format_of<TestType>();
  for (const std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu})
    REQUIRE(format.is_nan(rounded<TestType>(bits_as<float>(bits))));
}

TEMPLATE_TEST_CASE("a kernel converts as the host does", "", gpu::half, gpu::bfloat16) {
  const std::vector<float> from = awkward_floats(format_of<TestType>());
  const size_t n = from.size();
  gpu::DeviceBuffer<float> d_from(from), d_back(n);
  gpu::DeviceBuffer<TestType> d_to(n);
  half_test::launch_convert(d_to.data(), d_back.data(), d_from.data(), n);
  const std::vector<TestType> to = d_to.to_host();
  const std::vector<float> back = d_back.to_host();
  size_t wrong = 0;
  for (size_t i = 0; i < n; ++i) {
    wrong += bits_as<std::uint16_t>(to[i]) != rounded<TestType>(from[i]);
    wrong += back[i] != gpu::to_float(to[i]);
  }
  REQUIRE(wrong == 0);
}

#if defined(GPU_BACKEND_CPU)

#include "common/random.h"

TEST_CASE("cpu: the conversions in software agree with those of the processor") {
  size_t wrong = 0;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const std::uint16_t bits = static_cast<std::uint16_t>(i);
    wrong += bits_as<std::uint32_t>(cpu::half_bits_to_float(bits)) !=
             bits_as<std::uint32_t>(cpu::half_bits_to_float_portable(bits));
  }
  for (std::uint64_t high = 0; high < 65536; ++high)  // all upper halves, with awkward lower ones
    for (const std::uint32_t low :
         {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u, 0x8000u, 0xFFFFu}) {
      const float x = bits_as<float>(static_cast<std::uint32_t>(high << 16 | low));
      wrong += cpu::float_to_half_bits(x) != cpu::float_to_half_bits_portable(x);
    }
  REQUIRE(wrong == 0);
}

// The operands are chosen so that sums and products are exact in double.
TEMPLATE_TEST_CASE("cpu: every operation rounds once", "", gpu::half, gpu::bfloat16) {
  const Format format = format_of<TestType>();
  size_t wrong = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    TestType v[3];
    for (std::uint32_t k = 0; k < 3; ++k) {
      const std::uint32_t word = random_numbers::word(7, k, i);
      // Exponents near one another, so that sums round.
      const float x = static_cast<float>(word & 0xFFF) - 2048.0f;
      v[k] = gpu::from_float<TestType>(std::ldexp(x, static_cast<int>(word >> 28) - 8));
    }
    const double a = gpu::to_float(v[0]), b = gpu::to_float(v[1]), c = gpu::to_float(v[2]);
    const auto expect = [&](TestType got, double exact) {
      if (!std::isnan(exact) && exact != 0)
        wrong += bits_as<std::uint16_t>(got) != format.round(exact);
    };
    expect(v[0] + v[1], a + b);
    expect(v[0] - v[1], a - b);
    expect(v[0] * v[1], a * b);
    expect(v[0] / v[1], b == 0 ? 0.0 : a / b);
    expect(__hfma(v[0], v[1], v[2]), a * b + c);
  }
  REQUIRE(wrong == 0);
}

TEST_CASE("cpu: a fused multiply-add sees what lies far below a tie") {
  // Between 256 and 512 bfloat16 values lie 2 apart: 9 * 29 = 261 is a tie, 260 its even side.
  const auto bfloat = [](double x) { return __double2bfloat16(x); };
  const auto fused = [&](double a, double b, double c) {
    return __bfloat162float(__hfma(bfloat(a), bfloat(b), bfloat(c)));
  };
  REQUIRE(fused(9, 29, 0) == 260.0f);
  REQUIRE(fused(9, 29, 0x1p-100) == 262.0f);
  REQUIRE(fused(9, 29, -0x1p-100) == 260.0f);
  REQUIRE(fused(7, 37, -0x1p-100) == 258.0f);
}

#endif
