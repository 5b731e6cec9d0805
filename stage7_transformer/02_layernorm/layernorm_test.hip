// Every version of layernorm, forward and backward, on awkward shapes, alignments and values; and
// the gradients against finite differences.
#include "stage7_transformer/02_layernorm/layernorm.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/testing.h"

namespace {

using namespace layernorm;

constexpr float kEps = 1e-5f;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Shape {
  size_t rows, cols;
};
// How far the arrays begin behind a multiple of 16 bytes, in elements.
struct Offsets {
  size_t inputs, outputs;
};
constexpr Offsets kOffsets[] = {{0, 0}, {1, 1}, {0, 3}};

// Every way to hold a row, its ends, and rows that nobody can hold.
constexpr Shape kShapes[] = {{1, 1},    {5, 1},    {7, 3},    {3, 15},   {33, 16},  {5, 31},
                             {4, 64},   {3, 100},  {9, 128},  {2, 129},  {3, 256},  {2, 260},
                             {2, 512},  {2, 516},  {2, 1003}, {3, 1024}, {2, 1028}, {1, 2048},
                             {1, 2052}, {1, 4099}, {1, 4100}, {1, 8200}, {1, 51203}};

using testing::random_floats;
using testing::same_bits;

Comparison compare_with(const std::vector<float>& got, const std::vector<double>& want,
                        const std::vector<double>& bound) {
  REQUIRE(got.size() == want.size());
  return compare(
      got.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return want[i]; },
      [&](size_t i) { return bound[i]; });
}

// ---- Forward ----------------------------------------------------------------------------------

// The entries for later steps, as versions.
void run_best(const Pass& pass, const float* x, hipStream_t stream) {
  forward(pass.y, pass.mean, pass.rstd, x, pass.gain, pass.bias, pass.rows, pass.cols, pass.eps,
          stream);
}
void run_best_residual(float* sum, const Pass& pass, const float* x, const float* residual,
                       hipStream_t stream) {
  forward_residual(sum, pass.y, pass.mean, pass.rstd, x, residual, pass.gain, pass.bias, pass.rows,
                   pass.cols, pass.eps, stream);
}

std::vector<Version<Launch>> versions() {
  std::vector<Version<Launch>> all(std::begin(kVersions), std::end(kVersions));
  all.push_back({"best", {run_best, roundings_best}, ""});
  return all;
}
std::vector<Version<ResidualLaunch>> residual_versions() {
  std::vector<Version<ResidualLaunch>> all(std::begin(kResidualVersions),
                                           std::end(kResidualVersions));
  all.push_back({"best", {run_best_residual}, ""});
  return all;
}

struct Inputs {
  explicit Inputs(Shape matrix, float scale = 3, float shift = 1)
      : shape(matrix),
        x(random_floats(matrix.rows * matrix.cols, 0, scale, shift)),
        residual(random_floats(matrix.rows * matrix.cols, 4, scale)),
        gain(random_floats(matrix.cols, 1, 1, 0.5f)),
        bias(random_floats(matrix.cols, 2, 1)) {}
  Shape shape;
  std::vector<float> x, residual, gain, bias;
  float eps = kEps;
};

struct Results {
  std::vector<float> y, mean, rstd, sum;
  bool intact;
};

// Of a version with a residual, run(sum, pass, x, residual, stream); of one without, sum is x.
template <class Run>
Results run(Run&& launch, const Inputs& in, Offsets offsets = {0, 0}) {
  Guarded<float> d_x(in.x, offsets.inputs), d_residual(in.residual, offsets.inputs);
  Guarded<float> d_gain(in.gain, offsets.inputs), d_bias(in.bias, offsets.inputs);
  Guarded<float> d_y(in.x.size(), offsets.outputs), d_sum(in.x.size(), offsets.outputs);
  Guarded<float> d_mean(in.shape.rows, offsets.outputs), d_rstd(in.shape.rows, offsets.outputs);
  const Pass pass{d_y.data(),    d_mean.data(), d_rstd.data(), d_gain.data(),
                  d_bias.data(), in.shape.rows, in.shape.cols, in.eps};
  if constexpr (std::is_invocable_v<Run, Pass, const float*, hipStream_t>)
    launch(pass, d_x.data(), nullptr);
  else
    launch(d_sum.data(), pass, d_x.data(), d_residual.data(), nullptr);
  const bool intact = d_x.intact() && d_residual.intact() && d_gain.intact() && d_bias.intact() &&
                      d_y.intact() && d_sum.intact() && d_mean.intact() && d_rstd.intact() &&
                      same_bits(d_x.to_host(), in.x);
  return {d_y.to_host(), d_mean.to_host(), d_rstd.to_host(), d_sum.to_host(), intact};
}

// The first that is wrong of mean, rstd and y.
Comparison check(const Results& got, const Forward& want) {
  const Comparison mean = compare_with(got.mean, want.mean, want.bound_mean);
  const Comparison rstd = compare_with(got.rstd, want.rstd, want.bound_rstd);
  Comparison y = compare_with(got.y, want.y, want.bound_y);
  y.ok = y.ok && got.intact;
  return !mean.ok ? mean : !rstd.ok ? rstd : y;
}

