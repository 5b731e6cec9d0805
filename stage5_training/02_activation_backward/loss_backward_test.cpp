// Back through softmax with cross-entropy behind it.
#include "stage3_ml_ops/03_losses/buffers.h"
#include "stage5_training/02_activation_backward/inputs_for_tests.h"

using namespace activation_backward_test;

namespace {

std::vector<float> run_loss(const LossLaunch& version, const losses::HostRows& rows,
                            const std::vector<float>& p) {
  Guarded<float> d_logits(rows.logits, 0), d_p(p, 0), d_grad(p.size(), 0);
  Guarded<int> d_labels(rows.labels, 0);
  losses::Buffers buffers(rows.labels.size());
  version.run(d_grad.data(), d_logits.data(), d_p.data(),
              {d_labels.data(), rows.labels.size(), rows.classes, rows.ignore_index},
              buffers.workspace(), nullptr);
  REQUIRE((d_logits.intact() && d_p.intact() && d_grad.intact()));
  return d_grad.to_host();
}

}  // namespace

TEST_CASE("softmax's Jacobian times the loss's gradient is (p - 1[label]) / count") {
  for (const Shape& shape :
       {Shape{0, 5}, Shape{1, 1}, Shape{33, 2}, Shape{17, 31}, Shape{9, 132}}) {
    losses::HostRows rows{shape.cols, random_floats(shape.rows * shape.cols, 8, 4), {}, 0, -1};
    for (size_t row = 0; row < shape.rows; ++row) {
      rows.labels.push_back(row % 5 == 4 ? -1 : static_cast<int>(row % shape.cols));
      rows.count += row % 5 == 4 ? 0 : 1;
    }
    const std::vector<double> wide = softmax::softmax_cpu(rows.logits, shape.cols);
    const std::vector<float> p(wide.begin(), wide.end());
    for (const auto& version : testing::chosen(kLossVersions)) {
      CAPTURE(version.name, shape.rows, shape.cols);
      const LossGradient want = cross_entropy_backward_cpu(rows, p, version.launch.from_logits);
      REQUIRE_OK(compare_with(run_loss(version.launch, rows, p), want.grad, want.bound));
    }
  }
}

TEST_CASE("a probability that has underflowed has no quotient, but a gradient") {
  const losses::HostRows rows{3, {0, -200, -200, 0, 0, 0}, {2, 1}, 2};
  const std::vector<float> p = {1, 0, 0, 0.25f, 0.5f, 0.25f};
  const std::vector<float> fused = run_loss({launch_from_probabilities, false}, rows, p);
  REQUIRE(fused == std::vector<float>{0.5f, 0, -0.5f, 0.125f, -0.25f, 0.125f});
  const std::vector<float> composed = run_loss({launch_composed, false}, rows, p);
  REQUIRE(!std::isfinite(composed[2]));
  REQUIRE(composed[4] == fused[4]);
}

TEST_CASE("softmax with cross-entropy agrees with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("activation_backward_" + name + ".npy"));
  };
  const std::vector<double> wide_p = array("p").values, wide_labels = array("labels").values;
  SoftmaxInputs in({array("p").shape.at(0), array("p").shape.at(1)});
  in.p.assign(wide_p.begin(), wide_p.end());
  const std::vector<double> wide_x = array("x").values;
  const losses::HostRows rows{in.shape.cols,
                              {wide_x.begin(), wide_x.end()},
                              {wide_labels.begin(), wide_labels.end()},
                              static_cast<double>(in.shape.rows)};
  for (const auto& version : testing::chosen(kLossVersions)) {
    CAPTURE(version.name);
    LossGradient reference = cross_entropy_backward_cpu(rows, in.p, version.launch.from_logits);
    if (version.launch.from_logits)  // NumPy's is of p as it is stored, which is rounded
      for (size_t i = 0; i < in.p.size(); ++i)
        reference.bound[i] += kFloatRoundoff * static_cast<double>(in.p[i]) / rows.count;
    REQUIRE_OK(compare_with(run_loss(version.launch, rows, in.p), array("cross_entropy").values,
                            reference.bound));
  }
}
