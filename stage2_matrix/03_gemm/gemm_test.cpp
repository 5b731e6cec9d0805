// Every version of the matrix product on awkward sizes, layouts, leading dimensions, alignments and
// batches, exactly and within its bound; NumPy's products; arguments that are refused.
#include "stage2_matrix/03_gemm/gemm.h"

#include <cmath>
#include <cstddef>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage2_matrix/03_gemm/kernels_for_tests.h"
#include "stage2_matrix/03_gemm/products_for_tests.h"

using namespace gemm_test;

namespace {

// The sizes around every tile's edge, so that each stands in each place several times.
std::vector<Extents> edge_sizes() {
  constexpr size_t kEdges[] = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129};
  constexpr size_t kCount = std::size(kEdges);
  std::vector<Extents> sizes;
  for (size_t i = 0; i < kCount; ++i) {
    sizes.push_back({kEdges[i], kEdges[(5 * i + 2) % kCount], kEdges[(7 * i + 5) % kCount]});
    sizes.push_back({kEdges[(7 * i + 1) % kCount], kEdges[i], kEdges[(5 * i + 4) % kCount]});
  }
  return sizes;
}

void check_every_pair(const std::vector<Extents>& sizes) {
  size_t turn = 0;  // which of the other choices this case gets
  for (const Extents& size : sizes) {
    Problem::Options at;
    at.offset_a = ++turn % 4, at.offset_b = turn / 2 % 4, at.offset_c = turn / 3 % 4;
    Problem contiguous(Layout::NN, size, at);
    for (const auto& version : testing::chosen(gemm::kVersions)) {
      CAPTURE(version.name, size.M, size.N, size.K, at.offset_a, at.offset_b, at.offset_c);
      REQUIRE_OK(contiguous.check_contiguous(version));
    }
    for (const Layout layout : kLayouts) {
      Problem::Options options;
      options.alpha = ++turn % 2 == 0 ? 1 : -2;
      options.beta = turn % 5 < 2 ? 0 : turn % 5 == 2 ? 1 : 3;
      options.gap = turn % 4;
      options.offset_a = turn / 2 % 4, options.offset_b = turn / 3 % 4;
      options.offset_c = turn / 4 % 4;
      Problem problem(layout, size, options);
      require_all(problem);
    }
  }
}

}  // namespace

TEST_CASE("every version multiplies every pair of numbers once, at any size") {
  std::vector<Extents> sizes = edge_sizes();
  for (const Extents& size : {Extents{255, 129, 65},
                              {33, 129, 65},
                              {17, 17, 17},
                              {16, 16, 16},
                              {1, 1, 1},
                              {1001, 3, 7},
                              {3, 1001, 5},
                              {2, 3, 4999}})
    sizes.push_back(size);
  check_every_pair(sizes);
}

TEST_CASE("every version multiplies every pair of numbers once, in many tiles", "[long]") {
  check_every_pair({{256, 512, 128}});
}

TEST_CASE("float4s are used only where they lie in the matrix and at a multiple of 16 bytes") {
  for (const Layout layout : kLayouts) {
    for (size_t one = 0; one < 5; ++one) {  // what is not a multiple of 4: nothing, or one of these
      Problem::Options options;
      options.gap = one == 1 ? 1 : 4;
      options.offset_a = one == 2, options.offset_b = one == 3, options.offset_c = one == 4;
      CAPTURE(one);
      Problem problem(layout, {68, 132, 44}, options);
      require_all(problem);
    }
  }
}

TEST_CASE("every version stays within its bound for any alpha and beta") {
  for (const float alpha : {0.0f, 1.0f, -1.7f}) {
    for (const float beta : {0.0f, 1.0f, 0.3f}) {
      for (const Layout layout : kLayouts) {
        for (const size_t gap : {0, 2}) {
          Problem problem(layout, {37, 70, 131}, {Numbers::floats, alpha, beta, gap});
          require_all(problem);
        }
      }
    }
  }
}

