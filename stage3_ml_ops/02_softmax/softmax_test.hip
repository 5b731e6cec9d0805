// Every version of the softmax on awkward shapes, alignments and values.
#include "stage3_ml_ops/02_softmax/softmax.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"

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

std::vector<float> random_floats(size_t n, float scale) {
  return testing::random_floats(n, 0, scale);
}

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
      const std::vector<float> x = random_floats(rows * cols, 8);
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

TEST_CASE("rows of 200000 elements") {
  Problem problem(random_floats(200000, 8), 200000, 1, 1);
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
    version.launch.run(d_y.data(), d_y.data(), 7, 0, nullptr);
    REQUIRE(is_poison(d_y.to_host()[0]));
    REQUIRE(d_y.intact());
  }
}

TEST_CASE("every version agrees with NumPy", "[numpy]") {
  const NpyArray x = read_npy(reference_path("softmax_x.npy"));
  Problem problem(std::vector<float>(x.values.begin(), x.values.end()), x.shape.at(1));
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
    Problem problem(random_floats(2 * cols, 8), cols);
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
  std::vector<float> x = random_floats(kLong, 8);
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
      Problem problem(random_floats(2 * cols, scale), cols, 1, 1);
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
    const std::vector<float> ordinary = random_floats(cols, 8);
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
    Problem problem(random_floats(3 * cols, 8), cols, 1, 1);
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
  using namespace softmax;
  constexpr size_t kRows = 23;
  const auto check = [&](size_t cols, auto run, Roundings (*roundings)(size_t)) {
    Problem problem(random_floats(kRows * cols, 8), cols, 1, 1);
    return problem.check({run, roundings});
  };
  REQUIRE_OK(check(
      300,
      [](float* y, const float* x, size_t rows, size_t cols, hipStream_t) {
        LAUNCH(softmax_block_per_row, 2, kBlock, 0, y, x, rows, cols);
      },
      roundings_block_per_row));
  REQUIRE_OK(check(
      300,
      [](float* y, const float* x, size_t rows, size_t cols, hipStream_t) {
        LAUNCH(softmax_wave_per_row, 1, kBlock, 0, y, x, rows, cols);
      },
      roundings_wave_per_row));
  REQUIRE_OK(check(
      300,
      [](float* y, const float* x, size_t rows, size_t cols, hipStream_t) {
        LAUNCH((softmax_online<true, Probabilities>), 2, kOnlineThreads, 0, y, x, rows, cols,
               Probabilities{});
      },
      roundings_online));
  REQUIRE_OK(check(
      300,
      [](float* y, const float* x, size_t rows, size_t cols, hipStream_t) {
        LAUNCH((softmax_row_in_registers<WaveTeam, 8, 4, Probabilities>), 1, kBlock, 0, y, x, rows,
               cols, Probabilities{});
      },
      roundings_row_in_registers));
  REQUIRE_OK(check(
      3000,
      [](float* y, const float* x, size_t rows, size_t cols, hipStream_t) {
        LAUNCH((softmax_row_in_registers<BlockTeam<256>, 4, 4, Probabilities>), 2, 256, 0, y, x,
               rows, cols, Probabilities{});
      },
      roundings_row_in_registers));
  // A row with some of its float4s in shared memory, more than one turn of a block's threads.
  REQUIRE_OK(check(
      3000,
      [](float* y, const float* x, size_t rows, size_t cols, hipStream_t) {
        constexpr size_t kInShared = 600;
        LAUNCH(softmax_row_in_shared<Probabilities>, 2, kSharedThreads, kInShared * sizeof(float4),
               y, x, rows, cols, kInShared, Probabilities{});
      },
      roundings_row_in_shared));
}

namespace {

// out[i] = a[i] and b[i] together.
static __global__ void merge_parts(softmax::MaxSum* out, const softmax::MaxSum* a,
                                   const softmax::MaxSum* b) {
  out[threadIdx.x] = softmax::merge(a[threadIdx.x], b[threadIdx.x]);
}

}  // namespace