Forward expect(const Inputs& in, Roundings roundings) {
  return forward_cpu(in.x, in.gain, in.bias, in.shape.cols, in.eps, roundings);
}
Comparison check(const Launch& version, const Inputs& in, Offsets offsets = {0, 0}) {
  return check(run(version.run, in, offsets), expect(in, version.roundings(in.shape.cols)));
}

// x + residual in float: one addition rounds alike everywhere.
std::vector<float> sums(const Inputs& in) {
  std::vector<float> sum(in.x.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = in.x[i] + in.residual[i];
  return sum;
}
Comparison check(const ResidualLaunch& version, const Inputs& in, Offsets offsets = {0, 0}) {
  const std::vector<float> sum = sums(in);
  Roundings roundings = roundings_row_cached(in.shape.cols);
  roundings.additions = std::max(roundings.additions, roundings_best(in.shape.cols).additions);
  const Results got = run(version.run, in, offsets);
  Comparison result =
      check(got, forward_cpu(sum, in.gain, in.bias, in.shape.cols, in.eps, roundings));
  result.ok = result.ok && same_bits(got.sum, sum);
  return result;
}

// The block versions are slow on the CPU backend: 256 threads wait for each other in every row.
bool is_slow(const std::string& name, const Shape& shape) {
  return (name == "two_pass" || name == "welford") && shape.rows > 5;
}

}  // namespace

TEST_CASE("every version stays within its bound at any shape and alignment") {
  for (const Shape& shape : kShapes) {
    const Inputs in(shape);
    for (const Offsets& offsets : kOffsets) {
      for (const auto& version : testing::chosen(versions())) {
        if (offsets.inputs != offsets.outputs && is_slow(version.name, shape)) continue;
        CAPTURE(version.name, shape.rows, shape.cols, offsets.inputs, offsets.outputs);
        REQUIRE_OK(check(version.launch, in, offsets));
      }
      for (const auto& version : testing::chosen(residual_versions())) {
        CAPTURE(version.name, shape.rows, shape.cols, offsets.inputs, offsets.outputs);
        REQUIRE_OK(check(version.launch, in, offsets));
      }
    }
  }
}

// x = a or a + 4, as many of each: the mean is a + 2, the variance 4 and y = gain or -gain, plus
// bias. Every sum is one of integers, which is exact, and each thread of a team sees one of the two
// only: nothing rounds. An element that is missed or counted twice can't hide.
TEST_CASE("every element counts once") {
  for (const size_t cols : {size_t{2}, size_t{64}, size_t{130}, size_t{512}, size_t{1026},
                            size_t{2048}, size_t{4096}, size_t{4102}}) {
    Inputs in({3, cols});
    in.eps = 0;
    for (size_t i = 0; i < in.x.size(); ++i) in.x[i] = i % 2 == 0 ? 7.0f : 11.0f;
    for (float& gain : in.gain) gain = std::rint(8 * gain);
    for (float& bias : in.bias) bias = std::rint(8 * bias);
    for (const auto& version : testing::chosen(versions()))
      for (const Offsets& offsets : kOffsets) {
        CAPTURE(version.name, cols, offsets.inputs, offsets.outputs);
        const Results got = run(version.launch.run, in, offsets);
        for (size_t row = 0; row < in.shape.rows; ++row)
          REQUIRE((got.mean[row] == 9 && got.rstd[row] == 0.5f));
        for (size_t i = 0; i < in.x.size(); ++i) {
          const size_t c = i % cols;
          REQUIRE(got.y[i] == (i % 2 == 0 ? -in.gain[c] : in.gain[c]) + in.bias[c]);
        }
      }
  }
}

TEST_CASE("a constant added to a row changes no bit of y") {
  for (const size_t cols : {size_t{7}, size_t{64}, size_t{1003}, size_t{4100}}) {
    Inputs here({2, cols});  // multiples of 2^-10 below 2^13 are exact, and so are differences
    for (float& value : here.x) value = std::rint(1024 * value) / 1024;
    Inputs there = here;
    for (size_t i = 0; i < there.x.size(); ++i) there.x[i] += i < cols ? -8000.0f : 4321.5f;
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, cols);
      const Results a = run(version.launch.run, here), b = run(version.launch.run, there);
      REQUIRE((same_bits(a.y, b.y) && same_bits(a.rstd, b.rstd)));
    }
  }
}

// The bound of a row far from 0 is that of one around 0, apart from what x itself has lost there:
// the reference takes x as it is.
TEST_CASE("rows far from 0 are as accurate as others") {
  for (const float shift : {1e4f, -1e6f}) {
    const Inputs in({3, 1000}, 1.732f, shift);
    for (const auto& version : testing::chosen(versions())) {
      const Forward want = expect(in, version.launch.roundings(1000));
      CAPTURE(version.name, shift);
      for (const double bound : want.bound_y) REQUIRE(bound < 1e-3);
      REQUIRE_OK(check(run(version.launch.run, in), want));
    }
  }
  // The first element may be the one that lies apart: sqrt(cols) standard deviations, not more.
  Inputs in({1, 1000}, 1);
  in.x[0] = 1e6f;
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    REQUIRE_OK(check(version.launch, in));
  }
}

