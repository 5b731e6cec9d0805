// Back through softmax: awkward shapes, alignments and values, each within its bound.
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage3_ml_ops/02_softmax/detail/grid.h"
#include "stage5_training/02_activation_backward/inputs_for_tests.h"

using namespace activation_backward_test;

namespace {

Comparison check_softmax(const SoftmaxLaunch& version, const SoftmaxInputs& in, Offsets offsets) {
  Guarded<float> d_grad_p(in.grad_p, offsets.inputs), d_p(in.p, offsets.inputs);
  Guarded<float> d_grad_x(in.p.size(), offsets.output);
  version.run(d_grad_x.data(), d_grad_p.data(), d_p.data(), in.shape.rows, in.shape.cols, nullptr);
  std::vector<double> want, bound;
  softmax_backward_cpu(in.grad_p, in.p, in.shape.cols, version.roundings(in.shape.cols), want,
                       bound);
  Comparison result = compare_with(d_grad_x.to_host(), want, bound);
  result.ok = result.ok && d_grad_p.intact() && d_p.intact() && d_grad_x.intact();
  return result;
}

}  // namespace

TEST_CASE("softmax backward on any shape and alignment") {
  for (const Shape& shape : {Shape{0, 5}, Shape{5, 0}, Shape{1, 1}, Shape{33, 2}, Shape{17, 31},
                             Shape{9, 129}, Shape{5, 516}, Shape{4, 1030}, Shape{3, 2049},
                             Shape{2, 4100}, Shape{1, 16387}, Shape{1, 20001}}) {
    const SoftmaxInputs in(shape);
    for (const Offsets& offsets : kOffsets)
      for (const auto& version : testing::chosen(kSoftmaxVersions)) {
        if (shape.cols > 5000 && !version.launch.in_place) continue;  // cols^2 operations per row
        CAPTURE(version.name, shape.rows, shape.cols, offsets.inputs, offsets.output);
        REQUIRE_OK(check_softmax(version.launch, in, offsets));
      }
  }
}

TEST_CASE("softmax backward: a small grid goes round") {
  for (const Shape& shape : {Shape{37, 5}, Shape{37, 300}, Shape{7, 2100}}) {
    const SoftmaxInputs in(shape);
    for (const size_t blocks : {1, 2}) {
      const vector_add::FewBlocks few(blocks);
      for (const auto& version : testing::chosen(kSoftmaxVersions)) {
        CAPTURE(version.name, shape.rows, shape.cols, blocks);
        const Comparison result = check_softmax(version.launch, in, {0, 0});
        CHECK(result.ok);
      }
    }
  }
}

// Powers of two: 1/2, 1/4, 1/8, ... with integers for gradients leave nothing to round.
TEST_CASE("softmax backward of exact numbers is exact") {
  for (const size_t cols : {size_t{4}, size_t{11}}) {
    SoftmaxInputs in({7, cols});
    for (size_t i = 0; i < in.p.size(); ++i) {
      in.p[i] = std::ldexp(1.0f, -static_cast<int>(std::min(i % cols + 1, cols - 1)));
      in.grad_p[i] = std::rint(7 * in.grad_p[i]);
    }
    std::vector<double> want, bound;
    softmax_backward_cpu(in.grad_p, in.p, cols, 0, want, bound);
    for (const auto& version : testing::chosen(kSoftmaxVersions)) {
      CAPTURE(version.name, cols);
      Guarded<float> d_grad_p(in.grad_p, 1), d_p(in.p, 1), d_grad_x(in.p.size(), 1);
      version.launch.run(d_grad_x.data(), d_grad_p.data(), d_p.data(), 7, cols, nullptr);
      REQUIRE_OK(compare_with(d_grad_x.to_host(), want, std::vector<double>(want.size())));
    }
  }
}

TEST_CASE("softmax backward: grad_x may take the place of an input") {
  const SoftmaxInputs in({37, 133});
  for (const auto& version : testing::chosen(kSoftmaxVersions)) {
    if (!version.launch.in_place) continue;
    CAPTURE(version.name);
    Guarded<float> d_grad_p(in.grad_p, 0), d_p(in.p, 0), d_grad_x(in.p.size(), 0);
    const auto launch = [&](Guarded<float>& to) {
      version.launch.run(to.data(), d_grad_p.data(), d_p.data(), 37, 133, nullptr);
      return to.to_host();
    };
    const std::vector<float> want = launch(d_grad_x);
    REQUIRE(same_bits(launch(d_grad_p), want));
  }
}

