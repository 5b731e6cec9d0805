// fused_registers: the row stays in registers: one read, one write.
//
// Fixes : fused_online reads a row twice.
// Idea  : the kernel `row_in_registers` of step 3.2 hands every probability to LossAndGradient: a
//         team of threads holds the row between its maximum and its gradient.
// Costs : 8 bytes of global memory per logit. Rows that registers can't hold go to `online`.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/online.h"
#include "stage3_ml_ops/02_softmax/detail/row_in_registers.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

void launch_fused_registers(float* loss, float* grad, const float* logits, const Targets& targets,
                            const Workspace& workspace, hipStream_t stream) {
  launch_fused(loss, logits, targets, workspace, stream, [&](const LossAndGradient& output) {
    if (!softmax::launch_row_in_registers(grad, logits, targets.rows, targets.classes, output,
                                          stream))
      softmax::launch_online(grad, logits, targets.rows, targets.classes, output, stream);
  });
}

}  // namespace losses

namespace softmax {

template bool launch_row_in_registers(float*, const float*, size_t, size_t, losses::LossAndGradient,
                                      hipStream_t);

}  // namespace softmax
