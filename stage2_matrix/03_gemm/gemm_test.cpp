// Every version of the matrix product on awkward sizes, layouts, leading dimensions and alignments,
// exactly and within its bound; best() and its tiles on the shapes that later stages train with.
#include "stage2_matrix/03_gemm/gemm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/sample.h"
#include "common/testing.h"
#include "stage2_matrix/03_gemm/problem.h"
#include "stage2_matrix/03_gemm/reference.h"

using gemm::Layout;
using gemm::Product;

// What only this test has: gemm_test.hip.
namespace gemm_test {
void launch_medium(const Product& p, hipStream_t stream);
void launch_small(const Product& p, hipStream_t stream);
size_t count_candidates();
void launch_candidate(size_t index, const Product& p, hipStream_t stream);
void launch_bias_relu(const Product& p, const float* bias, hipStream_t stream);
void launch_nt_only(const Product& p, hipStream_t stream);
void launch_unchecked_column(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                             hipStream_t stream);
void launch_without_barrier(bool first, bool second, float* c, const float* a, const float* b,
                            size_t M, size_t N, size_t K, hipStream_t stream);
}  // namespace gemm_test

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr Layout kLayouts[] = {Layout::NN, Layout::NT, Layout::TN};

struct Extents {
  size_t M, N, K;
};

// Small integers of both signs, whose products' sums are exact in float in every order, so that a
// product that is missed or added twice can't pass as rounding; or numbers in [-1, 1).
enum class Numbers { integers, floats };

std::vector<float> numbers(Numbers kind, size_t n, std::uint32_t stream) {
  return kind == Numbers::integers ? testing::random_integers(n, stream)
                                   : testing::random_floats(n, stream);
}

// Can this version multiply p? Those without a general launcher take C = A B on contiguous
// matrices.
bool takes(const gemm::Launch& launch, const Product& p) {
  return launch.general != nullptr ||
         (p.layout == Layout::NN && p.alpha == 1 && p.beta == 0 && p.batch == 1 && p.lda == p.K &&
          p.ldb == p.N && p.ldc == p.N);
}
void run(const gemm::Launch& launch, const Product& p) {
  if (launch.general != nullptr) return launch.general(p, nullptr);
  launch.contiguous(p.c, p.a, p.b, p.M, p.N, p.K, nullptr);
}

// A matrix with a gap behind each row and a margin before and behind it all, which hold `filler`:
// on the host, and on the device `offset` elements behind a 16-byte boundary.
class Matrix {
 public:
  Matrix(size_t rows, size_t cols, size_t gap, size_t offset, float filler)
      : rows_(rows), cols_(cols), ld_(cols + gap), offset_(offset), filler_(filler) {
    host_.assign(rows * ld_, filler);
  }
  float& at(size_t row, size_t col) { return host_[row * ld_ + col]; }
  void fill(Numbers kind, std::uint32_t stream) {
    const std::vector<float> values = numbers(kind, rows_ * cols_, stream);
    for (size_t i = 0; i < values.size(); ++i) at(i / cols_, i % cols_) = values[i];
  }
  void fill(float value) {
    for (size_t row = 0; row < rows_; ++row)
      for (size_t col = 0; col < cols_; ++col) at(row, col) = value;
  }
  const std::vector<float>& host() const { return host_; }
  size_t ld() const { return ld_; }

  // The device's copy, made anew.
  float* to_device() {
    std::vector<float> content(host_.size() + 2 * kMargin, filler_);
    std::copy(host_.begin(), host_.end(), content.begin() + kMargin);
    device_ = std::make_unique<Guarded<float>>(content, offset_);
    return device_->data() + kMargin;
  }
  // What the device has now; gaps and margins must still be what they were.
  std::vector<float> to_host(bool* untouched) const {
    const std::vector<float> content = device_->to_host();
    *untouched = device_->intact();
    for (size_t i = 0; i < content.size(); ++i) {
      const bool inside = i >= kMargin && i < kMargin + host_.size() && (i - kMargin) % ld_ < cols_;
      *untouched &= inside || testing::same_bits(content[i], filler_);
    }
    return {content.begin() + kMargin, content.end() - kMargin};
  }

