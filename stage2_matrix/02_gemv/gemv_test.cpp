// Every version of the matrix-vector product on awkward shapes, strides and alignments.
#include "stage2_matrix/02_gemv/gemv.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/blas.h"
#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage2_matrix/01_transpose/transpose.h"

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Of gemv::kMaxPartials: more than the sizes here may use.
constexpr size_t kPartials = size_t{1} << 16;

std::vector<float> random_floats(size_t n, std::uint32_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = random_numbers::uniform(7, stream, i);
  return values;
}

// Integers in [-3, 3]: the sums of their products are exact in float in every order, so that an
// element that is missed or added twice can't pass as rounding.
std::vector<float> random_integers(size_t n, std::uint32_t stream) {
  std::vector<float> values = random_floats(n, stream);
  for (float& value : values) value = std::rint(3 * value);
  return values;
}

// Where the arrays lie: elements behind a 16-byte boundary, and behind the end of each row of A.
struct Layout {
  size_t offset_a = 0, offset_x = 0, offset_y = 0, gap = 0;
};

// The arrays of one product on host and device, guarded. The gaps between the rows of A hold NaN.
struct Problem {
  using Fill = std::vector<float> (*)(size_t n, std::uint32_t stream);

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
        d_partials(kPartials, 0) {}

  // A as it lies in memory: behind the last row there is no gap.
  std::vector<float> with_gaps() const {
    std::vector<float> values(rows == 0 ? 0 : (rows - 1) * lda + cols, kNan);
    for (size_t i = 0; i < rows * cols; ++i) values[i / cols * lda + i % cols] = a[i];
    return values;
  }
  gemv::Product product(float alpha, float beta) {
    return {rows, cols, alpha, d_a.data(), lda, d_x.data(), beta, d_y.data()};
  }
  gemv::Reference reference(size_t i, float alpha, float beta) const {
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
  // The same held against the reference, within the bound for so many roundings, or exactly.
  template <class Launch>
  Comparison check(Launch launch, float alpha, float beta, double roundings) {
    const std::vector<float> got = run(launch, alpha, beta);
    std::vector<gemv::Reference> want;
    for (size_t i = 0; i < got.size(); ++i) want.push_back(reference(i, alpha, beta));
    const double terms = static_cast<double>(x.size());
    Comparison result = compare(
        got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i].y; },
        [&](size_t i) {
          return roundings == 0 ? 0 : gemv::bound(roundings, terms, want[i].absolute);
        });
    result.ok = result.ok && d_a.intact() && d_x.intact() && d_y.intact() && d_partials.intact();
    return result;
  }
  Comparison check_exactly(const gemv::Launch& version, float alpha = 2, float beta = -1) {
    return check(version.run, alpha, beta, 0);
  }
  Comparison check_within_bound(const gemv::Launch& version, float alpha = 1.3f,
                                float beta = -0.7f) {
    return check(version.run, alpha, beta, version.roundings(product(alpha, beta)));
  }

  bool transposed;
  size_t rows, cols, lda;
  std::vector<float> a, x, y;
  Guarded<float> d_a, d_x, d_y, d_partials;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("every version adds every product once, in any shape") {
  constexpr size_t kSizes[] = {0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129};
  for (const bool transposed : {false, true})
    for (const size_t rows : kSizes)
      for (const size_t cols : kSizes) {
        Problem problem(transposed, rows, cols, random_integers);
        for (const auto& version : gemv::kVersions) {
          if (version.launch.transposed != transposed) continue;
          CAPTURE(version.name, rows, cols);
          REQUIRE_OK(problem.check_exactly(version.launch));
        }
      }
}