TEST_CASE("empty products leave nothing, or beta C") {
  for (const auto& version : testing::chosen(gemm::kVersions)) {
    CAPTURE(version.name);
    for (const Extents& size :
         {Extents{0, 5, 7}, {5, 0, 7}, {0, 0, 0}, {0, 0, 9}, {0, 17, 0}, {19, 33, 0}})
      REQUIRE_OK(Problem(Layout::NN, size, {}).check_contiguous(version));
    for (const Extents& size :
         {Extents{0, 0, 0}, {0, 5, 7}, {5, 0, 7}})  // no C: no array is needed
      REQUIRE_NOTHROW(version.launch(nullptr, nullptr, nullptr, size.M, size.N, size.K));
    if (version.launch.general == nullptr) continue;
    for (const Layout layout : kLayouts) {
      for (const Extents& size : {Extents{0, 5, 7}, {5, 0, 7}, {0, 0, 0}, {0, 0, 9}, {0, 17, 0}})
        REQUIRE_OK(Problem(layout, size, {Numbers::integers, 1, 2}).check(version));
      for (const float beta : {0.0f, 1.0f, -2.0f}) {
        REQUIRE_OK(Problem(layout, {19, 33, 0}, {Numbers::integers, 1, beta, 1}).check(version));
        REQUIRE_OK(Problem(layout, {5, 7, 0}, {Numbers::integers, kInfinity, beta}).check(version));
      }
    }
    // Without any of the three nothing is read or written, and alpha = 0 reads neither A nor B.
    version.launch.general({}, nullptr);
    Problem problem(Layout::NN, {19, 33, 21}, {Numbers::integers, 0, 2, 1});
    REQUIRE_OK(problem.check([&](Product p) {
      p.a = p.b = nullptr;
      version.launch.general(p, nullptr);
    }));
  }
}

TEST_CASE("infinities and NaN reach the elements that they belong to, and no other") {
  for (const bool plain : {true, false}) {  // C = A B on contiguous matrices, for every version
    for (const Layout layout : kLayouts) {
      if (plain && layout != Layout::NN) continue;
      Problem problem(layout, {67, 35, 45},
                      {Numbers::floats, 1, plain ? 0 : 0.5f, plain ? size_t{0} : 3});
      const bool a_transposed = layout == Layout::TN, b_transposed = layout == Layout::NT;
      const auto set_a = [&](size_t row, size_t k, float value) {
        problem.a.at(a_transposed ? k : row, a_transposed ? row : k) = value;
      };
      const auto set_b = [&](size_t k, size_t col, float value) {
        problem.b.at(b_transposed ? col : k, b_transposed ? k : col) = value;
      };
      set_a(3, 44, kInfinity), set_b(44, 7, 0);  // infinity times 0
      set_a(66, 0, kNan);
      set_b(0, 34, -kInfinity), set_b(20, 12, kNan);
      if (!plain) problem.c.at(50, 20) = kInfinity, problem.c.at(51, 21) = kNan;
      problem.compute_reference();
      size_t finite = 0;
      for (const double value : problem.reference.c) finite += std::isfinite(value);
      REQUIRE(finite == (plain ? 65 * 33 : 65 * 33 - 2));
      require_all(problem);
    }
  }
}

TEST_CASE("every version and the vendor's library agree with NumPy", "[numpy]") {
  const auto read = [](const std::string& name) {
    return read_npy(reference_path("gemm_" + name + ".npy"));
  };
  const float alpha = static_cast<float>(read("alpha").values.at(0));
  const float beta = static_cast<float>(read("beta").values.at(0));
  struct Case {
    Layout layout;
    const char *a, *b, *result;
  };
  for (const Case& names : {Case{Layout::NN, "a", "b", "nn"},
                            {Layout::NT, "a", "b_t", "nt"},
                            {Layout::TN, "a_t", "b", "tn"}}) {
    const NpyArray a = read(names.a), b = read(names.b), c = read("c"), want = read(names.result);
    const size_t K = a.shape.at(names.layout == Layout::TN ? 0 : 1);
    Problem problem(names.layout, {c.shape.at(0), c.shape.at(1), K},
                    {Numbers::floats, alpha, beta});
    const auto copy = [](Matrix& to, const NpyArray& from) {
      for (size_t i = 0; i < from.values.size(); ++i)
        to.at(i / from.shape.at(1), i % from.shape.at(1)) = static_cast<float>(from.values[i]);
    };
    copy(problem.a, a), copy(problem.b, b), copy(problem.c, c);
    problem.compute_reference();
    for (size_t i = 0; i < want.values.size(); ++i) {
      const double scale = problem.reference.absolute[i] + std::fabs(problem.reference.c[i]);
      REQUIRE(std::fabs(problem.reference.c[i] - want.values[i]) <= 1e-12 * (1 + scale));
    }
    CAPTURE(names.result);
    require_all(problem);
    if (names.layout == Layout::NN) {  // the same matrices for the versions without alpha and beta
      Problem product(Layout::NN, {c.shape.at(0), c.shape.at(1), K}, {Numbers::floats});
      copy(product.a, a), copy(product.b, b);
      product.compute_reference();
      require_all(product);
    }
    REQUIRE_OK(problem.check([](const Product& p) { gemm_test::launch_small(p, nullptr); }));
    if (blas::available())
      REQUIRE_OK(problem.check([](const Product& p) {
        blas::gemm(p.layout == Layout::TN, p.layout == Layout::NT, p.M, p.N, p.K, p.alpha, p.a,
                   p.lda, p.b, p.ldb, p.beta, p.c, p.ldc);
      }));
  }
}

