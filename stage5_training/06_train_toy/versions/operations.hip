// A kernel per operation, of the steps before: forward, loss, backward, optimizer.
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/06_train_toy/loop.h"
#include "stage5_training/06_train_toy/train_toy.h"

namespace train_toy {

// Queues one step: five or six kernels per layer.
void launch_step(Trainer& t) {
  // exercise: forward, loss, backward, the optimizer's step (about 6 lines)
  const float* logits = t.model.forward(t.x.data(), t.points(), t.stream);
  losses::cross_entropy(t.loss.data(), t.logits_grad.data(), logits,
                        {t.labels.data(), t.points(), t.model.outputs()},
                        t.loss_buffers.workspace(), t.stream);
  t.model.backward(t.logits_grad.data(), t.stream);
  optimizers::step(t.settings().kind, t.model.arena(), t.schedule.data(), t.stream);
  // end exercise
}

void launch_operations(Trainer& t, unsigned steps) {
  run_in_pieces(t, steps, [&](unsigned piece) {
    for (unsigned i = 0; i < piece; ++i) launch_step(t);
  });
}

}  // namespace train_toy
