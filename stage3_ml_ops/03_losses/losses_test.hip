// Squared error and cross-entropy: awkward shapes, labels, alignments and values, with gradients.
#include "stage3_ml_ops/03_losses/losses.h"

#include <climits>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/npy.h"
#include "common/random.h"
#include "common/testing.h"

namespace {

using namespace losses;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using testing::random_floats;
using testing::same_bits;

Comparison compare_value(float got, double want, double bound) {
  return compare(
      1, [&](size_t) { return got; }, [&](size_t) { return want; }, [&](size_t) { return bound; });
}

// A guarded Workspace.
struct Places {
  explicit Places(size_t rows)
      : row_losses(rows, 0),
        partials(2 * kMaxBlocks, 0),
        wholes(rows, 0),
        counted(1, 0),
        bad_label(std::vector<unsigned long long>{kNoBadLabel}, 0) {}
  Workspace workspace() {
    return {row_losses.size(), row_losses.data(), wholes.data(),
            partials.data(),   counted.data(),    bad_label.data()};
  }
  bool intact() const {
    return row_losses.intact() && partials.intact() && wholes.intact() && counted.intact() &&
           bad_label.intact();
  }
  Guarded<float> row_losses, partials;
  Guarded<MaxSum> wholes;
  Guarded<unsigned> counted;
  Guarded<unsigned long long> bad_label;
};

}  // namespace

TEST_CASE("a mean adds every value once") {
  for (const size_t n : {size_t{1}, size_t{2}, size_t{255}, size_t{257}, size_t{2049}, kOneBlock,
                         kOneBlock + 1, size_t{100003}, size_t{1} << 20}) {
    std::vector<float> values = random_floats(n, 0, 3);
    double sum = 0;
    for (float& value : values) sum += static_cast<double>(value = std::rint(value));
    Guarded<float> d_values(values, 1), d_mean(1, 0), d_partials(kMaxBlocks, 0);
    launch_mean(d_mean.data(), d_values.data(), n, {1}, d_partials.data(), nullptr);
    CAPTURE(n);
    REQUIRE(static_cast<double>(d_mean.to_host()[0]) == sum);
    REQUIRE((d_values.intact() && d_mean.intact() && d_partials.intact()));
  }
}

// ---- Squared error ----------------------------------------------------------------------------

namespace {

struct Offsets {
  size_t inputs, output;  // elements behind a multiple of 16 bytes
};
constexpr Offsets kOffsets[] = {{0, 0}, {1, 1}, {3, 3}, {0, 1}};

// Loss and gradient against the reference; the loss within `loss_bound`, or the version's own.
Comparison check_squared_error(const SquaredErrorLaunch& version, const std::vector<float>& p,
                               const std::vector<float>& t, Offsets offsets,
                               double loss_bound = -1) {
  const size_t n = p.size();
  Guarded<float> d_p(p, offsets.inputs), d_t(t, offsets.inputs);
  Guarded<float> d_grad(n, offsets.output), d_loss(1, 0);
  Places places(0);
  version.run(d_loss.data(), d_grad.data(), d_p.data(), d_t.data(), n, places.workspace(), nullptr);
  const double want = squared_error_cpu(p, t);
  const std::vector<double> want_grad = squared_error_gradient_cpu(p, t, n);
  const std::vector<float> grad = d_grad.to_host();
  if (loss_bound < 0)
    loss_bound = version.bound(want, split_vectors(n, {d_grad.data(), d_p.data(), d_t.data()}));
  Comparison loss = compare_value(d_loss.to_host()[0], want, loss_bound);
  Comparison gradient = compare(
      n, [&](size_t i) { return grad[i]; }, [&](size_t i) { return want_grad[i]; },
      [&](size_t i) { return squared_error_gradient_bound(want_grad[i]); });
  gradient.ok = gradient.ok && d_p.intact() && d_t.intact() && d_grad.intact() && d_loss.intact() &&
                places.intact();
  return loss.ok ? gradient : loss;
}

}  // namespace