// Without margins, so that an address sanitizer sees every read beside an array.
TEST_CASE("nothing outside the arrays is read") {
  for (const Extents& size : {Extents{1, 1, 1}, {17, 19, 13}, {33, 70, 5}, {20, 36, 12}}) {
    for (const Layout layout : kLayouts) {
      Product p{layout, size.M, size.N, size.K};
      p.lda = layout == Layout::TN ? size.M : size.K,
      p.ldb = layout == Layout::NT ? size.K : size.N;
      p.ldc = size.N;
      const gpu::DeviceBuffer<float> a(std::vector<float>(size.M * size.K, 1)),
          b(std::vector<float>(size.K * size.N, 1));
      gpu::DeviceBuffer<float> c(size.M * size.N);
      p.a = a.data(), p.b = b.data(), p.c = c.data();
      const auto check_all_k = [&] {
        for (const float value : c.to_host()) REQUIRE(value == static_cast<float>(size.K));
        c.poison();
      };
      for (const auto& version : testing::chosen(gemm::kVersions)) {
        if (!takes(version.launch, p)) continue;
        CAPTURE(version.name, static_cast<int>(layout), size.M, size.N, size.K);
        run(version.launch, p);
        check_all_k();
      }
      gemm_test::launch_small(p, nullptr);
      check_all_k();
    }
  }
}

TEST_CASE("a batch is as many products, also of one matrix with many") {
  constexpr size_t kBatch = 5, kRows = 18, kCols = 33, kDepth = 20, kGap = 3;
  const std::vector<float> a = testing::random_integers(kBatch * kRows * kDepth, 0);
  const std::vector<float> b = testing::random_integers(kBatch * kDepth * kCols, 1);
  Guarded<float> d_a(a, 0), d_b(b, 0);
  for (const bool one_b : {false, true}) {
    Product p{Layout::NN, kRows, kCols, kDepth, 1, d_a.data(), kDepth, d_b.data(), kCols};
    p.ldc = kCols, p.batch = kBatch;
    p.stride_a = kRows * kDepth, p.stride_b = one_b ? 0 : kDepth * kCols;
    p.stride_c = kRows * kCols + kGap;
    for (const auto& version : testing::chosen(gemm::kVersions)) {
      if (version.launch.general == nullptr) continue;
      CAPTURE(version.name, one_b);
      Guarded<float> d_c(kBatch * p.stride_c, 0);
      p.c = d_c.data();
      version.launch.general(p, nullptr);
      const std::vector<float> got = d_c.to_host();
      for (size_t z = 0; z < kBatch; ++z) {
        for (size_t i = 0; i < p.stride_c; ++i) {
          const float value = got[z * p.stride_c + i];
          if (i >= kRows * kCols) {
            REQUIRE(is_poison(value));
            continue;
          }
          float want = 0;
          for (size_t k = 0; k < kDepth; ++k)
            want += a[z * p.stride_a + i / kCols * kDepth + k] *
                    b[z * p.stride_b + k * kCols + i % kCols];
          REQUIRE(value == want);
        }
      }
      REQUIRE(d_c.intact());
    }
  }
}

