// Every version of the softmax on awkward shapes, alignments and values.
#include "stage3_ml_ops/02_softmax/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage3_ml_ops/02_softmax/detail/grid.h"
#include "stage3_ml_ops/02_softmax/reference.h"

// The kernels that only this test has: softmax_test.hip.
namespace softmax_test {
struct Part {
  float max, sum;
};
void launch_merge(Part* out, const Part* a, const Part* b, size_t n);
bool launch_half(const char* version, float* y, const float* x, size_t rows, size_t cols);
void launch_without_barrier(float* y, const float* x, size_t, size_t cols, hipStream_t);
void launch_without_maximum(float* y, const float* x, size_t, size_t cols, hipStream_t);
void launch_without_tail(float* y, const float* x, size_t, size_t cols, hipStream_t);
}  // namespace softmax_test

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What is tested: every version, and the entry for later stages.
std::vector<Version<softmax::Launch>> versions() {
  std::vector<Version<softmax::Launch>> all(std::begin(softmax::kVersions),
                                            std::end(softmax::kVersions));
  all.push_back({"best", {softmax::best, softmax::roundings_best}, ""});
  return all;
}

std::vector<float> logits(size_t n, float scale) { return testing::random_floats(n, 0, scale); }

// X and Y in guarded device memory, `offset_x` and `offset_y` elements behind a 16-byte boundary.
struct Problem {
  Problem(const std::vector<float>& values, size_t columns, size_t offset_x = 0,
          size_t offset_y = 0)
      : x(values),
        cols(columns),
        rows(columns == 0 ? 0 : values.size() / columns),
        d_x(values, offset_x),
        d_y(values.size(), offset_y),
        want(softmax::softmax_cpu(values, columns)) {}

  std::vector<float> run(const softmax::Launch& version) {
    gpu::poison(d_y.data(), d_y.size() * sizeof(float));
    version.run(d_y.data(), d_x.data(), rows, cols, nullptr);
    return d_y.to_host();
  }
  Comparison check(const softmax::Launch& version) {
    const std::vector<double> bounds = softmax::bounds(x, want, cols, version.roundings(cols));
    const std::vector<float> got = run(version);
    Comparison result = compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
        [&](size_t i) { return bounds[i]; });
    result.ok = result.ok && d_x.intact() && d_y.intact() && d_x.to_host().size() == x.size();
    return result;
  }

  std::vector<float> x;
  size_t cols, rows;
  Guarded<float> d_x, d_y;
  std::vector<double> want;
};

using testing::same_bits;

// A row of equal elements: every exponential is exp(0) = 1 and every sum an integer, so that each
// version must give 1 / cols, rounded once. An element missed or added twice can't hide.
Comparison check_equal_elements(const softmax::Launch& version, size_t rows, size_t cols,
                                size_t offset) {
  Problem problem(std::vector<float>(rows * cols, -3.25f), cols, offset, offset);
  const std::vector<float> got = problem.run(version);
  return compare(
      got.size(), [&](size_t i) { return got[i]; },
      [&](size_t) { return static_cast<double>(1.0f / static_cast<float>(cols)); },
      [](size_t) { return 0.0; });
}

// Rows whose softmax is exact in float, see softmax::kFarApart; and that softmax, of the reference.
std::vector<float> far_apart(size_t rows, size_t cols) {
  std::vector<float> x = testing::random_integers(rows * cols, 0);
  for (float& value : x) value *= softmax::kFarApart;
  return x;
}
void exact(std::vector<double>& want) {
  for (double& value : want) value = static_cast<double>(static_cast<float>(value));
}

// The lengths of the rows; where they are long there are few of them.
constexpr size_t kCols[] = {1,    2,    3,    4,    7,    15,   16,    17,    31,   33,
                            63,   64,   65,   127,  129,  255,  256,   257,   511,  515,
                            1000, 1003, 2049, 4096, 4099, 8191, 16391, 33333, 50257};

}  // namespace

TEST_CASE("every version stays within its bound at any shape and alignment") {
  constexpr size_t kOffsets[][2] = {{0, 0}, {1, 1}, {3, 3}, {0, 1}, {2, 3}};
  for (const size_t cols : kCols)
    for (const size_t rows : {size_t{1}, size_t{2}, size_t{5}, size_t{33}}) {
      if (rows * cols > 60000 || (rows > 5 && cols > 300)) continue;
      const std::vector<float> x = logits(rows * cols, 8);
      for (const auto& offsets : kOffsets) {
        if (rows != 2 && offsets[0] != offsets[1]) continue;
        Problem problem(x, cols, offsets[0], offsets[1]);
        for (const auto& version : testing::chosen(versions())) {
          CAPTURE(version.name, rows, cols, offsets[0], offsets[1]);
          REQUIRE_OK(problem.check(version.launch));
        }
      }
    }
}

