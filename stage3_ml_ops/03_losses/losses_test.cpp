// Cross-entropy of awkward shapes, labels, alignments and values, with its gradient.
#include "stage3_ml_ops/03_losses/losses.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "common/npy.h"
#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage3_ml_ops/03_losses/batches_for_tests.h"
#include "stage3_ml_ops/03_losses/problem.h"

// The kernels that only this test has, and launches of device code for later steps:
// losses_test.hip.
namespace losses_test {
void launch_mistaken(float* loss, float* grad, const float* logits, const Targets& targets,
                     const Workspace& workspace, bool no_one_hot, bool no_maximum,
                     bool neighbours_label, size_t miscounted);
void launch_counting_all(float* loss, float* grad, const float* logits, const Targets& targets,
                         const Workspace& workspace, hipStream_t stream);
void launch_gradient_of_softmax(float* grad, const float* logits, const Targets& targets,
                                const Workspace& workspace, hipStream_t stream);
}  // namespace losses_test

using namespace losses_test;

TEST_CASE("cross-entropy of any shape, at the first, the last and any label") {
  constexpr size_t kClasses[] = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 1003};
  for (const size_t classes : kClasses)
    for (const size_t rows : {0, 1, 2, 5, 33})
      for (const Labels kind : {Labels::first, Labels::last, Labels::random}) {
        if (kind != Labels::random && rows > 5) continue;
        const Batch batch(rows, classes, 6, kind);
        for (const auto& version : testing::chosen(kVersions)) {
          CAPTURE(version.name, rows, classes, static_cast<int>(kind));
          REQUIRE_OK(check(version.launch, batch));
        }
      }
}

TEST_CASE("cross-entropy of many rows and of long ones", "[long]") {
  for (const Batch& batch : {Batch(129, 10, 4), Batch(1031, 3, 4), Batch(129, 127, 4),
                             Batch(2, 50257, 8), Batch(1, 70001, 8)})
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, batch.rows, batch.classes);
      REQUIRE_OK(check(version.launch, batch));
    }
}

TEST_CASE("cross-entropy at any alignment, and with the gradient in the place of the logits") {
  for (const size_t classes : {size_t{5}, size_t{131}, size_t{2052}}) {
    const Batch batch(5, classes, 6);
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, classes);
      for (const Offsets& offsets : kOffsets) {
        CAPTURE(offsets.inputs, offsets.output);
        REQUIRE_OK(check(version.launch, batch, offsets));
      }
      Guarded<float> d_x(batch.logits, 1), d_loss(1, 0);
      Guarded<int> d_labels(batch.labels, 0);
      Places places(batch.rows);
      version.launch.run(d_loss.data(), d_x.data(), d_x.data(),
                         {d_labels.data(), batch.rows, classes}, places.workspace(), nullptr);
      const Result apart = run(version.launch, batch, {1, 1});
      REQUIRE(same_bits(d_x.to_host(), apart.grad));
      REQUIRE(same_bits(d_loss.to_host(), {apart.loss}));
    }
  }
}

TEST_CASE("probabilities of 1 / K and 0 give exact gradients at every version") {
  constexpr Shape kShapes[] = {{1, 1},    {1, 2},     {5, 17},   {33, 64},
                               {9, 1003}, {64, 1024}, {2, 50257}};
  for (const Shape& shape : kShapes) {
    const Expected expected = expect(shape, Values::integers, 7, shape.rows + 2);
    Batch batch(shape.rows, shape.classes, 0);
    batch.logits = expected.rows.logits, batch.labels = expected.rows.labels;
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, shape.rows, shape.classes);
      const Result got = run(version.launch, batch);
      REQUIRE_OK(compare(
          got.grad.size(), [&](size_t i) { return got.grad[i]; },
          [&](size_t i) { return expected.want.grad[i]; }, [](size_t) { return 0; }));
      const CrossEntropy bounds = cross_entropy_bounds(
          batch, expected.want, version.launch.roundings(shape.classes), false);
      REQUIRE_OK(compare(
          shape.rows, [&](size_t r) { return got.row_losses[r]; },
          [&](size_t r) { return expected.row_loss(r, version.launch.from_probabilities); },
          [&](size_t r) { return bounds.row_losses[r]; }));
    }
  }
}

