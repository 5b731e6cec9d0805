// Slices of the batch: how many, and the sum of theirs.
#include "stage5_training/01_dense_backward/slices.h"

#include <algorithm>
#include <vector>

#include "common/guarded.h"
#include "common/testing.h"

using namespace dense_backward;
using testing::random_integers;

TEST_CASE("a long batch is cut into slices, a short one is not, and no slice is short") {
  REQUIRE(count_slices(64, 784, 128) == 1);
  REQUIRE(count_slices(0, 784, 128) == 1);
  REQUIRE(count_slices(1003, 0, 6) == 1);
  REQUIRE(count_slices(1003, 5, 6) == std::min(size_t{2 * gpu::multiprocessors()}, size_t{3}));
  REQUIRE(count_slices(size_t{1} << 20, 1 << 16, 1 << 16) == 1);  // tiles enough for any device
}

// In as many groups as a block has on a GPU, and on the CPU backend.
TEST_CASE("the sums of all slices are added, however many slices and groups there are") {
  constexpr size_t kWeights = 41, kBiases = 6, kColumns = kWeights + kBiases, kStride = 50;
  const std::vector<float> w = random_integers(kWeights, 0), bias = random_integers(kBiases, 1);
  const auto require_sums = [&](auto launch_add, size_t slices, float beta) {
    CAPTURE(slices, beta);
    const std::vector<float> sums = random_integers(slices * kStride, 2);
    Guarded<float> d_w(w, 0), d_bias(bias, 0), d_sums(sums, 0);
    launch_add(d_w.data(), d_bias.data(), d_sums.data(), kStride, slices, kWeights, kColumns, beta,
               nullptr);
    std::vector<float> got = d_w.to_host(), want;
    for (const float element : d_bias.to_host()) got.push_back(element);
    for (size_t i = 0; i < kColumns; ++i) {
      want.push_back(beta * (i < kWeights ? w[i] : bias[i - kWeights]));
      for (size_t slice = 0; slice < slices; ++slice) want[i] += sums[slice * kStride + i];
    }
    REQUIRE(got == want);
    REQUIRE((d_w.intact() && d_bias.intact() && d_sums.intact()));
  };
  for (const size_t slices : {1, 3, 16, 37})
    for (const float beta : {0.0f, 1.0f}) {
      require_sums(launch_add_slices<1>, slices, beta);
      require_sums(launch_add_slices<16>, slices, beta);
    }
}
