// Every version of the product on matrix units, in every type, on awkward shapes and alignments,
// exactly and within its bound.
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/program.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/detail/round.h"
#include "stage2_matrix/04_gemm_mixed/mixed_products_for_tests.h"
#include "stage2_matrix/04_gemm_mixed/reference.h"

using namespace gemm_mixed_test;

namespace {

template <class T>
void check_exactly(const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes) {
    CAPTURE(shape.M, shape.N, shape.K);
    auto problem = integer_problem<T>(shape);
    for_each_version<T>([&](auto launch) { REQUIRE_OK(problem.check(launch, true)); });
  }
}

// Each of twelve sizes as M, as N and as K.
std::vector<Shape> awkward_shapes() {
  constexpr size_t kSizes[] = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129};
  std::vector<Shape> shapes;
  for (size_t i = 0; i < 12; ++i)
    shapes.push_back({kSizes[i], kSizes[(i + 5) % 12], kSizes[(i + 10) % 12]});
  return shapes;
}

}  // namespace

FOR_EACH_TYPE("every version adds every product once, at any shape", "") {
  std::vector<Shape> shapes = awkward_shapes();
  shapes.insert(shapes.end(), {{64, 64, 64}, {16, 264, 8}, {1, 8, 8}});  // aligned rows
  shapes.insert(shapes.end(), {{0, 5, 3}, {0, 8, 8}, {5, 0, 3}, {0, 0, 3}, {5, 3, 0}, {0, 0, 0}});
  check_exactly<TestType>(shapes);
}

FOR_EACH_TYPE("every version adds every product once, in shapes of many tiles", "[long]") {
  check_exactly<TestType>({{255, 129, 65}, {700, 3, 17}, {3, 700, 17}, {5, 7, 700}});
  check_exactly<TestType>({{136, 72, 200}});                  // aligned rows
  check_exactly<TestType>({{127, 120, 56}, {129, 264, 72}});  // at a tile's edges
}

FOR_EACH_TYPE("every version stays within its bound", "") {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{17, 33, 129}, Shape{72, 136, 264}}) {
    CAPTURE(shape.M, shape.N, shape.K);
    auto problem = random_problem<TestType>(shape);
    for_each_version<TestType>([&](auto launch) { REQUIRE_OK(problem.check(launch, false)); });
  }
}

FOR_EACH_TYPE("no version needs more alignment than its elements", "") {
  // Offset 8: rows of 16-bit numbers are aligned to 16 bytes, but not to 32.
  constexpr Offsets kOffsets[] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {3, 5, 2}, {8, 8, 4}};
  for (const Offsets& offsets : kOffsets) {
    CAPTURE(offsets.a, offsets.b, offsets.c);
    auto problem = integer_problem<TestType>({72, 80, 88}, offsets);
    for_each_version<TestType>([&](auto launch) { REQUIRE_OK(problem.check(launch, true)); });
  }
}

FOR_EACH_TYPE("infinities and NaN reach their rows and columns, and no others", "") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const Shape& shape : {Shape{33, 40, 50}, Shape{33, 40, 56}}) {
    const std::vector<float> floats_a = random_floats(shape.M * shape.K, 0);
    const std::vector<float> floats_b = random_floats(shape.K * shape.N, 1);
    for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      CAPTURE(shape.K, value);
      std::vector<float> a = floats_a, b = floats_b;
      a[20 * shape.K + shape.K - 1] = value;  // row 20, the last k
      b[7 * shape.N + 39] = value;            // column 39, the last
      Problem<TestType> problem(shape, rounded<TestType>(a), rounded<TestType>(b));
      for_each_version<TestType>([&](auto launch) {
        const std::vector<float> got = problem.run(launch);
        REQUIRE_OK(problem.compare(got, false));
        for (size_t i = 0; i < got.size(); ++i) {
          const bool touched = i / shape.N == 20 || i % shape.N == 39;
          REQUIRE(std::isfinite(got[i]) == !touched);
        }
      });
    }
  }
}

FOR_EACH_TYPE("inputs are rounded to nearest, ties to even", "") {
  // u: half the distance of the neighbours of 1.
  const float u = std::is_same_v<TestType, gpu::bfloat16> ? 0x1p-8f : 0x1p-11f;
  const std::vector<std::array<float, 2>> cases = {
      {0.0f, 0.0f},
      {1.0f, 1.0f},
      {-1.5f, -1.5f},
      {1 + u, 1.0f},                  // a tie: 1 is even
      {1 + 3 * u, 1 + 4 * u},         // a tie: 1 + 2 u is odd
      {1 + u + 0x1p-23f, 1 + 2 * u},  // above the tie
      {1 + u - 0x1p-23f, 1.0f},
      {-(1 + 3 * u), -(1 + 4 * u)},
      {2 - u, 2.0f},  // a tie whose carry reaches the exponent
      {std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()},
      {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}};
  std::vector<float> values;
  for (const auto& [value, nearest] : cases) values.push_back(value);
  float nan = 0;
  const std::uint32_t bits = 0x7F800001u;  // a NaN that only a dropped bit tells from infinity
  std::memcpy(&nan, &bits, sizeof nan);
  values.push_back(nan);

  Guarded<float> d_values(values, 1);
  Guarded<TestType> d_rounded(values.size(), 1);
  gemm_mixed::launch_round(d_rounded.data(), d_values.data(), values.size());
  const std::vector<TestType> on_device = d_rounded.to_host();
  for (size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i, values[i]);
    REQUIRE(gpu::to_float(round_to<TestType>(values[i])) == cases[i][1]);
    REQUIRE(gpu::to_float(on_device[i]) == cases[i][1]);
  }
  REQUIRE(std::isnan(gpu::to_float(round_to<TestType>(nan))));
  REQUIRE(std::isnan(gpu::to_float(on_device.back())));
  REQUIRE((d_values.intact() && d_rounded.intact()));
  gemm_mixed::launch_round(d_rounded.data(), d_values.data(), 0);  // launches nothing
}

