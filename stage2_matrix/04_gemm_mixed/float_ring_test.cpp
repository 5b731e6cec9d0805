// float_ring in all layouts: awkward sizes, gaps, alpha and beta, many tiles and stages; how its
// blocks share tiles; what it leaves to gemm::best, and what float_best() chooses.
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "common/program.h"
#include "common/testing.h"
#include "stage2_matrix/04_gemm_mixed/accurate.h"
#include "stage2_matrix/04_gemm_mixed/detail/tile_shares.h"
#include "stage2_matrix/04_gemm_mixed/floats_for_tests.h"

using namespace floats_test;
using gemm::Layout;

namespace {

constexpr Layout kLayouts[] = {Layout::NN, Layout::NT, Layout::TN};

bool has_ring() { return missing(gemm_mixed::kNeedsOfSm90).empty(); }
auto ring(size_t offset = 0) { return with_workspace(gemm_mixed::launch_float_ring, offset); }

// Do the blocks have every step of every tile once, and does each shared tile get all of its parts,
// in the order of their steps?
bool complete(const gemm_mixed::TileShares& shares, unsigned tiles) {
  std::set<std::pair<unsigned, unsigned>> steps, parts_of_blocks;  // (tile, step), (tile, part)
  std::set<unsigned> parts;
  for (unsigned block = 0; block < shares.blocks; ++block)
    for (unsigned i = 0; i < shares.pieces(block); ++i) {
      const gemm_mixed::TilePiece piece = shares.piece(block, i);
      if (piece.first >= piece.end || piece.end > shares.steps) return false;
      for (unsigned step = piece.first; step < piece.end; ++step)
        if (!steps.insert({piece.tile, step}).second) return false;
      if (i < shares.rounds) continue;
      const unsigned part = shares.part(block, piece.tile);
      parts_of_blocks.insert({piece.tile, part});
      if (part >= shares.parts() || !parts.insert(part).second) return false;
    }
  std::set<std::pair<unsigned, unsigned>> added;
  for (unsigned tile = 0; tile < shares.shared; ++tile) {
    const unsigned first = tile * shares.steps;
    for (unsigned block = shares.block_of(first); shares.begin(block) < first + shares.steps;
         ++block)
      added.insert({shares.whole() + tile, shares.part(block, shares.whole() + tile)});
  }
  return steps.size() == size_t{tiles} * shares.steps && added == parts_of_blocks;
}

}  // namespace

TEST_CASE("float_ring's blocks have every step of every tile once") {
  for (const unsigned at_a_time : {1u, 2u, 3u, 8u, 132u})
    for (const unsigned steps : {1u, 2u, 9u, 64u})
      for (const unsigned tiles : {1u, 2u, 5u, 8u, 23u, 131u, 132u, 133u, 140u, 200u, 263u}) {
        CAPTURE(at_a_time, steps, tiles);
        REQUIRE(complete(gemm_mixed::share_tiles(tiles, at_a_time, steps), tiles));
      }
}

TEST_CASE("float_ring's blocks share the last tiles evenly, and no tile among too many") {
  const auto shares = gemm_mixed::share_tiles(2048, 132, 256);  // 8192^3
  REQUIRE((shares.rounds == 15 && shares.shared == 68 && shares.sharers == 132));
  for (unsigned block = 0; block < 132; ++block) {
    const unsigned own = shares.begin(block + 1) - shares.begin(block);
    REQUIRE((own == 131 || own == 132));  // 68 x 256 / 132 = 131.9
  }
  REQUIRE(gemm_mixed::share_tiles(133, 132, 256).sharers == 8);
  REQUIRE(gemm_mixed::share_tiles(133, 132, 3).sharers == 3);
  REQUIRE(gemm_mixed::share_tiles(132, 132, 256).parts() == 0);
  REQUIRE(gemm_mixed::share_tiles(50, 132, 256).parts() == 0);
}

TEST_CASE("float_ring adds the parts of the tiles that blocks share") {
  if (!has_ring()) return;
  const Extents size{256 * (gpu::multiprocessors() + 2) + 4, 124, 264};
  for (const Layout layout : kLayouts) {
    Variant options;
    options.alpha = -2, options.beta = 3, options.gap = layout == Layout::NN ? 4 : 0;
    CAPTURE(size.M, static_cast<int>(layout));
    gemm_test::Problem problem = wide_problem(size, options, layout);
    REQUIRE_OK(problem.check(ring()));
  }
}

TEST_CASE("float_ring multiplies every pair of numbers once, in every layout") {
  if (!has_ring()) return;
  size_t turn = 0;
  for (const Extents size :
       {Extents{1, 1, 1}, Extents{4, 4, 4}, Extents{256, 128, 32}, Extents{260, 132, 36},
        Extents{256, 128, 128}, Extents{255, 127, 160}, Extents{40, 12, 300}, Extents{17, 13, 5},
        Extents{252, 124, 28}, Extents{0, 8, 4}, Extents{8, 0, 4}, Extents{12, 16, 0}})
    for (const Layout layout : kLayouts) {
      Variant options;
      options.alpha = ++turn % 2 == 0 ? 1 : -2;
      options.beta = static_cast<float>(turn % 3);
      options.gap = turn % 4 == 0 ? 4 : 0;
      CAPTURE(size.M, size.N, size.K, static_cast<int>(layout), options.gap);
      gemm_test::Problem problem(layout, size, options);
      REQUIRE_OK(problem.check(ring()));
    }
}

