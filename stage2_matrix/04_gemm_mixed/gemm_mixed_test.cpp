// Every version of the product on matrix units, in every type, on awkward shapes and alignments,
// exactly and within its bound.
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/graph.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/program.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/detail/round.h"
#include "stage2_matrix/04_gemm_mixed/detail/stage_sm80.h"
#include "stage2_matrix/04_gemm_mixed/reference.h"

// Each case below runs once for fp16, once for bf16 and once for tf32.
#define FOR_EACH_TYPE(name, tags) TEMPLATE_TEST_CASE(name, tags, gpu::half, gpu::bfloat16, float)

namespace {

using gemm_mixed::kVersions;
using gemm_mixed::round_to;
using testing::random_floats;
using testing::random_integers;

template <class T>
std::vector<T> rounded(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float value : values) result.push_back(round_to<T>(value));
  return result;
}

struct Shape {
  size_t M, N, K;
};
// How many elements behind a 16-byte boundary a, b and c begin.
struct Offsets {
  size_t a = 0, b = 0, c = 0;
};

// The device memory of one product, guarded.
template <class T>
struct Problem {
  Problem(Shape size, const std::vector<T>& a, const std::vector<T>& b, Offsets offsets = {})
      : shape(size),
        d_a(a, offsets.a),
        d_b(b, offsets.b),
        d_c(shape.M * shape.N, offsets.c),
        want(gemm_mixed::gemm_mixed_cpu(a, b, shape.M, shape.N, shape.K)) {}

  std::vector<float> run(gemm_mixed::Launch<T> launch) {
    if (d_c.size() > 0) gpu::poison(d_c.data(), d_c.size() * sizeof(float));
    launch(d_c.data(), d_a.data(), d_b.data(), shape.M, shape.N, shape.K, nullptr);
    return d_c.to_host();
  }
  Comparison compare(const std::vector<float>& got, bool exactly) {
    const double K = static_cast<double>(shape.K);
    Comparison result = ::compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.value[i]; },
        [&](size_t i) { return exactly ? 0.0 : gemm_mixed::mean_zero_bound(K, want.squares[i]); });
    result.ok = result.ok && d_a.intact() && d_b.intact() && d_c.intact();
    return result;
  }
  Comparison check(gemm_mixed::Launch<T> launch, bool exactly) {
    return compare(run(launch), exactly);
  }

  Shape shape;
  Guarded<T> d_a, d_b;
  Guarded<float> d_c;
  rounding::Sums want;
};

template <class T>
Problem<T> integer_problem(Shape shape, Offsets offsets = {}) {
  return Problem<T>(shape, rounded<T>(random_integers(shape.M * shape.K, 0)),
                    rounded<T>(random_integers(shape.K * shape.N, 1)), offsets);
}
template <class T>
Problem<T> random_problem(Shape shape) {
  return Problem<T>(shape, rounded<T>(random_floats(shape.M * shape.K, 0)),
                    rounded<T>(random_floats(shape.K * shape.N, 1)));
}

// Calls check(version) with each version that this device can run.
template <class T, class Check>
void for_each_version(Check&& check) {
  for (const auto& version : testing::chosen(kVersions<T>)) {
    if (!missing(version.needs).empty()) continue;
    CAPTURE(version.name);
    check(version.launch);
  }
}

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
  shapes.insert(shapes.end(), {{0, 5, 3}, {5, 0, 3}, {0, 0, 3}, {5, 3, 0}, {0, 0, 0}});
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

// ---- wgmma, warp_specialized: the TMA, rings and phases ----------------------------------------

TEMPLATE_TEST_CASE("the versions of sm_90 take many tiles per block and many stages per tile", "",
                   gpu::half, gpu::bfloat16) {
  if (!missing(Needs::Sm90).empty()) return;
  // The first three have more tiles of 128 x 256 than a GPU multiprocessors, so that blocks take
  // several and go on in the middle of the ring. The rows of two are not aligned.
  for (const Shape& shape : {Shape{1544, 3080, 72}, Shape{1416, 3080, 264}, Shape{1500, 3001, 40},
                             Shape{128, 256, 64}, Shape{300, 1000, 1032}, Shape{300, 1000, 1033}}) {
    CAPTURE(shape.M, shape.N, shape.K);
    auto problem = integer_problem<TestType>(shape);
    for (const auto launch :
         {gemm_mixed::launch_wgmma<TestType>, gemm_mixed::launch_warp_specialized<TestType>})
      REQUIRE_OK(problem.check(launch, true));
  }
}