FOR_EACH_TYPE("every version and the vendor's library agree with NumPy", "[numpy]") {
  const auto floats = [](const std::string& name) {
    const NpyArray array = read_npy(reference_path("gemm_mixed_" + name + ".npy"));
    return std::vector<float>(array.values.begin(), array.values.end());
  };
  const std::string type = gemm_mixed::kTypeName<TestType>;
  const NpyArray product = read_npy(reference_path("gemm_mixed_product_" + type + ".npy"));
  const std::vector<float> a = floats("a"), b = floats("b");
  const Shape shape{product.shape.at(0), product.shape.at(1), a.size() / product.shape.at(0)};
  const std::vector<float> rounded_a = floats("a_" + type);
  for (size_t i = 0; i < a.size(); ++i)
    REQUIRE(gpu::to_float(round_to<TestType>(a[i])) == rounded_a[i]);

  Problem<TestType> problem(shape, rounded<TestType>(a), rounded<TestType>(b));
  for (size_t i = 0; i < product.size(); ++i)
    REQUIRE(std::fabs(problem.want.value[i] - product.values[i]) <=
            1e-13 * problem.want.absolute[i]);
  problem.want.value = product.values;
  for_each_version<TestType>([&](auto launch) { REQUIRE_OK(problem.check(launch, false)); });
  if (std::string(blas::name()) == "cuBLAS") {
    const auto library = [](float* c, const TestType* d_a, const TestType* d_b, size_t M, size_t N,
                            size_t K, hipStream_t) {
      const blas::Input input = std::is_same_v<TestType, float>       ? blas::Input::tf32
                                : std::is_same_v<TestType, gpu::half> ? blas::Input::float16
                                                                      : blas::Input::bfloat16;
      blas::gemm_mixed(input, M, N, K, d_a, d_b, c);
    };
    REQUIRE_OK(problem.check(library, false));
  }
}

// ---- The versions of sm_90: the TMA, rings and phases ------------------------------------------

template <class T>
constexpr gemm_mixed::Launch<T> kVersionsOfSm90[] = {
    gemm_mixed::launch_wgmma<T>, gemm_mixed::launch_warp_specialized<T>,
    gemm_mixed::launch_clusters<T>, gemm_mixed::launch_register_operand<T>,
    gemm_mixed::launch_skinny<T>};

// Calls check(version) with those that this device can run.
template <class T, class Check>
void for_each_version_of_sm90(Check&& check) {
  for (const auto launch : kVersionsOfSm90<T>)
    for (const auto& version : kVersions<T>)
      if (version.launch == launch && missing(version.needs).empty()) check(launch);
}

#if defined(GPU_BACKEND_CPU)
// Of few multiprocessors.
const std::vector<Shape> kShapesOfSm90 = {
    {300, 776, 72}, {128, 256, 64}, {136, 1032, 328}, {150, 301, 40}};
#else
// The first three have more tiles of 128 x 256 than a GPU multiprocessors, so that blocks take
// several and go on in the middle of the ring. An odd number of rows of tiles leaves a block of a
// cluster without one. The rows of two are not aligned.
const std::vector<Shape> kShapesOfSm90 = {{1544, 3080, 72}, {1416, 3080, 264}, {1500, 3001, 40},
                                          {128, 256, 64},   {300, 1000, 1032}, {300, 1000, 1033}};
#endif

FOR_EACH_TYPE("the versions of sm_90 take many tiles per block and many stages per tile", "") {
  for (const Shape& shape : kShapesOfSm90) {
    CAPTURE(shape.M, shape.N, shape.K);
    auto problem = integer_problem<TestType>(shape);
    for_each_version_of_sm90<TestType>(
        [&](auto launch) { REQUIRE_OK(problem.check(launch, true)); });
  }
}

FOR_EACH_TYPE("the versions of sm_90 run in a captured graph", "") {
  auto problem = integer_problem<TestType>({136, 264, 200});
  for_each_version_of_sm90<TestType>([&](auto launch) { require_right_in_graph(problem, launch); });
}

FOR_EACH_TYPE("the versions of sm_90 refuse the types that they do not take", "") {
  const TestType* none = nullptr;
  for (const auto launch : kVersionsOfSm90<TestType>) {
    const bool is_for_tf32 = launch == gemm_mixed::launch_register_operand<TestType>;
    if (is_for_tf32 == std::is_same_v<TestType, float>) continue;
    REQUIRE_THROWS_AS(launch(nullptr, none, none, 8, 8, 8, nullptr), std::runtime_error);
  }
}