TEST_CASE("the loops over rows work for any number of blocks") {
  // More rows than threads, and few enough for a check, which allows a block two seconds.
  const std::pair<size_t, Batch> kCases[] = {
      {1, Batch(33, 17, 6)}, {1, Batch(300, 5, 6)}, {3, Batch(33, 17, 6)}, {3, Batch(800, 5, 6)}};
  for (const auto& [blocks, batch] : kCases)
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, batch.rows, blocks);
      const vector_add::FewBlocks few(blocks);
      const Comparison result = check(version.launch, batch);
      REQUIRE_OK(result);
    }
}

TEST_CASE("the entry for later stages, the loss without a gradient, and the gradient without it") {
  for (const Batch& batch : {Batch(5, 10, 4), Batch(3, 1003, 4), Batch(1, 53000, 4)}) {
    CAPTURE(batch.classes);
    REQUIRE_OK(check(CrossEntropyVersion(cross_entropy, roundings_best), batch));
    const auto loss_alone = [](float* loss, float* grad, const float* logits,
                               const Targets& targets, const Workspace& workspace,
                               hipStream_t stream) {
      cross_entropy(loss, grad, logits, targets, workspace, stream);
      gpu::poison(loss, sizeof(float));
      gpu::poison(workspace.row_losses, targets.rows * sizeof(float));
      launch_loss_of_logits(loss, logits, targets, workspace, stream);
    };
    REQUIRE_OK(check(CrossEntropyVersion(loss_alone, roundings_from_logits), batch));
    const auto gradient_alone = [](float* loss, float* grad, const float* logits,
                                   const Targets& targets, const Workspace& workspace,
                                   hipStream_t stream) {
      cross_entropy(loss, grad, logits, targets, workspace, stream);
      gpu::poison(grad, targets.rows * targets.classes * sizeof(float));
      launch_gradient_of_softmax(grad, logits, targets, workspace, stream);
    };
    REQUIRE_OK(check(CrossEntropyVersion(gradient_alone, roundings_best), batch));
  }
}

TEST_CASE("each row of a gradient sums to 0") {
  const Batch batch(9, 1003, 6);
  const CrossEntropy want = cross_entropy_cpu(batch);
  for (const auto& version : testing::chosen(kVersions)) {
    const std::vector<float> grad = run(version.launch, batch).grad;
    const CrossEntropy bounds =
        cross_entropy_bounds(batch, want, version.launch.roundings(batch.classes), false);
    for (size_t row = 0; row < batch.rows; ++row) {
      double sum = 0, bound = 0;
      for (size_t i = row * batch.classes; i < (row + 1) * batch.classes; ++i)
        sum += static_cast<double>(grad[i]), bound += bounds.grad[i];
      CAPTURE(version.name, row);
      REQUIRE(std::fabs(sum) <= bound);
    }
  }
}

TEST_CASE("gradients are the slopes of the loss") {
  // Logits on a grid of 1/64, so that a step of 1/256 to either side is exact in float. The slope
  // of the chord is off by step^2 / 6 of the third derivative, which is below 1 here.
  constexpr float kStep = 1.0f / 256;
  Batch batch(3, 7, 4);
  for (float& logit : batch.logits) logit = std::rint(64 * logit) / 64;
  const auto mean_loss = [&] {
    double mean = 0;
    for (const double loss : cross_entropy_cpu(batch).row_losses) mean += loss / 3;
    return mean;
  };
  std::vector<double> slopes;
  for (float& logit : batch.logits) {
    const float middle = logit;
    logit = middle + kStep;
    const double right = mean_loss();
    logit = middle - kStep;
    slopes.push_back((right - mean_loss()) / (2 * static_cast<double>(kStep)));
    logit = middle;
  }
  const double bound = std::pow(static_cast<double>(kStep), 2) / 6;
  const CrossEntropy want = cross_entropy_cpu(batch);
  for (size_t i = 0; i < slopes.size(); ++i) REQUIRE(std::fabs(want.grad[i] - slopes[i]) <= bound);
  for (const auto& version : testing::chosen(kVersions)) {
    const std::vector<float> grad = run(version.launch, batch).grad;
    CAPTURE(version.name);
    REQUIRE_OK(compare(
        grad.size(), [&](size_t i) { return grad[i]; }, [&](size_t i) { return slopes[i]; },
        [&](size_t) { return bound + 1e-6; }));
  }
}