TEMPLATE_TEST_CASE("the versions of sm_90 run in a captured graph", "", gpu::half, gpu::bfloat16) {
  if (!missing(Needs::Sm90).empty()) return;
  auto problem = integer_problem<TestType>({136, 264, 200});
  for (const auto launch :
       {gemm_mixed::launch_wgmma<TestType>, gemm_mixed::launch_warp_specialized<TestType>}) {
    gpu::Stream stream;
    const gpu::Graph graph(stream, [&] {
      launch(problem.d_c.data(), problem.d_a.data(), problem.d_b.data(), problem.shape.M,
             problem.shape.N, problem.shape.K, stream);
    });
    gpu::poison(problem.d_c.data(), problem.d_c.size() * sizeof(float));
    HIP_CHECK(hipDeviceSynchronize());
    graph.launch(stream);
    stream.wait();
    REQUIRE_OK(problem.compare(problem.d_c.to_host(), true));
  }
}

TEST_CASE("the versions of sm_90 refuse tf32") {
  const float* none = nullptr;
  for (const auto launch :
       {gemm_mixed::launch_wgmma<float>, gemm_mixed::launch_warp_specialized<float>})
    REQUIRE_THROWS_AS(launch(nullptr, none, none, 8, 8, 8, nullptr), std::runtime_error);
}

// ---- mma_sync: its tiles and its shared memory ------------------------------------------------

TEST_CASE("mma_sync's blocks cover every tile once") {
  for (const unsigned rows : {1u, 15u, 16u, 17u, 40u}) {
    for (const unsigned columns : {1u, 2u, 33u}) {
      std::set<std::array<unsigned, 2>> places;
      for (unsigned block = 0; block < rows * columns; ++block) {
        const gemm_mixed::TilePlace place = gemm_mixed::tile_place(block, rows, columns);
        REQUIRE((place.row < rows && place.column < columns));
        places.insert({place.row, place.column});
      }
      REQUIRE(places.size() == size_t{rows} * columns);
    }
  }
}

#if !defined(GPU_BACKEND_HIP)

namespace {

using gemm_mixed::TileName;

// The places of `rows` x `chunks` chunks that lanes read together are in different banks.
template <class Place>
bool free_of_conflicts(int row, int rows, int chunk, int chunks, Place place) {
  std::set<int> banks;
  for (int r = row; r < row + rows; ++r)
    for (int j = chunk; j < chunk + chunks; ++j) banks.insert(place(r, j) % 8);  // 8 x 16 bytes
  return static_cast<int>(banks.size()) == rows * chunks;
}

// Every chunk of `rows` rows of `chunks` chunks has a place of its own, and no place is left over.
template <class Place>
bool covers_all(int rows, int chunks, Place place) {
  std::set<int> places;
  for (int row = 0; row < rows; ++row)
    for (int chunk = 0; chunk < chunks; ++chunk) places.insert(place(row, chunk));
  const int all = rows * chunks;
  return static_cast<int>(places.size()) == all && *places.begin() == 0 &&
         *places.rbegin() == all - 1;
}

}  // namespace

