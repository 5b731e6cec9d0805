// Every version of c = a + b and c = a * b on awkward sizes and alignments.
#include "stage1_vector/01_vector_add/vector_add.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/device_buffer.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/sample.h"
#include "common/testing.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage1_vector/01_vector_add/reference.h"

// The kernels that only this test has: vector_add_test.hip.
namespace vector_add_test {
void launch_add_all_but_last(float* c, const float* a, const float* b, size_t n,
                             hipStream_t stream);
void launch_add_one_more(float* c, const float* a, const float* b, size_t n, hipStream_t stream);
}  // namespace vector_add_test

using testing::random_floats;
using vector_add_test::launch_add_all_but_last;
using vector_add_test::launch_add_one_more;

namespace {

using Function = vector_add::Launch::Function;
using Reference = std::vector<double> (*)(const std::vector<float>& a, const std::vector<float>& b);

// Where a, b and c begin, in elements behind a 16-byte boundary.
struct Offsets {
  size_t a, b, c;
};

// Launches on guarded arrays and compares with the reference; a write outside c is a failure too.
Comparison check(Function launch, Reference reference, const std::vector<float>& a,
                 const std::vector<float>& b, Offsets offsets) {
  Guarded<float> d_a(a, offsets.a), d_b(b, offsets.b), d_c(a.size(), offsets.c);
  launch(d_c.data(), d_a.data(), d_b.data(), a.size(), nullptr);
  HIP_CHECK(hipDeviceSynchronize());
  const std::vector<double> want = reference(a, b);
  const std::vector<float> got = d_c.to_host();
  Comparison result = compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return vector_add::bound(want[i]); });
  result.ok = result.ok && d_a.intact() && d_b.intact() && d_c.intact();
  return result;
}

}  // namespace

TEST_CASE("every version adds and multiplies at any size and alignment") {
  constexpr size_t kLarge = (size_t{1} << 20) + 1;
  constexpr size_t kSizes[] = {0, 1, 2, 3, 4, 5, 7, 8, 255, 256, 257, 1003, 4099, kLarge};
  constexpr Offsets kOffsets[] = {{0, 0, 0}, {1, 1, 1}, {3, 3, 3}, {0, 1, 2}, {2, 2, 3}};
  for (const size_t n : kSizes) {
    const std::vector<float> a = random_floats(n, 0), b = random_floats(n, 1);
    for (const auto& version : testing::chosen(vector_add::kVersions))
      for (const Offsets& offsets : kOffsets) {
        if (n == kLarge && offsets.a != 1) continue;  // one alignment is enough there
        CAPTURE(version.name, n, offsets.a, offsets.b, offsets.c);
        REQUIRE_OK(check(version.launch.add, vector_add::add_cpu, a, b, offsets));
        REQUIRE_OK(check(version.launch.multiply, vector_add::multiply_cpu, a, b, offsets));
      }
  }
}

TEST_CASE("the loops over the grid work for any number of blocks") {
  const std::vector<float> a = random_floats(5003, 0), b = random_floats(5003, 1);
  for (const size_t blocks : {1, 2, 3}) {
    const vector_add::FewBlocks few(blocks);
    for (const Offsets& offsets : {Offsets{0, 0, 0}, Offsets{2, 2, 2}, Offsets{0, 1, 0}})
      for (const auto& version : testing::chosen(vector_add::kVersions)) {
        CAPTURE(version.name, blocks, offsets.a, offsets.b, offsets.c);
        const Comparison sum = check(version.launch.add, vector_add::add_cpu, a, b, offsets);
        REQUIRE_OK(sum);
      }
  }
}

TEST_CASE("every version agrees with NumPy", "[numpy]") {
  const auto floats = [](const char* name) { return read_npy(reference_path(name)).floats(); };
  const std::vector<float> a = floats("vector_add_a.npy"), b = floats("vector_add_b.npy");
  const std::vector<float> sum = floats("vector_add_sum.npy");
  const std::vector<float> product = floats("vector_add_product.npy");
  REQUIRE(a.size() > 0);
  for (const auto& version : testing::chosen(vector_add::kVersions)) {
    CAPTURE(version.name);
    Guarded<float> d_a(a, 0), d_b(b, 0), d_sum(a.size(), 0), d_product(a.size(), 0);
    version.launch.add(d_sum.data(), d_a.data(), d_b.data(), a.size(), nullptr);
    version.launch.multiply(d_product.data(), d_a.data(), d_b.data(), a.size(), nullptr);
    REQUIRE(d_sum.to_host() == sum);  // one IEEE operation: the same bits everywhere
    REQUIRE(d_product.to_host() == product);
  }
}

