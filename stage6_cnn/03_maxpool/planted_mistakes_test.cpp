// Wrong values, places and gradients that the checks of both passes must catch.
#include <cstddef>
#include <string>
#include <vector>

#include "common/gpu_runtime.h"
#include "common/options.h"
#include "common/testing.h"
#include "stage6_cnn/03_maxpool/maxpool.h"
#include "stage6_cnn/03_maxpool/pooling_for_tests.h"
#include "stage6_cnn/03_maxpool/problem.h"
#include "stage6_cnn/03_maxpool/reference.h"

// Wrong kernels: maxpool_test.hip.
namespace maxpool_test {
void launch_last_of_equals(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t);
void launch_padding_counts(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t);
void launch_nan_is_lost(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t);
void launch_place_by_columns(float* y, Index* argmax, const float* x, const Problem& p,
                             hipStream_t);
}  // namespace maxpool_test

using namespace maxpool_test;

TEST_CASE("the check refuses a lost, a doubled and a misplaced gradient at every printed shape",
          "[harness]") {
  for (const bool quick : {false, true})
    for (const Problem& whole : printed(usual_sizes(sizes(), quick, gpu::kBackend))) {
      CAPTURE(name(whole, "backward"));
      const Problem p = choose_planes(whole, 7).sampled;
      const Routing in(p, few_values(cells_of(p), 9));
      const Expected want = backward_cpu(in.grad_y, in.argmax, p);
      // Of the cells that get anything, since two zeros may change places. A sum is of few terms:
      // half of it stands for one.
      constexpr size_t kRow = 8;
      std::vector<double> value, bound;
      for (size_t i = 0; i < want.value.size(); ++i)
        if (want.value[i] != 0) value.push_back(want.value[i]), bound.push_back(want.bound[i]);
      value.resize(value.size() / kRow * kRow);
      testing::require_refusals(
          value, [&](size_t i) { return bound[i]; }, kRow, [&](size_t i) { return value[i] / 2; });
    }
}

TEST_CASE("planted mistakes are caught", "[harness]") {
  const Problem p{1, 2, 8, 10, 3, 3, 2, 2, 1, 1};
  const std::vector<float> ties = few_values(cells_of(p), 1), nans = special_values(cells_of(p), 2);
  std::vector<float> below = random_floats(cells_of(p), 3);
  for (float& value : below) value -= 2;
  CHECK(!check_forward(maxpool_test::launch_last_of_equals, p, ties).ok);
  CHECK(!check_forward(maxpool_test::launch_padding_counts, p, below).ok);
  CHECK(!check_forward(maxpool_test::launch_nan_is_lost, p, nans).ok);
  CHECK(!check_forward(maxpool_test::launch_place_by_columns, p, ties).ok);
  CHECK(
      check_forward(maxpool_test::launch_last_of_equals, p, below).ok);  // the kernel is right else
}