TEST_CASE("cross-entropy agrees with NumPy", "[numpy]") {
  const auto array = [](const std::string& name) {
    return read_npy(reference_path("losses_" + name + ".npy")).values;
  };
  const std::vector<double> logits = array("logits"), labels = array("labels");
  const CrossEntropy want{array("row_losses"), array("grad")};
  Batch batch(0, 1, 0);
  batch.rows = labels.size(), batch.classes = logits.size() / labels.size();
  batch.logits.assign(logits.begin(), logits.end());
  for (const double label : labels) batch.labels.push_back(static_cast<int>(label));
  batch.ignore_index = -100;
  batch.count_labels();
  REQUIRE(batch.count < static_cast<double>(batch.rows));
  double mean = 0;
  for (const double loss : want.row_losses) mean += loss / batch.count;
  REQUIRE(std::fabs(mean - array("loss").at(0)) <= 1e-12 * mean);
  const CrossEntropy reference = cross_entropy_cpu(batch);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const CrossEntropy bounds =
        cross_entropy_bounds(batch, reference, version.launch.roundings(batch.classes),
                             version.launch.from_probabilities);
    REQUIRE_OK(check(run(version.launch, batch), batch, want, bounds));
  }
}

TEST_CASE("the same bits on every run, and in a graph") {
  Batch batch(33, 1003, 6);
  batch.ignore_index = -1, batch.labels[5] = -1;
  batch.count_labels();
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const Result first = run(version.launch, batch);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Result again = run(version.launch, batch);
      REQUIRE(same_bits(again.loss, first.loss));
      REQUIRE(same_bits(again.grad, first.grad));
    }
    Guarded<float> d_logits(batch.logits, 0), d_grad(batch.logits.size(), 0), d_loss(1, 0);
    Guarded<int> d_labels(batch.labels, 0);
    Places places(batch.rows);
    testing::require_same_in_graph(
        [&] {
          gpu::poison(d_grad.data(), d_grad.size() * sizeof(float));
          gpu::poison(d_loss.data(), sizeof(float));
        },
        [&](hipStream_t stream) {
          version.launch.run(d_loss.data(), d_grad.data(), d_logits.data(),
                             {d_labels.data(), batch.rows, batch.classes, batch.ignore_index},
                             places.workspace(), stream);
        },
        [&] {
          std::vector<float> both = d_grad.to_host();
          both.push_back(d_loss.to_host()[0]);
          return both;
        });
  }
}

TEST_CASE("logits of 1e4 overflow nothing; only probabilities lose a small one") {
  for (const size_t classes : {size_t{2}, size_t{33}, size_t{1003}}) {
    Batch batch(7, classes, 1e4f);
    for (size_t row = 0; row < 7; ++row) batch.at(row, row % classes) = row % 2 == 0 ? 1e4f : -1e4f;
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, classes);
      const Result got = run(version.launch, batch);
      for (const float grad : got.grad) REQUIRE(std::isfinite(grad));
      if (!version.launch.from_probabilities) {
        REQUIRE(std::isfinite(got.loss));
        REQUIRE_OK(check(version.launch, batch));
      }
    }
  }
  Batch unlikely(1, 2, 0);
  unlikely.labels[0] = 0, unlikely.at(0, 0) = -200, unlikely.at(0, 1) = 0;
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    REQUIRE(run(version.launch, unlikely).loss ==
            (version.launch.from_probabilities ? kInfinity : 200.0f));
  }
}

