// Every version of layernorm's gradients on awkward shapes, alignments and values; and the
// reference against finite differences.
#include "stage7_transformer/03_layernorm_backward/layernorm_backward.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/02_layernorm/matrices_for_tests.h"
#include "stage7_transformer/03_layernorm_backward/problem.h"
#include "stage7_transformer/03_layernorm_backward/reference.h"

namespace {

using namespace layernorm_backward;
using layernorm::kEps, layernorm::kOffsets, layernorm::kShapes, layernorm::numpy_array;
using layernorm::numpy_floats, layernorm::Offsets, layernorm::Shape, layernorm::compare_with;
using testing::random_floats;
using testing::same_bits;

// What later steps call, as a version.
void run_best(float* grad_gain, float* grad_bias, const Pass& pass, Workspace& workspace,
              hipStream_t stream) {
  backward(pass.grad_x, grad_gain, grad_bias, pass.grad_y, pass.x, pass.gain, pass.mean, pass.rstd,
           pass.grad_residual, pass.rows, pass.cols, workspace, stream);
}
std::vector<Version<Launch>> versions() { return layernorm::with_best(kVersions, run_best); }

struct Inputs : layernorm::Inputs {
  explicit Inputs(Shape matrix) : layernorm::Inputs(matrix), grad_y(random_floats(x.size(), 3, 1)) {
    const layernorm::Normalized forward = layernorm::forward_cpu(x, gain, bias, matrix.cols, eps);
    mean.assign(forward.mean.begin(), forward.mean.end());
    rstd.assign(forward.rstd.begin(), forward.rstd.end());
  }
  std::vector<float> grad_y, mean, rstd;
};

struct Results {
  std::vector<float> grad_x, grad_gain, grad_bias;
  bool intact;
};

template <class Run>
Results run(Run&& version, const Inputs& in, bool with_residual, Offsets offsets = {0, 0},
            size_t parts = 0) {
  const auto [rows, cols] = in.shape;
  Guarded<float> d_x(in.x, offsets.inputs), d_grad_y(in.grad_y, offsets.inputs);
  Guarded<float> d_residual(in.residual, offsets.inputs), d_gain(in.gain, offsets.inputs);
  Guarded<float> d_mean(in.mean, offsets.inputs), d_rstd(in.rstd, offsets.inputs);
  Guarded<float> d_grad_x(in.x.size(), offsets.outputs), d_grad_gain(cols, offsets.outputs);
  Guarded<float> d_grad_bias(cols, offsets.outputs);
  Workspace workspace(rows, cols);
  if (parts > 0) workspace.partials = gpu::DeviceBuffer<float>(parts * 2 * cols);
  version(d_grad_gain.data(), d_grad_bias.data(),
          {d_grad_x.data(), d_grad_y.data(), d_x.data(), d_gain.data(), d_mean.data(),
           d_rstd.data(), with_residual ? d_residual.data() : nullptr, rows, cols},
          workspace, nullptr);
  const bool intact = d_x.intact() && d_grad_y.intact() && d_residual.intact() && d_gain.intact() &&
                      d_mean.intact() && d_rstd.intact() && d_grad_x.intact() &&
                      d_grad_gain.intact() && d_grad_bias.intact();
  return {d_grad_x.to_host(), d_grad_gain.to_host(), d_grad_bias.to_host(), intact};
}

Comparison check(const Results& got, const Inputs& in, bool with_residual) {
  const Expected x = grad_x_cpu(in.grad_y, in.x, in.gain, in.mean, in.rstd,
                                with_residual ? in.residual : std::vector<float>{});
  const ColumnGradients columns = columns_cpu(in.grad_y, in.x, in.mean, in.rstd, in.shape.cols);
  Comparison all = together({compare_with(got.grad_gain, columns.gain.value, columns.gain.bound),
                             compare_with(got.grad_bias, columns.bias.value, columns.bias.bound),
                             compare_with(got.grad_x, x.value, x.bound)});
  all.ok = all.ok && got.intact;
  return all;
}
Comparison check(Launch version, const Inputs& in, bool with_residual, Offsets offsets = {0, 0}) {
  return check(run(version, in, with_residual, offsets), in, with_residual);
}

}  // namespace

TEST_CASE("gradients of any shape and alignment, with a residual and without") {
  for (const Shape& shape : kShapes) {
    const Inputs in(shape);
    for (const auto& version : testing::chosen(versions()))
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
    const Inputs in(shape);
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, shape.rows, shape.cols);
      REQUIRE_OK(check(version.launch, in, true));
    }
  }
}

