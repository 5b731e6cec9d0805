// Counter-based random numbers: the same on every backend, in any order, from any thread.
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011)
// turns a key (the seed) and a counter (which number of which sequence) into four random words, by
// ten rounds of multiplying and mixing. It keeps no state, so number i needs no number before it.
#pragma once

#include <cstdint>

#include "common/gpu_runtime.h"

namespace random_numbers {

struct Words {
  std::uint32_t w[4];
};

// The four words of Philox4x32-10 for `counter` under `key`.
__host__ __device__ inline Words philox(Words counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter.w[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * counter.w[2];
    counter = {{static_cast<std::uint32_t>(p1 >> 32) ^ counter.w[1] ^ key0,
                static_cast<std::uint32_t>(p1),
                static_cast<std::uint32_t>(p0 >> 32) ^ counter.w[3] ^ key1,
                static_cast<std::uint32_t>(p0)}};
    key0 += 0x9E3779B9u;  // the golden ratio
    key1 += 0xBB67AE85u;  // sqrt(3) - 1
  }
  return counter;
}

// Word i of sequence `stream` under `seed`.
__host__ __device__ inline std::uint32_t word(std::uint64_t seed, std::uint32_t stream,
                                              std::uint64_t i) {
  const std::uint64_t quad = i / 4;
  const Words words = philox(
      {{static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(quad >> 32), stream, 0u}},
      static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  return words.w[i % 4];
}

// Number i of sequence `stream`, uniform in [-1, 1): 24 random bits, so that the float is exact
// and never depends on rounding.
__host__ __device__ inline float uniform(std::uint64_t seed, std::uint32_t stream,
                                         std::uint64_t i) {
  return static_cast<float>(word(seed, stream, i) >> 8) * (1.0f / 8388608.0f) - 1.0f;
}

// Number i of sequence `stream`, an integer in [-3, 3]: sums of products of such numbers are exact
// in float in every order while they stay below 2^24.
__host__ __device__ inline float integer(std::uint64_t seed, std::uint32_t stream,
                                         std::uint64_t i) {
  return static_cast<float>(static_cast<int>(word(seed, stream, i) % 7u) - 3);
}

// Number i of sequence `stream`, nearly normal with mean 0 and variance 1: the sum of four uniform
// numbers, from -3.47 to 3.46. All that rounds is its scale, so it is the same everywhere, which a
// logarithm and a cosine are not.
__host__ __device__ inline float bell(std::uint64_t seed, std::uint32_t stream, std::uint64_t i) {
  const Words words =
      philox({{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), stream, 2u}},
             static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  std::uint32_t sum = 0;  // of 22 bits each: 24 bits, which a float holds
  for (int k = 0; k < 4; ++k) sum += words.w[k] >> 10;
  return 0.866025404f * (static_cast<float>(sum) * (1.0f / 2097152.0f) - 4.0f);  // sqrt(3) / 2
}

// A bijection of [0, n), another one for every seed and stream: the order in which an epoch walks
// through its samples, without an array to shuffle or to keep.
//
// Eight rounds of a Feistel network, each of which mixes half of the bits into the other half, are
// a bijection whatever the mixing does (Luby, Rackoff: How to construct pseudorandom permutations.
// SIAM J. Comput. 17, 1988). They permute the next power of four, so an image beyond n is sent
// through again until it is below: fewer than four times on average. (Black, Rogaway: Ciphers with
// arbitrary finite domains. CT-RSA 2002, "cycle-walking".) n is from 1 to 2^62.
class Permutation {
 public:
  __host__ __device__ Permutation(std::uint64_t n, std::uint64_t seed, std::uint32_t stream)
      : n_(n) {
    while (half_ < 31 && (std::uint64_t{1} << (2 * half_)) < n) ++half_;
    for (std::uint32_t i = 0; i < kRounds / 4; ++i) {
      const Words words = philox({{i, 0u, stream, 1u}}, static_cast<std::uint32_t>(seed),
                                 static_cast<std::uint32_t>(seed >> 32));
      for (std::uint32_t k = 0; k < 4; ++k) keys_[4 * i + k] = words.w[k];
    }
  }

  // The image of i < n.
  __host__ __device__ std::uint64_t operator()(std::uint64_t i) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    do {
      std::uint64_t left = i >> half_, right = i & mask;
      for (int round = 0; round < kRounds; ++round) {
        const std::uint32_t mixed = mix(static_cast<std::uint32_t>(right) ^ keys_[round]);
        const std::uint64_t next = left ^ (mixed >> (32 - half_));
        left = right, right = next;
      }
      i = left << half_ | right;
    } while (i >= n_);
    return i;
  }

 private:
  static constexpr int kRounds = 8;

  // Every bit of the result depends on every bit of x. (Appleby: MurmurHash3, its finalizer.)
  __host__ __device__ static std::uint32_t mix(std::uint32_t x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
  }

  std::uint64_t n_;
  std::uint32_t keys_[kRounds];
  int half_ = 1;  // bits of each half
};

// Permutation(n, seed, stream)(i), for a single i.
__host__ __device__ inline std::uint64_t permute(std::uint64_t i, std::uint64_t n,
                                                 std::uint64_t seed, std::uint32_t stream) {
  return Permutation(n, seed, stream)(i);
}

// Fills out[0, n) on the device with uniform(seed, stream, i).
void launch_fill_uniform(float* out, size_t n, std::uint64_t seed, std::uint32_t stream,
                         hipStream_t queue = nullptr);

// Fills out[0, n) on the device with integer(seed, stream, i).
void launch_fill_integers(float* out, size_t n, std::uint64_t seed, std::uint32_t stream,
                          hipStream_t queue = nullptr);

}  // namespace random_numbers
