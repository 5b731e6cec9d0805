// The mean in a fixed order, and the squared error: every size and alignment, exact sums first.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/npy.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage1_vector/02_axpy/axpy.h"
#include "stage3_ml_ops/03_losses/batches_for_tests.h"
#include "stage3_ml_ops/03_losses/problem.h"

namespace {

using namespace losses_test;

struct Outcome {
  float loss;
  std::vector<float> grad;
  Split split;
  bool intact;
};

Outcome run(const SquaredErrorLaunch& version, const std::vector<float>& p,
            const std::vector<float>& t, Offsets offsets) {
  const size_t n = p.size();
  Guarded<float> d_p(p, offsets.inputs), d_t(t, offsets.inputs);
  Guarded<float> d_grad(n, offsets.output), d_loss(1, 0);
  Places places(0);
  version.run(d_loss.data(), d_grad.data(), d_p.data(), d_t.data(), n, places.workspace(), nullptr);
  return {d_loss.to_host()[0], d_grad.to_host(),
          split_vectors(n, {d_grad.data(), d_p.data(), d_t.data()}),
          d_p.intact() && d_t.intact() && d_grad.intact() && d_loss.intact() && places.intact()};
}

// Loss and gradient against these: the loss if it is wrong, else the gradient.
Comparison check(const Outcome& got, double loss, double loss_bound,
                 const std::vector<double>& grad, double (*grad_bound)(double)) {
  const Comparison of_loss = compare_value(got.loss, loss, loss_bound);
  Comparison of_grad = compare(
      grad.size(), [&](size_t i) { return got.grad[i]; }, [&](size_t i) { return grad[i]; },
      [&](size_t i) { return grad_bound(grad[i]); });
  of_grad.ok = of_grad.ok && got.intact;
  return of_loss.ok ? of_grad : of_loss;
}

// Against the reference in double.
Comparison check_within_bound(const SquaredErrorLaunch& version, const std::vector<float>& p,
                              const std::vector<float>& t, Offsets offsets) {
  const Outcome got = run(version, p, t, offsets);
  const double loss = squared_error_cpu(p, t);
  return check(got, loss, version.bound(loss, got.split),
               squared_error_gradient_cpu(p, t, p.size()), squared_error_gradient_bound);
}

// The integers of the program's exact check: all bits are given.
Comparison check_exactly(const SquaredErrorLaunch& version, size_t n, Offsets offsets) {
  const ExactSquares exact = exact_squares(n, 7);
  return check(run(version, exact.p, exact.t, offsets), exact.loss, 0, exact.grad,
               [](double) { return 0.0; });
}

}  // namespace

TEST_CASE("a mean adds every value once") {
  for (const size_t n : {size_t{1}, size_t{2}, size_t{255}, size_t{257}, size_t{2049}, kOneBlock,
                         kOneBlock + 1, size_t{100003}, size_t{1} << 20}) {
    const std::vector<float> values = random_integers(n, 0);
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value);
    Guarded<float> d_values(values, 1), d_mean(1, 0), d_partials(kMaxBlocks, 0);
    launch_mean(d_mean.data(), d_values.data(), n, {1}, d_partials.data(), nullptr);
    CAPTURE(n);
    REQUIRE(static_cast<double>(d_mean.to_host()[0]) == sum);
    REQUIRE((d_values.intact() && d_mean.intact() && d_partials.intact()));
  }
}

TEST_CASE("squared error: every element counts once, at any size and alignment") {
  for (const size_t n : {1, 2, 3, 4, 5, 7, 8, 255, 257, 1003, 4099, 16385, (1 << 17) + 1})
    for (const Offsets& offsets : kOffsets)
      for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
        CAPTURE(version.name, n, offsets.inputs, offsets.output);
        REQUIRE_OK(check_exactly(version.launch, n, offsets));
      }
}