TEST_CASE("a masked class has gradient 0; a masked label has an infinite loss") {
  for (const size_t classes : {size_t{5}, size_t{300}}) {
    Batch batch(3, classes, 4, Labels::first);
    for (size_t row = 0; row < 3; ++row)
      for (size_t c = 2; c < classes; c += 2) batch.at(row, c) = -kInfinity;
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, classes);
      REQUIRE_OK(check(version.launch, batch));
      const Result got = run(version.launch, batch);
      for (size_t row = 0; row < 3; ++row)
        for (size_t c = 2; c < classes; c += 2) REQUIRE(got.grad[row * classes + c] == 0);
    }
    batch.labels[1] = 2;
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, classes);
      const Result got = run(version.launch, batch);
      REQUIRE((got.row_losses[1] == kInfinity && got.loss == kInfinity));
      REQUIRE(std::fabs(got.grad[classes + 2] + 1.0f / 3) < 1e-6f);
    }
  }
}

TEST_CASE("NaN and infinity make their own row NaN, and the mean") {
  for (const float special : {kNan, kInfinity}) {
    Batch batch(5, 33, 4);
    batch.at(2, 20) = special;
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, special);
      REQUIRE_OK(check(version.launch, batch));
      REQUIRE(std::isnan(run(version.launch, batch).loss));
    }
  }
  Batch masked(3, 33, 4);
  for (size_t c = 0; c < 33; ++c) masked.at(1, c) = -kInfinity;
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const Result got = run(version.launch, masked);
    REQUIRE((std::isnan(got.row_losses[1]) && std::isnan(got.loss)));
    for (size_t c = 0; c < 33; ++c) REQUIRE(std::isnan(got.grad[33 + c]));
    REQUIRE((std::isfinite(got.row_losses[0]) && std::isfinite(got.row_losses[2])));
  }
}

TEST_CASE("the loss of given probabilities") {
  const std::vector<float> p = {0.25f, 0.75f, 0.0f, 1.0f, 1e-38f, 1.0f, kNan, 0.5f};
  const std::vector<int> labels = {1, 0, 0, 0};
  const double want[] = {-std::log(0.75), std::numeric_limits<double>::infinity(),
                         -std::log(static_cast<double>(1e-38f)),
                         std::numeric_limits<double>::quiet_NaN()};
  Guarded<float> d_p(p, 1), d_loss(1, 0);
  Guarded<int> d_labels(labels, 1);
  for (size_t rows = 1; rows <= 4; ++rows) {
    Places places(rows);
    launch_loss_of_probabilities(d_loss.data(), d_p.data(), {d_labels.data(), rows, 2},
                                 places.workspace());
    const std::vector<float> got = places.row_losses.to_host();
    double mean = 0;
    for (size_t row = 0; row < rows; ++row) mean += want[row] / static_cast<double>(rows);
    REQUIRE_OK(compare(
        rows, [&](size_t r) { return got[r]; }, [&](size_t r) { return want[r]; },
        [&](size_t r) { return 4 * kFloatRoundoff * want[r]; }));
    REQUIRE_OK(compare_value(d_loss.to_host()[0], mean, 1e-6));
  }
}

// ---- What the checks above must catch ---------------------------------------------------------