// mean and rstd are arguments: with integers there are only integers to be added, which is exact.
TEST_CASE("no row or column is missed, doubled or in another's place") {
  for (const Shape& shape : {Shape{203, 8}, Shape{203, 5}, Shape{37, 260}, Shape{5, 1152}}) {
    Inputs in(shape);
    REQUIRE(sums_are_exact(shape.cols));
    const float odd = static_cast<float>(odd_divisor(shape.cols));
    for (float& value : in.x) value = std::rint(value / 2);
    for (float& value : in.grad_y) value = std::rint(3 * value);
    for (float& value : in.gain) value = odd * std::rint(2 * value);
    for (float& value : in.mean) value = std::rint(value);
    for (size_t row = 0; row < shape.rows; ++row) in.rstd[row] = row % 3 == 1 ? 2.0f : 1.0f;
    std::vector<float> gain(shape.cols), bias(shape.cols);
    for (size_t i = 0; i < in.x.size(); ++i) {
      const size_t row = i / shape.cols;
      gain[i % shape.cols] += in.grad_y[i] * (in.x[i] - in.mean[row]) * in.rstd[row];
      bias[i % shape.cols] += in.grad_y[i];
    }
    const std::vector<double> x = grad_x_cpu(in.grad_y, in.x, in.gain, in.mean, in.rstd, {}).value;
    for (const auto& version : testing::chosen(versions()))
      for (const size_t parts : {size_t{0}, size_t{1}, size_t{3}}) {
        CAPTURE(version.name, shape.rows, shape.cols, parts);
        const Results got = run(version.launch, in, false, {0, 0}, parts);
        REQUIRE((got.grad_gain == gain && got.grad_bias == bias && got.intact));
        REQUIRE(std::vector<double>(got.grad_x.begin(), got.grad_x.end()) == x);
      }
  }
}

TEST_CASE("a small grid goes round") {
  for (const size_t cols : {size_t{5}, size_t{70}, size_t{128}}) {
    const Inputs in({37, cols});
    for (const size_t blocks : {1, 2}) {
      const vector_add::FewBlocks few(blocks);
      for (const auto& version : testing::chosen(versions())) {
        CAPTURE(version.name, cols, blocks);
        const Comparison result = check(version.launch, in, true);
        CHECK(result.ok);
      }
      for (const Launch launch :
           {launch_separate_by_threads<float>, launch_separate_by_blocks<float>}) {
        const Comparison result = check(launch, in, true);
        CHECK(result.ok);
      }
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
    const gpu::DeviceBuffer<float> partials(values);
    Guarded<float> d_gain(kCols, 1), d_bias(kCols, 1);
    launch_add_parts(d_gain.data(), d_bias.data(), partials.data(), parts, kCols, nullptr);
    CAPTURE(parts);
    REQUIRE((d_gain.to_host() == gain && d_bias.to_host() == bias));
    REQUIRE((d_gain.intact() && d_bias.intact()));
  }
}

TEST_CASE("grad_x may take the place of an input") {
  for (const size_t cols : {size_t{5}, size_t{64}, size_t{1028}}) {
    const Inputs in({6, cols});
    for (const auto& version : testing::chosen(versions())) {
      CAPTURE(version.name, cols);
      const Results want = run(version.launch, in, true, {1, 1});
      for (const int place : {0, 1, 2}) {
        Guarded<float> d_x(in.x, 1), d_grad_y(in.grad_y, 1), d_residual(in.residual, 1);
        Guarded<float> d_gain(in.gain, 1), d_mean(in.mean, 1), d_rstd(in.rstd, 1);
        Guarded<float> d_grad_gain(cols, 1), d_grad_bias(cols, 1);
        Guarded<float>& d_grad_x = place == 0 ? d_x : place == 1 ? d_grad_y : d_residual;
        Workspace workspace(6, cols);
        version.launch(d_grad_gain.data(), d_grad_bias.data(),
                       {d_grad_x.data(), d_grad_y.data(), d_x.data(), d_gain.data(), d_mean.data(),
                        d_rstd.data(), d_residual.data(), 6, cols},
                       workspace, nullptr);
        REQUIRE(same_bits(d_grad_x.to_host(), want.grad_x));
        REQUIRE(same_bits(d_grad_gain.to_host(), want.grad_gain));
        REQUIRE(same_bits(d_grad_bias.to_host(), want.grad_bias));
      }
    }
  }
}

TEST_CASE("every run gives the same bits, and so does a graph") {
  const Inputs in({133, 36});
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Results first = run(version.launch, in, true);
    const auto require_same = [&](const Results& again) {
      REQUIRE(same_bits(again.grad_x, first.grad_x));
      REQUIRE(same_bits(again.grad_gain, first.grad_gain));
      REQUIRE(same_bits(again.grad_bias, first.grad_bias));
    };
    for (int repeat = 0; repeat < 3; ++repeat) require_same(run(version.launch, in, true));
    const auto captured = [&](float* grad_gain, float* grad_bias, const Pass& pass,
                              Workspace& workspace, hipStream_t) {
      testing::run_captured([&](hipStream_t stream) {
        version.launch(grad_gain, grad_bias, pass, workspace, stream);
      });
    };
    require_same(run(captured, in, true));
  }
}