TEST_CASE("squared error: every version stays within its bound") {
  for (const size_t n : {size_t{1}, size_t{1003}, size_t{(1 << 17) + 1}})
    for (const Offsets& offsets : kOffsets)
      for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
        CAPTURE(version.name, n, offsets.inputs, offsets.output);
        REQUIRE_OK(check_within_bound(version.launch, random_floats(n, 0, 4),
                                      random_floats(n, 1, 1), offsets));
      }
}

TEST_CASE("squared error: the loops work where a grid has fewer blocks than tiles") {
  for (const size_t blocks : {1, 3})
    for (const Offsets& offsets : {Offsets{0, 0}, Offsets{3, 3}, Offsets{0, 1}})
      for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
        const vector_add::FewBlocks few(blocks);
        CAPTURE(version.name, blocks, offsets.inputs, offsets.output);
        const Comparison exact = check_exactly(version.launch, 20011, offsets);
        const Comparison bounded = check_within_bound(version.launch, random_floats(20011, 0, 4),
                                                      random_floats(20011, 1, 4), offsets);
        REQUIRE_OK(exact);
        REQUIRE_OK(bounded);
      }
}

TEST_CASE("squared error: the gradient may take the place of an input") {
  const std::vector<float> p = random_floats(1003, 0, 4), t = random_floats(1003, 1, 4);
  for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
    if (std::string(version.name) == "mse_separate") continue;
    CAPTURE(version.name);
    Guarded<float> d_p(p, 1), d_t(t, 1), d_grad(p.size(), 1), d_loss(1, 0);
    Places places(0);
    const auto gradient = [&](Guarded<float>& grad) {
      version.launch.run(d_loss.data(), grad.data(), d_p.data(), d_t.data(), p.size(),
                         places.workspace(), nullptr);
      return grad.to_host();
    };
    const std::vector<float> grad = gradient(d_grad);
    REQUIRE(same_bits(gradient(d_p), grad));
  }
}

TEST_CASE("squared error: NaN and infinity reach the loss; the mean of nothing is NaN") {
  for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
    CAPTURE(version.name);
    for (const float special : {kNan, kInfinity, -kInfinity}) {
      std::vector<float> p = random_floats(1003, 0, 4);
      const std::vector<float> t = random_floats(1003, 1, 4);
      p[700] = special;
      REQUIRE_OK(check_within_bound(version.launch, p, t, {0, 0}));
    }
    REQUIRE_OK(check_within_bound(version.launch, {}, {}, {0, 0}));
  }
}

TEST_CASE("squared error agrees with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("losses_" + name + ".npy")).values;
  };
  const std::vector<double> wide_p = array("mse_p"), wide_t = array("mse_t");
  const std::vector<float> p(wide_p.begin(), wide_p.end()), t(wide_t.begin(), wide_t.end());
  const double loss = array("mse_loss").at(0);
  const std::vector<double> grad = array("mse_grad");
  for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
    CAPTURE(version.name);
    const Outcome got = run(version.launch, p, t, {0, 0});
    REQUIRE_OK(check(got, loss, version.launch.bound(loss, got.split), grad,
                     squared_error_gradient_bound));
  }
}