TEST_CASE("every version adds every element once") {
  for (const size_t cols : kCols)
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, cols);
      REQUIRE_OK(check_equal_elements(version.launch, cols < 300 ? 9 : 1, cols, 0));
      REQUIRE_OK(check_equal_elements(version.launch, 1, cols, 3));
    }
}

TEST_CASE("every version is exact where the elements are far apart") {
  for (const size_t cols : kCols) {
    const size_t rows = cols < 300 ? 9 : 2;
    Problem problem(far_apart(rows, cols), cols, 1, cols % 2);
    exact(problem.want);
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, cols);
      const std::vector<float> got = problem.run(version.launch);
      REQUIRE_OK(compare(
          got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return problem.want[i]; },
          [](size_t) { return 0.0; }));
    }
  }
}

TEST_CASE("rows of 200000 elements") {
  Problem problem(logits(200000, 8), 200000, 1, 1);
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    REQUIRE_OK(problem.check(version.launch));
  }
}

TEST_CASE("no rows, or no columns, write nothing") {
  Guarded<float> d_y(1, 0);
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    version.launch.run(d_y.data(), d_y.data(), 0, 7, nullptr);
    for (const size_t rows : {size_t{7}, size_t{1} << 48})  // however many, it takes no time
      version.launch.run(d_y.data(), d_y.data(), rows, 0, nullptr);
    REQUIRE(is_poison(d_y.to_host()[0]));
    REQUIRE(d_y.intact());
  }
}

TEST_CASE("every version agrees with NumPy", "[numpy]") {
  const NpyArray x = read_npy(reference_path("softmax_x.npy"));
  Problem problem(x.floats(), x.shape.at(1));
  const std::vector<double> want = read_npy(reference_path("softmax_y.npy")).values;
  REQUIRE(want.size() == problem.want.size());
  // exp and the quotient are off by a few 2^-53 each, the sum by cols 2^-53; in both programs.
  const double tolerance = 2 * (static_cast<double>(problem.cols) + 8) * std::exp2(-53);
  for (size_t i = 0; i < want.size(); ++i)
    REQUIRE(std::fabs(problem.want[i] - want[i]) <= tolerance * want[i]);
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    REQUIRE_OK(problem.check(version.launch));
  }
}

TEST_CASE("rows sum to 1") {
  for (const size_t cols : {size_t{1}, size_t{33}, size_t{1003}, size_t{50257}}) {
    Problem problem(logits(2 * cols, 8), cols);
    for (const auto& version : testing::chosen(versions())) {
      const std::vector<float> y = problem.run(version.launch);
      const std::vector<double> bounds =
          softmax::bounds(problem.x, problem.want, cols, version.launch.roundings(cols));
      for (size_t row = 0; row < problem.rows; ++row) {
        double sum = 0, bound = 1e-12;  // the sum of the doubles themselves
        for (size_t i = row * cols; i < (row + 1) * cols; ++i)
          sum += static_cast<double>(y[i]), bound += bounds[i];
        CAPTURE(version.name, cols, row, sum, bound);
        REQUIRE(std::fabs(sum - 1) <= bound);
      }
    }
  }
}

TEST_CASE("a constant added to a row changes no bit") {
  // Multiples of 2^-10 below 2^13 are exact, and so are their differences.
  constexpr size_t kLong = 3 * 4099;
  std::vector<float> x = logits(kLong, 8);
  for (float& value : x) value = std::rint(1024 * value) / 1024;
  for (const size_t cols : {size_t{7}, size_t{1003}, size_t{4099}}) {
    const std::vector<float> rows(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(3 * cols));
    std::vector<float> shifted = rows;
    for (size_t i = 0; i < shifted.size(); ++i) shifted[i] += i / cols == 1 ? -8000.0f : 4321.5f;
    Problem here(rows, cols), there(shifted, cols);
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, cols);
      REQUIRE(same_bits(here.run(version.launch), there.run(version.launch)));
    }
  }
}