TEST_CASE("NaN of a gradient reaches its own row and its own columns") {
  Inputs in({9, 12});
  in.grad_y[4 * 12 + 8] = std::numeric_limits<float>::quiet_NaN();
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Results got = run(version.launch, in, false);
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
  const Inputs in({kRows, kCols});
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
  const Expected x = grad_x_cpu(in.grad_y, in.x, in.gain, in.mean, in.rstd, {});
  const ColumnGradients columns = columns_cpu(in.grad_y, in.x, in.mean, in.rstd, kCols);
  std::vector<double> want = x.value;
  want.insert(want.end(), columns.gain.value.begin(), columns.gain.value.end());
  want.insert(want.end(), columns.bias.value.begin(), columns.bias.value.end());
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

TEST_CASE("every version agrees with NumPy", "[numpy]") {
  Inputs in({numpy_array("x").shape.at(0), numpy_array("x").shape.at(1)});
  in.x = numpy_floats("x"), in.residual = numpy_floats("residual");
  in.grad_y = numpy_floats("grad_y"), in.gain = numpy_floats("gain");
  in.mean = numpy_floats("mean_of_x"), in.rstd = numpy_floats("rstd_of_x");
  const Expected x = grad_x_cpu(in.grad_y, in.x, in.gain, in.mean, in.rstd, in.residual);
  const ColumnGradients columns = columns_cpu(in.grad_y, in.x, in.mean, in.rstd, in.shape.cols);
  for (const auto& version : testing::chosen(versions())) {
    CAPTURE(version.name);
    const Results got = run(version.launch, in, true);
    REQUIRE_OK(compare_with(got.grad_x, numpy_array("grad_x").values, x.bound));
    REQUIRE_OK(compare_with(got.grad_gain, numpy_array("grad_gain").values, columns.gain.bound));
    REQUIRE_OK(compare_with(got.grad_bias, numpy_array("grad_bias").values, columns.bias.bound));
  }
}

TEST_CASE("no columns and a small workspace are refused") {
  Guarded<float> d(1, 0);
  float* p = d.data();
  Workspace workspace(1, 4);
  REQUIRE_THROWS_WITH(backward(p, p, p, p, p, p, p, p, nullptr, 1, 5, workspace),
                      "layernorm: 5 columns in a workspace for 4");
  REQUIRE_THROWS_WITH(backward(p, p, p, p, p, p, p, p, nullptr, 1, 0, workspace),
                      "layernorm needs at least one column");
}

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("planted mistakes are caught", "[harness]") {
  const Inputs in({33, 24});
  REQUIRE(check(launch_fused, in, true).ok);
  const auto last_row_lost = [](float* grad_gain, float* grad_bias, const Pass& pass,
                                Workspace& workspace, hipStream_t stream) {
    launch_fused(grad_gain, grad_bias, pass, workspace, stream);
    Pass shorter = pass;
    shorter.rows -= 1;
    launch_fused(grad_gain, grad_bias, shorter, workspace, stream);
  };
  REQUIRE(!check(last_row_lost, in, true).ok);
  const auto residual_forgotten = [](float* grad_gain, float* grad_bias, const Pass& pass,
                                     Workspace& workspace, hipStream_t stream) {
    Pass alone = pass;
    alone.grad_residual = nullptr;
    launch_fused(grad_gain, grad_bias, alone, workspace, stream);
  };
  REQUIRE(!check(residual_forgotten, in, true).ok);
  const auto exchanged = [](float* grad_gain, float* grad_bias, const Pass& pass,
                            Workspace& workspace, hipStream_t stream) {
    launch_fused(grad_bias, grad_gain, pass, workspace, stream);
  };
  REQUIRE(!check(exchanged, in, true).ok);
  Inputs other = in;  // the mean of another row
  std::swap(other.mean[0], other.mean[1]);
  REQUIRE(!check(run(launch_fused, other, true), in, true).ok);
}

// At every printed number of rows and columns.
TEST_CASE("the program's check refuses one missing term", "[harness]") {
  for (const Shape& shape : {Shape{4, 4096}, Shape{65536, 3}, Shape{67, 131}, Shape{16384, 5}}) {
    CAPTURE(shape.rows, shape.cols);
    const size_t cols = shape.cols;
    Inputs in({std::min(shape.rows, size_t{4}), cols});
    const auto median_of = [](const std::vector<double>& terms) {
      return testing::median_term(terms.size(), [&](size_t k) { return terms[k]; });
    };
    const auto require_refusals = [](const Expected& want, size_t row, double term) {
      testing::require_refusals(
          want.value, [&](size_t i) { return want.bound[i]; }, row, [&](size_t) { return term; });
    };
    if (cols > 100) {  // a term of the mean of g, of row 0
      std::vector<double> g;
      for (size_t c = 0; c < cols; ++c)
        g.push_back(static_cast<double>(in.rstd[0]) * static_cast<double>(in.grad_y[c]) *
                    static_cast<double>(in.gain[c]) / static_cast<double>(cols));
      Inputs one({1, cols});
      one.mean.resize(1), one.rstd.resize(1);
      require_refusals(
          grad_x_cpu(one.grad_y, one.x, one.gain, one.mean, one.rstd, {}, Terms::mean_zero), cols,
          median_of(g));
    }
    const std::vector<float> x = random_floats(shape.rows * cols, 6, 3);
    const std::vector<float> grad_y = random_floats(x.size(), 7);
    const std::vector<float> mean(shape.rows, 0.0f), rstd(shape.rows, 0.6f);
    const ColumnGradients columns = columns_cpu(grad_y, x, mean, rstd, cols, Terms::mean_zero);
    require_refusals(columns.gain, cols, 0.3);
    require_refusals(columns.bias, cols, 0.5);
  }
}

// A grad_y of bf16 gives what floats of the same values give, but for products that a compiler
// fuses with a sum, and grad_x once more, rounded.
TEST_CASE("gradients of bf16 are those of the same floats, and rounded once more") {
  using Bf16Pass = PassOf<gpu::bfloat16>;
  using Bf16Launch = void (*)(float*, float*, const Bf16Pass&, Workspace&, hipStream_t);
  const std::pair<Launch, Bf16Launch> launches[] = {
      {launch_fused, launch_fused_bf16},
      {launch_separate_by_threads<float>, launch_separate_by_threads<gpu::bfloat16>},
      {launch_separate_by_blocks<float>, launch_separate_by_blocks<gpu::bfloat16>}};
  for (const Shape& shape :
       {Shape{3, 1}, Shape{7, 5}, Shape{5, 384}, Shape{3, 1152}, Shape{2, 8200}})
    for (const auto& [launch, launch_bf16] : launches)
      for (const size_t offset : {0, 4, 1}) {
        CAPTURE(shape.rows, shape.cols, offset);
        Inputs in(shape);
        std::vector<gpu::bfloat16> grad_y;
        for (float& value : in.grad_y) {
          grad_y.push_back(gpu::from_float<gpu::bfloat16>(value));
          value = gpu::to_float(grad_y.back());
        }
        Guarded<float> x(in.x, 0), gain(in.gain, 0), mean(in.mean, 0), rstd(in.rstd, 0);
        Guarded<float> of_float(in.grad_y, offset % 4), grad_x(in.x.size(), 0);
        Guarded<float> twice(in.x.size(), 0), sums(4 * shape.cols, 0);
        Guarded<gpu::bfloat16> of_bf16(grad_y, offset), rounded(in.x.size(), offset);
        Workspace workspace(shape.rows, shape.cols);
        float *grad_gain = sums.data(), *grad_bias = grad_gain + shape.cols;
        float *other_gain = grad_bias + shape.cols, *other_bias = other_gain + shape.cols;
        launch(grad_gain, grad_bias,
               {grad_x.data(), of_float.data(), x.data(), gain.data(), mean.data(), rstd.data(),
                x.data(), shape.rows, shape.cols},
               workspace, nullptr);
        launch_bf16(other_gain, other_bias,
                    {twice.data(), of_bf16.data(), x.data(), gain.data(), mean.data(), rstd.data(),
                     x.data(), shape.rows, shape.cols, rounded.data()},
                    workspace, nullptr);
        const auto agree = [](float a, float b) {
          return std::fabs(a - b) <= 1e-6f * (1 + std::fabs(b));
        };
        const std::vector<float> want = grad_x.to_host(), of_columns = sums.to_host();
        const std::vector<float> exact = twice.to_host();
        const std::vector<gpu::bfloat16> got = rounded.to_host();
        for (size_t i = 0; i < want.size(); ++i) {
          REQUIRE(agree(exact[i], want[i]));
          REQUIRE(gpu::to_float(got[i]) == gpu::to_float(gpu::from_float<gpu::bfloat16>(exact[i])));
        }
        for (size_t c = 0; c < 2 * shape.cols; ++c)
          REQUIRE(agree(of_columns[2 * shape.cols + c], of_columns[c]));
        REQUIRE((rounded.intact() && twice.intact() && sums.intact()));
      }
}
