// Every version of the matrix-vector product on awkward shapes, strides and alignments.
#include "stage2_matrix/02_gemv/gemv.h"

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/blas.h"
#include "common/device_buffer.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage2_matrix/01_transpose/reference.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage2_matrix/02_gemv/problem.h"
#include "stage2_matrix/02_gemv/reference.h"

// The kernels that only this test has: gemv_test.hip.
namespace gemv_test {
void launch_one_column_more(const gemv::Product& product, const gemv::Workspace&,
                            hipStream_t stream);
void launch_one_row_more(const gemv::Product& product, const gemv::Workspace&, hipStream_t stream);
void launch_swapped(const gemv::Product& product, const gemv::Workspace&, hipStream_t stream);
void launch_unsynchronized(const gemv::Product& product, const gemv::Workspace&,
                           hipStream_t stream);
}  // namespace gemv_test

using testing::random_floats;
using testing::random_integers;
using testing::same_bits;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A version, or best.
struct Candidate {
  std::string name;
  bool general;  // takes any alpha, beta and lda
  std::function<void(const gemv::Product&, const gemv::Workspace&, hipStream_t)> launch;
  std::function<double(const gemv::Product&)> depth;
};

// All that compute A x, or A^T x.
std::vector<Candidate> candidates(bool transposed) {
  std::vector<Candidate> result;
  for (const auto& version : testing::chosen(gemv::kVersions))
    if (version.launch.transposed == transposed)
      result.push_back(
          {version.name, version.launch.general != nullptr, version.launch, version.launch.depth});
  const auto best = [=](const gemv::Product& p, const gemv::Workspace& workspace,
                        hipStream_t stream) { gemv::best(transposed, p, workspace, stream); };
  const auto depth = [=](const gemv::Product& p) {
    if (transposed) return gemv::depth_split_columns(p);
    return p.cols <= gemv::kShortRow ? gemv::depth_thread_per_row(p) : gemv::depth_split_rows(p);
  };
  result.push_back({"best", true, best, depth});
  return result;
}

// Where the arrays lie: elements behind a 16-byte boundary, and behind the end of each row of A.
struct Layout {
  size_t offset_a = 0, offset_x = 0, offset_y = 0, gap = 0;
};

// The arrays of one product on host and device, guarded. The gaps between the rows of A hold NaN.
struct Problem {
  using Fill = std::vector<float> (*)(size_t n, std::uint32_t stream);
  static std::vector<float> floats(size_t n, std::uint32_t stream) {
    return random_floats(n, stream);
  }
  // The sums of products of integers are exact in float in every order, so that an element that is
  // missed or added twice can't pass as rounding.
  static std::vector<float> integers(size_t n, std::uint32_t stream) {
    return random_integers(n, stream);
  }

  Problem(bool is_transposed, size_t m, size_t n, Fill fill, const Layout& layout = {})
      : Problem(is_transposed, m, n, fill(m * n, 0), fill(is_transposed ? m : n, 1),
                fill(is_transposed ? n : m, 2), layout) {}
  Problem(bool is_transposed, size_t m, size_t n, std::vector<float> a_values,
          std::vector<float> x_values, std::vector<float> y_values, const Layout& layout = {})
      : transposed(is_transposed),
        rows(m),
        cols(n),
        lda(n + layout.gap),
        a(std::move(a_values)),
        x(std::move(x_values)),
        y(std::move(y_values)),
        d_a(with_gaps(), layout.offset_a),
        d_x(x, layout.offset_x),
        d_y(y, layout.offset_y),
        d_partials(gemv::workspace_bytes(transposed, product(1, 0)) / sizeof(float), 0) {}

  // A as it lies in memory: behind the last row there is no gap.
  std::vector<float> with_gaps() const {
    std::vector<float> values(rows == 0 ? 0 : (rows - 1) * lda + cols, kNan);
    for (size_t i = 0; i < rows * cols; ++i) values[i / cols * lda + i % cols] = a[i];
    return values;
  }
  gemv::Product product(float alpha, float beta) {
    return {rows, cols, alpha, d_a.data(), lda, d_x.data(), beta, d_y.data()};
  }
  rounding::Sum reference(size_t i, float alpha, float beta) const {
    std::vector<float> line(x.size());
    for (size_t k = 0; k < line.size(); ++k)
      line[k] = transposed ? a[k * cols + i] : a[i * cols + k];
    return gemv::gemv_cpu(alpha, line, x, beta, y[i]);
  }