TEST_CASE("large inputs stay finite") {
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const float scale : {100.0f, 1e4f, kLargest}) {
    for (const size_t cols : {size_t{5}, size_t{300}, size_t{1003}, size_t{4099}}) {
      Problem problem(logits(2 * cols, scale), cols, 1, 1);
      for (const auto& version : testing::chosen(versions())) {
        CAPTURE(version.name, scale, cols);
        REQUIRE_OK(problem.check(version.launch));
      }
    }
  }
  for (const auto& version :
       testing::chosen(versions())) {  // the smallest float is no sign of an empty row
    CAPTURE(version.name);
    REQUIRE_OK(
        Problem({-kLargest, -kLargest, -kInfinity, -kLargest, -kLargest}, 5).check(version.launch));
  }
}

TEST_CASE("masked elements are 0, and only hopeless rows are NaN") {
  for (const size_t cols : {size_t{3}, size_t{70}, size_t{1003}, size_t{5000}, size_t{17000}}) {
    const std::vector<float> ordinary = logits(cols, 8);
    // A causal mask, all but the last element, all but the first, everything; then what makes NaN.
    std::vector<std::vector<float>> rows(7, ordinary);
    for (size_t c = cols / 3; c < cols; ++c) rows[0][c] = -kInfinity;
    for (size_t c = 0; c + 1 < cols; ++c) rows[1][c] = -kInfinity;
    for (size_t c = 1; c < cols; ++c) rows[2][c] = -kInfinity;
    for (float& value : rows[3]) value = -kInfinity;
    rows[4][cols / 2] = kInfinity;
    rows[5][cols - 1] = kNan;
    rows[6][0] = kInfinity, rows[6][cols - 1] = -kInfinity;
    for (size_t row = 0; row < rows.size(); ++row) {
      Problem problem(rows[row], cols);
      for (const double want : problem.want) REQUIRE(std::isnan(want) == (row >= 3));
      for (const auto& version : testing::chosen(versions())) {
        CAPTURE(version.name, cols, row);
        REQUIRE_OK(problem.check(version.launch));
      }
    }
  }
}

TEST_CASE("the result may replace the input") {
  for (const size_t cols : {size_t{6}, size_t{1003}, size_t{9001}, size_t{40001}}) {
    Problem problem(logits(3 * cols, 8), cols, 1, 1);
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, cols);
      const std::vector<float> y = problem.run(version.launch);
      Guarded<float> d_both(problem.x, 1);
      version.launch.run(d_both.data(), d_both.data(), 3, cols, nullptr);
      REQUIRE(same_bits(d_both.to_host(), y));
      REQUIRE(d_both.intact());
    }
  }
}

TEST_CASE("a small grid goes round") {
  constexpr size_t kRows = 23;
  for (const size_t cols : {size_t{300}, size_t{3000}, size_t{25000}})
    for (const size_t offset_y : {size_t{1}, size_t{2}}) {
      Problem problem(logits(kRows * cols, 8), cols, 1, offset_y);
      for (const size_t blocks : {1, 2}) {
        const vector_add::FewBlocks few(blocks);
        for (const auto& version : testing::chosen(versions())) {
          CAPTURE(version.name, cols, blocks);
          const Comparison result = problem.check(version.launch);
          CHECK(result.ok);
        }
      }
    }
}

TEST_CASE("with an Output the same probabilities are stored as it says") {
  for (const size_t cols : {size_t{5}, size_t{1003}, size_t{9001}, size_t{50257}})
    for (const size_t offset_y : {size_t{1}, size_t{2}}) {
      Problem problem(logits(3 * cols, 8), cols, 1, offset_y);
      for (const auto& version : testing::chosen(versions())) {
        std::vector<float> want = problem.run(version.launch);
        for (float& value : want) value *= 0.5f;
        gpu::poison(problem.d_y.data(), problem.d_y.size() * sizeof(float));
        if (!softmax_test::launch_half(version.name, problem.d_y.data(), problem.d_x.data(), 3,
                                       cols))
          continue;  // it has no Output, or can't hold such a row
        CAPTURE(version.name, cols, offset_y);
        REQUIRE(same_bits(problem.d_y.to_host(), want));
        REQUIRE(problem.d_y.intact());
      }
    }
}

TEST_CASE("every version and best can be queued on a stream and captured in a graph") {
  for (const size_t cols : {size_t{300}, size_t{9001}}) {
    Problem problem(logits(5 * cols, 8), cols, 1, 1);
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, cols);
      testing::require_same_in_graph(
          [&] { gpu::poison(problem.d_y.data(), problem.d_y.size() * sizeof(float)); },
          [&](hipStream_t stream) {
            version.launch.run(problem.d_y.data(), problem.d_x.data(), 5, cols, stream);
          },
          [&] { return problem.d_y.to_host(); });
    }
  }
}