TEST_CASE("float_ring takes many tiles per block and many stages per tile") {
  if (!has_ring()) return;
#if defined(GPU_BACKEND_CPU)
  // Of few multiprocessors; and more rows of tiles than are taken below each other.
  const std::vector<Extents> sizes = {{520, 260, 200}, {2308, 132, 8}};
#else
  const std::vector<Extents> sizes = {{4100, 2052, 40}, {300, 1000, 1032}};
#endif
  for (const Extents size : sizes)
    for (const Layout layout : kLayouts) {
      CAPTURE(size.M, size.N, size.K, static_cast<int>(layout));
      gemm_test::Problem problem = wide_problem(size, {}, layout);
      REQUIRE_OK(problem.check(ring()));
    }
}

TEST_CASE("float_ring stays within the bound of float arithmetic, infinities and NaN included") {
  if (!has_ring()) return;
  for (const Layout layout : kLayouts) {
    Variant options;
    options.numbers = Numbers::floats, options.alpha = -1.7f, options.beta = 0.3f;
    CAPTURE(static_cast<int>(layout));
    gemm_test::Problem problem(layout, {72, 136, 600}, options);
    REQUIRE_OK(problem.check(ring()));
    problem.a.at(20, 0) = gemm_test::kInfinity, problem.b.at(0, 7) = gemm_test::kNan;
    problem.compute_reference();
    REQUIRE_OK(problem.check(ring()));
  }
}

TEST_CASE("float_ring leaves to gemm::best what the TMA does not take") {
  if (!has_ring()) return;
  for (const Layout layout : kLayouts) {
    for (size_t one = 0; one < 7; ++one) {
      Variant options;
      options.offset_a = one == 0, options.offset_b = one == 1, options.offset_c = one == 2;
      options.gap = one == 3 ? 1 : 0;
      if (one == 4) options.alpha = 0, options.beta = 2;
      CAPTURE(static_cast<int>(layout), one);
      gemm_test::Problem problem(layout, {68, one == 6 ? 70u : 72u, one == 5 ? 43u : 44u}, options);
      REQUIRE_OK(problem.check(ring(layout == Layout::NT && one == 5 ? 4 : 0)));
    }
  }
}

TEST_CASE("float_ring takes a single row, but no batch, no empty product and none with alpha = 0") {
  if (!has_ring()) return;
  const auto takes = [](Extents size, size_t batch = 1, float alpha = 1) {
    gemm_test::Problem problem(Layout::NN, size, {});
    problem.product.batch = batch, problem.product.alpha = alpha;
    return gemm_mixed::float_ring_takes(problem.product, nullptr);
  };
  REQUIRE((takes({8, 8, 20}) && takes({1, 8, 20})));
  REQUIRE_FALSE(takes({8, 8, 20}, 2));
  REQUIRE_FALSE(takes({8, 8, 20}, 1, 0));
  REQUIRE_FALSE(takes({0, 8, 20}));
  REQUIRE_FALSE(takes({8, 0, 20}));
}

TEST_CASE("float_ring needs memory for a copy of B in NT, and for parts of tiles") {
  if (!has_ring()) return;
  for (const Layout layout : kLayouts) {
    const gemm_test::Problem problem(layout, {8, 12, 20}, {});
    REQUIRE(gemm_mixed::float_ring_bytes(problem.product) ==
            (layout == Layout::NT ? 12 * 20 * sizeof(float) : 0));
  }
  if (gpu::multiprocessors() < 2) return;
  gemm_test::Problem problem(Layout::NN, {256 * gpu::multiprocessors() + 4, 4, 64}, {});
  REQUIRE(gemm_mixed::float_ring_bytes(problem.product) == 2 * 256 * 128 * sizeof(float));
}

TEST_CASE("float_best copies B only for the ring, and the ring needs full multiprocessors") {
  const auto check = [](gemm_test::Problem& problem, bool on_ring) {
    require_choice(problem, gemm_mixed::float_best, on_ring);
  };
  const size_t rows = 256 * gpu::multiprocessors();
  gemm_test::Problem full(Layout::NT, {rows, 16, 512}, {});
  check(full, has_ring());
  gemm_test::Problem short_sums(Layout::NT, {rows, 16, 508}, {});
  check(short_sums, false);
  if (gpu::multiprocessors() < 2) return;
  gemm_test::Problem one_more(Layout::NT, {rows + 4, 16, 512}, {});
  check(one_more, false);
  gemm_test::Problem worth_sharing(Layout::NT, {rows + 4, 16, 1024}, {});
  check(worth_sharing, has_ring());
  gemm_test::Problem too_few(Layout::NT, {rows / 2, 16, 512}, {});
  check(too_few, false);
}

#if defined(GPU_BACKEND_HIP)
TEST_CASE("float_ring says what it needs") {
  REQUIRE_THROWS_AS(gemm_mixed::launch_float_ring({}, nullptr), std::runtime_error);
}
#endif