 private:
  static constexpr size_t kMargin = 64;  // elements: alignment stays as it is
  size_t rows_, cols_, ld_, offset_;
  float filler_;
  std::vector<float> host_;
  std::unique_ptr<Guarded<float>> device_;
};

// One product, its inputs surrounded by NaN that must not come in, and C by numbers that must stay.
struct Problem {
  struct Options {
    Numbers numbers = Numbers::integers;
    float alpha = 1, beta = 0;
    size_t gap = 0;  // of all rows
    size_t offset_a = 0, offset_b = 0, offset_c = 0;
  };
  Problem(Layout layout, Extents size, const Options& options)
      : a(layout == Layout::TN ? size.K : size.M, layout == Layout::TN ? size.M : size.K,
          options.gap, options.offset_a, kNan),
        b(layout == Layout::NT ? size.N : size.K, layout == Layout::NT ? size.K : size.N,
          options.gap, options.offset_b, kNan),
        c(size.M, size.N, options.gap, options.offset_c, 1234.5f) {
    a.fill(options.numbers, 0), b.fill(options.numbers, 1);
    options.beta == 0 ? c.fill(kNan) : c.fill(options.numbers, 2);
    product.layout = layout, product.M = size.M, product.N = size.N, product.K = size.K;
    product.alpha = options.alpha, product.beta = options.beta;
    product.lda = a.ld(), product.ldb = b.ld(), product.ldc = c.ld();
    exact = options.numbers == Numbers::integers;
    compute_reference();
  }

  // Again, after a change to the numbers on the host.
  void compute_reference() {
    std::vector<size_t> rows(product.M);
    std::iota(rows.begin(), rows.end(), size_t{0});
    reference = gemm::gemm_cpu(product, a.host(), b.host(), c.host(), rows);
    product.a = a.to_device(), product.b = b.to_device();
  }

  template <class Launch>
  Comparison check(Launch&& launch) {
    return check(
        launch, [this](size_t i) { return reference.c[i]; },
        [this](size_t i) { return exact ? 0 : gemm::bound_of_mean_zero(product, reference, i); });
  }
  template <class Launch, class Want, class Bound>
  Comparison check(Launch&& launch, Want want, Bound bound) {
    product.c = c.to_device();
    launch(product);
    bool untouched = false;
    const std::vector<float> got = c.to_host(&untouched);
    const size_t N = product.N;
    Comparison result = compare(
        product.M * N, [&](size_t i) { return got[i / N * product.ldc + i % N]; }, want, bound);
    result.ok = result.ok && untouched;
    return result;
  }
  Comparison check(const Version<gemm::Launch>& version) {
    return check([&](const Product& p) { run(version.launch, p); });
  }
  // The same through the launcher for contiguous matrices, which every version has.
  Comparison check_contiguous(const Version<gemm::Launch>& version) {
    return check([&](const Product& p) { version.launch(p.c, p.a, p.b, p.M, p.N, p.K); });
  }

  Matrix a, b, c;
  Product product;
  gemm::Reference reference;
  bool exact;
};

// Requires of every version that takes the problem's product that it is right.
void require_all(Problem& problem) {
  for (const auto& version : testing::chosen(gemm::kVersions)) {
    if (!takes(version.launch, problem.product)) continue;
    const Product& p = problem.product;
    CAPTURE(version.name, static_cast<int>(p.layout), p.M, p.N, p.K, p.alpha, p.beta, p.lda);
    REQUIRE_OK(problem.check(version));
  }
}

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

// ---- best -------------------------------------------------------------------------------------

