// Every version of layernorm on awkward shapes, alignments and values.
#include "stage7_transformer/02_layernorm/layernorm.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage7_transformer/02_layernorm/matrices_for_tests.h"

namespace {

using namespace layernorm;
using testing::same_bits;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What later steps call, as versions.
void run_best(const Pass& pass, const float* x, hipStream_t stream) {
  forward(pass.y, pass.mean, pass.rstd, x, pass.gain, pass.bias, pass.rows, pass.cols, pass.eps,
          stream);
}
void run_best_residual(float* sum, const Pass& pass, const float* x, const float* residual,
                       hipStream_t stream) {
  forward_residual(sum, pass.y, pass.mean, pass.rstd, x, residual, pass.gain, pass.bias, pass.rows,
                   pass.cols, pass.eps, stream);
}

std::vector<Version<Launch>> versions() { return with_best(kVersions, run_best); }
std::vector<Version<ResidualLaunch>> residual_versions() {
  return with_best(kResidualVersions, run_best_residual);
}

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

Comparison check(const Results& got, const Normalized& want) {
  Comparison all = together({compare_with(got.mean, want.mean, want.bound_mean),
                             compare_with(got.rstd, want.rstd, want.bound_rstd),
                             compare_with(got.y, want.y, want.bound_y)});
  all.ok = all.ok && got.intact;
  return all;
}

Normalized expect(const Inputs& in) {
  return forward_cpu(in.x, in.gain, in.bias, in.shape.cols, in.eps);
}
Comparison check(Launch version, const Inputs& in, Offsets offsets = {0, 0}) {
  return check(run(version, in, offsets), expect(in));
}

// x + residual in float: one addition rounds alike everywhere.
std::vector<float> sums(const Inputs& in) {
  std::vector<float> sum(in.x.size());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = in.x[i] + in.residual[i];
  return sum;
}
Comparison check(ResidualLaunch version, const Inputs& in, Offsets offsets = {0, 0}) {
  const std::vector<float> sum = sums(in);
  const Results got = run(version, in, offsets);
  Comparison result = check(got, forward_cpu(sum, in.gain, in.bias, in.shape.cols, in.eps));
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
        const Results got = run(version.launch, in, offsets);
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
      const Results a = run(version.launch, here), b = run(version.launch, there);
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
      const Normalized want = expect(in);
      CAPTURE(version.name, shift);
      for (const double bound : want.bound_y) REQUIRE(bound < 1e-3);
      REQUIRE_OK(check(run(version.launch, in), want));
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
        const Results got = run(version.launch, in);
        for (size_t i = 0; i < in.x.size(); ++i) REQUIRE(got.y[i] == in.bias[i % cols]);
        REQUIRE((got.mean[0] == value && got.mean[1] == value));
        const double rstd = 1 / std::sqrt(static_cast<double>(kEps));
        REQUIRE(std::fabs(static_cast<double>(got.rstd[0]) - rstd) <= rounding::gamma(2) * rstd);
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
      const Results got = run(version.launch, in);
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
        const Results got = run(version.launch, in);
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
      const Results want = run(version.launch, in, {1, 1});
      Guarded<float> d_x(in.x, 1), d_gain(in.gain, 1), d_bias(in.bias, 1);
      version.launch({d_x.data(), nullptr, nullptr, d_gain.data(), d_bias.data(), 3, cols, kEps},
                     d_x.data(), nullptr);
      REQUIRE((same_bits(d_x.to_host(), want.y) && d_x.intact()));
    }
  }
}

TEST_CASE("the sum may take the place of x or of the residual, and so may y") {
  for (const size_t cols : {size_t{3}, size_t{64}, size_t{1003}, size_t{1028}, size_t{4100}}) {
    const Inputs in({3, cols});
    for (const auto& version : testing::chosen(residual_versions())) {
      CAPTURE(version.name, cols);
      const Results want = run(version.launch, in, {1, 1});
      for (const bool sum_over_x : {false, true}) {
        Guarded<float> d_x(in.x, 1), d_residual(in.residual, 1), d_gain(in.gain, 1),
            d_bias(in.bias, 1);
        Guarded<float>&d_sum = sum_over_x ? d_x : d_residual, &d_y = sum_over_x ? d_residual : d_x;
        version.launch(d_sum.data(),
                       {d_y.data(), nullptr, nullptr, d_gain.data(), d_bias.data(), 3, cols, kEps},
                       d_x.data(), d_residual.data(), nullptr);
        REQUIRE((same_bits(d_sum.to_host(), want.sum) && same_bits(d_y.to_host(), want.y)));
      }
    }
  }
}

TEST_CASE("a small grid goes round") {
  for (const size_t rows :
       {size_t{11}, size_t{601}})  // of 601 a block of waves or threads has many
    for (const size_t cols : {size_t{5}, size_t{70}, size_t{128}, size_t{1500}, size_t{2002}}) {
      if (rows * cols > 50000) continue;
      const Inputs in({rows, cols});
      for (const size_t blocks : {1, 2}) {
        const vector_add::FewBlocks few(blocks);
        const auto keep_on = [&](const char* name, const Comparison& result) {
          CAPTURE(name, rows, cols, blocks);
          CHECK(result.ok);
        };
        for (const auto& version : testing::chosen(versions()))
          if (rows < 100 || !is_slow(version.name, in.shape))
            keep_on(version.name, check(version.launch, in));
        for (const auto& version : testing::chosen(residual_versions()))
          keep_on(version.name, check(version.launch, in));
      }
    }
}