TEST_CASE("every version on few long rows and on many short ones") {
  constexpr size_t kShapes[][2] = {{1, 20011}, {3, 16384}, {20011, 1}, {8192, 3}, {2050, 260}};
  for (const bool transposed : {false, true})
    for (const auto& shape : kShapes) {
      Problem problem(transposed, shape[0], shape[1], random_integers);
      for (const auto& version : gemv::kVersions) {
        if (version.launch.transposed != transposed) continue;
        CAPTURE(version.name, shape[0], shape[1]);
        REQUIRE_OK(problem.check_exactly(version.launch));
      }
    }
}

TEST_CASE("every version with gaps between the rows and at any multiple of 4 bytes") {
  constexpr Layout kLayouts[] = {{0, 0, 0, 1}, {0, 0, 0, 4}, {0, 0, 0, 7}, {1, 0, 0, 0},
                                 {0, 1, 0, 0}, {0, 0, 3, 0}, {2, 2, 2, 0}, {3, 1, 2, 5}};
  constexpr size_t kShapes[][2] = {{19, 1028}, {70, 134}};
  for (const bool transposed : {false, true})
    for (const auto& shape : kShapes)
      for (const Layout& layout : kLayouts) {
        Problem problem(transposed, shape[0], shape[1], random_integers, layout);
        for (const auto& version : gemv::kVersions) {
          if (version.launch.transposed != transposed) continue;
          CAPTURE(version.name, shape[1], layout.offset_a, layout.offset_x, layout.gap);
          REQUIRE_OK(problem.check_exactly(version.launch));
        }
      }
}

TEST_CASE("every version stays within its bound for any alpha and beta") {
  constexpr size_t kShapes[][2] = {{65, 129}, {5, 9001}, {3001, 37}};
  for (const bool transposed : {false, true})
    for (const auto& shape : kShapes) {
      Problem problem(transposed, shape[0], shape[1], random_floats);
      for (const auto& version : gemv::kVersions) {
        if (version.launch.transposed != transposed) continue;
        for (const float alpha : {0.0f, 1.0f, -1.7f})
          for (const float beta : {0.0f, 1.0f, 0.3f}) {
            CAPTURE(version.name, shape[0], shape[1], alpha, beta);
            REQUIRE_OK(problem.check_within_bound(version.launch, alpha, beta));
          }
      }
    }
}

TEST_CASE("beta = 0 does not read y, alpha = 0 reads neither A nor x") {
  for (const bool transposed : {false, true}) {
    const size_t rows = 37, cols = 300, terms = transposed ? rows : cols;
    const size_t outputs = transposed ? cols : rows;
    Problem unread_y(transposed, rows, cols, random_integers(rows * cols, 0),
                     random_integers(terms, 1), std::vector<float>(outputs, kNan));
    Problem unread_a(transposed, rows, cols, std::vector<float>(rows * cols, kNan),
                     std::vector<float>(terms, kInfinity), random_integers(outputs, 2));
    for (const auto& version : gemv::kVersions) {
      if (version.launch.transposed != transposed) continue;
      CAPTURE(version.name);
      REQUIRE_OK(unread_y.check_exactly(version.launch, 3, 0));
      REQUIRE_OK(unread_a.check_exactly(version.launch, 0, 2));
      for (const float y : unread_y.run(version.launch.run, 1, 2)) REQUIRE(std::isnan(y));
      for (const float y : unread_y.run(version.launch.run, 0, 0)) REQUIRE(y == 0);
    }
  }
}

TEST_CASE("slices of any number give the same sums") {
  Problem rows(false, 9, 5003, random_integers), columns(true, 5003, 9, random_integers);
  for (const unsigned slices : {1, 2, 3, 7, 64}) {
    CAPTURE(slices);
    for (const unsigned team : {64u, gemv::kBlock})
      REQUIRE_OK(rows.check(
          [&](const gemv::Product& p, const gemv::Workspace& workspace, hipStream_t stream) {
            gemv::launch_rows(p, workspace, {1, team, slices}, stream);
          },
          2, -1, 0));
    for (const unsigned width : {16u, gemv::kMaxWidth})
      REQUIRE_OK(columns.check(
          [&](const gemv::Product& p, const gemv::Workspace& workspace, hipStream_t stream) {
            gemv::launch_columns<float>(p, workspace, {width, slices}, stream);
          },
          2, -1, 0));
  }
}

