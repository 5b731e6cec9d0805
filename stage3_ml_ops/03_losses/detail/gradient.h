// What becomes of a row's probabilities: outputs for the kernels of step 3.2, which hand every
// probability to them instead of storing it, and the gradient from probabilities that are somewhere
// already. versions/from_probabilities.hip teaches the gradient, written out in its kernel.
#pragma once

#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/launch_best.h"
#include "stage3_ml_ops/03_losses/detail/row_loss.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

// Stores the gradient (probability - 1[column == label]) / count.
struct Gradient {
  Targets targets;
  Count count;

  struct Row {
    int label;
    float weight;  // 1 / count, or 0: this row has no gradient
    template <class Index>
    __device__ float operator()(Index column, float probability) const {
      const float one_hot = column == static_cast<Index>(label) ? 1.0f : 0.0f;
      return weight == 0 ? 0.0f : weight * (probability - one_hot);  // 0 * NaN would not be 0
    }
  };
  __device__ Row row(size_t r) const {
    const int label = targets.label(r);
    return {label, label >= 0 ? 1.0f / count.value() : 0.0f};
  }
};

// Stores the gradient, and leaves the row's loss.
struct LossAndGradient {
  Gradient gradient;
  const float* logits;
  Workspace workspace;

  struct Row : Gradient::Row {
    const LossAndGradient* output;
    size_t row;
    float logit;  // of the label
    // log(sum of exp(x)) - x[label] with x relative to the row's maximum: neither term is negative,
    // and nothing overflows.
    // Returns what it leaves.
    __device__ float finish(softmax::MaxSum whole) const {
      return leave_row_loss(output->workspace, output->gradient.targets, row, this->label,
                            logf(whole.sum) + (whole.max - logit));
    }
  };
  // Reads the label's logit here, before any gradient is stored: grad may be logits.
  __device__ Row row(size_t r) const {
    const Gradient::Row gradient_row = gradient.row(r);
    const int label = gradient_row.label;
    const float logit =
        label < 0 ? 0.0f : logits[r * gradient.targets.classes + static_cast<size_t>(label)];
    return {gradient_row, this, r, logit};
  }
};

// Leaves the loss of each row of `logits`, and its maximum and sum in workspace.wholes. There is a
// row at least. versions/from_logits.hip has it.
void launch_row_losses(const float* logits, const Targets& targets, Count count,
                       const Workspace& workspace, hipStream_t stream);

// *loss = the mean of what launch_rows(LossAndGradient), a launcher of step 3.2, leaves for each
// row.
template <class LaunchRows>
void launch_fused(float* loss, const float* logits, const Targets& targets,
                  const Workspace& workspace, hipStream_t stream, LaunchRows launch_rows) {
  const Count count = count_rows(targets, workspace, stream);
  if (targets.rows > 0) launch_rows(LossAndGradient{{targets, count}, logits, workspace});
  launch_mean(loss, workspace.row_losses, targets.rows, count, workspace.partials, stream);
}

// ---- Probabilities that are somewhere already -------------------------------------------------

// A source of them: source.row(r, classes)(column) is the probability of row r's column.
struct StoredProbabilities {
  const float* p;  // (rows, classes)
  struct Row {
    const float* p;
    __device__ float operator()(size_t column) const { return p[column]; }
  };
  __device__ Row row(size_t r, size_t classes) const { return {p + r * classes}; }
};

// grad[r,c] = (probability[r,c] - 1[c == label[r]]) / count    grad (rows, classes).
// Thread: t of a block owns the columns t, t + kBlock, ... of the rows blockIdx.x, ...
// Costs : what the source reads, and 4 rows classes bytes of global memory.
template <class Source>
static __global__ void cross_entropy_gradient(float* grad, Source source, Gradient output) {
  const size_t classes = output.targets.classes;
  for (size_t row = blockIdx.x; row < output.targets.rows; row += gridDim.x) {
    const auto probabilities = source.row(row, classes);
    const Gradient::Row output_row = output.row(row);
    for (size_t c = threadIdx.x; c < classes; c += kBlock)
      grad[row * classes + c] = output_row(c, probabilities(c));
  }
}

template <class Source>
void launch_gradient(float* grad, Source source, const Gradient& output, hipStream_t stream) {
  LAUNCH_ON(stream, (cross_entropy_gradient<Source>), row_blocks(output.targets.rows), kBlock, 0,
            grad, source, output);
}

}  // namespace losses

// Compiled once, each in the version that is named after it, and not in every file that launches
// it.
namespace softmax {

extern template void launch_online(float*, const float*, size_t, size_t, losses::LossAndGradient,
                                   hipStream_t);
extern template bool launch_row_in_registers(float*, const float*, size_t, size_t,
                                             losses::LossAndGradient, hipStream_t);
extern template bool launch_row_in_shared(float*, const float*, size_t, size_t,
                                          losses::LossAndGradient, hipStream_t);

}  // namespace softmax
