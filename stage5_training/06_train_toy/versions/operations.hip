// A kernel per operation, of the steps before: forward, loss, backward, optimizer.
#include "common/gpu.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/06_train_toy/train_toy.h"

namespace train_toy {

// curve[step % length] = *loss.
// Fixes : a host that reads every loss waits for every step.
// Idea  : the device writes the curve; the host reads many losses of it at once.
// Thread: the only one does it all.
// Costs : one launch of one thread per step.
static __global__ void record_loss(float* curve, size_t length, const float* loss,
                                   const Schedule* schedule) {
  curve[schedule->step % length] = *loss;
}

void SequentialTrainer::queue_record() {
  LAUNCH_ON(stream, record_loss, 1, 1, 0, curve.data(), curve.size(), loss.data(), schedule.data());
}

// Queues one step: five or six kernels per layer.
void SequentialTrainer::queue_step() {
  // exercise: the batch, forward, loss, backward, the curve where every loss goes to it, and the
  // optimizer's step (about 6 lines)
  const float* x = queue_batch();
  const float* y = model.forward(x, batch, stream);
  queue_loss(y);
  model.backward(grad_y.data(), stream);
  if (every == 1) queue_record();
  optimizers::step(settings.kind, model.arena(), schedule.data(), stream);
  // end exercise
}

void SequentialTrainer::run_operations(size_t count) {
  run_in_pieces(count, [&](size_t piece) {
    for (size_t i = 0; i < piece; ++i) queue_step();
  });
}

// Of this step's data sets: classes, and the logits of all points.
void Training::queue_loss(const float* logits) {
  // exercise: step 3.3's loss of all points' logits, and its gradient (about 3 lines)
  losses::cross_entropy(loss.data(), grad_y.data(), logits,
                        {labels.data(), points(), model.outputs()}, loss_buffers_.workspace(),
                        stream);
  // end exercise
}

void launch_operations(Training& t, unsigned steps) {
  t.require_room(steps);
  t.run_operations(steps);
}

}  // namespace train_toy