TEST_CASE("best takes any shape and a stream") {
  hipStream_t stream = nullptr;
  HIP_CHECK(hipStreamCreate(&stream));
  for (const bool transposed : {false, true})
    for (const auto& [rows, cols] : {std::pair<size_t, size_t>{300, 9}, {9, 300}, {1, 7001}}) {
      CAPTURE(transposed, rows, cols);
      Problem problem(transposed, rows, cols, random_integers);
      REQUIRE_OK(problem.check(
          [&](const gemv::Product& p, const gemv::Workspace& workspace, hipStream_t) {
            HIP_CHECK(hipDeviceSynchronize());
            gemv::best(transposed, p, workspace, stream);
            HIP_CHECK(hipStreamSynchronize(stream));
          },
          2, -1, 0));
    }
  HIP_CHECK(hipStreamDestroy(stream));
}

TEST_CASE("the transposed product is the product with the transposed matrix") {
  const size_t rows = 83, cols = 205;
  Problem straight(true, rows, cols, random_integers);
  Problem turned(false, cols, rows, transpose::transpose_cpu(straight.a, rows, cols), straight.x,
                 straight.y);
  const auto launch = [](bool transposed) {
    return [=](const gemv::Product& p, const gemv::Workspace& workspace, hipStream_t stream) {
      gemv::best(transposed, p, workspace, stream);
    };
  };
  REQUIRE(same_bits(straight.run(launch(true), 2, 3), turned.run(launch(false), 2, 3)));
}

TEST_CASE("every version gives the same bits on every run") {
  for (const bool transposed : {false, true}) {
    Problem problem(transposed, 120, 2500, random_floats);
    for (const auto& version : gemv::kVersions) {
      if (version.launch.transposed != transposed) continue;
      CAPTURE(version.name);
      const std::vector<float> first = problem.run(version.launch.run, 1.3f, 0.7f);
      for (int run = 0; run < 5; ++run)
        REQUIRE(same_bits(problem.run(version.launch.run, 1.3f, 0.7f), first));
    }
  }
}

TEST_CASE("every version and the vendor's library agree with NumPy", "[numpy]") {
  const auto read = [](const std::string& name) {
    return read_npy(reference_path("gemv_" + name + ".npy"));
  };
  const auto floats = [&](const std::string& name) {
    const NpyArray array = read(name);
    return std::vector<float>(array.values.begin(), array.values.end());
  };
  const std::vector<size_t> shape = read("a").shape;
  const float alpha = floats("alpha").at(0), beta = floats("beta").at(0);
  for (const bool transposed : {false, true}) {
    const std::string suffix = transposed ? "_transposed" : "";
    const std::vector<double> want = read("result" + suffix).values;
    Problem problem(transposed, shape.at(0), shape.at(1), floats("a"), floats("x" + suffix),
                    floats("y" + suffix));
    REQUIRE(want.size() == problem.y.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const gemv::Reference reference = problem.reference(i, alpha, beta);
      REQUIRE(std::fabs(reference.y - want[i]) <= 1e-12 * reference.absolute);
    }
    for (const auto& version : gemv::kVersions) {
      if (version.launch.transposed != transposed) continue;
      CAPTURE(version.name);
      REQUIRE_OK(problem.check_within_bound(version.launch, alpha, beta));
    }
    if (blas::available())
      REQUIRE_OK(problem.check(
          [&](const gemv::Product& p, const gemv::Workspace&, hipStream_t) {
            blas::gemv(transposed, p.rows, p.cols, p.alpha, p.a, p.lda, p.x, p.beta, p.y);
          },
          alpha, beta, static_cast<double>(problem.x.size())));
  }
}

