// The random numbers: Philox's published answers, the same on host and device, and uniform.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/gpu.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"

using random_numbers::bell;
using random_numbers::Permutation;
using random_numbers::permute;
using random_numbers::philox;
using random_numbers::uniform;
using random_numbers::word;
using random_numbers::Words;

namespace {

bool equal(const Words& a, const Words& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

std::vector<float> filled_on_device(size_t n, std::uint64_t seed, std::uint32_t stream) {
  Guarded<float> out(n, 0);
  random_numbers::launch_fill_uniform(out.data(), n, seed, stream);
  HIP_CHECK(hipDeviceSynchronize());
  CHECK(out.intact());
  return out.to_host();
}

static __global__ void permute_all(std::uint64_t* out, std::uint64_t n, std::uint64_t seed,
                                   std::uint32_t stream) {
  const std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = permute(i, n, seed, stream);
}

}  // namespace

TEST_CASE("random: Philox4x32-10's known answers") {
  // The three vectors of the Random123 distribution, tests/kat_vectors: zeros, ones, digits of pi.
  CHECK(equal(philox({{0, 0, 0, 0}}, 0, 0), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}));
  CHECK(equal(philox({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffff, 0xffffffff),
              {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}));
  CHECK(equal(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
              {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}));
}

TEST_CASE("random: number i takes every bit of seed, stream and i") {
  CHECK(word(0, 0, 0) == 0x6627e8d5);
  CHECK(word(0, 0, 3) == 0x9b00dbd8);
  const std::uint64_t seed = 0x0123456789abcdefu, i = (7ull << 32 | 9) * 4 + 2;
  CHECK(word(seed, 5, i) == philox({{9, 7, 5, 0}}, 0x89abcdefu, 0x01234567u).w[2]);
}

TEST_CASE("random: device and host make the same numbers") {
  // The last size is more than the largest grid has threads, so that the grid strides.
  for (const size_t n : {0, 1, 3, 255, 256, 257, 1003, 4096 * 256 + 5}) {
    CAPTURE(n);
    const std::vector<float> got = filled_on_device(n, 42, 7);
    size_t different = 0;
    for (size_t i = 0; i < n; ++i) different += got[i] != uniform(42, 7, i);
    REQUIRE(different == 0);
  }
}

TEST_CASE("random: numbers are uniform in [-1, 1)") {
  constexpr size_t n = 1 << 20;
  const std::vector<float> x = filled_on_device(n, 1, 0);
  double sum = 0, squares = 0, neighbours = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += x[i];
    squares += double{x[i]} * x[i];
    neighbours += double{x[i]} * x[(i + 1) % n];
  }
  const auto [least, greatest] = std::minmax_element(x.begin(), x.end());
  CHECK(*least >= -1.0f);
  CHECK(*greatest < 1.0f);
  // Of 2^20 numbers, one lies this close to each end but for a chance of exp(-10).
  CHECK(*least < -1 + 2e-5);
  CHECK(*greatest > 1 - 2e-5);
  // Five standard deviations of the estimates: the variance is 1/3, the fourth moment 1/5.
  const double root = std::sqrt(static_cast<double>(n));
  CHECK(std::fabs(sum / n) < 5 * std::sqrt(1.0 / 3) / root);
  CHECK(std::fabs(squares / n - 1.0 / 3) < 5 * std::sqrt(1.0 / 5 - 1.0 / 9) / root);
  CHECK(std::fabs(neighbours / n) < 5 * (1.0 / 3) / root);
}

TEST_CASE("random: seeds and streams are different sequences") {
  const std::vector<float> base = filled_on_device(1000, 1, 0);
  const std::uint64_t high_seed = 1 | std::uint64_t{1} << 32;
  for (const auto& other : {filled_on_device(1000, 2, 0), filled_on_device(1000, 1, 1),
                            filled_on_device(1000, high_seed, 0)}) {
    size_t equal_numbers = 0;
    for (size_t i = 0; i < base.size(); ++i) equal_numbers += base[i] == other[i];
    CHECK(equal_numbers <= 2);  // by chance: 1000 in 2^24
  }
  CHECK(filled_on_device(1000, 1, 0) == base);
}

