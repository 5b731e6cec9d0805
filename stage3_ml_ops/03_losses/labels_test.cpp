// Labels are data: bad ones, ignored ones, and batches that do not fit.
#include <climits>
#include <cmath>
#include <string>
#include <vector>

#include "stage3_ml_ops/03_losses/batches_for_tests.h"

using namespace losses_test;

TEST_CASE("a label outside [0, classes) is reported with its row and read nowhere") {
  for (const int bad : {-1, 10, 11, INT_MIN, INT_MAX})
    for (const size_t row : {size_t{0}, size_t{17}, size_t{32}}) {
      Batch batch(33, 10, 4);
      batch.labels[row] = bad;
      for (const auto& version : testing::chosen(kVersions)) {
        CAPTURE(version.name, bad, row);
        // NaN as the row's loss and so as the mean, 0 as its gradient; the others as usual.
        REQUIRE_OK(check(version.launch, batch));
        const Result got = run(version.launch, batch);
        REQUIRE((std::isnan(got.row_losses[row]) && std::isnan(got.loss)));
        for (size_t c = 0; c < 10; ++c) REQUIRE(got.grad[row * 10 + c] == 0);
        const std::string line =
            "row " + std::to_string(row) + ": label " + std::to_string(bad) + " is not in [0, 10)";
        REQUIRE_THROWS_WITH(check_labels(got.bad_label, 10), line);
      }
    }
}

TEST_CASE("of several bad labels the first row's is reported, once") {
  Batch batch(129, 10, 4);
  batch.labels[128] = -7, batch.labels[40] = 12, batch.labels[41] = -1;
  Guarded<float> d_logits(batch.logits, 0), d_grad(batch.logits.size(), 0), d_loss(1, 0);
  Guarded<int> d_labels(batch.labels, 0);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    Buffers buffers(batch.rows);
    const auto launch = [&](size_t rows) {
      version.launch.run(d_loss.data(), d_grad.data(), d_logits.data(),
                         {d_labels.data(), rows, batch.classes}, buffers.workspace(), nullptr);
    };
    launch(129);
    launch(40);  // a good batch in between does not hide the bad one
    REQUIRE_THROWS_WITH(buffers.check_labels(10), "row 40: label 12 is not in [0, 10)");
    launch(40);
    REQUIRE_NOTHROW(buffers.check_labels(10));
    for (size_t row = 0; row < 40; ++row) REQUIRE(!std::isnan(buffers.row_losses()[row]));
  }
}

TEST_CASE("ignored rows have no gradient and are not counted") {
  for (const int ignore_index : {-100, -1, 3, INT_MAX}) {
    Batch batch(33, 10, 4);
    batch.ignore_index = ignore_index;
    for (size_t row = 0; row < 33; row += 4) batch.labels[row] = ignore_index;
    batch.count_labels();
    batch.at(8, 2) = kNan, batch.at(12, 3) = kInfinity;  // in rows that do not count
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, ignore_index);
      REQUIRE_OK(check(version.launch, batch));
      const Result got = run(version.launch, batch);
      REQUIRE(got.bad_label == kNoBadLabel);
      for (size_t row = 0; row < 33; row += 4) {
        REQUIRE(got.row_losses[row] == 0);
        for (size_t c = 0; c < 10; ++c) REQUIRE(got.grad[row * 10 + c] == 0);
      }
    }
  }
}

TEST_CASE("where every row is ignored, or there is none, the loss is 0 / 0, the gradient 0") {
  for (const size_t rows : {5, 0}) {
    Batch batch(rows, 17, 4);
    batch.ignore_index = -1;
    batch.labels.assign(rows, -1);
    batch.count_labels();
    for (const auto& version : testing::chosen(kVersions)) {
      CAPTURE(version.name, rows);
      const Result got = run(version.launch, batch);
      REQUIRE((std::isnan(got.loss) && got.intact));
      for (const float grad : got.grad) REQUIRE(grad == 0);
    }
  }
}

TEST_CASE("bad and ignored labels in the same batch") {
  Batch batch(9, 5, 4);
  batch.ignore_index = 7;  // outside [0, classes), and yet no mistake
  batch.labels[2] = 7, batch.labels[6] = 5;
  batch.count_labels();
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    REQUIRE_OK(check(version.launch, batch));
    REQUIRE_THROWS_WITH(check_labels(run(version.launch, batch).bad_label, 5),
                        "row 6: label 5 is not in [0, 5)");
  }
}

TEST_CASE("batches without classes and beyond the workspace are refused") {
  Buffers buffers(1);
  const Targets no_class{nullptr, 1, 0};
  for (const auto& version : testing::chosen(kVersions))
    REQUIRE_THROWS_WITH(
        version.launch.run(nullptr, nullptr, nullptr, no_class, buffers.workspace(), nullptr),
        "cross-entropy needs at least one class");
  REQUIRE_THROWS_WITH(
      cross_entropy(nullptr, nullptr, nullptr, {nullptr, 2, 3}, buffers.workspace()),
      "a batch of 2 rows for a workspace of 1");
}