TEST_CASE("every run gives the same bits, and so does a graph") {
  const Inputs in({5, 132});
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Results first = run(version.launch, in);
    for (int repeat = 0; repeat < 3; ++repeat)
      REQUIRE(same_bits(run(version.launch, in).y, first.y));
    const auto captured = [&](const Pass& pass, const float* x, hipStream_t) {
      testing::run_captured([&](hipStream_t stream) { version.launch(pass, x, stream); });
    };
    REQUIRE(same_bits(run(captured, in).y, first.y));
  }
  for (const auto& version : testing::chosen(residual_versions())) {
    CAPTURE(version.name);
    const Results first = run(version.launch, in);
    const auto captured = [&](float* sum, const Pass& pass, const float* x, const float* residual,
                              hipStream_t) {
      testing::run_captured(
          [&](hipStream_t stream) { version.launch(sum, pass, x, residual, stream); });
    };
    const Results again = run(captured, in);
    REQUIRE((same_bits(again.y, first.y) && same_bits(again.sum, first.sum)));
  }
}

TEST_CASE("every version agrees with NumPy", "[numpy]") {
  Inputs in({numpy_array("x").shape.at(0), numpy_array("x").shape.at(1)});
  in.x = numpy_floats("x"), in.residual = numpy_floats("residual");
  in.gain = numpy_floats("gain"), in.bias = numpy_floats("bias");
  const auto with = [&](Normalized want, const std::string& of) {
    want.y = numpy_array("y_of_" + of).values;
    want.mean = numpy_array("mean_of_" + of + "_wide").values;
    want.rstd = numpy_array("rstd_of_" + of + "_wide").values;
    return want;
  };
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    REQUIRE_OK(check(run(version.launch, in), with(expect(in), "x")));
  }
  const Normalized of_sum = forward_cpu(sums(in), in.gain, in.bias, in.shape.cols, kEps);
  for (const auto& version : testing::chosen(residual_versions())) {
    CAPTURE(version.name);
    REQUIRE_OK(check(run(version.launch, in), with(of_sum, "sum")));
  }
}

TEST_CASE("no rows write nothing; no columns and a bad eps are refused") {
  Guarded<float> d(1, 0);
  float* p = d.data();
  for (const auto& version : testing::chosen(versions()))
    version.launch({p, p, p, p, p, 0, 7, kEps}, p, nullptr);
  for (const auto& version : testing::chosen(residual_versions()))
    version.launch(p, {p, p, p, p, p, 0, 7, kEps}, p, p, nullptr);
  REQUIRE((is_poison(d.to_host()[0]) && d.intact()));

  REQUIRE_THROWS_WITH(forward(p, p, p, p, p, p, 3, 0, kEps), "layernorm needs at least one column");
  REQUIRE_THROWS_WITH(forward_residual(p, p, p, p, p, p, p, p, 3, 0, kEps),
                      "layernorm needs at least one column");
  for (const float eps : {-1.0f, kNan})
    REQUIRE_THROWS_AS(forward(p, p, p, p, p, p, 1, 1, eps), std::invalid_argument);
  REQUIRE_THROWS_WITH(forward(p, p, p, p, p, p, 1, 1, -1.0f),
                      "layernorm: eps is -1.000000, and must be at least 0");
}

// The same y as in float, rounded: of every team, of rows that none can hold, and of any alignment.
TEST_CASE("a y of bf16 is the rounded one, bit for bit") {
  for (const size_t cols : {1, 5, 64, 384, 1000, 4096, 4097, 52000})
    for (const size_t offset : {0, 1, 2, 4}) {
      CAPTURE(cols, offset);
      const Inputs in({3, cols});
      Guarded<float> x(in.x, 0), gain(in.gain, 0), bias(in.bias, 0), y(in.x.size(), 0);
      Guarded<float> mean(3, 0), rstd(3, 0), other_mean(3, 0), other_rstd(3, 0);
      Guarded<gpu::bfloat16> rounded(in.x.size(), offset);
      // Where the rows' alignment changes the team, the sums' order may change.
      const size_t floats = offset % 4 == 0 ? 0 : 1;
      Guarded<float> moved_x(in.x, floats);
      launch_row_cached(
          {y.data(), mean.data(), rstd.data(), gain.data(), bias.data(), 3, cols, 1e-5f},
          moved_x.data(), nullptr);
      forward(rounded.data(), other_mean.data(), other_rstd.data(), moved_x.data(), gain.data(),
              bias.data(), 3, cols, 1e-5f);
      const std::vector<float> want = y.to_host();
      const std::vector<gpu::bfloat16> got = rounded.to_host();
      REQUIRE(same_bits(mean.to_host(), other_mean.to_host()));
      REQUIRE(same_bits(rstd.to_host(), other_rstd.to_host()));
      for (size_t i = 0; i < want.size(); ++i)
        REQUIRE(gpu::to_float(got[i]) == gpu::to_float(gpu::from_float<gpu::bfloat16>(want[i])));
      REQUIRE(rounded.intact());
    }
}