TEST_CASE("squared error: every element counts once, at any size and alignment") {
  constexpr size_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 255, 257, 1003, 4099, 16385, (1 << 17) + 1};
  for (const size_t n : kSizes) {
    // Integers: sums of their squares are exact, and only the quotient rounds.
    std::vector<float> p = random_floats(n, 0, 3), t = random_floats(n, 1, 3);
    for (std::vector<float>* values : {&p, &t})
      for (float& value : *values) value = std::rint(value);
    const double quotient = 2 * kFloatRoundoff * squared_error_cpu(p, t);
    for (const Offsets& offsets : kOffsets)
      for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
        CAPTURE(version.name, n, offsets.inputs, offsets.output);
        REQUIRE_OK(check_squared_error(version.launch, p, t, offsets, quotient));
      }
  }
}

TEST_CASE("squared error: every version stays within its bound") {
  for (const size_t n : {size_t{1}, size_t{1003}, size_t{(1 << 17) + 1}})
    for (const Offsets& offsets : kOffsets)
      for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
        CAPTURE(version.name, n, offsets.inputs, offsets.output);
        REQUIRE_OK(check_squared_error(version.launch, random_floats(n, 0, 4),
                                       random_floats(n, 1, 1), offsets));
      }
}

TEST_CASE("squared error: the loops work where a grid has fewer blocks than tiles") {
  const std::vector<float> p = random_floats(20011, 0, 4), t = random_floats(20011, 1, 4);
  const auto launch = [](float* loss, float* grad, const float* d_p, const float* d_t, size_t n,
                         const Workspace& workspace, hipStream_t) {
    LAUNCH(squared_error_vectorized, 3, kBlock, 0, workspace.partials, grad, d_p, d_t,
           split_vectors(n, {grad, d_p, d_t}), gradient_scale(n));
    launch_mean(loss, workspace.partials, 3, {n}, workspace.partials + kMaxBlocks, nullptr);
  };
  REQUIRE_OK(check_squared_error({launch, squared_error_scalar_bound}, p, t, {0, 0}, 1e-5));
  REQUIRE_OK(check_squared_error({launch, squared_error_scalar_bound}, p, t, {3, 3}, 1e-5));
}

TEST_CASE("squared error: the gradient may take the place of an input") {
  const std::vector<float> p = random_floats(1003, 0, 4), t = random_floats(1003, 1, 4);
  for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
    if (std::string(version.name) == "mse_separate") continue;
    CAPTURE(version.name);
    Guarded<float> d_p(p, 1), d_t(t, 1), d_grad(p.size(), 1), d_loss(1, 0);
    Places places(0);
    const auto run = [&](Guarded<float>& grad) {
      version.launch.run(d_loss.data(), grad.data(), d_p.data(), d_t.data(), p.size(),
                         places.workspace(), nullptr);
      return grad.to_host();
    };
    const std::vector<float> grad = run(d_grad);
    REQUIRE(same_bits(run(d_p), grad));
  }
}

TEST_CASE("squared error: NaN and infinity reach the loss; the mean of nothing is NaN") {
  for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
    CAPTURE(version.name);
    for (const float special : {kNan, kInfinity, -kInfinity}) {
      std::vector<float> p = random_floats(1003, 0, 4);
      const std::vector<float> t = random_floats(1003, 1, 4);
      p[700] = special;
      REQUIRE_OK(check_squared_error(version.launch, p, t, {0, 0}));
    }
    REQUIRE_OK(check_squared_error(version.launch, {}, {}, {0, 0}));
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
    Guarded<float> d_p(p, 0), d_t(t, 0), d_grad(p.size(), 0), d_loss(1, 0);
    Places places(0);
    version.launch.run(d_loss.data(), d_grad.data(), d_p.data(), d_t.data(), p.size(),
                       places.workspace(), nullptr);
    const Split split = split_vectors(p.size(), {d_p.data(), d_t.data(), d_grad.data()});
    const std::vector<float> got = d_grad.to_host();
    REQUIRE_OK(compare_value(d_loss.to_host()[0], loss, version.launch.bound(loss, split)));
    REQUIRE_OK(compare(
        grad.size(), [&](size_t i) { return got[i]; }, [&](size_t i) { return grad[i]; },
        [&](size_t i) { return squared_error_gradient_bound(grad[i]); }));
  }
}