TEST_CASE("softmax backward: NaN and infinity stay in their row") {
  SoftmaxInputs in({5, 36});
  in.grad_p[36 + 7] = kNan, in.grad_p[3 * 36 + 1] = kInfinity;
  for (const auto& version : testing::chosen(kSoftmaxVersions)) {
    CAPTURE(version.name);
    Guarded<float> d_grad_p(in.grad_p, 0), d_p(in.p, 0), d_grad_x(in.p.size(), 0);
    version.launch.run(d_grad_x.data(), d_grad_p.data(), d_p.data(), 5, 36, nullptr);
    const std::vector<float> got = d_grad_x.to_host();
    for (size_t i = 0; i < got.size(); ++i)
      REQUIRE(std::isfinite(got[i]) == (i / 36 != 1 && i / 36 != 3));
  }
}

TEST_CASE("softmax agrees with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("activation_backward_" + name + ".npy"));
  };
  const std::vector<double> wide_p = array("p").values, wide_grad = array("grad_y").values;
  SoftmaxInputs in({array("p").shape.at(0), array("p").shape.at(1)});
  in.p.assign(wide_p.begin(), wide_p.end()), in.grad_p.assign(wide_grad.begin(), wide_grad.end());
  std::vector<double> want, bound;
  for (const auto& version : testing::chosen(kSoftmaxVersions)) {
    CAPTURE(version.name);
    softmax_backward_cpu(in.grad_p, in.p, in.shape.cols, version.launch.roundings(in.shape.cols),
                         want, bound);
    Guarded<float> d_grad_p(in.grad_p, 0), d_p(in.p, 0), d_grad_x(in.p.size(), 0);
    version.launch.run(d_grad_x.data(), d_grad_p.data(), d_p.data(), in.shape.rows, in.shape.cols,
                       nullptr);
    REQUIRE_OK(compare_with(d_grad_x.to_host(), array("softmax").values, bound));
  }
}

// The loss is the sum of grad_p * softmax(x); step and bounds as above.
TEST_CASE("softmax's formula agrees with finite differences in double") {
  const std::vector<float> x = random_floats(9, 5, 2), grad_p = random_floats(9, 6, 1);
  const auto loss = [&](size_t moved, double by) {
    double sum = 0, total = 0;
    for (size_t i = 0; i < 9; ++i) {
      const double e = std::exp(static_cast<double>(x[i]) + (i == moved ? by : 0));
      sum += e, total += static_cast<double>(grad_p[i]) * e;
    }
    return total / sum;
  };
  const std::vector<double> p = softmax::softmax_cpu(x, 9);
  double sum = 0;
  for (size_t i = 0; i < 9; ++i) sum += p[i] * static_cast<double>(grad_p[i]);
  for (size_t i = 0; i < 9; ++i) {
    const double slope = (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5;
    REQUIRE(std::fabs(slope - p[i] * (static_cast<double>(grad_p[i]) - sum)) <= 2e-10);
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("planted mistakes of softmax are caught", "[harness]") {
  const SoftmaxInputs in({5, 33});
  const auto diagonal_only = [](float* grad_x, const float* grad_p, const float* p, size_t rows,
                                size_t cols, hipStream_t) {
    std::vector<float> result(rows * cols);  // p (1 - p) grad_p: as if no element met another
    for (size_t i = 0; i < result.size(); ++i) result[i] = p[i] * (1 - p[i]) * grad_p[i];
    HIP_CHECK(
        hipMemcpy(grad_x, result.data(), result.size() * sizeof(float), hipMemcpyHostToDevice));
  };
  Guarded<float> d_p(in.p, 0), d_grad_p(in.grad_p, 0), d_grad_x(in.p.size(), 0);
  std::vector<double> want, bound;
  softmax_backward_cpu(in.grad_p, in.p, 33, roundings_softmax_backward(33), want, bound);
  diagonal_only(d_grad_x.data(), in.grad_p.data(), in.p.data(), 5, 33, nullptr);
  REQUIRE(!compare_with(d_grad_x.to_host(), want, bound).ok);
  // Rows one element too long: each takes part of the next one's sum.
  softmax_backward(d_grad_x.data(), d_grad_p.data(), d_p.data(), 4, 34);
  REQUIRE(!compare_with(d_grad_x.to_host(), want, bound).ok);
}