TEST_CASE("random: a permutation takes every value once, on host and device") {
  for (const size_t n : {1, 2, 3, 4, 5, 16, 17, 1000, 4096, 60000}) {
    CAPTURE(n);
    const std::uint64_t seed = 0x0123456789abcdefu;
    const Permutation permutation(n, seed, 3);
    std::vector<bool> taken(n, false);
    for (size_t i = 0; i < n; ++i) {
      const std::uint64_t image = permutation(i);
      REQUIRE(image < n);
      REQUIRE_FALSE(taken[image]);
      taken[image] = true;
    }
    Guarded<std::uint64_t> out(n, 0);
    LAUNCH(permute_all, static_cast<unsigned>(gpu::ceil_div(n, 256)), 256, 0, out.data(), n, seed,
           3u);
    HIP_CHECK(hipDeviceSynchronize());
    CHECK(out.intact());
    const std::vector<std::uint64_t> got = out.to_host();
    for (size_t i = 0; i < n; ++i) REQUIRE(got[i] == permutation(i));
  }
}

TEST_CASE("random: permutations of huge ranges stay in them and can be told apart") {
  for (const std::uint64_t n : {(std::uint64_t{1} << 32) + 1, std::uint64_t{1} << 62}) {
    const Permutation permutation(n, 5, 0);
    std::vector<std::uint64_t> images;
    for (std::uint64_t i = 0; i < 1000; ++i) images.push_back(permutation(n - 1 - i));
    CHECK(*std::max_element(images.begin(), images.end()) < n);
    std::sort(images.begin(), images.end());
    CHECK(std::adjacent_find(images.begin(), images.end()) == images.end());
  }
}

TEST_CASE("random: over many streams every value goes everywhere equally often") {
  // The sum over all cells of (count - expected)^2 / expected is about the number of degrees of
  // freedom, (n-1)^2; a shuffle that prefers a place exceeds it many times over.
  for (const size_t n : {3, 10, 17}) {
    CAPTURE(n);
    constexpr std::uint32_t kStreams = 4000;
    std::vector<double> count(n * n);
    for (std::uint32_t stream = 0; stream < kStreams; ++stream) {
      const Permutation permutation(n, 7, stream);
      for (size_t i = 0; i < n; ++i) count[i * n + permutation(i)] += 1;
    }
    const double expected = kStreams / static_cast<double>(n);
    double sum = 0;
    for (const double c : count) sum += (c - expected) * (c - expected) / expected;
    const double freedom = static_cast<double>((n - 1) * (n - 1));
    CHECK(sum < 2.5 * freedom + 4);
  }
}

TEST_CASE("random: another seed or stream is another order") {
  constexpr std::uint64_t n = 1000;
  const Permutation a(n, 1, 0), b(n, 2, 0), c(n, 1, 1);
  size_t same_seed = 0, same_stream = 0, fixed = 0;
  for (std::uint64_t i = 0; i < n; ++i)
    same_seed += a(i) == b(i), same_stream += a(i) == c(i), fixed += a(i) == i;
  CHECK(same_seed < 10);  // one is expected; ten or more have a probability of 1e-7
  CHECK(same_stream < 10);
  CHECK(fixed < 10);
}

TEST_CASE("random: NumPy makes the same numbers and the same order", "[numpy]") {
  constexpr std::uint64_t kSeed = (std::uint64_t{1} << 40) + 7;
  const NpyArray numbers = read_npy(reference_path("random_numbers_uniform.npy"));
  const NpyArray bells = read_npy(reference_path("random_numbers_bell.npy"));
  const NpyArray order = read_npy(reference_path("random_numbers_permutation.npy"));
  REQUIRE(numbers.size() == 1003);
  REQUIRE(bells.size() == numbers.size());
  REQUIRE(order.size() == numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    REQUIRE(static_cast<double>(uniform(kSeed, 3, i)) == numbers.values[i]);
    REQUIRE(static_cast<double>(bell(kSeed, 3, i)) == bells.values[i]);
    REQUIRE(static_cast<double>(permute(i, order.size(), kSeed, 5)) == order.values[i]);
  }
}
