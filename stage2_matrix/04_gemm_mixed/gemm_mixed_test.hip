// Every version of the product on matrix units, in every type, on awkward shapes and alignments,
// exactly and within its bound.
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"

// Each case below runs once for fp16, once for bf16 and once for tf32.
#define FOR_EACH_TYPE(name, tags) TEMPLATE_TEST_CASE(name, tags, gpu::half, gpu::bfloat16, float)

namespace {

using gemm_mixed::kVersions;
using gemm_mixed::round_to;

template <class T>
std::vector<T> rounded(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float value : values) result.push_back(round_to<T>(value));
  return result;
}

std::vector<float> random_floats(size_t n, std::uint32_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = random_numbers::uniform(7, stream, i);
  return values;
}

// Integers in [-3, 3]: their products' sums are exact in float in every order, so that an element
// that is missed or added twice can't pass as rounding.
std::vector<float> random_integers(size_t n, std::uint32_t stream) {
  std::vector<float> values = random_floats(n, stream);
  for (float& value : values) value = std::rint(3 * value);
  return values;
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
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want.product[i]; },
        [&](size_t i) { return exactly ? 0.0 : gemm_mixed::bound(K, want.absolute[i]); });
    result.ok = result.ok && d_a.intact() && d_b.intact() && d_c.intact();
    return result;
  }
  Comparison check(gemm_mixed::Launch<T> launch, bool exactly) {
    return compare(run(launch), exactly);
  }

  Shape shape;
  Guarded<T> d_a, d_b;
  Guarded<float> d_c;
  gemm_mixed::Reference want;
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
  for (const auto& version : kVersions<T>) {
    if (!missing(version.needs).empty()) continue;
    CAPTURE(version.name);
    check(version.launch);
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
  shapes.insert(shapes.end(), {{255, 129, 65}, {700, 3, 17}, {3, 700, 17}, {5, 7, 700}});
  shapes.insert(shapes.end(), {{64, 64, 64}, {136, 72, 200}, {16, 264, 8}});  // aligned rows
  shapes.insert(shapes.end(), {{0, 5, 3}, {5, 0, 3}, {0, 0, 3}, {5, 3, 0}, {0, 0, 0}});
  for (const Shape& shape : shapes) {
    CAPTURE(shape.M, shape.N, shape.K);
    auto problem = integer_problem<TestType>(shape);
    for_each_version<TestType>([&](auto launch) { REQUIRE_OK(problem.check(launch, true)); });
  }
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
  const Shape shape{33, 40, 50};
  const std::vector<float> floats_a = random_floats(shape.M * shape.K, 0);
  const std::vector<float> floats_b = random_floats(shape.K * shape.N, 1);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    CAPTURE(value);
    std::vector<float> a = floats_a, b = floats_b;
    a[20 * shape.K + 49] = value;  // row 20, the last k
    b[7 * shape.N + 39] = value;   // column 39, the last
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
    REQUIRE(std::fabs(problem.want.product[i] - product.values[i]) <=
            1e-13 * problem.want.absolute[i]);
  problem.want.product = product.values;
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

// ---- mma_sync: its tiles and its shared memory ------------------------------------------------
#if !defined(GPU_BACKEND_HIP)

namespace {

using gemm_mixed::MmaTile;

template <class T, class Tile>
void check_tile() {
  using gemm_mixed::Stage;
  if (Tile::kStages * sizeof(Stage<T, Tile>) > gpu::max_shared_bytes()) return;
  CAPTURE(Tile::kRows, Tile::kColumns, Tile::kStages);
  for (const Shape& shape : {Shape{136, 264, 200}, Shape{8, 8, 8}, Shape{1, 8, 0}}) {
    auto problem = integer_problem<T>(shape);
    REQUIRE_OK(problem.check(gemm_mixed::launch_tile<T, Tile, true>, true));
  }
  auto unaligned = integer_problem<T>({131, 257, 67});
  REQUIRE_OK(unaligned.check(gemm_mixed::launch_tile<T, Tile, false>, true));
}

// The places of `rows` x `chunks` chunks that lanes read together are in different banks.
template <class Place>
bool free_of_conflicts(int row, int rows, int chunk, int chunks, Place place) {
  std::set<int> banks;
  for (int r = row; r < row + rows; ++r)
    for (int j = chunk; j < chunk + chunks; ++j) banks.insert(place(r, j) % 8);  // 8 x 16 bytes
  return static_cast<int>(banks.size()) == rows * chunks;
}

}  // namespace

FOR_EACH_TYPE("mma_sync is right with every tile that fits the device", "") {
  if (!missing(gemm_mixed::kNeedsOfMmaSync).empty()) return;
  check_tile<TestType, gemm_mixed::LargeTile>();
  check_tile<TestType, gemm_mixed::MediumTile>();
  check_tile<TestType, gemm_mixed::SmallTile>();
  check_tile<TestType, MmaTile<64, 128, 32, 64, 2, 1>>();  // as wide as LargeTile's warps, 2 stages
}

FOR_EACH_TYPE("mma_sync's shared memory has every chunk once, and no bank conflicts", "") {
  using Stage = gemm_mixed::Stage<TestType, gemm_mixed::LargeTile>;
  constexpr int kDepth = gemm_mixed::kStageDepth<TestType>;
  std::set<int> places_a, places_b;
  for (int row = 0; row < 128; ++row)
    for (int chunk = 0; chunk < Stage::kChunksA; ++chunk)
      places_a.insert(Stage::place_a(row, chunk));
  for (int row = 0; row < kDepth; ++row)
    for (int chunk = 0; chunk < Stage::kChunksB; ++chunk)
      places_b.insert(Stage::place_b(row, chunk));
  REQUIRE((places_a.size() == 128 * Stage::kChunksA && *places_a.rbegin() + 1 == 128 * 8));
  REQUIRE(places_b.size() == size_t{kDepth} * Stage::kChunksB);
  REQUIRE(*places_b.rbegin() + 1 == kDepth * Stage::kChunksB);

  const bool tf32 = std::is_same_v<TestType, float>;  // its B is read as 4 rows of 2 chunks
  for (int chunk = 0; chunk < 8; ++chunk) {
    REQUIRE(free_of_conflicts(16, 8, chunk, 1, Stage::place_a));
    if (!tf32) REQUIRE(free_of_conflicts(16, 8, chunk, 1, Stage::place_b));
    if (tf32 && chunk % 2 == 0) REQUIRE(free_of_conflicts(16, 4, chunk, 2, Stage::place_b));
  }
  REQUIRE(free_of_conflicts(5, 1, 0, 8, Stage::place_a));  // as the copies write them
  REQUIRE(free_of_conflicts(5, 1, 8, 8, Stage::place_b));
}

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
#endif

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

using gpu::half;

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

TEST_CASE("swapped indices, a missing bounds check and a missing row are caught") {
  auto square = integer_problem<half>({16, 16, 16});
  REQUIRE(square.check(gemm_mixed::launch_naive<half>, true).ok);
  REQUIRE(!square.check(launch_transposed, true).ok);
  REQUIRE(!square.check(launch_row_too_many, true).ok);
  REQUIRE(!square.check(launch_row_too_few, true).ok);
}

// On a GPU these mistakes may go well by chance; the CPU backend shows them every time.
#if defined(GPU_BACKEND_CPU)

namespace {

// wmma_tiled for a single tile, without the barrier between staging and loading.
static __global__ void gemm_without_barrier(float* c, const half* a, const half* b) {
  using Unit = gemm_mixed::MatrixUnit<half>;
  constexpr int kTile = Unit::kTile;
  DYNAMIC_SHARED(half, shared);
  half* shared_b = shared + kTile * kTile;
  gemm_mixed::stage_tile<kTile, kTile, kTile>(shared, a, kTile, kTile, 0, 0, true);
  gemm_mixed::stage_tile<kTile, kTile, kTile>(shared_b, b, kTile, kTile, 0, 0, true);
  Unit::A fragment_a;
  Unit::B fragment_b;
  Unit::C sums;
  Unit::clear(sums);
  Unit::load(fragment_a, shared, kTile);
  Unit::load(fragment_b, shared_b, kTile);
  Unit::multiply_add(sums, fragment_a, fragment_b);
  if (gpu::wave_id() == 0) Unit::store(c, kTile, sums);
}

void launch_without_barrier(float* c, const half* a, const half* b, size_t, size_t, size_t,
                            hipStream_t) {
  LAUNCH(gemm_without_barrier, 1, 64, 4 * 16 * 16, c, a, b);
}

// out[4 l, 4 l + 4) = the words that ldmatrix gives lane l of the upper left 16 x 8 words of a tile
// of A, which `in` holds row by row: 16 rows of 8 chunks.
template <bool kSwizzledToo, int kLate>
static __global__ void load_fragment(unsigned* out, const uint4* in) {
  DYNAMIC_SHARED(uint4, tile);
  gemm_mixed::AsyncCopies copies;
  for (int i = static_cast<int>(threadIdx.x); i < 16 * 8; i += static_cast<int>(blockDim.x))
    copies.begin(tile + gemm_mixed::swizzled<8>(i / 8, i % 8), in + i, true);
  copies.end_group();
  copies.wait<kLate>();
  __syncthreads();  // the tile is complete, if kLate is 0
  const int lane = gemm_mixed::warp_lane(), row = lane % 16, chunk = lane / 16;
  unsigned words[4];
  gemm_mixed::load_matrices(
      words, tile + (kSwizzledToo ? gemm_mixed::swizzled<8>(row, chunk) : row * 8 + chunk));
  for (int i = 0; i < 4; ++i) out[4 * lane + i] = words[i];
}

// Does every lane get the words that mma.sync wants of it?
template <bool kSwizzledToo, int kLate>
bool fragments_are_right() {
  std::vector<uint4> in;
  for (unsigned i = 0; i < 16 * 8; ++i) in.push_back({4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3});
  Guarded<uint4> d_in(in, 0);
  Guarded<unsigned> d_out(4 * 32, 0);
  LAUNCH((load_fragment<kSwizzledToo, kLate>), 1, 64, 16 * 8 * sizeof(uint4), d_out.data(),
         d_in.data());
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

TEST_CASE("a missing barrier, a wrong swizzle and a copy not waited for are caught") {
  auto tile = integer_problem<half>({16, 16, 16});
  REQUIRE(!tile.check(launch_without_barrier, true).ok);
  REQUIRE(fragments_are_right<true, 0>());
  REQUIRE(!fragments_are_right<false, 0>());
  REQUIRE(!fragments_are_right<true, 1>());
}
#endif