TEST_CASE("rows of equal elements become bias") {
  for (const float value : {0.0f, 0.1f, -1e4f, 3e37f})
    for (const size_t cols : {size_t{1}, size_t{3}, size_t{64}, size_t{1003}}) {
      Inputs in({2, cols});
      in.x.assign(in.x.size(), value);
      for (const auto& version : testing::chosen(versions())) {
        CAPTURE(version.name, value, cols);
        const Results got = run(version.launch.run, in);
        for (size_t i = 0; i < in.x.size(); ++i) REQUIRE(got.y[i] == in.bias[i % cols]);
        REQUIRE((got.mean[0] == value && got.mean[1] == value));
        const double rstd = 1 / std::sqrt(static_cast<double>(kEps));
        REQUIRE(std::fabs(static_cast<double>(got.rstd[0]) - rstd) <= losses::gamma(2) * rstd);
      }
    }
}

TEST_CASE("rows of equal elements become bias without eps too") {
  for (const size_t cols : {size_t{1}, size_t{3}, size_t{64}, size_t{1003}}) {
    Inputs in({2, cols});
    in.eps = 0;
    std::fill_n(in.x.begin(), cols, 0.1f);  // the other row has elements that differ
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, cols);
      const Results got = run(version.launch.run, in);
      for (size_t c = 0; c < cols; ++c) REQUIRE(got.y[c] == in.bias[c]);
      REQUIRE((got.mean[0] == in.x[0] && got.rstd[0] == 0));
      if (cols > 1) REQUIRE(got.rstd[1] > 0);
      if (cols > 1) REQUIRE_OK(check(version.launch, in));
    }
  }
}

TEST_CASE("large and small scales") {
  for (const float scale : {1e-18f, 1e-3f, 1e15f}) {
    Inputs in({3, 203}, scale, scale);
    for (const float eps : {0.0f, kEps}) {
      in.eps = eps;
      for (const auto& version : testing::chosen(versions())) {
        CAPTURE(version.name, scale, eps);
        REQUIRE_OK(check(version.launch, in));
      }
    }
  }
}

TEST_CASE("NaN and infinity make their own row of y NaN, and no other") {
  for (const size_t cols : {size_t{1}, size_t{5}, size_t{64}, size_t{1003}})
    for (const float special : {kNan, kInfinity, -kInfinity}) {
      Inputs in({3, cols});
      in.x[cols + cols / 2] = special;
      for (const auto& version : testing::chosen(versions())) {
        CAPTURE(version.name, cols, special);
        const Results got = run(version.launch.run, in);
        for (size_t i = 0; i < got.y.size(); ++i) REQUIRE(std::isnan(got.y[i]) == (i / cols == 1));
        REQUIRE(got.intact);
      }
    }
}

TEST_CASE("mean and rstd may be left away, and y may take the place of x") {
  for (const size_t cols : {size_t{3}, size_t{64}, size_t{1003}, size_t{4100}}) {
    const Inputs in({3, cols});
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, cols);
      const Results want = run(version.launch.run, in, {1, 1});
      Guarded<float> d_x(in.x, 1), d_gain(in.gain, 1), d_bias(in.bias, 1);
      version.launch.run(
          {d_x.data(), nullptr, nullptr, d_gain.data(), d_bias.data(), 3, cols, kEps}, d_x.data(),
          nullptr);
      REQUIRE((same_bits(d_x.to_host(), want.y) && d_x.intact()));
    }
  }
}

TEST_CASE("the sum may take the place of x or of the residual, and so may y") {
  for (const size_t cols : {size_t{3}, size_t{64}, size_t{1003}, size_t{1028}, size_t{4100}}) {
    const Inputs in({3, cols});
    for (const auto& version : testing::chosen(residual_versions())) {
      CAPTURE(version.name, cols);
      const Results want = run(version.launch.run, in, {1, 1});
      for (const bool sum_over_x : {false, true}) {
        Guarded<float> d_x(in.x, 1), d_residual(in.residual, 1), d_gain(in.gain, 1),
            d_bias(in.bias, 1);
        Guarded<float>&d_sum = sum_over_x ? d_x : d_residual, &d_y = sum_over_x ? d_residual : d_x;
        version.launch.run(
            d_sum.data(),
            {d_y.data(), nullptr, nullptr, d_gain.data(), d_bias.data(), 3, cols, kEps}, d_x.data(),
            d_residual.data(), nullptr);
        REQUIRE((same_bits(d_sum.to_host(), want.sum) && same_bits(d_y.to_host(), want.y)));
      }
    }
  }
}

