// fused_online: loss and gradient in one kernel, which reads the row twice.
//
// Fixes : from_logits reads the logits in two kernels, the second time all of them from memory.
// Idea  : the kernel `online` of step 3.2 hands every probability to LossAndGradient instead of
//         storing it. It reads a row once for its maximum and sum and once for the gradient, which
//         the cache may serve.
// Costs : 8 to 12 bytes of global memory per logit.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/online.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage3_ml_ops/03_losses/losses.h"

namespace losses {

void launch_fused_online(float* loss, float* grad, const float* logits, const Targets& targets,
                         const Workspace& workspace, hipStream_t stream) {
  launch_fused(loss, logits, targets, workspace, stream, [&](const LossAndGradient& output) {
    softmax::launch_online(grad, logits, targets.rows, targets.classes, output, stream);
  });
}

}  // namespace losses

namespace softmax {

template void launch_online(float*, const float*, size_t, size_t, losses::LossAndGradient,
                            hipStream_t);

}  // namespace softmax
