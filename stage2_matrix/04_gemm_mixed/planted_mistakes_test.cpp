// What the checks of the products must catch.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/mistakes_for_tests.h"
#include "stage2_matrix/04_gemm_mixed/mixed_products_for_tests.h"

using namespace gemm_mixed_test;

using gpu::half;

namespace {

void launch_transposed(float* c, const half* a, const half* b, size_t M, size_t N, size_t K,
                       hipStream_t stream) {
  gemm_mixed::launch_naive(c, b, a, N, M, K, stream);
}
void launch_row_too_many(float* c, const half* a, const half* b, size_t M, size_t N, size_t K,
                         hipStream_t stream) {
  gemm_mixed::launch_naive(c, a, b, M + 1, N, K, stream);  // no bounds check
}
void launch_row_too_few(float* c, const half* a, const half* b, size_t M, size_t N, size_t K,
                        hipStream_t stream) {
  gemm_mixed::launch_naive(c, a, b, M - 1, N, K, stream);
}

}  // namespace

TEST_CASE("swapped indices, a missing bounds check and a missing row are caught", "[harness]") {
  auto square = integer_problem<half>({16, 16, 16});
  REQUIRE(square.check(gemm_mixed::launch_naive<half>, true).ok);
  REQUIRE(!square.check(launch_transposed, true).ok);
  REQUIRE(!square.check(launch_row_too_many, true).ok);
  REQUIRE(!square.check(launch_row_too_few, true).ok);
}

// On a GPU these mistakes may go well by chance; the CPU backend shows them every time. Their
// kernels are in gemm_mixed_test.hip.
#if defined(GPU_BACKEND_CPU)

namespace gemm_mixed_test {

// c = a b of (16, 16) matrices, as wmma_tiled computes it, without its first barrier.
void launch_without_barrier(float* c, const half* a, const half* b, size_t M, size_t N, size_t K,
                            hipStream_t stream);

// out[4 l, 4 l + 4) = the words that ldmatrix gives lane l of the upper left 16 x 8 words of a tile
// of A, which `in` holds row by row: 16 rows of 8 chunks. `swizzled`: the lanes read the chunks
// where the copies have put them. `late`: how many groups of copies they do not wait for.
void launch_load_fragment(unsigned* out, const uint4* in, bool swizzled, int late);

}  // namespace gemm_mixed_test

namespace {

// Does every lane get the words that mma.sync wants of it?
bool fragments_are_right(bool swizzled, int late) {
  std::vector<uint4> in;
  for (unsigned i = 0; i < 16 * 8; ++i) in.push_back({4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3});
  Guarded<uint4> d_in(in, 0);
  Guarded<unsigned> d_out(4 * 32, 0);
  gemm_mixed_test::launch_load_fragment(d_out.data(), d_in.data(), swizzled, late);
  const std::vector<unsigned> out = d_out.to_host();
  bool right = true;
  for (unsigned lane = 0; lane < 32; ++lane)
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = lane / 4 + i % 2 * 8, word = lane % 4 + i / 2 * 4;
      right = right && out[4 * lane + i] == row * 32 + word;
    }
  return right;
}

}  // namespace

TEST_CASE("a missing barrier, a wrong swizzle and a copy not waited for are caught", "[harness]") {
  auto tile = integer_problem<half>({16, 16, 16});
  REQUIRE(!tile.check(gemm_mixed_test::launch_without_barrier, true).ok);
  REQUIRE(fragments_are_right(true, 0));
  REQUIRE(!fragments_are_right(false, 0));
  REQUIRE(!fragments_are_right(true, 1));
}