TEST_CASE("a wave of wave_tiled owns a compact tile, and reads its float4s from different banks") {
  constexpr int kThreads = 256, kTile = 128, kResults = 8, kLanes = 32, kBanks = 32;
  std::vector<int> owners(kTile * kTile);
  bool inside = true;
  for (int thread = 0; thread < kThreads; ++thread)
    for (int i = 0; i < kResults * kResults; ++i) {
      const auto [row, col] = gemm::place_in_wave_tiled(thread, i / kResults, i % kResults);
      inside = inside && row >= 0 && row < kTile && col >= 0 && col < kTile;
      if (inside) ++owners[row * kTile + col];
    }
  REQUIRE(inside);
  REQUIRE(owners == std::vector<int>(kTile * kTile, 1));
  // Bank conflicts of float4s: shared memory serves eight lanes at a time, and those that read the
  // same at once.
  const auto in_different_banks = [](const std::set<int>& float4s) {
    std::set<int> banks;
    for (const int first : float4s)
      for (int f = 0; f < 4; ++f) banks.insert((first + f) % kBanks);
    return banks.size() == 4 * float4s.size();
  };
  for (int wave = 0; wave < kThreads / kLanes; ++wave) {
    CAPTURE(wave);
    std::set<int> rows, cols;  // of A and B, which the wave reads for each k
    for (int first = wave * kLanes; first < (wave + 1) * kLanes; first += 8)
      for (int group = 0; group < kResults; group += 4) {
        std::set<int> of_a, of_b;
        for (int lane = first; lane < first + 8; ++lane) {
          const auto [row, col] = gemm::place_in_wave_tiled(lane, group, group);
          of_a.insert(row), of_b.insert(col);
        }
        REQUIRE(in_different_banks(of_a));
        REQUIRE(in_different_banks(of_b));
        rows.insert(of_a.begin(), of_a.end()), cols.insert(of_b.begin(), of_b.end());
      }
    REQUIRE(4 * (rows.size() + cols.size()) == 32 + 64);
  }
}

TEST_CASE("what the arrays can't be is refused in one line", "[harness]") {
  Guarded<float> memory(64, 0);
  float* const m = memory.data();
  // What all versions that take the product say.
  const auto refusal = [](const Product& p) -> std::string {
    std::string said;
    for (const auto& version : testing::chosen(gemm::kVersions)) {
      if (!takes(version.launch, p)) continue;
      try {
        run(version.launch, p);
        return std::string(version.name) + " takes it";
      } catch (const std::invalid_argument& error) {
        if (!said.empty() && said != error.what()) return said + " or: " + error.what();
        said = error.what();
      }
    }
    return said;
  };
  const Product right{Layout::NN, 4, 5, 6, 1, m, 6, m, 5, 0, m, 5};
  const auto with = [&](auto change) {
    Product p = right;
    change(p);
    return refusal(p);
  };
  CHECK(with([](Product& p) { p.lda = 5; }) ==
        "gemm: lda = 5 is less than the 6 elements of a row of a");
  CHECK(with([](Product& p) { p.ldb = 4; }) ==
        "gemm: ldb = 4 is less than the 5 elements of a row of b");
  CHECK(with([](Product& p) { p.ldc = 4; }) ==
        "gemm: ldc = 4 is less than the 5 elements of a row of c");
  CHECK(with([](Product& p) { p.layout = Layout::NT; }) ==
        "gemm: ldb = 5 is less than the 6 elements of a row of b");
  CHECK(with([](Product& p) { p.layout = Layout::TN, p.lda = 3; }) ==
        "gemm: lda = 3 is less than the 4 elements of a row of a");
  CHECK(with([](Product& p) { p.a = nullptr; }) == "gemm: a is null");
  CHECK(with([](Product& p) { p.b = nullptr; }) == "gemm: b is null");
  CHECK(with([](Product& p) { p.c = nullptr; }) == "gemm: c is null");
  CHECK(with([&](Product& p) {
          p.a = reinterpret_cast<const float*>(reinterpret_cast<const char*>(m) + 2);
        }) == "gemm: a is not aligned to 4 bytes");
  CHECK(with([](Product& p) { p.M = p.N = p.ldb = p.ldc = size_t{1} << 40; }) ==
        "gemm: C has too many tiles");
  Product nn = right;
  nn.layout = Layout::NN;
  CHECK_THROWS_AS(gemm_test::launch_nt_only(nn, nullptr), std::invalid_argument);
  CHECK(is_poison(memory.to_host()[0]));
}