  // y as `launch(product, workspace, stream)` leaves it.
  template <class Launch>
  std::vector<float> run(Launch launch, float alpha, float beta) {
    if (!y.empty())
      HIP_CHECK(hipMemcpy(d_y.data(), y.data(), y.size() * sizeof(float), hipMemcpyHostToDevice));
    launch(product(alpha, beta), gemv::Workspace{d_partials.data()}, nullptr);
    return d_y.to_host();
  }
  // The same held against the reference, within the bound for this depth, or exactly.
  template <class Launch>
  Comparison check(Launch launch, float alpha, float beta, double depth) {
    const std::vector<float> got = run(launch, alpha, beta);
    std::vector<rounding::Sum> want;
    for (size_t i = 0; i < got.size(); ++i) want.push_back(reference(i, alpha, beta));
    Comparison result = compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i].value; },
        [&](size_t i) { return depth == 0 ? 0 : gemv::bound(depth, want[i]); });
    result.ok = result.ok && d_a.intact() && d_x.intact() && d_y.intact() && d_partials.intact();
    return result;
  }
  // Versions that are not general are checked with alpha = 1 and beta = 0.
  Comparison check_exactly(const Candidate& candidate, float alpha = 2, float beta = -1) {
    if (!candidate.general) alpha = 1, beta = 0;
    return check(candidate.launch, alpha, beta, 0);
  }
  Comparison check_within_bound(const Candidate& candidate, float alpha = 1.3f,
                                float beta = -0.7f) {
    if (!candidate.general) alpha = 1, beta = 0;
    return check(candidate.launch, alpha, beta, candidate.depth(product(alpha, beta)));
  }

  bool transposed;
  size_t rows, cols, lda;
  std::vector<float> a, x, y;
  Guarded<float> d_a, d_x, d_y, d_partials;
};

// A product of `shape` whose arrays are aligned, for what follows from sizes and alignment alone.
gemv::Product aligned(const gemv::Shape& shape) {
  return {shape.rows, shape.cols, 1, nullptr, shape.cols, nullptr, 0, nullptr};
}

}  // namespace

TEST_CASE("every version adds every product once, in any shape") {
  constexpr size_t kSizes[] = {0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129};
  for (const bool transposed : {false, true})
    for (const size_t rows : kSizes)
      for (const size_t cols : kSizes) {
        Problem problem(transposed, rows, cols, Problem::integers);
        for (const Candidate& candidate : testing::chosen(candidates(transposed))) {
          CAPTURE(candidate.name, rows, cols);
          REQUIRE_OK(problem.check_exactly(candidate));
        }
      }
}

TEST_CASE("every version on few long rows and on many short ones", "[long]") {
  constexpr size_t kShapes[][2] = {{1, 20011}, {3, 16384}, {20011, 1}, {8192, 3}, {2050, 260}};
  for (const bool transposed : {false, true})
    for (const auto& shape : kShapes) {
      Problem problem(transposed, shape[0], shape[1], Problem::integers);
      for (const Candidate& candidate : testing::chosen(candidates(transposed))) {
        CAPTURE(candidate.name, shape[0], shape[1]);
        REQUIRE_OK(problem.check_exactly(candidate));
      }
    }
}

TEST_CASE("the loops over the grid work for any number of blocks") {
  constexpr size_t kShapes[][2] = {{1100, 70}, {9, 1300}};
  for (const bool transposed : {false, true})
    for (const auto& shape : kShapes) {
      Problem problem(transposed, shape[0], shape[1], Problem::integers);
      for (const size_t blocks : {1, 2, 3}) {
        const vector_add::FewBlocks few(blocks);
        for (const Candidate& candidate : testing::chosen(candidates(transposed))) {
          CAPTURE(candidate.name, shape[0], shape[1], blocks);
          const Comparison result = problem.check_exactly(candidate);
          CHECK(result.ok);
        }
      }
    }
}

TEST_CASE("every version at any multiple of 4 bytes, general ones with gaps between the rows") {
  // With a gap of 2 the aligned rows of two shapes end within 16 bytes.
  constexpr Layout kLayouts[] = {{0, 0, 0, 1}, {0, 0, 0, 2}, {0, 0, 0, 4},
                                 {0, 0, 0, 7}, {1, 0, 0, 0}, {0, 1, 0, 0},
                                 {0, 0, 3, 0}, {2, 2, 2, 0}, {3, 1, 2, 5}};
  constexpr size_t kShapes[][2] = {{19, 1028}, {70, 134}, {70, 30}};
  for (const bool transposed : {false, true})
    for (const auto& shape : kShapes)
      for (const Layout& layout : kLayouts) {
        Problem problem(transposed, shape[0], shape[1], Problem::integers, layout);
        for (const Candidate& candidate : testing::chosen(candidates(transposed))) {
          if (layout.gap > 0 && !candidate.general) continue;
          CAPTURE(candidate.name, shape[1], layout.offset_a, layout.offset_x, layout.gap);
          REQUIRE_OK(problem.check_exactly(candidate));
        }
      }
}