// ---- Cross-entropy ----------------------------------------------------------------------------

namespace {

enum class Labels { first, last, random };

struct Batch : HostRows {
  Batch(size_t row_count, size_t class_count, float scale, Labels kind = Labels::random) {
    rows = row_count, classes = class_count, logits = random_floats(rows * classes, 0, scale);
    for (size_t row = 0; row < rows; ++row) {
      const size_t any = random_numbers::word(7, 1, row) % classes;
      labels.push_back(static_cast<int>(kind == Labels::first  ? 0
                                        : kind == Labels::last ? classes - 1
                                                               : any));
    }
    count_labels();
  }
  // To be called again where labels become ignored.
  void count_labels() {
    count = 0;
    for (size_t row = 0; row < rows; ++row) count += label(row) != kIgnored;
  }
  float& at(size_t row, size_t column) { return logits[row * classes + column]; }

  size_t rows;
};

struct Result {
  float loss;
  std::vector<float> grad, row_losses;
  unsigned long long bad_label;
  bool intact;
};

Result run(const Launch& version, const Batch& batch, Offsets offsets = {0, 0}) {
  Guarded<float> d_logits(batch.logits, offsets.inputs);
  Guarded<float> d_grad(batch.logits.size(), offsets.output), d_loss(1, 0);
  Guarded<int> d_labels(batch.labels, offsets.inputs);
  Places places(batch.rows);
  version.run(d_loss.data(), d_grad.data(), d_logits.data(),
              {d_labels.data(), batch.rows, batch.classes, batch.ignore_index}, places.workspace(),
              nullptr);
  return {d_loss.to_host()[0], d_grad.to_host(), places.row_losses.to_host(),
          places.bad_label.to_host()[0],
          d_logits.intact() && d_grad.intact() && d_loss.intact() && d_labels.intact() &&
              places.intact()};
}

// Gradient, row losses and their mean against the reference: the first that is wrong.
Comparison check(const Launch& version, const Batch& batch, Offsets offsets = {0, 0}) {
  const Result got = run(version, batch, offsets);
  const double count = batch.count;
  const CrossEntropy want = cross_entropy_cpu(batch);
  const CrossEntropy bounds = cross_entropy_bounds(batch, want, version.roundings(batch.classes),
                                                   version.from_probabilities);
  Comparison grad = compare(
      got.grad.size(), [&](size_t i) { return got.grad[i]; },
      [&](size_t i) { return want.grad[i]; }, [&](size_t i) { return bounds.grad[i]; });
  const Comparison rows = compare(
      batch.rows, [&](size_t r) { return got.row_losses[r]; },
      [&](size_t r) { return want.row_losses[r]; }, [&](size_t r) { return bounds.row_losses[r]; });
  double mean = 0, bound = mean_bound(got.row_losses, count);
  for (size_t row = 0; row < batch.rows; ++row) {
    mean += want.row_losses[row] / count;
    bound += bounds.row_losses[row] / count;
  }
  if (count == 0) mean = std::numeric_limits<double>::quiet_NaN();
  const Comparison loss = compare_value(got.loss, mean, bound);
  grad.ok = grad.ok && got.intact;
  return !grad.ok ? grad : !rows.ok ? rows : loss;
}

}  // namespace

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

