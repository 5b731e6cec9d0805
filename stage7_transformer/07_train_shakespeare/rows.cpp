// A step of a model of few channels: rows stay in shared memory from one attention to the next,
// over the borders between the blocks.
//
//   embed | norm qkv | attention | proj norm fc out norm qkv | attention | ... out | norm head loss
//         |          |           |                           |           |         |
//   embed | norm qkv | attention | proj norm fc out norm qkv | attention | ... out |     and back
#include "stage7_transformer/07_train_shakespeare/rows.h"

#include <vector>

#include "stage7_transformer/06_transformer_block/parts.h"
#include "stage7_transformer/06_transformer_block/rows.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

namespace train_shakespeare {

using transformer_block::BlockGradient;
using transformer_block::BlockPass;

bool is_in_rows(const Training& t) {
  return transformer_block::is_in_rows(t.fused.shape(t.fused.sizes.batch)) &&
         t.model.vocabulary() <= kMostInRows;
}

static void queue_forward(Training& t) {
  Pass& pass = t.fused;
  const transformer_block::Shape shape = pass.shape(pass.sizes.batch);
  const Tensors<const float*>& p = t.model.parameters();
  launch_gather(pass.tokens.data(), pass.labels.data(), t.train(), shape.B, shape.T, t.drawn(),
                t.stream);
  embedding::forward(pass.x[0].data(), pass.tokens.data(), p.token, p.position,
                     pass.embedding_shape(shape.B, t.model.vocabulary()), t.stream);
  std::vector<BlockPass> blocks;
  for (size_t i = 0; i < pass.sizes.layers; ++i) {
    blocks.push_back({p.blocks[i], *pass.kept[i], pass.x[i].data(), pass.x[i + 1].data()});
    const BlockPass* const ends = i == 0 ? nullptr : &blocks[i - 1];
    transformer_block::launch_rows(ends, &blocks[i], shape, t.stream);
    transformer_block::attend_flash(*pass.kept[i], shape, t.stream);
  }
  transformer_block::launch_rows(&blocks.back(), nullptr, shape, t.stream);
}

// Beside the chain: what follows from the loss, and the gradients of what is behind the last block.
static void queue_beside_end(Training& t) {
  Pass& pass = t.fused;
  const size_t rows = pass.rows();
  const Tensors<float*>& grad = t.model.gradients();
  const losses::Workspace of_losses = pass.losses.workspace();
  const dense_backward::Branches& beside = t.branches;
  beside.fork(t.stream);
  losses::launch_mean(t.loss.data(), of_losses.row_losses, rows, {rows}, of_losses.partials,
                      beside[0]);
  launch_begin_update(t, beside[0]);
  transformer_block::weight_gradients({pass.head_task(grad, t.model.vocabulary())}, rows,
                                      pass.head_sums.data(), beside[1]);
  transformer_block::add_norm_parts(grad.norm_gain, grad.norm_bias, pass.norm_parts.data(),
                                    pass.shape(pass.sizes.batch), beside[1]);
}

// The gradients of a block's weights wait for attention, those of its gains and biases for its
// first normalization.
static void queue_backward(Training& t) {
  Pass& pass = t.fused;
  const transformer_block::Shape shape = pass.shape(pass.sizes.batch);
  const Tensors<const float*>& p = t.model.parameters();
  const Tensors<float*>& grad = t.model.gradients();
  const size_t layers = pass.sizes.layers;
  std::vector<BlockGradient> blocks;
  for (size_t i = 0; i < layers; ++i)
    blocks.push_back({p.blocks[i], *pass.kept[i], pass.workspaces[i % 2], pass.x[i].data(),
                      pass.grad_x[i + 1].data(), pass.grad_x[i].data()});
  const auto leave_norms = [&](size_t i) {
    t.of_blocks[i % 2].fork(t.stream);
    transformer_block::norm_gradients_of_rows(grad.blocks[i], shape, pass.workspaces[i % 2],
                                              t.of_blocks[i % 2][1]);
  };
  for (size_t i = layers; i-- > 0;) {
    const bool is_last = i + 1 == layers;
    const dense_backward::Branches& weights = t.of_blocks[i % 2];
    if (i + 2 < layers) weights.join(t.stream);  // the workspace is free again
    transformer_block::launch_rows_backward(is_last ? nullptr : &blocks[i + 1], &blocks[i], shape,
                                            t.stream);
    if (!is_last) leave_norms(i + 1);
    transformer_block::attend_backward_in_rows(*pass.kept[i], pass.workspaces[i % 2], shape,
                                               t.stream);
    weights.fork(t.stream);
    transformer_block::weights_backward(grad.blocks[i], pass.grad_x[i + 1].data(), shape,
                                        *pass.kept[i], pass.workspaces[i % 2], pass.mode,
                                        weights[0]);
  }
  transformer_block::launch_rows_backward(&blocks[0], nullptr, shape, t.stream);
  leave_norms(0);
}

void queue_rows(Training& t) {
  if (!is_in_rows(t)) return queue_fused(t);
  Pass& pass = t.fused;
  const Tensors<float*>& grad = t.model.gradients();
  queue_forward(t);
  launch_rows_end(t, t.stream);
  queue_beside_end(t);
  queue_backward(t);
  embedding::backward(grad.token, grad.position, pass.grad_x[0].data(), pass.tokens.data(),
                      pass.embedding_shape(pass.sizes.batch, t.model.vocabulary()),
                      pass.embedding_workspace, t.stream);
  join_and_update(t);
}

void run_rows(Training& t, size_t steps) {
  t.run_in_pieces(steps, [&](size_t piece) {
    for (size_t i = 0; i < piece; ++i) queue_rows(t);
  });
}

}  // namespace train_shakespeare