TEST_CASE("every version stays within its bound, general ones for any alpha and beta") {
  constexpr size_t kShapes[][2] = {{65, 129}, {5, 9001}, {3001, 37}, {700, 20}};
  for (const bool transposed : {false, true})
    for (const auto& shape : kShapes) {
      Problem problem(transposed, shape[0], shape[1], Problem::floats);
      for (const Candidate& candidate : testing::chosen(candidates(transposed)))
        for (const float alpha : {1.0f, 0.0f, -1.7f})
          for (const float beta : {0.0f, 1.0f, 0.3f}) {
            if (!candidate.general && (alpha != 1 || beta != 0)) continue;
            CAPTURE(candidate.name, shape[0], shape[1], alpha, beta);
            REQUIRE_OK(problem.check_within_bound(candidate, alpha, beta));
          }
    }
}

TEST_CASE("beta = 0 does not read y, alpha = 0 reads neither A nor x") {
  for (const bool transposed : {false, true})
    for (const auto& [rows, cols] : {std::pair<size_t, size_t>{37, 300}, {300, 20}}) {
      const size_t terms = transposed ? rows : cols, outputs = transposed ? cols : rows;
      Problem unread_y(transposed, rows, cols, random_integers(rows * cols, 0),
                       random_integers(terms, 1), std::vector<float>(outputs, kNan));
      Problem unread_a(transposed, rows, cols, std::vector<float>(rows * cols, kNan),
                       std::vector<float>(terms, kInfinity), random_integers(outputs, 2));
      for (const Candidate& candidate : testing::chosen(candidates(transposed))) {
        CAPTURE(candidate.name, cols);
        REQUIRE_OK(unread_y.check_exactly(candidate, 3, 0));
        if (!candidate.general) continue;
        REQUIRE_OK(unread_a.check_exactly(candidate, 0, 2));
        for (const float y : unread_y.run(candidate.launch, 1, 2)) REQUIRE(std::isnan(y));
        for (const float y : unread_y.run(candidate.launch, 0, 0)) REQUIRE(y == 0);
      }
    }
}

TEST_CASE("where nothing is summed the result is beta y, whatever alpha is") {
  for (const bool transposed : {false, true}) {
    Problem problem(transposed, transposed ? 0 : 37, transposed ? 37 : 0, Problem::integers);
    for (const Candidate& candidate : testing::chosen(candidates(transposed))) {
      if (!candidate.general) continue;
      for (const float alpha : {2.0f, kInfinity, kNan}) {
        CAPTURE(candidate.name, alpha);
        const std::vector<float> y = problem.run(candidate.launch, alpha, 3);
        for (size_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == 3 * problem.y[i]);
      }
    }
  }
}

TEST_CASE("slices of any number give the same sums") {
  Problem rows(false, 9, 5003, Problem::integers), columns(true, 5003, 9, Problem::integers);
  gpu::DeviceBuffer<float> partials(64 * 9);
  for (const unsigned slices : {1, 2, 3, 7, 64}) {
    CAPTURE(slices);
    for (const unsigned team : {64u, gemv::kBlock})
      REQUIRE_OK(rows.check(
          [&](const gemv::Product& p, const gemv::Workspace&, hipStream_t stream) {
            gemv::launch_rows(p, partials.data(), {1, team, slices}, stream);
            gemv::launch_add_slices(p, partials.data(), p.rows, slices, stream);
          },
          2, -1, 0));
    for (const unsigned width : {16u, gemv::kMaxWidth})
      REQUIRE_OK(columns.check(
          [&](const gemv::Product& p, const gemv::Workspace&, hipStream_t stream) {
            gemv::launch_columns(p, {partials.data()}, {1, width, slices}, stream);
          },
          2, -1, 0));
  }
}

TEST_CASE("the workspace of every product is at most kMaxPartials floats") {
  for (const bool transposed : {false, true})
    for (const size_t rows : {size_t{0}, size_t{1}, size_t{3}, size_t{1000}, size_t{1} << 24})
      for (const size_t cols : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}, size_t{1} << 24}) {
        CAPTURE(transposed, rows, cols);
        REQUIRE(gemv::workspace_bytes(transposed, aligned({transposed, rows, cols})) <=
                gemv::kMaxPartials * sizeof(float));
      }
  REQUIRE(gemv::workspace_bytes(false, aligned({false, size_t{1} << 20, 1000})) == 0);
  REQUIRE(gemv::workspace_bytes(false, aligned({false, 1, size_t{1} << 20})) > 0);
}