FOR_EACH_TYPE("mma_sync is right with every tile that fits the device", "[long]") {
  if (!missing(gemm_mixed::kNeedsOfMmaSync).empty()) return;
  struct Case {
    TileName tile;
    size_t bytes;
    bool both;  // also where rows are not aligned
  };
  std::vector<Case> cases = {{TileName::Large, 192 * 1024, false},
                             {TileName::Medium, 96 * 1024, false},
                             {TileName::Small, 48 * 1024, true}};
#if defined(GPU_BACKEND_CPU)
  cases.push_back({TileName::Wide, 48 * 1024, true});
#endif
  for (const Case& c : cases) {
    if (c.bytes > gpu::max_shared_bytes()) continue;
    CAPTURE(c.bytes);
    const auto check = [&](const Shape& shape, bool asynchronous) {
      CAPTURE(shape.M, shape.N, shape.K, asynchronous);
      auto problem = integer_problem<TestType>(shape);
      gpu::poison(problem.d_c.data(), problem.d_c.size() * sizeof(float));
      gemm_mixed::launch_mma_sync_tile(c.tile, asynchronous, problem.d_c.data(), problem.d_a.data(),
                                       problem.d_b.data(), shape.M, shape.N, shape.K);
      REQUIRE_OK(problem.compare(problem.d_c.to_host(), true));
    };
    for (const Shape& shape : {Shape{136, 264, 200}, Shape{8, 8, 8}, Shape{1, 8, 0}})
      check(shape, true);
    if (c.both) check({131, 257, 67}, false);
  }
}

TEST_CASE("mma_sync refuses a tile that it is not compiled for") {
  const auto launch = [] {
    const float* none = nullptr;
    gemm_mixed::launch_mma_sync_tile<float>(TileName::Large, false, nullptr, none, none, 1, 1, 1);
  };
  REQUIRE_THROWS_AS(launch(), std::invalid_argument);
}

TEST_CASE("mma_sync's shared memory has every chunk once, and no bank conflicts") {
  const auto place_a = [](int row, int chunk) { return gemm_mixed::mma_sync_place(row, chunk, 8); };
  // LargeTile's rows of B have 256 elements: 32 chunks of 16-bit numbers, 64 of tf32.
  const auto place_b = [](int row, int chunk) {
    return gemm_mixed::mma_sync_place(row, chunk, 32);
  };
  const auto place_tf32 = [](int row, int chunk) {
    return gemm_mixed::swizzled_pairs<64>(row, chunk);
  };
  REQUIRE(covers_all(128, 8, place_a));
  REQUIRE(covers_all(64, 32, place_b));
  REQUIRE(covers_all(32, 64, place_tf32));
  for (int chunk = 0; chunk < 8; ++chunk) {
    REQUIRE(free_of_conflicts(16, 8, chunk, 1, place_a));
    REQUIRE(free_of_conflicts(16, 8, chunk, 1, place_b));
    if (chunk % 2 == 0) REQUIRE(free_of_conflicts(16, 4, chunk, 2, place_tf32));
  }
  REQUIRE(free_of_conflicts(5, 1, 0, 8, place_a));  // as the copies write them
  REQUIRE(free_of_conflicts(5, 1, 8, 8, place_b));
  REQUIRE(free_of_conflicts(5, 1, 8, 8, place_tf32));
}

#endif

// ---- The bound --------------------------------------------------------------------------------

namespace {

// How a matrix unit adds up: `width` exact products and the sum so far are cut to `bits` bits
// behind the first one of the largest of them, then added; the sum is cut to a float. Units differ
// in both numbers; a float has 23 such bits.
struct Adder {
  size_t width;
  int bits;
};
double matrix_unit_dot(const std::vector<float>& x, const std::vector<float>& y, Adder adder) {
  constexpr int kOfFloat = 23;
  double sum = 0;
  for (size_t begin = 0; begin < x.size(); begin += adder.width) {
    std::vector<double> numbers = {sum};
    for (size_t k = begin; k < std::min(begin + adder.width, x.size()); ++k)
      numbers.push_back(static_cast<double>(x[k]) * static_cast<double>(y[k]));
    double largest = 0;
    for (const double number : numbers) largest = std::max(largest, std::fabs(number));
    if (largest == 0) continue;
    const int shift = adder.bits - std::ilogb(largest);
    double steps = 0;
    for (const double number : numbers) steps += std::trunc(std::ldexp(number, shift));
    if (steps != 0) {
      const int dropped = std::max(std::ilogb(steps) - kOfFloat, 0);
      steps = std::ldexp(std::trunc(std::ldexp(steps, -dropped)), dropped);
    }
    sum = std::ldexp(steps, -shift);
  }
  return sum;
}

struct Errors {
  double of_mean_zero = 0, of_worst_case = 0;  // the largest shares of the two bounds
  int towards_zero = 0, all = 0;               // errors that made the sum smaller, and all
};

// `trials` dot products of K bf16 numbers each. Positive ones are in [0, 1), others in [-1, 1).
Errors matrix_unit_errors(size_t K, Adder adder, bool positive, std::uint32_t trials) {
  Errors errors;
  for (std::uint32_t trial = 0; trial < trials; ++trial) {
    std::vector<float> x = random_floats(K, 2 * trial), y = random_floats(K, 2 * trial + 1);
    rounding::Sum want;
    for (size_t k = 0; k < K; ++k) {
      for (float* value : {&x[k], &y[k]}) {
        *value = gpu::to_float(round_to<gpu::bfloat16>(*value));
        if (positive) *value = std::fabs(*value);
      }
      want.add(static_cast<double>(x[k]) * static_cast<double>(y[k]));
    }
    const double got = matrix_unit_dot(x, y, adder), error = std::fabs(got - want.value);
    const auto terms = static_cast<double>(K);
    errors.of_mean_zero =
        std::max(errors.of_mean_zero, error / gemm_mixed::mean_zero_bound(terms, want.squares));
    errors.of_worst_case =
        std::max(errors.of_worst_case, error / gemm_mixed::bound(terms, want.absolute));
    errors.towards_zero += std::fabs(got) < std::fabs(want.value);
    errors.all += error != 0;
  }
  return errors;
}

}  // namespace

