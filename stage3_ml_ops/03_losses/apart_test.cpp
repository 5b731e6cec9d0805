// The loss and the gradient by launches of their own: awkward batches, labels and factors.
#include "stage3_ml_ops/03_losses/apart.h"

#include <cmath>
#include <string>
#include <vector>

#include "stage1_vector/01_vector_add/few_blocks_for_tests.h"
#include "stage3_ml_ops/03_losses/batches_for_tests.h"

using namespace losses_test;

namespace {

// The gradient of cross_entropy() and the loss apart.
void launch_loss(float* loss, float* grad, const float* logits, const Targets& targets,
                 const Workspace& workspace, hipStream_t stream) {
  cross_entropy(loss, grad, logits, targets, workspace, stream);
  gpu::poison(loss, sizeof(float));
  gpu::poison(workspace.row_losses, targets.rows * sizeof(float));
  launch_loss_apart(loss, logits, targets, workspace, stream);
}

// The loss of cross_entropy() and the gradient apart, times `factor`.
auto gradient_times(float factor) {
  return [factor](float* loss, float* grad, const float* logits, const Targets& targets,
                  const Workspace& workspace, hipStream_t stream) {
    Guarded<float> d_factor(std::vector<float>{factor}, 0);
    if (grad != logits) {
      cross_entropy(loss, grad, logits, targets, workspace, stream);
      gpu::poison(grad, targets.rows * targets.classes * sizeof(float));
    }
    launch_gradient_apart(grad, d_factor.data(), logits, targets, workspace, stream);
  };
}

const CrossEntropyVersion kLoss(launch_loss, roundings_from_logits);
const CrossEntropyVersion kGradient(gradient_times(1), roundings_best);

Batch ignoring(size_t rows, size_t classes, size_t every) {
  Batch batch(rows, classes, 4);
  batch.ignore_index = -1;
  for (size_t row = 0; row < rows; row += every) batch.labels[row] = -1;
  batch.count_labels();
  return batch;
}

}  // namespace

TEST_CASE("loss and gradient apart, of any shape, some of whose rows are ignored") {
  for (const size_t rows : {0, 1, 2, 5, 33, 64, 255, 256, 257})
    for (const size_t classes : {1, 2, 10, 15, 16, 17, 65, 131, 513})
      for (const size_t every : {size_t{2}, size_t{3}, rows + 1}) {
        CAPTURE(rows, classes, every);
        const Batch batch = ignoring(rows, classes, every);
        REQUIRE_OK(check(kLoss, batch));
        REQUIRE_OK(check(kGradient, batch));
      }
}

TEST_CASE("loss and gradient apart where no row may be ignored") {
  for (const size_t rows : {1, 33, 257}) {
    const Batch batch(rows, 10, 4);
    REQUIRE_OK(check(kLoss, batch));
    REQUIRE_OK(check(kGradient, batch));
  }
}

TEST_CASE("loss and gradient apart at either side of what one launch counts", "[long]") {
  for (const size_t rows :
       {kCountedByWave, kCountedByWave + 1, size_t{kOneBlock}, size_t{kOneBlock} + 1}) {
    CAPTURE(rows);
    const Batch batch = ignoring(rows, 3, 3);
    REQUIRE_OK(check(kLoss, batch));
    REQUIRE_OK(check(kGradient, batch));
  }
}

TEST_CASE("loss and gradient apart at any alignment, of long rows, and in the logits' place") {
  for (const size_t classes : {size_t{5}, size_t{131}, size_t{2052}, size_t{53000}}) {
    const Batch batch = ignoring(5, classes, 3);
    CAPTURE(classes);
    for (const Offsets& offsets : kOffsets) {
      REQUIRE_OK(check(kLoss, batch, offsets));
      REQUIRE_OK(check(kGradient, batch, offsets));
    }
    const Result apart = run(kGradient, batch, {1, 1});
    Guarded<float> d_x(batch.logits, 1);
    Guarded<int> d_labels(batch.labels, 0);
    Places places(batch.rows);
    gradient_times(1)(nullptr, d_x.data(), d_x.data(),
                      {d_labels.data(), batch.rows, classes, batch.ignore_index},
                      places.workspace(), nullptr);
    REQUIRE(same_bits(d_x.to_host(), apart.grad));
  }
}

TEST_CASE("the loops over rows work for any number of blocks, apart, too") {
  for (const size_t blocks : {1, 3})
    for (const size_t classes : {3, 17, 513}) {
      CAPTURE(blocks, classes);
      const Batch batch = ignoring(300, classes, 3);
      const vector_add::FewBlocks few(blocks);
      const Comparison loss = check(kLoss, batch), gradient = check(kGradient, batch);
      REQUIRE_OK(loss);
      REQUIRE_OK(gradient);
    }
}

TEST_CASE("the gradient apart is multiplied by its factor") {
  for (const size_t rows : {size_t{5}, size_t{300}}) {
    const Batch batch = ignoring(rows, 10, 3);
    std::vector<float> want = run(kGradient, batch).grad;
    for (float& g : want) g *= -0.3f;
    const CrossEntropyVersion times(gradient_times(-0.3f), roundings_best);
    REQUIRE(same_bits(run(times, batch).grad, want));
  }
}

TEST_CASE("apart, too: labels that are all ignored, and labels that are no class") {
  for (const size_t rows : {1, 5, 300}) {
    const Batch all = ignoring(rows, 10, 1);
    CAPTURE(rows);
    REQUIRE(std::isnan(run(kLoss, all).loss));
    for (const float g : run(kGradient, all).grad) REQUIRE(g == 0);
    Batch bad = ignoring(rows, 10, rows + 1);
    bad.labels[rows - 1] = 10;
    bad.count_labels();
    REQUIRE_OK(check(kLoss, bad));
    REQUIRE_OK(check(kGradient, bad));
    REQUIRE_THROWS_WITH(check_labels(run(kLoss, bad).bad_label, 10),
                        "row " + std::to_string(rows - 1) + ": label 10 is not in [0, 10)");
  }
}

TEST_CASE("apart, too: batches without classes and beyond the workspace are refused") {
  Places places(1);
  const auto both = [&](const Targets& targets, const char* line) {
    REQUIRE_THROWS_WITH(launch_loss_apart(nullptr, nullptr, targets, places.workspace()), line);
    REQUIRE_THROWS_WITH(
        launch_gradient_apart(nullptr, nullptr, nullptr, targets, places.workspace()), line);
  };
  both({nullptr, 1, 0}, "cross-entropy needs at least one class");
  both({nullptr, 2, 3}, "a batch of 2 rows for a workspace of 1");
}