TEST_CASE("every version and best can be queued on a stream and captured in a graph") {
  for (const bool transposed : {false, true})
    for (const auto& [rows, cols] : {std::pair<size_t, size_t>{300, 9}, {9, 300}, {1, 7001}}) {
      Problem problem(transposed, rows, cols, Problem::floats);
      for (const Candidate& candidate : testing::chosen(candidates(transposed))) {
        CAPTURE(candidate.name, transposed, rows, cols);
        testing::require_same_in_graph(
            [&] { gpu::poison(problem.d_y.data(), problem.d_y.size() * sizeof(float)); },
            [&](hipStream_t stream) {
              candidate.launch(problem.product(1, 0), {problem.d_partials.data()}, stream);
            },
            [&] { return problem.d_y.to_host(); });
        REQUIRE_OK(problem.check_within_bound(candidate));
      }
    }
}

TEST_CASE("the transposed product is the product with the transposed matrix") {
  const size_t rows = 83, cols = 205;
  Problem straight(true, rows, cols, Problem::integers);
  Problem turned(false, cols, rows, transpose::transpose_cpu(straight.a, rows, cols), straight.x,
                 straight.y);
  const auto launch = [](bool transposed) { return candidates(transposed).back().launch; };
  REQUIRE(same_bits(straight.run(launch(true), 2, 3), turned.run(launch(false), 2, 3)));
}

TEST_CASE("every version gives the same bits on every run") {
  for (const bool transposed : {false, true}) {
    Problem problem(transposed, 120, 2500, Problem::floats);
    for (const Candidate& candidate : testing::chosen(candidates(transposed))) {
      CAPTURE(candidate.name);
      const float alpha = candidate.general ? 1.3f : 1, beta = candidate.general ? 0.7f : 0;
      const std::vector<float> first = problem.run(candidate.launch, alpha, beta);
      for (int run = 0; run < 5; ++run)
        REQUIRE(same_bits(problem.run(candidate.launch, alpha, beta), first));
    }
  }
}

TEST_CASE("every version and the vendor's library agree with NumPy", "[numpy]") {
  const auto read = [](const std::string& name) {
    return read_npy(reference_path("gemv_" + name + ".npy"));
  };
  const auto floats = [&](const std::string& name) { return read(name).floats(); };
  const std::vector<size_t> shape = read("a").shape;
  const float alpha = floats("alpha").at(0), beta = floats("beta").at(0);
  for (const bool transposed : {false, true}) {
    const std::string suffix = transposed ? "_transposed" : "";
    const std::vector<double> want = read("result" + suffix).values;
    Problem problem(transposed, shape.at(0), shape.at(1), floats("a"), floats("x" + suffix),
                    floats("y" + suffix));
    REQUIRE(want.size() == problem.y.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const rounding::Sum sum = problem.reference(i, alpha, beta);
      REQUIRE(std::fabs(sum.value - want[i]) <= 1e-12 * sum.absolute);
      // For the versions that are not general: A x alone.
      const double product = (want[i] - static_cast<double>(beta) * problem.y[i]) / alpha;
      REQUIRE(std::fabs(problem.reference(i, 1, 0).value - product) <= 1e-12 * sum.absolute);
    }
    for (const Candidate& candidate : testing::chosen(candidates(transposed))) {
      CAPTURE(candidate.name);
      REQUIRE_OK(problem.check_within_bound(candidate, alpha, beta));
    }
    if (blas::available())
      REQUIRE_OK(problem.check(
          [&](const gemv::Product& p, const gemv::Workspace&, hipStream_t stream) {
            blas::gemv(transposed, p.rows, p.cols, p.alpha, p.a, p.lda, p.x, p.beta, p.y, stream);
          },
          alpha, beta, static_cast<double>(problem.x.size())));
  }
}

