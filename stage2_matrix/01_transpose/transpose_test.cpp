// Every version of the transpose on awkward shapes and alignments, bit by bit.
#include "stage2_matrix/01_transpose/transpose.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/compare.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage2_matrix/01_transpose/detail/pieces.h"
#include "stage2_matrix/01_transpose/problem.h"
#include "stage2_matrix/01_transpose/reference.h"

// The kernels that only this test has: transpose_test.hip.
namespace transpose_test {
void launch_unbounded(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream);
void launch_swapped(float* out, const float* a, size_t rows, size_t cols, hipStream_t stream);
void launch_unsynchronized(float* out, const float* a, size_t rows, size_t cols,
                           hipStream_t stream);
}  // namespace transpose_test

namespace {

// 0, 1, 2, ...: each element is another float, up to 2^24 of them.
std::vector<float> numbered(size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

// Holds the transpose that `launch` makes of a (rows, cols) against `want`, with the matrices
// `offset_a` and `offset_out` elements behind a 16-byte boundary and nobody writing beside out.
template <class Launch>
Comparison check(Launch launch, const std::vector<float>& a, size_t rows, size_t cols,
                 const std::vector<float>& want, size_t offset_a = 0, size_t offset_out = 0) {
  Guarded<float> d_a(a, offset_a), d_out(a.size(), offset_out);
  launch(d_out.data(), d_a.data(), rows, cols, nullptr);
  const std::vector<float> out = d_out.to_host();
  Comparison result = compare(
      out.size(), [&](size_t i) { return out[i]; },
      [&](size_t i) { return static_cast<double>(want[i]); }, [](size_t) { return 0.0; });
  result.ok = result.ok && d_a.intact() && d_out.intact();
  return result;
}

template <class Launch>
Comparison check(Launch launch, size_t rows, size_t cols, size_t offset_a = 0,
                 size_t offset_out = 0) {
  const std::vector<float> a = numbered(rows * cols);
  return check(launch, a, rows, cols, transpose::transpose_cpu(a, rows, cols), offset_a,
               offset_out);
}

}  // namespace

TEST_CASE("every version moves every element to its place, in any shape") {
  constexpr size_t kSizes[] = {0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129};
  for (const auto& version : testing::chosen(transpose::kVersions))
    for (const size_t rows : kSizes)
      for (const size_t cols : kSizes) {
        CAPTURE(version.name, rows, cols);
        REQUIRE_OK(check(version.launch, rows, cols));
      }
}

TEST_CASE("every version transposes rows and columns, tall and wide matrices") {
  constexpr size_t kShapes[][2] = {{1, 5003}, {5003, 1}, {4, 4100}, {4100, 4},
                                   {3, 2051}, {2051, 3}, {320, 72}, {68, 1028}};
  for (const auto& version : testing::chosen(transpose::kVersions))
    for (const auto& shape : kShapes) {
      CAPTURE(version.name, shape[0], shape[1]);
      REQUIRE_OK(check(version.launch, shape[0], shape[1]));
    }
}

TEST_CASE("every version takes pointers at any multiple of 4 bytes") {
  for (const auto& version : testing::chosen(transpose::kVersions))
    for (const size_t offset_a : {0, 1, 2, 3})
      for (const size_t offset_out : {0, 1, 2, 3}) {
        CAPTURE(version.name, offset_a, offset_out);
        REQUIRE_OK(check(version.launch, 100, 68, offset_a, offset_out));
      }
}

TEST_CASE("the vectorised versions use float4 exactly where both matrices allow it") {
  const float* aligned = reinterpret_cast<const float*>(std::uintptr_t{4096});
  REQUIRE(transpose::fits_float4(aligned, aligned + 4, 8, 12));
  REQUIRE(!transpose::fits_float4(aligned, aligned + 1, 8, 12));
  REQUIRE(!transpose::fits_float4(aligned + 2, aligned, 8, 12));
  REQUIRE(!transpose::fits_float4(aligned, aligned, 9, 12));
  REQUIRE(!transpose::fits_float4(aligned, aligned, 8, 14));
}

TEST_CASE("sides longer than one launch takes", "[long]") {
  // One launch of each kernel is not enough for these; float4s where 4 divides both sides.
  constexpr size_t kLong = transpose::kMaxSide + 8;
  REQUIRE_OK(check(transpose::launch_naive, kLong, 1));
  REQUIRE_OK(check(transpose::launch_naive, 1, kLong));
  REQUIRE_OK(check(transpose::launch_vectorized, kLong + 1, 1));
  REQUIRE_OK(check(transpose::launch_vectorized, 1, kLong + 1));
  REQUIRE_OK(check(transpose::launch_vectorized, kLong, 4));
  REQUIRE_OK(check(transpose::launch_vectorized, 4, kLong));
}

TEST_CASE("the pieces cover a matrix once") {
  constexpr size_t kSide = transpose::kMaxSide;
  const size_t rows = 2 * kSide + 7, cols = kSide + 1;
  float* const base = reinterpret_cast<float*>(std::uintptr_t{4096});  // never followed
  size_t covered = 0;
  transpose::for_each_piece(
      base, base, rows, cols, [&](float* out, const float* a, const transpose::Piece& piece) {
        const size_t from = static_cast<size_t>(a - base), to = static_cast<size_t>(out - base);
        REQUIRE((from / cols == to % rows && from % cols == to / rows));
        REQUIRE((from / cols + piece.rows <= rows && from % cols + piece.cols <= cols));
        REQUIRE((piece.rows <= kSide && piece.cols <= kSide));
        REQUIRE((piece.a_stride == cols && piece.out_stride == rows));
        covered += size_t{piece.rows} * piece.cols;
      });
  REQUIRE(covered == rows * cols);
}

TEST_CASE("every version and the vendor's library agree with NumPy", "[numpy]") {
  const NpyArray a = read_npy(reference_path("transpose_a.npy"));
  const NpyArray want = read_npy(reference_path("transpose_result.npy"));
  const size_t rows = a.shape.at(0), cols = a.shape.at(1);
  REQUIRE((want.shape.at(0) == cols && want.shape.at(1) == rows));
  const std::vector<float> values(a.values.begin(), a.values.end());
  const std::vector<float> turned(want.values.begin(), want.values.end());
  for (const auto& version : testing::chosen(transpose::kVersions)) {
    CAPTURE(version.name);
    REQUIRE_OK(check(version.launch, values, rows, cols, turned));
  }
  if (blas::available()) {
    const auto vendor = [](float* out, const float* from, size_t r, size_t c, hipStream_t) {
      blas::transpose(r, c, from, out);
    };
    REQUIRE_OK(check(vendor, values, rows, cols, turned));
  }
}

TEST_CASE("transposing twice is the identity, for every pattern of bits") {
  // Any 32 bits, many of them NaNs: they must come back as they were.
  constexpr size_t kRows = 92, kCols = 76;
  std::vector<float> a(kRows * kCols);
  for (size_t i = 0; i < a.size(); ++i) {
    const std::uint32_t bits = random_numbers::word(7, 0, i) | (i % 3 == 0 ? 0x7F800000u : 0u);
    std::memcpy(&a[i], &bits, sizeof bits);
  }
  for (const auto& version : testing::chosen(transpose::kVersions)) {
    CAPTURE(version.name);
    Guarded<float> d_a(a, 0), d_turned(a.size(), 0), d_back(a.size(), 0);
    version.launch(d_turned.data(), d_a.data(), kRows, kCols, nullptr);
    version.launch(d_back.data(), d_turned.data(), kCols, kRows, nullptr);
    REQUIRE(std::memcmp(d_back.to_host().data(), a.data(), a.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("lanes that are served together meet each bank once") {
  constexpr unsigned kBanks = 32;  // of shared memory, on both vendors' devices
  // How many of `lanes` ask the bank that most ask for, if each asks for `floats` floats at
  // place(i).
  const auto conflicts = [](unsigned lanes, unsigned floats, auto place) {
    std::vector<unsigned> asked(kBanks);
    for (unsigned lane = 0; lane < lanes; ++lane)
      for (unsigned f = 0; f < floats; ++f) ++asked[(place(lane) * floats + f) % kBanks];
    return *std::max_element(asked.begin(), asked.end());
  };
  // The most over all rows and columns of a tile, kBanks lanes at a time.
  const auto most = [&](unsigned side, auto place, bool along_columns) {
    unsigned result = 0;
    for (unsigned i = 0; i < side; ++i)
      for (unsigned first = 0; first < side; first += kBanks)
        result = std::max(result, conflicts(kBanks, 1, [=](unsigned lane) {
                            return along_columns ? place(first + lane, i) : place(i, first + lane);
                          }));
    return result;
  };
  using transpose::kLargeTile, transpose::kTile;
  const auto tiled = [](unsigned row, unsigned col) { return row * kTile + col; };
  const auto padded = [](unsigned row, unsigned col) { return row * (kTile + 1) + col; };
  REQUIRE(most(kTile, tiled, false) == 1);
  REQUIRE(most(kTile, tiled, true) == kBanks);
  for (const bool along_columns : {false, true}) {
    REQUIRE(most(kTile, padded, along_columns) == 1);
    for (const unsigned side : {kTile, kLargeTile}) {
      const auto swizzled = [=](unsigned row, unsigned col) {
        return row * side + transpose::column_of_swizzled(row, col);
      };
      REQUIRE(most(side, swizzled, along_columns) == 1);
    }
  }
  // float4s: eight lanes at a time, which write 4 rows apart and read neighbours.
  constexpr unsigned kQuads = transpose::kWideTileRows / 4;
  const auto quad_at = [](unsigned row, unsigned quad) {
    return row * kQuads + transpose::quad_of_vectorized(row, quad);
  };
  for (unsigned quad = 0; quad < kQuads; quad += 8)
    for (unsigned row = 0; row + 28 < transpose::kWideTileCols; ++row) {
      CAPTURE(quad, row);
      REQUIRE(conflicts(8, 4, [=](unsigned lane) { return quad_at(row + 4 * lane, quad); }) == 1);
      REQUIRE(conflicts(8, 4, [=](unsigned lane) { return quad_at(row, quad + lane); }) == 1);
    }
}

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("the check refuses a lost, a doubled and a misplaced element at every printed shape",
          "[harness]") {
  for (const bool quick : {false, true}) {
    const std::vector<size_t> size = usual_sizes(transpose::sizes(), quick, gpu::kBackend);
    for (const transpose::Shape& shape : transpose::printed(size[0], size[1], false)) {
      CAPTURE(shape.rows, shape.cols);
      const std::vector<double> want = transpose::expect(shape, 7).want;
      testing::require_refusals(want, 0, shape.rows, [&](size_t i) { return want[i]; });
    }
  }
}

TEST_CASE("a missing bounds check, swapped indices and a missing barrier are caught", "[harness]") {
  REQUIRE(!check(transpose_test::launch_unbounded, 33, 31).ok);
  REQUIRE(!check(transpose_test::launch_swapped, 32, 32).ok);
  // On a GPU the waves of a block may happen to come in the right order.
  if (std::string(gpu::kBackend) == "cpu")
    REQUIRE(!check(transpose_test::launch_unsynchronized, 32, 32).ok);
}
