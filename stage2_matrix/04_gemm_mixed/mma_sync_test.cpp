// mma_sync: its blocks, its tiles, and where its shared memory has what.
#include <array>
#include <set>
#include <stdexcept>
#include <vector>

#include "common/program.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/detail/stage_sm80.h"
#include "stage2_matrix/04_gemm_mixed/mixed_products_for_tests.h"

using namespace gemm_mixed_test;

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
