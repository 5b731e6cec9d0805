// bf16: the steps of fused with blocks of bf16. The parameters and the optimizer's states stay
// float.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage2_matrix/04_gemm_mixed/product.h"
#include "stage3_ml_ops/02_softmax/detail/launch_best.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/07_train_shakespeare/bf16_pass.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

namespace train_shakespeare {

// out[r, c] = in[r, c] rounded, and 0 for c >= cols    in (rows, cols), out (rows, pitch).
// Fixes : rows of 65 numbers of bf16 begin at no multiple of 16 bytes, and a product copies them
//         element by element.
// Idea  : rows as long as the next multiple of 8, with zeros at their ends: these add nothing.
// Thread: thread t owns the elements t, t + threads, ... of out.
// Costs : 4 bytes per element of in and 2 per element of out.
static __global__ void round_rows(bfloat16* out, const float* in, size_t rows, size_t cols,
                                  size_t pitch) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * pitch; i += threads) {
    const size_t row = i / pitch, col = i % pitch;
    out[i] = gpu::from_float<bfloat16>(col < cols ? in[row * cols + col] : 0.0f);
  }
}

void forward(const Model& model, Bf16Pass& pass, size_t batch, hipStream_t stream) {
  const size_t C = pass.sizes.width, rows = batch * pass.sizes.context, V = model.vocabulary();
  const Tensors<const float*>& p = model.parameters();
  float *mean = pass.statistics.data(), *rstd = mean + rows;
  gemm_mixed::launch_round(pass.copy.data(), model.arena().w, model.arena().n, stream);
  embedding::forward(pass.x[0].data(), pass.tokens.data(), p.token, p.position,
                     pass.embedding_shape(batch, V), stream);
  for (size_t layer = 0; layer < pass.sizes.layers; ++layer)
    transformer_block::forward_bf16(pass.x[layer + 1].data(), pass.x[layer].data(), p.blocks[layer],
                                    pass.parameters.blocks[layer], pass.shape(batch),
                                    *pass.kept[layer], stream);
  layernorm::forward(pass.norm.data(), mean, rstd, pass.x.back().data(), p.norm_gain, p.norm_bias,
                     rows, C, transformer_block::kEpsilon, stream);
  gemm_mixed::best(gemm_mixed::contiguous(gemm_mixed::Layout::NT, pass.logits.data(),
                                          pass.norm.data(), pass.parameters.head, rows, V, C),
                   stream);
}

void queue_bf16(Training& t) {
  Bf16Pass& pass = t.bf16_pass();
  const size_t batch = pass.sizes.batch, rows = pass.rows(), C = pass.sizes.width;
  const size_t V = t.model.vocabulary(), layers = pass.sizes.layers;
  const Tensors<const float*>& p = t.model.parameters();
  const Tensors<float*>& grad = t.model.gradients();
  const hipStream_t stream = t.stream;
  launch_gather(pass.tokens.data(), pass.labels.data(), t.train(), batch, pass.sizes.context,
                t.drawn(), stream);
  forward(t.model, pass, batch, stream);
  const losses::Workspace of_losses = pass.losses.workspace();
  softmax::launch_best(pass.logits.data(), pass.logits.data(), rows, V,
                       losses::LossAndGradient{
                           {{pass.labels.data(), rows, V}, {rows}}, pass.logits.data(), of_losses},
                       stream);
  LAUNCH_ON(stream, round_rows, vector_add::grid_stride_blocks(rows * pass.pitch),
            vector_add::kBlock, 0, pass.grad_logits.data(), pass.logits.data(), rows, V,
            pass.pitch);

  // Beside the chain: what follows from the loss, and the gradient of the head's weights.
  const dense_backward::Branches& of_loss = t.branches;
  of_loss.fork(stream);
  losses::launch_mean(t.loss.data(), of_losses.row_losses, rows, {rows}, of_losses.partials,
                      of_loss[0]);
  launch_begin_update(t, of_loss[0]);
  transformer_block::weight_gradients_bf16({pass.head_task(grad, V)}, rows, pass.head_sums.data(),
                                           of_loss[1]);

  float* const branch = pass.grad.data();
  gemm_mixed::best(
      gemm_mixed::contiguous(gemm_mixed::Layout::NN, pass.grad_norm.data(), pass.grad_logits.data(),
                             pass.parameters.head, rows, C, pass.pitch),
      stream);
  layernorm_backward::backward(
      grad.norm_gain, grad.norm_bias,
      {branch, pass.grad_norm.data(), pass.x.back().data(), p.norm_gain, pass.statistics.data(),
       pass.statistics.data() + rows, nullptr, rows, C, pass.grad_x.back().data()},
      pass.norm_workspace, stream);
  for (size_t layer = layers; layer-- > 0;) {
    const dense_backward::Branches& weights = t.of_blocks[layer % 2];
    transformer_block::WorkspaceBf16& workspace = pass.workspaces[layer % 2];
    const bfloat16* const grad_y = pass.grad_x[layer + 1].data();
    if (layer + 2 < layers) weights.join(stream);  // the workspace is free again
    transformer_block::chain_backward_bf16(grad.blocks[layer], {branch, pass.grad_x[layer].data()},
                                           {branch, grad_y}, pass.x[layer].data(), p.blocks[layer],
                                           pass.parameters.blocks[layer], pass.shape(batch),
                                           *pass.kept[layer], workspace, stream);
    weights.fork(stream);
    transformer_block::weights_backward_bf16(grad.blocks[layer], grad_y, pass.shape(batch),
                                             *pass.kept[layer], workspace, weights[0]);
  }
  embedding::backward(grad.token, grad.position, branch, pass.tokens.data(),
                      pass.embedding_shape(batch, V), pass.embedding_workspace, stream);
  join_and_update(t);
}

void run_bf16(Training& t, size_t steps) {
  t.run_in_pieces(steps, [&](size_t piece) {
    for (size_t i = 0; i < piece; ++i) queue_bf16(t);
  });
}

void run_bf16_graph(Training& t, size_t steps) {
  t.bf16_pass();  // its memory, before anything is captured
  t.replay(steps, "bf16_graph", [&] { queue_bf16(t); });
}

}  // namespace train_shakespeare