TEST_CASE("parts of a row merge, empty ones too") {
  using softmax_test::Part;
  constexpr float kNothing = std::numeric_limits<float>::lowest();
  const std::vector<Part> a = {{3, 2}, {5, 1}, {kNothing, 0}, {kNothing, 0}, {1e4f, 2}};
  const std::vector<Part> b = {{5, 1}, {3, 2}, {kNothing, 0}, {-40, 7}, {-1e4f, 9}};
  const std::vector<Part> want = {{5, 1 + 2 * std::exp(-2.0f)},
                                  {5, 1 + 2 * std::exp(-2.0f)},
                                  {kNothing, 0},
                                  {-40, 7},
                                  {1e4f, 2}};
  Guarded<Part> d_a(a, 0), d_b(b, 0), d_out(a.size(), 0);
  softmax_test::launch_merge(d_out.data(), d_a.data(), d_b.data(), a.size());
  const std::vector<Part> got = d_out.to_host();
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i, got[i].max, got[i].sum);
    REQUIRE(got[i].max == want[i].max);
    REQUIRE(std::fabs(got[i].sum - want[i].sum) <= 16 * kFloatRoundoff * want[i].sum);
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

void launch_all_but_last_element(float* y, const float* x, size_t rows, size_t cols,
                                 hipStream_t stream) {
  softmax::best(y, x, rows, cols - 1, stream);
}
// One row of rows * cols instead of rows of cols.
void launch_swapped(float* y, const float* x, size_t rows, size_t cols, hipStream_t stream) {
  softmax::best(y, x, cols, rows, stream);
}

}  // namespace

TEST_CASE("missing barriers, maxima, tails and swapped sizes are caught", "[harness]") {
  Problem one_row(logits(1003, 8), 1003), large(logits(1003, 1e4f), 1003);
  Problem many(logits(7 * 33, 8), 33);
  const auto caught = [](Problem& problem, auto run) {
    return !problem.check({run, softmax::roundings_thread_per_row}).ok;
  };
  REQUIRE(caught(one_row, softmax_test::launch_without_barrier));
  REQUIRE(caught(large, softmax_test::launch_without_maximum));
  REQUIRE(caught(one_row, launch_all_but_last_element));
  REQUIRE(caught(many, launch_swapped));
  // One element more or less in the sum is a small error among random ones, but not among equals.
  REQUIRE(!check_equal_elements(
               {softmax_test::launch_without_tail, softmax::roundings_thread_per_row}, 1, 1003, 0)
               .ok);
}

// At every length that the program prints. The exact check sees each of the terms that count. The
// bound grows with the sum of the roundings: it sees the largest term, changed places and zeros.
TEST_CASE("the program's checks refuse dropped and doubled terms, swapped rows and zeros",
          "[harness]") {
  constexpr size_t kRows = 4;
  for (const size_t cols : {size_t{1003}, size_t{4096}, size_t{8192}, size_t{50257}}) {
    CAPTURE(cols);
    std::vector<float> integers = far_apart(kRows, cols);
    // Changed places of neighbours are only seen where these differ.
    integers.front() = integers.back() = 3 * softmax::kFarApart;
    integers[1] = integers[integers.size() - 2] = 0;
    std::vector<double> want = softmax::softmax_cpu(integers, cols);
    exact(want);
    // One of n equal terms less makes the probability 1 / (n - 1): by about 1 / n^2 more.
    testing::require_refusals(want, 0, cols, [&](size_t i) { return want[i] * want[i]; });

    const std::vector<float> x = logits(kRows * cols, 8);
    const std::vector<double> y = softmax::softmax_cpu(x, cols);
    const std::vector<double> bounds =
        softmax::bounds(x, y, cols, softmax::roundings_row_in_registers(cols));
    std::vector<double> largest;  // of each row
    for (auto row = y.begin(); row != y.end(); row += static_cast<std::ptrdiff_t>(cols))
      largest.push_back(*std::max_element(row, row + static_cast<std::ptrdiff_t>(cols)));
    testing::require_refusals(
        y, [&](size_t i) { return bounds[i]; }, cols,
        [&](size_t i) { return y[i] * largest[i / cols]; });
  }
}