TEST_CASE("a small grid goes round") {
  const auto check_grid = [](size_t cols, auto launch, Roundings (*roundings)(size_t)) {
    const Inputs in({11, cols});
    return check(run(launch, in), expect(in, roundings(cols)));
  };
  using Block = BlockTeam<kBlock>;
  using Small = BlockTeam<128>;
  REQUIRE_OK(check_grid(
      70,
      [](const Pass& pass, const float* x, hipStream_t) {
        LAUNCH((layernorm_two_pass<Block, Plain>), 2, kBlock, 0, pass, Plain{x});
      },
      roundings_two_pass<Block>));
  REQUIRE_OK(check_grid(
      70,
      [](const Pass& pass, const float* x, hipStream_t) {
        LAUNCH((layernorm_welford<Block, Plain>), 2, kBlock, 0, pass, Plain{x});
      },
      roundings_welford<Block>));
  REQUIRE_OK(check_grid(
      70,
      [](const Pass& pass, const float* x, hipStream_t) {
        LAUNCH((layernorm_welford<WaveTeam, Plain>), 1, kBlock, 0, pass, Plain{x});
      },
      roundings_welford<WaveTeam>));
  REQUIRE_OK(check_grid(
      128,
      [](const Pass& pass, const float* x, hipStream_t) {
        LAUNCH((layernorm_row_cached<WaveTeam, float4, 1, 4, Plain>), 1, kBlock, 0, pass, Plain{x});
      },
      roundings_row_cached));
  REQUIRE_OK(check_grid(
      1500,
      [](const Pass& pass, const float* x, hipStream_t) {
        LAUNCH((layernorm_row_cached<Small, float4, 4, 8, Plain>), 2, Small::kBlockThreads, 0, pass,
               Plain{x});
      },
      roundings_row_cached));
}

// ---- Backward ---------------------------------------------------------------------------------

namespace {

void run_best_backward(float* grad_gain, float* grad_bias, const BackwardPass& pass,
                       Workspace& workspace, hipStream_t stream) {
  backward(pass.grad_x, grad_gain, grad_bias, pass.grad_y, pass.x, pass.gain, pass.mean, pass.rstd,
           pass.grad_residual, pass.rows, pass.cols, workspace, stream);
}
double row_additions_best(size_t cols) { return static_cast<double>(cols); }

std::vector<Version<BackwardLaunch>> backward_versions() {
  std::vector<Version<BackwardLaunch>> all(std::begin(kBackwardVersions),
                                           std::end(kBackwardVersions));
  all.push_back({"best", {run_best_backward, row_additions_best, column_additions_fused}, ""});
  return all;
}

struct BackwardInputs : Inputs {
  explicit BackwardInputs(Shape matrix) : Inputs(matrix), grad_y(random_floats(x.size(), 3, 1)) {
    const Forward forward = expect(*this, {0});
    mean.assign(forward.mean.begin(), forward.mean.end());
    rstd.assign(forward.rstd.begin(), forward.rstd.end());
  }
  std::vector<float> grad_y, mean, rstd;
};

struct BackwardResults {
  std::vector<float> grad_x, grad_gain, grad_bias;
  bool intact;
};

BackwardResults run(const BackwardLaunch& version, const BackwardInputs& in, bool with_residual,
                    Offsets offsets = {0, 0}, size_t parts = 0) {
  const auto [rows, cols] = in.shape;
  Guarded<float> d_x(in.x, offsets.inputs), d_grad_y(in.grad_y, offsets.inputs);
  Guarded<float> d_residual(in.residual, offsets.inputs), d_gain(in.gain, offsets.inputs);
  Guarded<float> d_mean(in.mean, offsets.inputs), d_rstd(in.rstd, offsets.inputs);
  Guarded<float> d_grad_x(in.x.size(), offsets.outputs), d_grad_gain(cols, offsets.outputs);
  Guarded<float> d_grad_bias(cols, offsets.outputs);
  Workspace workspace(rows, cols);
  if (parts > 0) workspace.partials = DeviceBuffer<float>(parts * 2 * cols);
  version.run(d_grad_gain.data(), d_grad_bias.data(),
              {d_grad_x.data(), d_grad_y.data(), d_x.data(), d_gain.data(), d_mean.data(),
               d_rstd.data(), with_residual ? d_residual.data() : nullptr, rows, cols},
              workspace, nullptr);
  const bool intact = d_x.intact() && d_grad_y.intact() && d_residual.intact() && d_gain.intact() &&
                      d_mean.intact() && d_rstd.intact() && d_grad_x.intact() &&
                      d_grad_gain.intact() && d_grad_bias.intact();
  return {d_grad_x.to_host(), d_grad_gain.to_host(), d_grad_bias.to_host(), intact};
}

Comparison check(const BackwardResults& got, const BackwardInputs& in, bool with_residual,
                 double row_additions, double column_additions) {
  const auto [rows, cols] = in.shape;
  const Expected x = grad_x_cpu(in.grad_y, in.x, in.gain, in.mean, in.rstd,
                                with_residual ? in.residual : std::vector<float>{}, row_additions);
  const ColumnSums columns = column_sums_cpu(in.grad_y, in.x, in.mean, in.rstd, cols);
  std::vector<double> bound_gain, bound_bias;
  for (size_t c = 0; c < cols; ++c) {
    bound_gain.push_back(columns.gain_bound(c, rows, column_additions));
    bound_bias.push_back(columns.bias_bound(c, rows, column_additions));
  }
  const Comparison gain = compare_with(got.grad_gain, columns.gain, bound_gain);
  const Comparison bias = compare_with(got.grad_bias, columns.bias, bound_bias);
  Comparison result = compare_with(got.grad_x, x.value, x.bound);
  result.ok = result.ok && got.intact;
  return !gain.ok ? gain : !bias.ok ? bias : result;
}
Comparison check(const BackwardLaunch& version, const BackwardInputs& in, bool with_residual,
                 Offsets offsets = {0, 0}) {
  return check(run(version, in, with_residual, offsets), in, with_residual,
               version.row_additions(in.shape.cols),
               version.column_additions(in.shape.rows, in.shape.cols));
}

}  // namespace

