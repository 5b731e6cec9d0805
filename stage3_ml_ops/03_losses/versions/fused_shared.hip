// fused_shared: part of the row in shared memory: for rows that registers can't hold.
//
// Fixes : fused_registers reads a row twice where its registers can't hold it.
// Idea  : the kernel `row_in_shared` of step 3.2 hands every probability to LossAndGradient: shared
//         memory keeps what the registers do not hold.
// Costs : 8 bytes of global memory per logit. Slower than fused_registers at every committed shape,
//         whose rows fit into registers; rows that neither memory holds go to `online`.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/online.h"
#include "stage3_ml_ops/02_softmax/detail/row_in_shared.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

void launch_fused_shared(float* loss, float* grad, const float* logits, const Targets& targets,
                         const Workspace& workspace, hipStream_t stream) {
  launch_fused(loss, logits, targets, workspace, stream, [&](const LossAndGradient& output) {
    if (!softmax::launch_row_in_shared(grad, logits, targets.rows, targets.classes, output, stream))
      softmax::launch_online(grad, logits, targets.rows, targets.classes, output, stream);
  });
}

}  // namespace losses

namespace softmax {

template bool launch_row_in_shared(float*, const float*, size_t, size_t, losses::LossAndGradient,
                                   hipStream_t);

}  // namespace softmax