TEST_CASE("the entry for later stages, and the loss without a gradient") {
  for (const Batch& batch : {Batch(5, 10, 4), Batch(3, 1003, 4), Batch(1, 53000, 4)}) {
    CAPTURE(batch.classes);
    REQUIRE_OK(check({cross_entropy, roundings_best, false}, batch));
    const Launch loss_alone{
        [](float* loss, float* grad, const float* logits, const Targets& targets,
           const Workspace& workspace, hipStream_t stream) {
          cross_entropy(loss, grad, logits, targets, workspace, stream);
          gpu::poison(loss, sizeof(float));
          gpu::poison(workspace.row_losses, targets.rows * sizeof(float));
          launch_loss_of_logits(loss, logits, targets, workspace, stream);
        },
        roundings_from_logits, false};
    REQUIRE_OK(check(loss_alone, batch));
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
  const std::vector<double> row_losses = array("row_losses"), grad = array("grad");
  Batch batch(0, 1, 0);
  batch.rows = labels.size(), batch.classes = logits.size() / labels.size();
  batch.logits.assign(logits.begin(), logits.end());
  for (const double label : labels) batch.labels.push_back(static_cast<int>(label));
  batch.ignore_index = -100;
  batch.count_labels();
  const double mean = array("loss").at(0), count = batch.count;
  REQUIRE(count < static_cast<double>(batch.rows));
  const CrossEntropy want = cross_entropy_cpu(batch);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const Result got = run(version.launch, batch);
    const CrossEntropy bounds = cross_entropy_bounds(
        batch, want, version.launch.roundings(batch.classes), version.launch.from_probabilities);
    REQUIRE_OK(compare(
        grad.size(), [&](size_t i) { return got.grad[i]; }, [&](size_t i) { return grad[i]; },
        [&](size_t i) { return bounds.grad[i]; }));
    REQUIRE_OK(compare(
        row_losses.size(), [&](size_t r) { return got.row_losses[r]; },
        [&](size_t r) { return row_losses[r]; }, [&](size_t r) { return bounds.row_losses[r]; }));
    double bound = mean_bound(got.row_losses, count);
    for (const double row_bound : bounds.row_losses) bound += row_bound / count;
    REQUIRE_OK(compare_value(got.loss, mean, bound));
  }
}

TEST_CASE("the same bits on every run") {
  const Batch batch(33, 1003, 6);
  const std::vector<float> p = random_floats(100003, 0, 4), t = random_floats(100003, 1, 4);
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const Result first = run(version.launch, batch);
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Result again = run(version.launch, batch);
      REQUIRE(same_bits(again.loss, first.loss));
      REQUIRE(same_bits(again.grad, first.grad));
    }
  }
  for (const auto& version : testing::chosen(kSquaredErrorVersions)) {
    CAPTURE(version.name);
    Guarded<float> d_p(p, 0), d_t(t, 0), d_grad(p.size(), 0), d_loss(1, 0);
    Places places(0);
    const auto loss = [&] {
      version.launch.run(d_loss.data(), d_grad.data(), d_p.data(), d_t.data(), p.size(),
                         places.workspace(), nullptr);
      return d_loss.to_host();
    };
    const std::vector<float> first = loss();
    for (int repeat = 0; repeat < 10; ++repeat) REQUIRE(same_bits(loss(), first));
  }
}

// ---- Labels -----------------------------------------------------------------------------------

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