namespace {

// Shapes of layers: forward, and the two gradients.
struct Layer {
  Layout layout;
  Extents size;
};
constexpr Layer kLayers[] = {
    {Layout::NN, {64, 128, 784}}, {Layout::TN, {784, 128, 64}}, {Layout::NT, {64, 784, 128}},
    {Layout::NN, {64, 10, 128}},  {Layout::TN, {128, 10, 64}},  {Layout::NT, {64, 128, 10}},
    {Layout::NN, {512, 64, 64}},  {Layout::NN, {300, 384, 96}}, {Layout::TN, {64, 64, 1000}},
};

}  // namespace

TEST_CASE("every tile that best() chooses from is right for layers, and always the same") {
  for (const Layer& layer : kLayers) {
    CAPTURE(static_cast<int>(layer.layout), layer.size.M, layer.size.N, layer.size.K);
    Problem exact(layer.layout, layer.size, {Numbers::integers, 2, 1, 4});
    Problem problem(layer.layout, layer.size, {Numbers::floats});
    REQUIRE_OK(exact.check([](const Product& p) { gemm::best(p); }));
    for (size_t candidate = 0; candidate < gemm_test::count_candidates(); ++candidate) {
      CAPTURE(candidate);
      const auto launch = [&](const Product& p) {
        gemm_test::launch_candidate(candidate, p, nullptr);
      };
      REQUIRE_OK(exact.check(launch));
      REQUIRE_OK(problem.check(launch));
      bool untouched = false;
      const std::vector<float> first = problem.c.to_host(&untouched);
      for (int run = 0; run < 2; ++run) {
        problem.check(launch);
        REQUIRE(testing::same_bits(problem.c.to_host(&untouched), first));
      }
    }
  }
}

