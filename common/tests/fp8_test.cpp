// gpu::fp8: every value and every kind of rounding, in plain C++ and in a kernel.
#include "common/fp8.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "common/device_buffer.h"
#include "common/random.h"
#include "common/testing.h"

// fp8_test.hip: to[i] = the fp8 nearest to from[i], back[i] = to[i] as a float.
namespace fp8_test {
void launch_convert(gpu::fp8* to, float* back, const float* from, size_t n);
}

namespace {

constexpr unsigned kNan = 0x7F, kLargest = 0x7E;

// e4m3 by its definition: what every backend is held against. Not for NaN.
double value_of(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 3 & 15), fraction = static_cast<int>(bits & 7);
  const double sign = bits >> 7 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(fraction, -6 - 3);
  return sign * std::ldexp(8 + fraction, exponent - 7 - 3);
}

// The nearest value, by trying all of them; of two equally near ones that with an even last bit.
unsigned nearest(double x) {
  if (std::isnan(x)) return kNan;
  const unsigned sign = std::signbit(x) ? 0x80 : 0;
  const double magnitude = std::fabs(x);
  if (magnitude >= value_of(kLargest)) return sign | kLargest;
  unsigned best = 0;
  for (unsigned bits = 1; bits <= kLargest; ++bits) {
    const double here = std::fabs(value_of(bits) - magnitude);
    const double before = std::fabs(value_of(best) - magnitude);
    if (here < before || (here == before && bits % 2 == 0)) best = bits;
  }
  return sign | best;
}

float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Each value, each tie between neighbours, and the neighbours of both; what saturates; special
// values; floats without a leading 1; and random ones of every exponent.
std::vector<float> awkward_floats() {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> floats{1e-45f, 0x1p-127f, 0x1p-126f, 463.99997f, 464.0f,  464.1f,
                            480.0f, 512.0f,    3.4e38f,   infinity,   0x1p-9f, 0x1p-10f};
  for (unsigned bits = 0; bits < kLargest; ++bits) {
    const float value = static_cast<float>(value_of(bits));
    const float next = static_cast<float>(value_of(bits + 1));
    for (const float x : {value, value + (next - value) / 2, next})
      for (const float y : {x, std::nextafter(x, 0.0f), std::nextafter(x, infinity)})
        floats.push_back(y);
  }
  for (std::uint64_t i = 0; i < 20000; ++i)
    floats.push_back(float_of(random_numbers::word(7, 0, i) & 0x7FFFFFFFu));
  const size_t n = floats.size();
  for (size_t i = 0; i < n; ++i) floats.push_back(-floats[i]);
  for (const std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu})
    floats.push_back(float_of(bits));
  return floats;
}

}  // namespace

TEST_CASE("every fp8 survives the way to float and back") {
  for (unsigned bits = 0; bits < 256; ++bits) {
    CAPTURE(bits);
    const gpu::fp8 value{static_cast<std::uint8_t>(bits)};
    const float as_float = gpu::to_float(value);
    if ((bits & 0x7F) == kNan) {
      REQUIRE(std::isnan(as_float));
      REQUIRE(gpu::from_float<gpu::fp8>(as_float).bits == kNan);
    } else {
      REQUIRE(static_cast<double>(as_float) == value_of(bits));
      REQUIRE(std::signbit(as_float) == (bits >= 0x80));
      REQUIRE(gpu::from_float<gpu::fp8>(as_float).bits == bits);
    }
  }
  REQUIRE(gpu::to_float(gpu::fp8{kLargest}) == gpu::kFp8Largest);
}

TEST_CASE("floats round to the nearest fp8, ties to even, and saturate") {
  for (const float x : awkward_floats()) {
    CAPTURE(x);
    REQUIRE(unsigned{gpu::from_float<gpu::fp8>(x).bits} == nearest(static_cast<double>(x)));
  }
}

TEST_CASE("a kernel converts to fp8 as the host does") {
  const std::vector<float> from = awkward_floats();
  const size_t n = from.size();
  gpu::DeviceBuffer<float> d_from(from), d_back(n);
  gpu::DeviceBuffer<gpu::fp8> d_to(n);
  fp8_test::launch_convert(d_to.data(), d_back.data(), d_from.data(), n);
  const std::vector<gpu::fp8> to = d_to.to_host();
  const std::vector<float> back = d_back.to_host();
  for (size_t i = 0; i < n; ++i) {
    CAPTURE(i, from[i]);
    REQUIRE(unsigned{to[i].bits} == unsigned{gpu::from_float<gpu::fp8>(from[i]).bits});
    const float want = gpu::to_float(to[i]);
    REQUIRE((back[i] == want || (std::isnan(back[i]) && std::isnan(want))));
  }
}