TEST_CASE("gradients of any shape and alignment, with a residual and without") {
  for (const Shape& shape : kShapes) {
    const BackwardInputs in(shape);
    for (const auto& version : testing::chosen(backward_versions()))
      for (const Offsets& offsets : kOffsets) {
        const bool with_residual = offsets.inputs == 0;
        if (shape.cols > 5000 && !with_residual) continue;  // slow
        CAPTURE(version.name, shape.rows, shape.cols, offsets.inputs, offsets.outputs);
        REQUIRE_OK(check(version.launch, in, with_residual, offsets));
      }
  }
}

TEST_CASE("gradients of many rows") {
  for (const Shape& shape : {Shape{0, 5}, Shape{1003, 4}, Shape{301, 17}, Shape{131, 132}}) {
    const BackwardInputs in(shape);
    for (const auto& version : testing::chosen(backward_versions())) {
      CAPTURE(version.name, shape.rows, shape.cols);
      REQUIRE_OK(check(version.launch, in, true));
    }
  }
}

// mean and rstd are arguments: with integers there are only integers to be added, which is exact.
TEST_CASE("no row is missed, doubled or in another's column") {
  for (const Shape& shape : {Shape{203, 8}, Shape{203, 5}, Shape{37, 260}, Shape{5, 1100}}) {
    BackwardInputs in(shape);
    for (float& value : in.x) value = std::rint(value);
    for (float& value : in.grad_y) value = std::rint(3 * value);
    for (float& value : in.mean) value = std::rint(value);
    in.rstd.assign(shape.rows, 2.0f);
    std::vector<float> gain(shape.cols), bias(shape.cols);
    for (size_t i = 0; i < in.x.size(); ++i) {
      gain[i % shape.cols] += in.grad_y[i] * (in.x[i] - in.mean[i / shape.cols]) * 2;
      bias[i % shape.cols] += in.grad_y[i];
    }
    for (const auto& version : testing::chosen(backward_versions()))
      for (const size_t parts : {size_t{0}, size_t{1}, size_t{3}}) {
        CAPTURE(version.name, shape.rows, shape.cols, parts);
        const BackwardResults got = run(version.launch, in, false, {0, 0}, parts);
        REQUIRE((got.grad_gain == gain && got.grad_bias == bias && got.intact));
      }
  }
}

// The parts of a large device, of which there may be more than one round per thread.
TEST_CASE("any number of parts is added up") {
  for (const size_t parts : {size_t{0}, size_t{1}, size_t{31}, size_t{33}, size_t{300}}) {
    constexpr size_t kCols = 13;
    std::vector<float> gain(kCols), bias(kCols);
    std::vector<float> values = random_floats(parts * 2 * kCols, 5, 9);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::rint(values[i]);
      (i / kCols % 2 == 0 ? gain : bias)[i % kCols] += values[i];
    }
    Workspace workspace(1, kCols);
    workspace.partials = DeviceBuffer<float>(values);
    Guarded<float> d_gain(kCols, 1), d_bias(kCols, 1);
    launch_add_parts(d_gain.data(), d_bias.data(), workspace, parts, kCols, nullptr);
    CAPTURE(parts);
    REQUIRE((d_gain.to_host() == gain && d_bias.to_host() == bias));
    REQUIRE((d_gain.intact() && d_bias.intact()));
  }
}

TEST_CASE("grad_x may take the place of an input") {
  for (const size_t cols : {size_t{5}, size_t{64}, size_t{1028}}) {
    const BackwardInputs in({6, cols});
    for (const auto& version : testing::chosen(backward_versions())) {
      CAPTURE(version.name, cols);
      const BackwardResults want = run(version.launch, in, true, {1, 1});
      for (const int place : {0, 1, 2}) {
        Guarded<float> d_x(in.x, 1), d_grad_y(in.grad_y, 1), d_residual(in.residual, 1);
        Guarded<float> d_gain(in.gain, 1), d_mean(in.mean, 1), d_rstd(in.rstd, 1);
        Guarded<float> d_grad_gain(cols, 1), d_grad_bias(cols, 1);
        Guarded<float>& d_grad_x = place == 0 ? d_x : place == 1 ? d_grad_y : d_residual;
        Workspace workspace(6, cols);
        version.launch.run(d_grad_gain.data(), d_grad_bias.data(),
                           {d_grad_x.data(), d_grad_y.data(), d_x.data(), d_gain.data(),
                            d_mean.data(), d_rstd.data(), d_residual.data(), 6, cols},
                           workspace, nullptr);
        REQUIRE(same_bits(d_grad_x.to_host(), want.grad_x));
        REQUIRE(same_bits(d_grad_gain.to_host(), want.grad_gain));
        REQUIRE(same_bits(d_grad_bias.to_host(), want.grad_bias));
      }
    }
  }
}

