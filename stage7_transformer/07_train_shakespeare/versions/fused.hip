// fused: the blocks of step 7.6 with all epilogues; what the chain does not need runs beside it.
//
// Fixes : launches of which the next does not need the result stand in the way of those that do.
// Idea  : from the loss on only the gradients of the activations wait for one another. The mean of
//         the losses, the schedule and all weights' gradients run on streams of their own.
// Costs : three forks and joins; a second workspace for the blocks.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/launch_best.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

namespace train_shakespeare {

void queue_fused(Training& t) {
  Pass& pass = t.fused;
  const size_t batch = pass.sizes.batch, rows = pass.rows(), C = pass.sizes.width;
  const size_t V = t.model.vocabulary();
  const Tensors<const float*>& p = t.model.parameters();
  const Tensors<float*>& grad = t.model.gradients();
  const hipStream_t stream = t.stream;
  launch_gather(pass.tokens.data(), pass.labels.data(), t.train(), batch, pass.sizes.context,
                t.drawn(), stream);
  forward(t.model, pass, batch, stream);
  const losses::Targets targets{pass.labels.data(), rows, V};
  const losses::Workspace of_losses = pass.losses.workspace();
  softmax::launch_best(pass.grad_logits.data(), pass.logits.data(), rows, V,
                       losses::LossAndGradient{{targets, {rows}}, pass.logits.data(), of_losses},
                       stream);

  // Beside the chain: what follows from the loss, and the gradient of the head's weights.
  const dense_backward::Branches& of_loss = t.branches;
  of_loss.fork(stream);
  losses::launch_mean(t.loss.data(), of_losses.row_losses, rows, {rows}, of_losses.partials,
                      of_loss[0]);
  launch_begin_update(t, of_loss[0]);
  transformer_block::weight_gradients({pass.head_task(grad, V)}, rows, pass.head_sums.data(),
                                      of_loss[1]);

  float* const top = pass.grad_x.back().data();
  dense_backward::launch_grad_x({nullptr, nullptr, top}, pass.grad_logits.data(), rows,
                                {C, V, p.head, nullptr}, 0, stream);
  layernorm_backward::backward(top, grad.norm_gain, grad.norm_bias, top, pass.x.back().data(),
                               p.norm_gain, pass.statistics.data(), pass.statistics.data() + rows,
                               nullptr, rows, C, pass.norm_workspace, stream);
  for (size_t layer = pass.sizes.layers; layer-- > 0;) {
    const dense_backward::Branches& weights = t.of_blocks[layer % 2];
    transformer_block::Workspace& workspace = pass.workspaces[layer % 2];
    const float* grad_y = pass.grad_x[layer + 1].data();
    if (layer + 2 < pass.sizes.layers) weights.join(stream);  // the workspace is free again
    transformer_block::chain_backward(grad.blocks[layer], pass.grad_x[layer].data(), grad_y,
                                      pass.x[layer].data(), p.blocks[layer], pass.shape(batch),
                                      *pass.kept[layer], workspace, pass.mode, stream);
    weights.fork(stream);
    transformer_block::weights_backward(grad.blocks[layer], grad_y, pass.shape(batch),
                                        *pass.kept[layer], workspace, pass.mode, weights[0]);
  }
  embedding::backward(grad.token, grad.position, pass.grad_x[0].data(), pass.tokens.data(),
                      pass.embedding_shape(batch, V), pass.embedding_workspace, stream);
  join_and_update(t);
}

void run_fused(Training& t, size_t steps) {
  t.run_in_pieces(steps, [&](size_t piece) {
    for (size_t i = 0; i < piece; ++i) queue_fused(t);
  });
}

}  // namespace train_shakespeare