TEST_CASE("where every row is ignored the loss is 0 / 0, the gradient 0") {
  Batch batch(5, 17, 4);
  batch.ignore_index = -1;
  batch.labels.assign(5, -1);
  batch.count_labels();
  for (const auto& version : testing::chosen(kVersions)) {
    CAPTURE(version.name);
    const Result got = run(version.launch, batch);
    REQUIRE((std::isnan(got.loss) && got.intact));
    for (const float grad : got.grad) REQUIRE(grad == 0);
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

// ---- Values -----------------------------------------------------------------------------------

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

namespace {

// X -> loss and gradient by a function of one row's logits; the row's thread does it alone.
template <class RowFunction>
static __global__ void thread_per_row(float* grad, const float* logits, Targets targets,
                                      Workspace workspace, RowFunction function) {
  const size_t row = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row < targets.rows)
    function(grad + row * targets.classes, logits + row * targets.classes, row, targets, workspace);
}

// Softmax without a mistake, and each mistake as a flag.
struct Mistakes {
  bool no_one_hot, no_maximum, neighbours_label;
  __device__ void operator()(float* grad, const float* x, size_t row, const Targets& targets,
                             const Workspace& workspace) const {
    const int label = targets.label(neighbours_label ? (row + 1) % targets.rows : row);
    float max = -FLT_MAX, sum = 0;
    for (size_t c = 0; c < targets.classes; ++c) max = fmaxf(max, x[c]);
    if (no_maximum) max = 0;
    for (size_t c = 0; c < targets.classes; ++c) sum += expf(x[c] - max);
    Gradient::Row output{no_one_hot ? -1 : label, 1.0f / static_cast<float>(targets.rows)};
    for (size_t c = 0; c < targets.classes; ++c) grad[c] = output(c, expf(x[c] - max) / sum);
    leave_row_loss(workspace, targets, row, label, logf(sum) + (max - x[label]));
  }
};

template <bool kNoOneHot, bool kNoMaximum, bool kNeighboursLabel, int kMiscounted>
void launch_mistaken(float* loss, float* grad, const float* logits, const Targets& targets,
                     const Workspace& workspace, hipStream_t stream) {
  const Mistakes mistakes{kNoOneHot, kNoMaximum, kNeighboursLabel};
  LAUNCH((thread_per_row<Mistakes>), 1, kBlock, 0, grad, logits, targets, workspace, mistakes);
  launch_mean(loss, workspace.row_losses, targets.rows, {targets.rows + kMiscounted},
              workspace.partials, stream);
}

// Ignored rows are counted all the same.
void launch_counting_all(float* loss, float* grad, const float* logits, const Targets& targets,
                         const Workspace& workspace, hipStream_t stream) {
  const LossAndGradient output{{targets, {targets.rows}}, logits, workspace};
  softmax::launch_best(grad, logits, targets.rows, targets.classes, output, stream);
  launch_mean(loss, workspace.row_losses, targets.rows, {targets.rows}, workspace.partials, stream);
}

void launch_all_but_last_row(float* loss, float* grad, const float* logits, const Targets& targets,
                             const Workspace& workspace, hipStream_t stream) {
  const Targets fewer{targets.labels, targets.rows - 1, targets.classes};
  cross_entropy(loss, grad, logits, fewer, workspace, stream);
}

void launch_half_gradient(float* loss, float* grad, const float* p, const float* t, size_t n,
                          const Workspace& workspace, hipStream_t stream) {
  launch_squared_error_loss(loss, p, t, n, workspace, stream);
  LAUNCH(squared_error_gradient, 1, kBlock, 0, grad, p, t, n, 1.0f / static_cast<float>(n));
}

void launch_missing_element(float* loss, float* grad, const float* p, const float* t, size_t n,
                            const Workspace& workspace, hipStream_t stream) {
  launch_squared_error_fused(loss, grad, p, t, n, workspace, stream);
  launch_squared_error_loss(loss, p, t, n - 1, workspace, stream);
}

}  // namespace

TEST_CASE("planted mistakes are caught", "[harness]") {
  const auto mistaken = [](auto launch) {
    return Launch{launch, softmax::roundings_thread_per_row, false};
  };
  Batch batch(33, 10, 4), large(33, 10, 200);
  batch.labels[3] = 4, batch.labels[4] = 5;
  REQUIRE_OK(check(mistaken(launch_mistaken<false, false, false, 0>), batch));
  REQUIRE_OK(check(mistaken(launch_mistaken<false, false, false, 0>), large));
  REQUIRE(!check(mistaken(launch_mistaken<true, false, false, 0>), batch).ok);
  REQUIRE(!check(mistaken(launch_mistaken<false, true, false, 0>), large).ok);
  REQUIRE(!check(mistaken(launch_mistaken<false, false, true, 0>), batch).ok);
  REQUIRE(!check(mistaken(launch_mistaken<false, false, false, 1>), batch).ok);
  REQUIRE(!check(mistaken(launch_all_but_last_row), batch).ok);
  REQUIRE_OK(check(mistaken(launch_counting_all), batch));
  batch.ignore_index = 4;
  batch.count_labels();
  REQUIRE(!check(mistaken(launch_counting_all), batch).ok);

  std::vector<float> p = random_floats(1003, 0, 3), t = random_floats(1003, 1, 3);
  p.back() = 2, t.back() = -1;
  REQUIRE(
      !check_squared_error({launch_half_gradient, squared_error_scalar_bound}, p, t, {0, 0}).ok);
  REQUIRE(
      !check_squared_error({launch_missing_element, squared_error_scalar_bound}, p, t, {0, 0}).ok);
}