TEST_CASE("every run gives the same bits") {
  const BackwardInputs in({133, 36});
  for (const auto& version : testing::chosen(versions())) {
    if (is_slow(version.name, in.shape)) continue;
    CAPTURE(version.name);
    const Results first = run(version.launch.run, in);
    for (int repeat = 0; repeat < 3; ++repeat)
      REQUIRE(same_bits(run(version.launch.run, in).y, first.y));
  }
  for (const auto& version : testing::chosen(backward_versions())) {
    CAPTURE(version.name);
    const BackwardResults first = run(version.launch, in, true);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const BackwardResults again = run(version.launch, in, true);
      REQUIRE(same_bits(again.grad_x, first.grad_x));
      REQUIRE(same_bits(again.grad_gain, first.grad_gain));
      REQUIRE(same_bits(again.grad_bias, first.grad_bias));
    }
  }
}

TEST_CASE("NaN of a gradient reaches its own row and its own columns") {
  BackwardInputs in({9, 12});
  in.grad_y[4 * 12 + 8] = kNan;
  for (const auto& version : testing::chosen(backward_versions())) {
    CAPTURE(version.name);
    const BackwardResults got = run(version.launch, in, false);
    for (size_t i = 0; i < got.grad_x.size(); ++i)
      REQUIRE(std::isnan(got.grad_x[i]) == (i / 12 == 4));
    for (size_t c = 0; c < 12; ++c)
      REQUIRE(
          (std::isnan(got.grad_gain[c]) == (c == 8) && std::isnan(got.grad_bias[c]) == (c == 8)));
  }
}

// The loss is the sum of grad_y y. A central difference of step h is off by h^2 / 6 times the third
// derivative and by rounding, some 1e-16 / h. The third derivative by x is of order rstd^3 times
// the sum over a row of |grad_y gain|, about 1e2 here; with h = 1e-5 both are below 1e-8.
TEST_CASE("the gradients agree with finite differences in double") {
  constexpr size_t kRows = 3, kCols = 7;
  const BackwardInputs in({kRows, kCols});
  std::vector<double> arguments(in.x.begin(), in.x.end());
  arguments.insert(arguments.end(), in.gain.begin(), in.gain.end());
  arguments.insert(arguments.end(), in.bias.begin(), in.bias.end());
  const auto loss = [&] {
    const double *gain = arguments.data() + kRows * kCols, *bias = gain + kCols;
    double total = 0;
    for (size_t row = 0; row < kRows; ++row) {
      const double* x = arguments.data() + row * kCols;
      double mean = 0, variance = 0;
      for (size_t c = 0; c < kCols; ++c) mean += x[c] / kCols;
      for (size_t c = 0; c < kCols; ++c) variance += (x[c] - mean) * (x[c] - mean) / kCols;
      for (size_t c = 0; c < kCols; ++c)
        total +=
            static_cast<double>(in.grad_y[row * kCols + c]) *
            ((x[c] - mean) / std::sqrt(variance + static_cast<double>(kEps)) * gain[c] + bias[c]);
    }
    return total;
  };
  // mean and rstd have been rounded to float: n is off by u |mean| rstd + u |n|.
  const Expected x = grad_x_cpu(in.grad_y, in.x, in.gain, in.mean, in.rstd, {}, 0);
  const ColumnSums columns = column_sums_cpu(in.grad_y, in.x, in.mean, in.rstd, kCols);
  std::vector<double> want = x.value;
  want.insert(want.end(), columns.gain.begin(), columns.gain.end());
  want.insert(want.end(), columns.bias.begin(), columns.bias.end());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const double middle = arguments[i];
    arguments[i] = middle + 1e-5;
    const double right = loss();
    arguments[i] = middle - 1e-5;
    const double slope = (right - loss()) / 2e-5;
    arguments[i] = middle;
    CAPTURE(i, slope, want[i]);
    REQUIRE(std::fabs(slope - want[i]) <= 1e-6);
  }
}

// ---- NumPy, graphs and bad arguments ----------------------------------------------------------

