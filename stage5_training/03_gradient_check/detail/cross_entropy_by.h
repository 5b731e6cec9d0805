// Cases of the cross-entropy, for whatever computes the gradient. Host code, but step 3.3's
// launchers bring its kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/device_buffer.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/03_gradient_check/problem.h"
#include "stage5_training/03_gradient_check/reference.h"

namespace gradient_check {

// Writes the gradient by the logits.
using BackwardOfLogits = void (*)(float* grad, const float* logits, const losses::Targets& targets,
                                  const losses::Workspace& workspace);

// The mean cross-entropy of logits and labels, whose gradient `run` computes. Where `ignore` is
// set, some rows do not count.
inline Case cross_entropy_by(const Sizes& sizes, std::uint64_t seed, BackwardOfLogits run,
                             bool ignore) {
  const size_t rows = sizes.batch, classes = sizes.out;
  const std::vector<int> labels = random_labels(rows, classes, ignore, seed);
  Case c;
  c.arguments = {argument("logits", {rows, classes}, seed, 40, 3)};
  c.loss = [=](const auto& v) { return mean_cross_entropy(v[0], labels); };
  c.backward = [=](const auto& gradients, const auto& v) {
    const gpu::DeviceBuffer<int> d_labels(labels);
    losses::Buffers buffers(rows);
    run(gradients[0], v[0], {d_labels.data(), rows, classes, kIgnoreIndex}, buffers.workspace());
    buffers.check_labels(classes);
  };
  return c;
}

}  // namespace gradient_check