TEST_CASE("a unit that cuts off stays below the bounds, and comes near enough to need them",
          "[harness]") {
  for (const Adder adder : {Adder{4, 23}, Adder{4, 25}, Adder{8, 24}, Adder{16, 25}})
    for (const size_t K : {1, 5, 64, 1000, 8192}) {
      CAPTURE(adder.width, adder.bits, K);
      const Errors random = matrix_unit_errors(K, adder, false, 100);
      CAPTURE(random.of_mean_zero, random.of_worst_case);
      REQUIRE(random.of_mean_zero < 0.25);
      REQUIRE(random.of_worst_case < 0.5);
      const Errors positive = matrix_unit_errors(K, adder, true, 10);
      CAPTURE(positive.of_worst_case);
      REQUIRE(positive.of_worst_case < 0.5);
    }
  // The cuts of the sum go one way as long as it keeps its sign: most results are too small.
  const Errors narrow = matrix_unit_errors(8192, {4, 25}, false, 200);
  CAPTURE(narrow.of_mean_zero, narrow.towards_zero, narrow.all);
  REQUIRE(narrow.of_mean_zero > 0.01);
  REQUIRE(narrow.towards_zero > 0.75 * narrow.all);
}

FOR_EACH_TYPE("the checks refuse a dropped term, a doubled term, swapped rows and zeros",
              "[harness]") {
  // The shapes that the program prints. Of the GPU's, 8192 in each dimension, a few rows and
  // columns: an element's sum is as long, and the bound looks at nothing else.
  for (const Shape& shape : {Shape{160, 160, 160}, Shape{129, 65, 255}, Shape{4, 64, 8192}}) {
    CAPTURE(shape.M, shape.N, shape.K);
    for (const bool exactly : {false, true}) {
      const auto inputs = [&](size_t n, std::uint32_t stream) {
        return rounded<TestType>(exactly ? random_integers(n, stream) : random_floats(n, stream));
      };
      const std::vector<TestType> a = inputs(shape.M * shape.K, 0);
      const std::vector<TestType> b = inputs(shape.K * shape.N, 1);
      const rounding::Sums want = gemm_mixed::gemm_mixed_cpu(a, b, shape.M, shape.N, shape.K);
      const auto term = [&](size_t i) {
        const size_t row = i / shape.N, column = i % shape.N;
        const auto product = [&](size_t k) {
          return static_cast<double>(gpu::to_float(a[row * shape.K + k])) *
                 static_cast<double>(gpu::to_float(b[k * shape.N + column]));
        };
        return testing::median_term(shape.K, product);
      };
      const auto bound = [&](size_t i) {
        return exactly ? 0.0
                       : gemm_mixed::mean_zero_bound(static_cast<double>(shape.K), want.squares[i]);
      };
      testing::require_refusals(want.value, bound, shape.N, term);
    }
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

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
#endif