TEST_CASE("infinities and NaN reach the elements that they belong to, and no others") {
  for (const bool transposed : {false, true}) {
    const size_t rows = 70, cols = 90, at_row = 41, at_col = 86;
    for (const float special : {kInfinity, kNan}) {
      Problem problem(transposed, rows, cols, random_integers);
      std::vector<float> a = problem.a, x(problem.x.size(), 2.0f);
      a[at_row * cols + at_col] = special;
      Problem with_special(transposed, rows, cols, a, x, problem.y);
      for (const auto& version : gemv::kVersions) {
        if (version.launch.transposed != transposed) continue;
        CAPTURE(version.name, special);
        const std::vector<float> y = with_special.run(version.launch.run, 1, 1);
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

TEST_CASE("rows that overlap are refused") {
  Problem problem(false, 4, 8, random_integers);
  for (const auto& version : gemv::kVersions) {
    gemv::Product product = problem.product(1, 0);
    product.lda = 7;
    REQUIRE_THROWS_AS(version.launch.run(product, {problem.d_partials.data()}, nullptr),
                      std::invalid_argument);
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// Reads one element behind each row.
static __global__ void one_column_more(gemv::Product p) {
  const size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  ++p.cols;
  if (row < p.rows) gemv::store(p, row, gemv::thread_sum(p, row, 0, 1));
}

// Writes one element too many.
static __global__ void one_row_more(gemv::Product p) {
  const size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row <= p.rows) gemv::store(p, row, row < p.rows ? gemv::thread_sum(p, row, 0, 1) : 0);
}

// Takes A for its transpose.
static __global__ void swapped(gemv::Product p) {
  const size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= p.rows) return;
  float sum = 0;
  for (size_t col = 0; col < p.cols; ++col) sum += p.a[col * p.lda + row] * p.x[col];
  gemv::store(p, row, sum);
}

// block_per_row without a barrier between the threads' sums and their sum.
static __global__ void unsynchronized(gemv::Product p) {
  __shared__ float sums[gemv::kBlock];
  sums[threadIdx.x] = gemv::thread_sum(p, blockIdx.x, threadIdx.x, gemv::kBlock);
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (const float thread : sums) sum += thread;
  gemv::store(p, blockIdx.x, sum);
}

}  // namespace

TEST_CASE("a wrong bound, swapped indices, a missing barrier and a read y are caught") {
  Problem problem(false, 40, 40, random_integers, {0, 0, 0, 3});
  const auto with = [](auto kernel, unsigned blocks, unsigned threads) {
    return [=](const gemv::Product& p, const gemv::Workspace&, hipStream_t stream) {
      LAUNCH_ON(stream, kernel, blocks, threads, 0, p);
    };
  };
  REQUIRE(problem.check(with(gemv::gemv_thread_per_row, 1, gemv::kBlock), 2, -1, 0).ok);
  REQUIRE(!problem.check(with(one_column_more, 1, 64), 2, -1, 0).ok);
  REQUIRE(!problem.check(with(one_row_more, 1, 64), 2, -1, 0).ok);
  REQUIRE(!problem.check(with(swapped, 1, 64), 2, -1, 0).ok);
  // On a GPU the waves of a block may happen to come in the right order.
  if (std::string(gpu::kBackend) == "cpu")
    REQUIRE(!problem.check(with(unsynchronized, 40, gemv::kBlock), 2, -1, 0).ok);
  // One slice too few is added.
  const auto forgotten_slice = [](const gemv::Product& p, const gemv::Workspace& workspace,
                                  hipStream_t stream) {
    gemv::launch_rows(p, workspace, {1, gemv::kBlock, 3}, stream);
    gemv::launch_add_slices(p, workspace, p.rows, 2, stream);
  };
  Problem long_rows(false, 3, 3000, random_integers);
  REQUIRE(!long_rows.check(forgotten_slice, 2, 0, 0).ok);
}
