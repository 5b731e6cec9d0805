// What the tests of step 3.3 share: guarded memory, batches, and a run of a version held against
// the reference.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage3_ml_ops/03_losses/reference.h"

namespace losses_test {

using namespace losses;
using testing::random_floats;
using testing::random_integers;
using testing::same_bits;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline Comparison compare_value(float got, double want, double bound) {
  return compare(
      1, [&](size_t) { return got; }, [&](size_t) { return want; }, [&](size_t) { return bound; });
}

// Elements behind a multiple of 16 bytes.
struct Offsets {
  size_t inputs, output;
};
inline constexpr Offsets kOffsets[] = {{0, 0}, {1, 1}, {3, 3}, {0, 1}};

// A guarded Workspace.
struct Places {
  explicit Places(size_t rows)
      : row_losses(rows, 0),
        partials(2 * kMaxBlocks, 0),
        wholes(2 * rows, 0),
        counted(1, 0),
        bad_label(std::vector<unsigned long long>{kNoBadLabel}, 0) {}
  Workspace workspace() {
    return {row_losses.size(), row_losses.data(), reinterpret_cast<softmax::MaxSum*>(wholes.data()),
            partials.data(),   counted.data(),    bad_label.data()};
  }
  bool intact() const {
    return row_losses.intact() && partials.intact() && wholes.intact() && counted.intact() &&
           bad_label.intact();
  }
  Guarded<float> row_losses, partials, wholes;
  Guarded<unsigned> counted;
  Guarded<unsigned long long> bad_label;
};

// ---- Cross-entropy ----------------------------------------------------------------------------

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

// A version, or something like one.
struct CrossEntropyVersion {
  CrossEntropyVersion(const Launch& launch)
      : run(launch.run),
        roundings(launch.roundings),
        from_probabilities(launch.from_probabilities) {}
  CrossEntropyVersion(std::function<void(float*, float*, const float*, const Targets&,
                                         const Workspace&, hipStream_t)>
                          launch,
                      Roundings (*of_sum)(size_t))
      : run(std::move(launch)), roundings(of_sum), from_probabilities(false) {}

  std::function<void(float* loss, float* grad, const float* logits, const Targets&,
                     const Workspace&, hipStream_t)>
      run;
  Roundings (*roundings)(size_t classes);
  bool from_probabilities;
};

inline Result run(const CrossEntropyVersion& version, const Batch& batch,
                  Offsets offsets = {0, 0}) {
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

// Gradient, row losses and their mean against `want` within `bounds`: the first that is wrong.
inline Comparison check(const Result& got, const Batch& batch, const CrossEntropy& want,
                        const CrossEntropy& bounds) {
  Comparison grad = compare(
      got.grad.size(), [&](size_t i) { return got.grad[i]; },
      [&](size_t i) { return want.grad[i]; }, [&](size_t i) { return bounds.grad[i]; });
  const Comparison rows = compare(
      batch.rows, [&](size_t r) { return got.row_losses[r]; },
      [&](size_t r) { return want.row_losses[r]; }, [&](size_t r) { return bounds.row_losses[r]; });
  double mean = 0, bound = mean_bound(got.row_losses, batch.count);
  for (size_t row = 0; row < batch.rows; ++row) {
    mean += want.row_losses[row] / batch.count;
    bound += bounds.row_losses[row] / batch.count;
  }
  if (batch.count == 0) mean = std::numeric_limits<double>::quiet_NaN();
  const Comparison loss = compare_value(got.loss, mean, bound);
  grad.ok = grad.ok && got.intact;
  return !grad.ok ? grad : !rows.ok ? rows : loss;
}

// The same against the reference.
inline Comparison check(const CrossEntropyVersion& version, const Batch& batch,
                        Offsets offsets = {0, 0}) {
  const CrossEntropy want = cross_entropy_cpu(batch);
  const CrossEntropy bounds = cross_entropy_bounds(batch, want, version.roundings(batch.classes),
                                                   version.from_probabilities);
  return check(run(version, batch, offsets), batch, want, bounds);
}

}  // namespace losses_test