TEST_CASE("slices of K add up, whether they get something or nothing") {
  for (const size_t K : {0, 1, 7, 8, 9, 24, 25, 63, 64, 65, 300}) {
    for (const Layout layout : kLayouts) {
      CAPTURE(K, static_cast<int>(layout));
      Problem problem(layout, {70, 68, K}, {Numbers::integers, 1, 1, K % 2 == 0 ? 4u : 1u});
      REQUIRE_OK(problem.check([](const Product& p) { gemm_test::launch_medium(p, nullptr); }));
      REQUIRE_OK(problem.check([](const Product& p) { gemm_test::launch_small(p, nullptr); }));
    }
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

TEST_CASE("a large product is right in rows chosen from all of it") {
  constexpr size_t kSize = 1024;
  Guarded<float> d_a(kSize * kSize, 0), d_b(kSize * kSize, 0), d_c(kSize * kSize, 0);
  random_numbers::launch_fill_uniform(d_a.data(), d_a.size(), 7, 0);
  random_numbers::launch_fill_uniform(d_b.data(), d_b.size(), 7, 1);
  const std::vector<float> a = d_a.to_host(), b = d_b.to_host();
  const RowSample sample = choose_rows(kSize, kSize, 16, 7);
  Product product{Layout::NN, kSize, kSize, kSize, 1, d_a.data(), kSize, d_b.data(), kSize};
  product.ldc = kSize, product.c = d_c.data();
  const gemm::Reference reference = gemm::gemm_cpu(product, a, b, {}, sample.rows);
  gemm::best(Layout::NN, kSize, kSize, kSize, 1, d_a.data(), kSize, d_b.data(), kSize, 0,
             d_c.data(), kSize);
  REQUIRE_OK(sample.compare(d_c.data(), reference.c, [&](size_t i) {
    return gemm::bound_of_mean_zero(product, reference, i);
  }));
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

TEST_CASE("a batch longer than a grid is high") {
  constexpr size_t kBatch = 65535 + 3;
  const std::vector<float> a = testing::random_integers(kBatch, 0);
  const std::vector<float> b = testing::random_integers(kBatch, 1);
  Guarded<float> d_a(a, 0), d_b(b, 0), d_c(kBatch, 0);
  Product p{Layout::NN, 1, 1, 1, 1, d_a.data(), 1, d_b.data(), 1};
  p.c = d_c.data(), p.ldc = 1;
  p.batch = kBatch, p.stride_a = p.stride_b = p.stride_c = 1;
  gemm::best(p);
  const std::vector<float> got = d_c.to_host();
  for (size_t i = 0; i < kBatch; ++i) REQUIRE(got[i] == a[i] * b[i]);
  REQUIRE(d_c.intact());
}

TEST_CASE("an epilogue gets each sum with its row and column") {
  constexpr size_t kRows = 70, kCols = 134, kDepth = 30;
  const std::vector<float> bias = testing::random_integers(kCols, 3);
  Guarded<float> d_bias(bias, 0);
  for (const Layout layout : kLayouts) {
    Problem problem(layout, {kRows, kCols, kDepth}, {});
    const auto want = [&](size_t i) {
      return std::fmax(problem.reference.c[i] + static_cast<double>(bias[i % kCols]), 0.0);
    };
    REQUIRE_OK(problem.check(
        [&](const Product& p) { gemm_test::launch_bias_relu(p, d_bias.data(), nullptr); }, want,
        [](size_t) { return 0.0; }));
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

#if !defined(GPU_BACKEND_CPU)
// The CPU backend would have to fill all of this memory.
TEST_CASE("offsets beyond 2^31 elements") {
  constexpr size_t kLarge = (size_t{1} << 30) + 4, kSize = 3;  // row 2 begins behind 2^31
  constexpr size_t kElements = (kSize - 1) * kLarge + kSize;
  size_t free_bytes = 0, total = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total));
  if (free_bytes < 2 * kElements * sizeof(float)) return;
  float* large = nullptr;
  HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&large), kElements * sizeof(float)));
  for (const Layout layout : kLayouts) {
    for (int which = 0; which < 3; ++which) {  // which of the three matrices is that large
      Problem problem(layout, {kSize, kSize, kSize}, {});
      for (const auto& version : testing::chosen(gemm::kVersions)) {
        if (version.launch.general == nullptr) continue;
        CAPTURE(version.name, static_cast<int>(layout), which);
        const auto copy_rows = [](float* to, size_t to_ld, const float* from, size_t from_ld) {
          for (size_t row = 0; row < kSize; ++row)
            HIP_CHECK(hipMemcpy(to + row * to_ld, from + row * from_ld, kSize * sizeof(float),
                                hipMemcpyDeviceToDevice));
        };
        REQUIRE_OK(problem.check([&](Product p) {
          if (which == 0) copy_rows(large, kLarge, p.a, p.lda), p.a = large, p.lda = kLarge;
          if (which == 1) copy_rows(large, kLarge, p.b, p.ldb), p.b = large, p.ldb = kLarge;
          float* const c = p.c;
          if (which == 2) p.c = large, p.ldc = kLarge;
          version.launch.general(p, nullptr);
          if (which == 2) copy_rows(c, kSize, large, kLarge);
        }));
      }
    }
  }
  HIP_CHECK(hipFree(large));
}