TEST_CASE("squared error: the same bits on every run, and in a graph") {
  const std::vector<float> p = random_floats(100003, 0, 4), t = random_floats(100003, 1, 4);
  for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
    CAPTURE(version.name);
    Guarded<float> d_p(p, 0), d_t(t, 0), d_grad(p.size(), 0), d_loss(1, 0);
    Places places(0);
    const auto launch = [&](hipStream_t stream) {
      version.launch.run(d_loss.data(), d_grad.data(), d_p.data(), d_t.data(), p.size(),
                         places.workspace(), stream);
    };
    const auto outputs = [&] {
      std::vector<float> both = d_grad.to_host();
      both.push_back(d_loss.to_host()[0]);
      return both;
    };
    launch(nullptr);
    const std::vector<float> first = outputs();
    for (int repeat = 0; repeat < 10; ++repeat) {
      launch(nullptr);
      REQUIRE(same_bits(outputs(), first));
    }
    testing::require_same_in_graph(
        [&] {
          gpu::poison(d_grad.data(), d_grad.size() * sizeof(float));
          gpu::poison(d_loss.data(), sizeof(float));
        },
        launch, outputs);
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("squared error: the program's checks refuse a lost and a doubled term", "[harness]") {
  const std::vector<Size> sizes = losses::sizes();
  for (const size_t n : {sizes[0].gpu * sizes[1].gpu, sizes[0].cpu * sizes[1].cpu,
                         sizes[0].quick * sizes[1].quick}) {
    CAPTURE(n);
    const ExactSquares exact = exact_squares(n, 7);
    // Of the loss each square in turn, and no square at all.
    const auto refuses = [&](double wrong) {
      return !compare_value(static_cast<float>(wrong), exact.loss, 0).ok;
    };
    REQUIRE(!refuses(exact.loss));
    REQUIRE(refuses(0));
    double sum = 0;
    for (size_t i = 0; i < exact.p.size(); ++i)
      sum += std::pow(static_cast<double>(exact.p[i] - exact.t[i]), 2);
    REQUIRE(sum < 1 << 24);
    for (const double square : {1, 4, 9, 16, 25, 36})
      for (const double wrong : {sum - square, sum + square})
        REQUIRE(refuses(static_cast<double>(static_cast<float>(wrong) / static_cast<float>(n))));
    // Of the gradient the part of p: first of integers, of which neighbours may be equal.
    std::vector<double> want, of_p;
    for (size_t i = 0; i < 4096; ++i) {
      if (!want.empty() && want.back() == exact.grad[i]) continue;
      want.push_back(exact.grad[i]);
      of_p.push_back(2 * static_cast<double>(exact.p[i]) / static_cast<double>(n));
    }
    testing::require_refusals(want, 0, 1, [&](size_t i) { return of_p[i]; });
    const std::vector<float> p = random_floats(4096, 0), t = random_floats(4096, 1);
    const std::vector<double> grad = squared_error_gradient_cpu(p, t, n);
    testing::require_refusals(
        grad, [&](size_t i) { return squared_error_gradient_bound(grad[i]); }, 64,
        [&](size_t i) {
          const float larger = std::fabs(p[i]) > std::fabs(t[i]) ? p[i] : t[i];
          return 2 * static_cast<double>(larger) / static_cast<double>(n);
        });
  }
}

TEST_CASE("squared error: planted mistakes are caught", "[harness]") {
  const SquaredErrorLaunch half_gradient{
      [](float* loss, float* grad, const float* p, const float* t, size_t n,
         const Workspace& workspace, hipStream_t stream) {
        launch_squared_error_separate(loss, grad, p, t, n, workspace, stream);
        axpy::launch_vectorized_scale(grad, 0.5f, grad, n, stream);
      },
      squared_error_scalar_bound};
  const SquaredErrorLaunch missing_element{
      [](float* loss, float* grad, const float* p, const float* t, size_t n,
         const Workspace& workspace, hipStream_t stream) {
        launch_squared_error_fused(loss, grad, p, t, n, workspace, stream);
        launch_squared_error_loss(loss, p, t, n - 1, workspace, stream);
      },
      squared_error_scalar_bound};
  std::vector<float> p = random_floats(1003, 0, 3), t = random_floats(1003, 1, 3);
  p.back() = 2, t.back() = -1;
  REQUIRE(!check_within_bound(half_gradient, p, t, {0, 0}).ok);
  REQUIRE(!check_within_bound(missing_element, p, t, {0, 0}).ok);
  REQUIRE(!check_exactly(half_gradient, 1003, {0, 0}).ok);
  REQUIRE(!check_exactly(missing_element, 1003, {0, 0}).ok);
}