namespace {

// What comes of a kernel: its result is right or wrong, or the CPU backend stops it.
enum class Outcome { right, wrong, stopped };

// `is_right()` launches a kernel on memory of its own and looks at what it has computed.
template <class IsRight>
Outcome outcome_of(IsRight&& is_right) {
  Outcome outcome = Outcome::stopped;
  try {
    outcome = is_right() ? Outcome::right : Outcome::wrong;
  } catch (const gpu::Error&) {
    REQUIRE(hipDeviceReset() == hipSuccess);
  }
  return outcome;
}

// Of launch(mistake, ...) for a product of this shape.
template <class T, class Launch, class Mistake>
Outcome outcome_of_product(Launch&& launch, Mistake mistake, const Shape& shape) {
  return outcome_of([&] {
    auto problem = integer_problem<T>(shape);
    launch(mistake, problem.d_c.data(), problem.d_a.data(), problem.d_b.data(), problem.shape.M,
           problem.shape.N, problem.shape.K, nullptr);
    return problem.compare(problem.d_c.to_host(), true).ok;
  });
}
Outcome outcome_of(RingMistake mistake) {
  return outcome_of_product<half>(launch_ring, mistake, {128, 256, 640});
}
Outcome outcome_of(ClusterMistake mistake) {
  return outcome_of_product<half>(launch_pair, mistake, {256, 256, 640});
}
Outcome outcome_of(HeldMistake mistake) {
  return outcome_of_product<float>(launch_held, mistake, {256, 256, 640});
}

// The last step of each slice is in the ring's first stage again.
Outcome outcome_of(SkinnyMistake mistake) {
  return outcome_of_product<half>(launch_slices, mistake, {16, 128, 2688});
}

Outcome outcome_of(StoreMistake mistake) {
  return outcome_of([&] {
    Guarded<float> d_c(64 * 32, 0);
    launch_store(mistake, d_c.data(), nullptr);
    const std::vector<float> c = d_c.to_host();
    bool right = true;
    for (size_t i = 0; i < c.size(); ++i) right = right && c[i] == static_cast<float>(i);
    return right;
  });
}

// All of them are stopped, but for those that compute with other numbers; none at all is right.
template <class Mistake>
void require_caught(int mistakes, std::initializer_list<Mistake> with_other_numbers) {
  REQUIRE(outcome_of(Mistake::none) == Outcome::right);
  for (int i = 1; i < mistakes; ++i) {
    CAPTURE(i);
    const auto mistake = static_cast<Mistake>(i);
    const bool is_other = std::count(with_other_numbers.begin(), with_other_numbers.end(), mistake);
    REQUIRE(outcome_of(mistake) == (is_other ? Outcome::wrong : Outcome::stopped));
  }
}

}  // namespace

TEST_CASE("mistakes with mbarriers, the TMA and wgmma are caught", "[harness]") {
  require_caught(kRingMistakes,
                 {RingMistake::step_of_the_other_operand, RingMistake::wrong_distance_of_boxes});
}

TEST_CASE("mistakes between the blocks of a cluster are caught", "[harness]") {
  require_caught(kClusterMistakes, {ClusterMistake::rows_of_the_other_block});
}

TEST_CASE("mistakes with an operand in registers are caught", "[harness]") {
  require_caught(kHeldMistakes, {HeldMistake::loaded_before_it_arrived, HeldMistake::no_swizzle,
                                 HeldMistake::other_rows, HeldMistake::columns_in_another_order});
}

TEST_CASE("mistakes where the blocks of a cluster add slices are caught", "[harness]") {
  require_caught(kSkinnyMistakes,
                 {SkinnyMistake::tile_taken_as_along_k, SkinnyMistake::sums_not_awaited,
                  SkinnyMistake::slice_left_out, SkinnyMistake::columns_of_the_other_tile});
}

TEST_CASE("mistakes with stores through the TMA are caught", "[harness]") {
  require_caught(kStoreMistakes, {StoreMistake::no_swizzle});
}

TEST_CASE("floats that nobody has rounded are multiplied without their last 13 bits", "[harness]") {
  auto problem = integer_problem<float>({16, 16, 8});
  for (Guarded<float>* matrix : {&problem.d_a, &problem.d_b}) {
    std::vector<float> values = matrix->to_host();
    for (float& value : values) {
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      bits |= 0x1FFFu;
      std::memcpy(&value, &bits, sizeof value);
    }
    HIP_CHECK(hipMemcpy(matrix->data(), values.data(), values.size() * sizeof(float),
                        hipMemcpyHostToDevice));
  }
  REQUIRE(!problem.check(gemm_mixed::launch_naive<float>, true).ok);
  REQUIRE_OK(problem.check(gemm_mixed::launch_mma_sync<float>, true));
  REQUIRE_OK(problem.check(gemm_mixed::launch_register_operand<float>, true));
}
#endif