TEST_CASE("every version agrees with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("layernorm_" + name + ".npy"));
  };
  const auto floats = [&](const std::string& name) {
    const std::vector<double> values = array(name).values;
    return std::vector<float>(values.begin(), values.end());
  };
  BackwardInputs in({array("x").shape.at(0), array("x").shape.at(1)});
  in.x = floats("x"), in.residual = floats("residual"), in.grad_y = floats("grad_y");
  in.gain = floats("gain"), in.bias = floats("bias");
  in.mean = floats("mean_of_x"), in.rstd = floats("rstd_of_x");
  const size_t cols = in.shape.cols;
  const auto with = [&](Forward want, const std::string& of) {
    want.y = array("y_of_" + of).values;
    want.mean = array("mean_of_" + of + "_wide").values;
    want.rstd = array("rstd_of_" + of + "_wide").values;
    return want;
  };
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    REQUIRE_OK(
        check(run(version.launch.run, in), with(expect(in, version.launch.roundings(cols)), "x")));
  }
  Roundings roundings = roundings_row_cached(cols);
  roundings.additions = std::max(roundings.additions, roundings_best(cols).additions);
  const Forward of_sum = forward_cpu(sums(in), in.gain, in.bias, cols, kEps, roundings);
  for (const auto& version : testing::chosen(residual_versions())) {
    CAPTURE(version.name);
    REQUIRE_OK(check(run(version.launch.run, in), with(of_sum, "sum")));
  }
  for (const auto& version : testing::chosen(backward_versions())) {
    CAPTURE(version.name);
    const BackwardResults got = run(version.launch, in, true);
    REQUIRE_OK(check(got, in, true, version.launch.row_additions(cols),
                     version.launch.column_additions(in.shape.rows, cols)));
    const Expected x = grad_x_cpu(in.grad_y, in.x, in.gain, in.mean, in.rstd, in.residual,
                                  version.launch.row_additions(cols));
    REQUIRE_OK(compare_with(got.grad_x, array("grad_x").values, x.bound));
    const ColumnSums columns = column_sums_cpu(in.grad_y, in.x, in.mean, in.rstd, cols);
    const double additions = version.launch.column_additions(in.shape.rows, cols);
    const std::vector<double> gain = array("grad_gain").values, bias = array("grad_bias").values;
    REQUIRE_OK(compare(
        cols, [&](size_t c) { return got.grad_gain[c]; }, [&](size_t c) { return gain[c]; },
        [&](size_t c) { return columns.gain_bound(c, in.shape.rows, additions); }));
    REQUIRE_OK(compare(
        cols, [&](size_t c) { return got.grad_bias[c]; }, [&](size_t c) { return bias[c]; },
        [&](size_t c) { return columns.bias_bound(c, in.shape.rows, additions); }));
  }
}

TEST_CASE("a graph captures forward and backward") {
  constexpr size_t kRows = 9, kCols = 36;
  const BackwardInputs in({kRows, kCols});
  DeviceBuffer<float> d_x(in.x), d_residual(in.residual), d_gain(in.gain), d_bias(in.bias),
      d_grad_y(in.grad_y);
  DeviceBuffer<float> d_sum(in.x.size()), d_y(in.x.size()), d_mean(kRows), d_rstd(kRows);
  DeviceBuffer<float> d_grad_x(in.x.size()), d_grad_gain(kCols), d_grad_bias(kCols);
  Workspace workspace(kRows, kCols);
  const auto launch = [&](hipStream_t stream) {
    forward_residual(d_sum.data(), d_y.data(), d_mean.data(), d_rstd.data(), d_x.data(),
                     d_residual.data(), d_gain.data(), d_bias.data(), kRows, kCols, kEps, stream);
    backward(d_grad_x.data(), d_grad_gain.data(), d_grad_bias.data(), d_grad_y.data(), d_sum.data(),
             d_gain.data(), d_mean.data(), d_rstd.data(), nullptr, kRows, kCols, workspace, stream);
  };
  launch(nullptr);
  HIP_CHECK(hipDeviceSynchronize());
  const std::vector<float> y = d_y.to_host(), grad_x = d_grad_x.to_host(),
                           grad_gain = d_grad_gain.to_host();
  d_y.poison(), d_grad_x.poison(), d_grad_gain.poison();
  testing::run_captured(launch);
  REQUIRE((same_bits(d_y.to_host(), y) && same_bits(d_grad_x.to_host(), grad_x) &&
           same_bits(d_grad_gain.to_host(), grad_gain)));
}

TEST_CASE("no rows write nothing; no columns, a bad eps and a small workspace are refused") {
  Guarded<float> d(1, 0);
  float* p = d.data();
  for (const auto& version : testing::chosen(versions()))
    version.launch.run({p, p, p, p, p, 0, 7, kEps}, p, nullptr);
  for (const auto& version : testing::chosen(residual_versions()))
    version.launch.run(p, {p, p, p, p, p, 0, 7, kEps}, p, p, nullptr);
  REQUIRE((is_poison(d.to_host()[0]) && d.intact()));

  REQUIRE_THROWS_WITH(forward(p, p, p, p, p, p, 3, 0, kEps), "layernorm needs at least one column");
  REQUIRE_THROWS_WITH(forward_residual(p, p, p, p, p, p, p, p, 3, 0, kEps),
                      "layernorm needs at least one column");
  for (const float eps : {-1.0f, kNan})
    REQUIRE_THROWS_AS(forward(p, p, p, p, p, p, 1, 1, eps), std::invalid_argument);
  REQUIRE_THROWS_WITH(forward(p, p, p, p, p, p, 1, 1, -1.0f),
                      "layernorm: eps is -1.000000, and must be at least 0");
  Workspace workspace(1, 4);
  REQUIRE_THROWS_WITH(backward(p, p, p, p, p, p, p, p, nullptr, 1, 5, workspace),
                      "layernorm: 5 columns in a workspace for 4");
  REQUIRE_THROWS_WITH(backward(p, p, p, p, p, p, p, p, nullptr, 1, 0, workspace),
                      "layernorm needs at least one column");
}