TEST_CASE("more than 2^31 elements of C") {
  constexpr size_t kRows = 33000, kCols = 66000;
  size_t free_bytes = 0, total = 0;
  HIP_CHECK(hipMemGetInfo(&free_bytes, &total));
  if (free_bytes < 2 * kRows * kCols * sizeof(float)) return;
  const std::vector<float> a = testing::random_integers(kRows, 0);
  const std::vector<float> b = testing::random_integers(kCols, 1);
  Guarded<float> d_a(a, 0), d_b(b, 0);
  float* d_c = nullptr;
  HIP_CHECK(hipMalloc(reinterpret_cast<void**>(&d_c), kRows * kCols * sizeof(float)));
  const RowSample sample = choose_rows(kRows, kCols, 16, 7);
  Product product{Layout::NN, kRows, kCols, 1, 1, d_a.data(), 1, d_b.data(), kCols};
  product.c = d_c, product.ldc = kCols;
  const gemm::Reference reference = gemm::gemm_cpu(product, a, b, {}, sample.rows);
  for (const auto& version : testing::chosen(gemm::kVersions)) {
    CAPTURE(version.name);
    gpu::poison(d_c, kRows * kCols * sizeof(float));
    run(version.launch, product);
    REQUIRE_OK(sample.compare(d_c, reference.c, [](size_t) { return 0.0; }));
  }
  HIP_CHECK(hipFree(d_c));
}
#endif

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("the program's check refuses a wrong term or row at every shape that it prints",
          "[harness]") {
  const std::vector<Size> sizes = gemm::sizes();
  const bool on_gpu = std::string(gpu::kBackend) != "cpu";
  for (const bool quick : {false, true}) {
    const auto size = [&](size_t i) {
      return quick ? sizes[i].quick : on_gpu ? sizes[i].gpu : sizes[i].cpu;
    };
    for (const gemm::Table& table : gemm::printed(size(0), size(1), size(2), quick)) {
      CAPTURE(table.name());
      const Product p = gemm::product_of(table);
      const std::vector<float> a = testing::random_floats(p.M * p.K, 0);
      const std::vector<float> b = testing::random_floats(p.K * p.N, 1);
      const RowSample sample = gemm::rows_of(table, 7);
      const gemm::Reference reference = gemm::gemm_cpu(p, a, b, {}, sample.rows);
      // A term of median size, among the first 64.
      const auto term = [&](size_t i) {
        const size_t row = sample.rows[i / p.N], col = i % p.N;
        return testing::median_term(std::min(p.K, size_t{64}), [&](size_t k) {
          return static_cast<double>(p.layout == Layout::TN ? a[k * p.lda + row]
                                                            : a[row * p.lda + k]) *
                 static_cast<double>(p.layout == Layout::NT ? b[col * p.ldb + k]
                                                            : b[k * p.ldb + col]);
        });
      };
      const auto bound = [&](size_t i) { return gemm::bound_of_mean_zero(p, reference, i); };
      testing::require_refusals(reference.c, bound, p.N, term);
    }
  }
}

TEST_CASE("a missing bounds check, swapped indices and a missing product are caught", "[harness]") {
  Problem small(Layout::NN, {20, 29, 5}, {});
  REQUIRE(!small
               .check([](const Product& p) {
                 gemm_test::launch_unchecked_column(p.c, p.a, p.b, p.M, p.N, p.K, nullptr);
               })
               .ok);

  Problem square(Layout::NN, {33, 33, 33}, {});
  REQUIRE(!square
               .check([](Product p) {
                 p.layout = Layout::NT;
                 gemm::best(p);
               })
               .ok);
  REQUIRE(
      !square.check([](const Product& p) { gemm::launch_naive(p.c, p.b, p.a, p.M, p.N, p.K); }).ok);
  REQUIRE(!square
               .check([](Product p) {
                 --p.K;
                 gemm::best(p);
               })
               .ok);
  REQUIRE(!square.check([](const Product&) {}).ok);
}

#if defined(GPU_BACKEND_CPU)
// On a GPU the waves may happen to run in an order that hides it.
TEST_CASE("each missing barrier is caught", "[harness]") {
  Problem problem(Layout::NN, {33, 33, 49}, {});
  const auto check = [&](bool first, bool second) {
    return problem.check([&](const Product& p) {
      gemm_test::launch_without_barrier(first, second, p.c, p.a, p.b, p.M, p.N, p.K, nullptr);
    });
  };
  REQUIRE(check(true, true).ok);
  REQUIRE(!check(false, true).ok);
  REQUIRE(!check(true, false).ok);
  REQUIRE(!check(false, false).ok);
}
#endif