TEST_CASE("infinities and NaN reach the elements that they belong to, and no others") {
  for (const bool transposed : {false, true})
    for (const auto& [rows, cols] : {std::pair<size_t, size_t>{70, 90}, {70, 20}}) {
      const size_t at_row = 41, at_col = cols - 4;
      for (const float special : {kInfinity, kNan}) {
        Problem problem(transposed, rows, cols, Problem::integers);
        std::vector<float> a = problem.a, x(problem.x.size(), 2.0f);
        a[at_row * cols + at_col] = special;
        Problem with_special(transposed, rows, cols, a, x, problem.y);
        for (const Candidate& candidate : testing::chosen(candidates(transposed))) {
          CAPTURE(candidate.name, special, cols);
          const std::vector<float> y =
              with_special.run(candidate.launch, 1, candidate.general ? 1 : 0);
          for (size_t i = 0; i < y.size(); ++i) {
            if (i != (transposed ? at_col : at_row))
              REQUIRE(std::isfinite(y[i]));
            else
              REQUIRE((std::isnan(special) ? std::isnan(y[i]) : y[i] == special));
          }
        }
      }
    }
}

TEST_CASE("rows that overlap are refused, and by simple versions all that they do not compute") {
  for (const bool transposed : {false, true}) {
    Problem problem(transposed, 4, 8, Problem::integers);
    for (const Candidate& candidate : testing::chosen(candidates(transposed))) {
      CAPTURE(candidate.name);
      const auto run = [&](float alpha, float beta, size_t lda) {
        gemv::Product product = problem.product(alpha, beta);
        product.lda = lda;
        candidate.launch(product, {problem.d_partials.data()}, nullptr);
      };
      REQUIRE_THROWS_AS(run(1, 0, 7), std::invalid_argument);
      REQUIRE_NOTHROW(run(1, 0, 8));
      if (candidate.general) continue;
      REQUIRE_THROWS_AS(run(1, 0, 9), std::invalid_argument);
      REQUIRE_THROWS_AS(run(2, 0, 8), std::invalid_argument);
      REQUIRE_THROWS_AS(run(1, 1, 8), std::invalid_argument);
    }
    HIP_CHECK(hipDeviceSynchronize());
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("the checks refuse a lost, a doubled and a misplaced term at every printed shape",
          "[harness]") {
  for (const bool quick : {false, true}) {
    const std::vector<size_t> size = usual_sizes(gemv::sizes(), quick, gpu::kBackend);
    for (const gemv::Shape& shape : gemv::printed(size[0], size[1], false))
      for (const gemv::Values values : {gemv::Values::integers, gemv::Values::uniform}) {
        const gemv::Expected expected = gemv::expect(shape, values, 7, 16);
        const auto number =
            values == gemv::Values::integers ? random_numbers::integer : random_numbers::uniform;
        std::vector<double> terms;  // the one of median size of each element's sum
        for (const size_t i : expected.sample.rows)
          terms.push_back(testing::median_term(shape.terms(), [&](size_t k) {
            const size_t at = shape.transposed ? k * shape.cols + i : i * shape.cols + k;
            return static_cast<double>(number(7, 0, at)) * static_cast<double>(number(7, 1, k));
          }));
        const auto term = [&](size_t i) { return terms[i]; };
        CAPTURE(shape.name());
        if (values == gemv::Values::integers) {
          testing::require_refusals(expected.values(), 0, 1, term);
          continue;
        }
        for (const Candidate& candidate : candidates(shape.transposed)) {
          CAPTURE(candidate.name);
          const double depth = candidate.depth(aligned(shape));
          testing::require_refusals(
              expected.values(), [&](size_t i) { return gemv::bound(depth, expected.sums[i]); }, 1,
              term);
        }
      }
  }
}

TEST_CASE("a wrong bound, swapped indices, a missing barrier and a forgotten slice are caught",
          "[harness]") {
  Problem problem(false, 40, 40, Problem::integers, {0, 0, 0, 3});
  REQUIRE(problem.check(gemv::launch_vectorized, 2, -1, 0).ok);
  REQUIRE(!problem.check(gemv_test::launch_one_column_more, 2, -1, 0).ok);
  REQUIRE(!problem.check(gemv_test::launch_one_row_more, 2, -1, 0).ok);
  REQUIRE(!problem.check(gemv_test::launch_swapped, 2, -1, 0).ok);
  // On a GPU the waves of a block may happen to come in the right order.
  if (std::string(gpu::kBackend) == "cpu")
    REQUIRE(!problem.check(gemv_test::launch_unsynchronized, 2, -1, 0).ok);
  gpu::DeviceBuffer<float> partials(3 * 3);
  const auto forgotten_slice = [&](const gemv::Product& p, const gemv::Workspace&,
                                   hipStream_t stream) {
    gemv::launch_rows(p, partials.data(), {1, gemv::kBlock, 3}, stream);
    gemv::launch_add_slices(p, partials.data(), p.rows, 2, stream);
  };
  Problem long_rows(false, 3, 3000, Problem::integers);
  REQUIRE(!long_rows.check(forgotten_slice, 2, 0, 0).ok);
}