// ---- What the checks above must catch ---------------------------------------------------------

namespace {

// y by one thread, with a mistake.
enum class Mistake { difference_of_squares, divided_by_cols_minus_1, eps_outside, last_missing };

template <Mistake kMistake>
static __global__ void layernorm_with_mistake(Pass pass, const float* x) {
  for (size_t row = 0; row < pass.rows; ++row) {
    const size_t begin = row * pass.cols;
    const size_t counted = kMistake == Mistake::last_missing ? pass.cols - 1 : pass.cols;
    float sum = 0, squares = 0;
    for (size_t c = 0; c < counted; ++c) sum += x[begin + c];
    const float n = pass.count(), mean = sum / n;
    for (size_t c = 0; c < counted; ++c) {
      const float e =
          kMistake == Mistake::difference_of_squares ? x[begin + c] : x[begin + c] - mean;
      squares += e * e;
    }
    float variance = squares / (kMistake == Mistake::divided_by_cols_minus_1 ? n - 1 : n);
    if (kMistake == Mistake::difference_of_squares) variance -= mean * mean;
    const float rstd = kMistake == Mistake::eps_outside ? 1.0f / (sqrtf(variance) + pass.eps)
                                                        : 1.0f / sqrtf(variance + pass.eps);
    pass.mean[row] = mean, pass.rstd[row] = rstd;
    for (size_t c = 0; c < pass.cols; ++c)
      pass.y[begin + c] = (x[begin + c] - mean) * rstd * pass.gain[c] + pass.bias[c];
  }
}
template <Mistake kMistake>
void launch_with_mistake(const Pass& pass, const float* x, hipStream_t) {
  LAUNCH(layernorm_with_mistake<kMistake>, 1, 1, 0, pass, x);
}
void launch_swapped(const Pass& pass, const float* x, hipStream_t stream) {
  Pass swapped = pass;
  std::swap(swapped.gain, swapped.bias);
  run_row_cached(swapped, x, stream);
}

}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  Inputs in({3, 300}), far({3, 300}, 1, 100);
  in.eps = 0.25f;
  const auto caught = [](const Inputs& inputs, auto launch) {
    return !check({launch, roundings_two_pass<ThreadTeam>}, inputs).ok;
  };
  REQUIRE(caught(far, launch_with_mistake<Mistake::difference_of_squares>));
  REQUIRE(caught(in, launch_with_mistake<Mistake::divided_by_cols_minus_1>));
  REQUIRE(caught(in, launch_with_mistake<Mistake::eps_outside>));
  REQUIRE(caught(in, launch_with_mistake<Mistake::last_missing>));
  REQUIRE(caught(in, launch_swapped));
}

TEST_CASE("planted mistakes of the gradients are caught", "[harness]") {
  const BackwardInputs in({33, 24});
  const BackwardLaunch right = kBackwardVersions[1].launch;
  REQUIRE(check(right, in, true).ok);
  BackwardLaunch wrong = right;
  wrong.run = [](float* grad_gain, float* grad_bias, const BackwardPass& pass, Workspace& workspace,
                 hipStream_t stream) {  // the last row's gradients of gain and bias are lost
    launch_backward_fused(grad_gain, grad_bias, pass, workspace, stream);
    BackwardPass shorter = pass;
    shorter.rows -= 1;
    launch_backward_fused(grad_gain, grad_bias, shorter, workspace, stream);
  };
  REQUIRE(!check(wrong, in, true).ok);
  wrong.run = [](float* grad_gain, float* grad_bias, const BackwardPass& pass, Workspace& workspace,
                 hipStream_t stream) {  // the residual is forgotten
    BackwardPass alone = pass;
    alone.grad_residual = nullptr;
    launch_backward_fused(grad_gain, grad_bias, alone, workspace, stream);
  };
  REQUIRE(!check(wrong, in, true).ok);
  wrong.run = [](float* grad_gain, float* grad_bias, const BackwardPass& pass, Workspace& workspace,
                 hipStream_t stream) {  // gain and bias are exchanged
    launch_backward_fused(grad_bias, grad_gain, pass, workspace, stream);
  };
  REQUIRE(!check(wrong, in, true).ok);
  BackwardInputs other = in;  // mean and rstd have a slope, too: y with the ones of another row
  std::swap(other.mean[0], other.mean[1]);
  REQUIRE(!check(run(right, other, true), in, true, 24, 33).ok);
}