TEST_CASE("infinities, NaN, zeros and subnormal numbers go through as IEEE 754 says") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kMax = std::numeric_limits<float>::max();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> specials = {0.0f, -0.0f, 1.5f,  -kInfinity, kInfinity,
                                       kNan, kMax,  -kMax, kTiny,      -kTiny};
  std::vector<float> a, b;
  for (const float x : specials)
    for (const float y : specials) a.push_back(x), b.push_back(y);
  // The same value, or NaN on both sides; the sign of a zero counts.
  const auto same = [](float got, float want) {
    return std::isnan(want) ? std::isnan(got)
                            : got == want && std::signbit(got) == std::signbit(want);
  };
  for (const auto& version : testing::chosen(vector_add::kVersions)) {
    Guarded<float> d_a(a, 0), d_b(b, 0), d_sum(a.size(), 0), d_product(a.size(), 0);
    version.launch.add(d_sum.data(), d_a.data(), d_b.data(), a.size(), nullptr);
    version.launch.multiply(d_product.data(), d_a.data(), d_b.data(), a.size(), nullptr);
    const std::vector<float> sum = d_sum.to_host(), product = d_product.to_host();
    for (size_t i = 0; i < a.size(); ++i) {
      CAPTURE(version.name, a[i], b[i], sum[i], product[i]);
      REQUIRE(same(sum[i], a[i] + b[i]));
      REQUIRE(same(product[i], a[i] * b[i]));
    }
  }
}

TEST_CASE("head, float4s and tail hold every element once") {
  const float* aligned = reinterpret_cast<const float*>(std::uintptr_t{4096});
  for (size_t n = 0; n < 40; ++n)
    for (size_t offset = 0; offset < 4; ++offset) {
      const vector_add::Split split =
          vector_add::split_vectors(n, {aligned + offset, aligned + offset});
      CAPTURE(n, offset, split.head, split.vectors, split.tail);
      REQUIRE(split.head + 4 * split.vectors + split.tail == n);
      REQUIRE((split.head < 4 && split.tail < 4));
      if (split.vectors > 0) REQUIRE((offset + split.head) % 4 == 0);
    }
  REQUIRE(vector_add::split_vectors(100, {aligned, aligned + 1}).vectors == 0);
}

TEST_CASE("sizes beyond 2^32") {
  // The largest launch stays within what AMD and NVIDIA accept.
  REQUIRE(vector_add::kMaxThreads < size_t{1} << 32);
  REQUIRE(size_t{vector_add::grid_stride_blocks(size_t{1} << 40)} * vector_add::kBlock < size_t{1}
                                                                                             << 32);

  constexpr size_t kSize = (size_t{1} << 32) + 5;
  size_t free_bytes = 0, total_bytes = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total_bytes));
  if (std::string(gpu::kBackend) == "cpu" || free_bytes / 13 < kSize) {
    SUCCEED("computed only on a GPU with more than 56 GB free");
    return;
  }
  gpu::DeviceBuffer<float> d_a(kSize), d_b(kSize), d_c(kSize);
  random_numbers::launch_fill_uniform(d_a.data(), kSize, 7, 0);
  random_numbers::launch_fill_uniform(d_b.data(), kSize, 7, 1);
  const Sample sample = choose_sample(kSize, 7);
  const std::vector<double> want =
      vector_add::add_cpu(sample.to_host(d_a.data()), sample.to_host(d_b.data()));
  for (const auto& version : testing::chosen(vector_add::kVersions)) {
    CAPTURE(version.name);
    d_c.poison();
    version.launch.add(d_c.data(), d_a.data(), d_b.data(), kSize, nullptr);
    REQUIRE_OK(
        sample.compare(d_c.data(), want, [&](size_t i) { return vector_add::bound(want[i]); }));
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("a forgotten element, a write behind the end and a wrong operation are caught",
          "[harness]") {
  const std::vector<float> a = random_floats(300, 0), b = random_floats(300, 1);
  const Comparison forgotten = check(launch_add_all_but_last, vector_add::add_cpu, a, b, {0, 0, 0});
  REQUIRE(!forgotten.ok);
  REQUIRE(forgotten.unwritten == 1);
  REQUIRE(forgotten.index == 299);
  REQUIRE(!check(launch_add_one_more, vector_add::add_cpu, a, b, {0, 0, 0}).ok);
  REQUIRE(!check(vector_add::launch_naive_add, vector_add::multiply_cpu, a, b, {0, 0, 0}).ok);
}

TEST_CASE("the program's check refuses missing, doubled and swapped terms", "[harness]") {
  const std::vector<float> a = random_floats(20011, 0), b = random_floats(20011, 1);
  const std::vector<double> sum = vector_add::add_cpu(a, b);
  testing::require_refusals(
      sum, [&](size_t i) { return vector_add::bound(sum[i]); }, 1,
      [&](size_t i) { return static_cast<double>(b[i]); });
  const std::vector<double> product = vector_add::multiply_cpu(a, b);  // of one term each
  testing::require_refusals(
      product, [&](size_t i) { return vector_add::bound(product[i]); }, 1,
      [&](size_t i) { return product[i]; });
}

TEST_CASE("every version may be recorded in a graph") {
  const std::vector<float> a = random_floats(1003, 0), b = random_floats(1003, 1);
  Guarded<float> d_a(a, 0), d_b(b, 0), d_c(a.size(), 0);
  for (const auto& version : testing::chosen(vector_add::kVersions))
    for (const Function launch : {version.launch.add, version.launch.multiply}) {
      CAPTURE(version.name);
      testing::require_same_in_graph(
          [&] { gpu::poison(d_c.data(), a.size() * sizeof(float)); },
          [&](hipStream_t stream) { launch(d_c.data(), d_a.data(), d_b.data(), a.size(), stream); },
          [&] { return d_c.to_host(); });
    }
}