TEST_CASE("the program's checks refuse a lost term, swapped rows and zeros at every printed shape",
          "[harness]") {
  const std::vector<Size> sizes = losses::sizes();
  std::vector<Shape> shapes = printed({sizes[0].cpu, sizes[1].cpu}, false);
  for (const Shape& shape : {Shape{sizes[0].quick, sizes[1].quick},
                             Shape{sizes[0].gpu, sizes[1].gpu}, Shape{4096, 50257}})
    shapes.push_back(shape);
  for (const Shape& shape : shapes) {
    CAPTURE(shape.cross_entropy_name());
    const float weight = 1.0f / static_cast<float>(shape.rows);

    // On integers: of each row an element whose probability is 1 / K, and what it would be if one
    // of the K were not added up.
    const Expected exact = expect(shape, Values::integers, 7, 16);
    std::vector<double> grad, without_one;
    for (size_t row = 0; row < exact.sample.rows.size(); ++row) {
      const float* const x = exact.rows.logits.data() + row * shape.classes;
      const float largest = *std::max_element(x, x + shape.classes);
      const auto count = static_cast<float>(std::count(x, x + shape.classes, largest));
      for (size_t c = 0; c < shape.classes; ++c) {
        if (x[c] != largest || static_cast<int>(c) == exact.rows.labels[row]) continue;
        grad.push_back(exact.want.grad[row * shape.classes + c]);
        without_one.push_back(static_cast<double>(weight * (1 / (count - 1) - 1 / count)));
        break;
      }
    }
    REQUIRE(grad.size() == exact.sample.rows.size());
    testing::require_refusals(grad, 0, 1, [&](size_t i) { return without_one[i]; });

    // On real numbers: of the gradient its probability, or its 1 at the label.
    const Expected expected = expect(shape, Values::uniform, 7, 16);
    for (const auto& version : kVersions) {
      CAPTURE(version.name);
      const CrossEntropy bounds = cross_entropy_bounds(expected.rows, expected.want,
                                                       version.launch.roundings(shape.classes),
                                                       version.launch.from_probabilities);
      testing::require_refusals(
          expected.want.grad, [&](size_t i) { return bounds.grad[i]; }, shape.classes,
          [&](size_t i) {
            const bool is_label =
                static_cast<int>(i % shape.classes) == expected.rows.labels[i / shape.classes];
            return is_label ? static_cast<double>(weight) : expected.want.grad[i];
          });
      testing::require_refusals(
          expected.want.row_losses, [&](size_t i) { return bounds.row_losses[i]; }, 1,
          [&](size_t i) {  // that of the row's largest logit
            const float* const x = expected.rows.logits.data() + i * shape.classes;
            const double largest = *std::max_element(x, x + shape.classes);
            const double label = x[expected.rows.labels[i]];
            return std::exp(largest - label - expected.want.row_losses[i]);
          });
    }
  }
}

TEST_CASE("planted mistakes are caught", "[harness]") {
  const auto mistaken = [](bool no_one_hot, bool no_maximum, bool neighbours_label,
                           size_t miscounted) {
    return CrossEntropyVersion(
        [=](float* loss, float* grad, const float* logits, const Targets& targets,
            const Workspace& workspace, hipStream_t) {
          launch_mistaken(loss, grad, logits, targets, workspace, no_one_hot, no_maximum,
                          neighbours_label, miscounted);
        },
        softmax::roundings_thread_per_row);
  };
  const auto all_but_last_row = [](float* loss, float* grad, const float* logits,
                                   const Targets& targets, const Workspace& workspace,
                                   hipStream_t stream) {
    cross_entropy(loss, grad, logits, {targets.labels, targets.rows - 1, targets.classes},
                  workspace, stream);
  };
  Batch batch(33, 10, 4), large(33, 10, 200);
  batch.labels[3] = 4, batch.labels[4] = 5;
  REQUIRE_OK(check(mistaken(false, false, false, 0), batch));
  REQUIRE_OK(check(mistaken(false, false, false, 0), large));
  REQUIRE(!check(mistaken(true, false, false, 0), batch).ok);
  REQUIRE(!check(mistaken(false, true, false, 0), large).ok);
  REQUIRE(!check(mistaken(false, false, true, 0), batch).ok);
  REQUIRE(!check(mistaken(false, false, false, 1), batch).ok);
  REQUIRE(!check(CrossEntropyVersion(all_but_last_row, roundings_best), batch).ok);
  const CrossEntropyVersion counting_all(launch_counting_all, roundings_best);
  REQUIRE_OK(check(counting_all, batch));
  batch.ignore_index = 4;
  batch.count_labels();
  REQUIRE(!check(counting_all, batch).ok);
}
