// The loss without its gradient, and the gradient without its loss, in few launches. The rows that
// count are counted where they are needed: a launch that counts labels takes longer than to count
// those of a small batch again.
#include <cfloat>

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/02_softmax/detail/launch_best.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"
#include "stage3_ml_ops/03_losses/apart.h"
#include "stage3_ml_ops/03_losses/detail/count.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"

namespace losses {

// ---- The loss -----------------------------------------------------------------------------------

// *loss = the mean of log(sum of exp(x[r])) - x[r, label[r]]    x (rows, classes), one block.
// Fixes : a small batch takes as long as its launches: labels, rows, mean.
// Idea  : one block does all three.
// Thread: t owns row t. There are at most kBlock rows, of at most kShortRow classes.
// Costs : neighbours read columns of different rows; log2(kBlock) + 2 barriers.
static __global__ void loss_of_small_batch(float* loss, const float* x, LossAndGradient output) {
  const Targets& targets = output.gradient.targets;
  const size_t r = threadIdx.x, classes = targets.classes;
  float row_loss = 0;
  bool counts = false;
  if (r < targets.rows) {
    const LossAndGradient::Row output_row = output.row(r);
    softmax::MaxSum whole = softmax::nothing();
    for (size_t c = 0; c < classes; ++c) whole.max = fmaxf(whole.max, x[r * classes + c]);
    for (size_t c = 0; c < classes; ++c)
      whole.sum += softmax::exponential(x[r * classes + c] - whole.max);
    row_loss = output_row.finish(whole);
    counts = output_row.label != kIgnored;
  }
  const float count = static_cast<float>(__syncthreads_count(counts));  // of all threads
  const float sum = dot::block_sum_tree(row_loss);
  if (threadIdx.x == 0) *loss = sum / count;
}

using Team = softmax::WaveTeam;

// row_losses[r] = log(sum of exp(x[r])) - x[r, label[r]]    x (rows, classes).
// Fixes : cross_entropy_of_logits has a block for each row, most of whose threads have no column.
// Idea  : a wave for each row needs no barrier.
// Thread: lane t of a wave owns the columns t, t + wave, ... of the wave's rows.
// Costs : 4 rows classes bytes of global memory; two reductions of a wave per row.
static __global__ void losses_of_waves(const float* x, LossAndGradient output) {
  const size_t rows = output.gradient.targets.rows, classes = output.gradient.targets.classes;
  for (size_t r = Team::first_row(); r < rows; r += Team::rows_in_grid()) {
    const LossAndGradient::Row output_row = output.row(r);
    softmax::MaxSum part = softmax::nothing();
    for (size_t c = Team::rank(); c < classes; c += Team::size())
      part = softmax::merge(part, {x[r * classes + c], 1.0f});
    const softmax::MaxSum whole = Team::merge(part);
    if (Team::rank() == 0) output_row.finish(whole);
  }
}

// *loss = (sum of row_losses) / (how many labels are not ignored)    row_losses (rows), one block.
// Fixes : count_labels and the memset in front of it are two launches for one number.
// Idea  : the block that adds the losses reads the labels beside them.
// Thread: t adds and counts the rows t, t + kBlock, ...
// Costs : 8 rows bytes of global memory; 2 log2(kBlock) + 3 barriers.
static __global__ void mean_of_counted(float* loss, const float* row_losses, Targets targets) {
  float part = 0, counted = 0;
  for (size_t first = 0; first < targets.rows; first += kBlock * kLoads) {
    GPU_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const size_t row = first + threadIdx.x + static_cast<size_t>(i) * kBlock;
      part += row < targets.rows ? row_losses[row] : 0;
    }
    counted += counted_from(targets, first);
  }
  const float sum = dot::block_sum_tree(part);
  __syncthreads();  // every thread has read the sum: its memory is free
  const float count = dot::block_sum_tree(counted);
  if (threadIdx.x == 0) *loss = sum / count;
}

void launch_loss_apart(float* loss, const float* logits, const Targets& targets,
                       const Workspace& workspace, hipStream_t stream) {
  if (targets.rows > kOneBlock || targets.rows == 0) {
    launch_loss_of_logits(loss, logits, targets, workspace, stream);
    return;
  }
  check(targets, workspace);
  if (targets.rows <= kBlock && targets.classes <= kShortRow) {
    LAUNCH_ON(stream, loss_of_small_batch, 1, kBlock, 0, loss, logits,
              (LossAndGradient{{targets, {targets.rows}}, logits, workspace}));
    return;
  }
  const LossAndGradient output{{targets, {targets.rows}}, logits, workspace};
  if (targets.classes <= kRowOfWave)
    LAUNCH_ON(stream, losses_of_waves,
              softmax::row_blocks(targets.rows, Team::kBlockThreads / Team::host_size(),
                                  Team::kBlockThreads),
              Team::kBlockThreads, 0, logits, output);
  else
    launch_row_losses(logits, targets, {targets.rows}, workspace, stream);
  LAUNCH_ON(stream, mean_of_counted, 1, kBlock, 0, loss, workspace.row_losses, targets);
}

// ---- The gradient -------------------------------------------------------------------------------

// How many labels are not ignored, in every lane. All lanes of the wave call it.
__device__ static inline float counted_by_wave(const Targets& targets) {
  float counted = 0;  // a float counts kCountedByWave rows exactly
  for (size_t row = static_cast<size_t>(gpu::lane_id()); row < targets.rows;
       row += static_cast<size_t>(gpu::wave_size()))
    counted += targets.label(row) != kIgnored ? 1.0f : 0.0f;
  return dot::wave_sum(counted);
}

// An output for step 3.2's kernels: the gradient times *factor. A row belongs to whole waves.
struct ScaledGradient {
  Gradient gradient;
  const float* factor;
  bool counts;  // the labels; otherwise gradient.count is what there is

  struct Row : Gradient::Row {
    float factor;
    __device__ void finish(softmax::MaxSum) const {}
    template <class Index>
    __device__ float operator()(Index column, float probability) const {
      return factor * Gradient::Row::operator()(column, probability);
    }
  };
  __device__ Row row(size_t r) const {
    Gradient::Row of_one = gradient.row(r);
    if (counts) {
      const float count = counted_by_wave(gradient.targets);
      if (of_one.label >= 0) of_one.weight = 1.0f / count;
    }
    return {of_one, *factor};
  }
};

void launch_gradient_apart(float* grad, const float* factor, const float* logits,
                           const Targets& targets, const Workspace& workspace, hipStream_t stream) {
  check(targets, workspace);
  if (targets.rows == 0) return;
  const bool counts = targets.ignores() && targets.rows <= kCountedByWave;
  const Count count = counts ? Count{targets.rows} : count_rows(targets, workspace, stream);
  softmax::launch_best(grad, logits, targets.rows, targets.classes,
                       ScaledGradient{{targets, count}, factor, counts}, stream);
}

}  // namespace losses