TEST_CASE("parts of a row merge, empty ones too") {
  using softmax::MaxSum;
  constexpr float kNothing = std::numeric_limits<float>::lowest();
  const std::vector<MaxSum> a = {{3, 2}, {5, 1}, {kNothing, 0}, {kNothing, 0}, {1e4f, 2}};
  const std::vector<MaxSum> b = {{5, 1}, {3, 2}, {kNothing, 0}, {-40, 7}, {-1e4f, 9}};
  const std::vector<MaxSum> want = {{5, 1 + 2 * std::exp(-2.0f)},
                                    {5, 1 + 2 * std::exp(-2.0f)},
                                    {kNothing, 0},
                                    {-40, 7},
                                    {1e4f, 2}};
  Guarded<MaxSum> d_a(a, 0), d_b(b, 0), d_out(a.size(), 0);
  LAUNCH(merge_parts, 1, static_cast<unsigned>(a.size()), 0, d_out.data(), d_a.data(), d_b.data());
  const std::vector<MaxSum> got = d_out.to_host();
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i, got[i].max, got[i].sum);
    REQUIRE(got[i].max == want[i].max);
    REQUIRE(std::fabs(got[i].sum - want[i].sum) <= 16 * kFloatRoundoff * want[i].sum);
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// softmax::block_merge without its last barrier. So that the mistake also shows on a device where
// all waves happen to arrive together, those behind the first come late.
static __global__ void softmax_without_barrier(float* y, const float* x, size_t cols) {
  __shared__ softmax::MaxSum parts[softmax::kMaxWaves];
  if (threadIdx.x < softmax::kMaxWaves) parts[threadIdx.x] = softmax::nothing();
  __syncthreads();  // every part is empty
  softmax::MaxSum part = softmax::nothing();
  for (size_t c = threadIdx.x; c < cols; c += softmax::kBlock)
    part = softmax::merge(part, {x[c], 1.0f});
  part = softmax::wave_merge(part);
  volatile int wait = gpu::wave_id() > 0 ? 20000 : 0;
  while (wait > 0) wait = wait - 1;
  if (gpu::lane_id() == 0) parts[gpu::wave_id()] = part;
  const int waves = static_cast<int>(softmax::kBlock) / gpu::wave_size();
  const softmax::MaxSum whole =
      softmax::wave_merge(gpu::lane_id() < waves ? parts[gpu::lane_id()] : softmax::nothing());
  for (size_t c = threadIdx.x; c < cols; c += softmax::kBlock)
    y[c] = softmax::exponential(x[c] - whole.max) / whole.sum;
}

// Without the maximum, or without the last `missing` columns in maximum and sum.
static __global__ void softmax_with_mistake(float* y, const float* x, size_t cols, bool subtract,
                                            size_t missing) {
  float max = 0, sum = 0;
  for (size_t c = 0; c + missing < cols; ++c) max = subtract ? fmaxf(max, x[c]) : max;
  for (size_t c = 0; c + missing < cols; ++c) sum += softmax::exponential(x[c] - max);
  for (size_t c = 0; c < cols; ++c) y[c] = softmax::exponential(x[c] - max) / sum;
}

void launch_without_barrier(float* y, const float* x, size_t, size_t cols, hipStream_t) {
  LAUNCH(softmax_without_barrier, 1, softmax::kBlock, 0, y, x, cols);
}
void launch_without_maximum(float* y, const float* x, size_t, size_t cols, hipStream_t) {
  LAUNCH(softmax_with_mistake, 1, 1, 0, y, x, cols, false, 0);
}
void launch_without_tail(float* y, const float* x, size_t, size_t cols, hipStream_t) {
  LAUNCH(softmax_with_mistake, 1, 1, 0, y, x, cols, true, 1);
}
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
  Problem one_row(random_floats(1003, 8), 1003), large(random_floats(1003, 1e4f), 1003);
  Problem many(random_floats(7 * 33, 8), 33);
  const auto caught = [](Problem& problem, auto run) {
    return !problem.check({run, softmax::roundings_thread_per_row}).ok;
  };
  REQUIRE(caught(one_row, launch_without_barrier));
  REQUIRE(caught(large, launch_without_maximum));
  REQUIRE(caught(one_row, launch_all_but_last_element));
  REQUIRE(caught(many, launch_swapped));
  // One element more or less in the sum is a small error among random ones, but not among equals.
  REQUIRE(
      !check_equal_elements({launch_without_tail, softmax::roundings_thread_per_row}, 1, 1003, 0)
           .ok);
}
