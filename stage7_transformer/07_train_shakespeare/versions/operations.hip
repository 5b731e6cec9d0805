// operations: a kernel per operation, launched by the host one after the other.
#include "common/gpu.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/07_train_shakespeare/train_shakespeare.h"

namespace train_shakespeare {

// tokens[b,t] = text[begin(b) + t], labels[b,t] = text[begin(b) + t + 1]    both (gridDim.x, T).
// Fixes : a host that draws pieces of the text has to copy every batch.
// Idea  : where a piece begins follows from the number of the step, which the device knows.
// Thread: thread t of block b owns the places t, t + blockDim.x, ... of piece b.
// Costs : 9 bytes of global memory per token; every thread draws the same number.
template <class Begin>
static __global__ void gather(std::int32_t* tokens, int* labels, Text text, size_t T, Begin begin) {
  // exercise: the tokens of this block's piece, and the one behind each (about 5 lines)
  const std::uint8_t* piece = text.tokens + begin(blockIdx.x);
  for (size_t t = threadIdx.x; t < T; t += blockDim.x) {
    tokens[blockIdx.x * T + t] = piece[t];
    labels[blockIdx.x * T + t] = piece[t + 1];
  }
  // end exercise
}

constexpr unsigned kGatherBlock = 128;

void launch_gather(std::int32_t* tokens, int* labels, const Text& text, size_t batch, size_t T,
                   const Drawn& begin, hipStream_t stream) {
  LAUNCH_ON(stream, (gather<Drawn>), static_cast<unsigned>(batch), kGatherBlock, 0, tokens, labels,
            text, T, begin);
}

void launch_gather(std::int32_t* tokens, int* labels, const Text& text, size_t batch, size_t T,
                   const Consecutive& begin, hipStream_t stream) {
  LAUNCH_ON(stream, (gather<Consecutive>), static_cast<unsigned>(batch), kGatherBlock, 0, tokens,
            labels, text, T, begin);
}

// curve[step] = *loss, and the optimizer's schedule becomes that of the step.
// Fixes : a host that reads every loss, or sets every learning rate, waits for every step.
// Idea  : the device writes the curve, and reads the rate of the step from an array.
// Thread: the only one does it all.
// Costs : one launch of one thread per step, which only the optimizer waits for.
static __global__ void begin_update(float* curve, const float* loss, Schedule* schedule,
                                    const Schedule* schedules) {
  const std::uint64_t step = schedule->step;
  curve[step] = *loss;
  *schedule = schedules[step];
}

void launch_begin_update(Training& t, hipStream_t stream) {
  LAUNCH_ON(stream, begin_update, 1, 1, 0, t.curve.data(), t.loss.data(), t.schedule.data(),
            t.schedules.data());
}

void forward(const Model& model, Pass& pass, size_t batch, hipStream_t stream) {
  const size_t C = pass.sizes.width, rows = batch * pass.sizes.context;
  const Tensors<const float*>& p = model.parameters();
  float *mean = pass.statistics.data(), *rstd = mean + rows;
  // exercise: embedding, blocks, normalization, head (about 8 lines)
  embedding::forward(pass.x[0].data(), pass.tokens.data(), p.token, p.position,
                     pass.embedding_shape(batch, model.vocabulary()), stream);
  for (size_t layer = 0; layer < pass.sizes.layers; ++layer)
    transformer_block::forward(pass.x[layer + 1].data(), pass.x[layer].data(), p.blocks[layer],
                               pass.shape(batch), *pass.kept[layer], pass.mode, stream);
  layernorm::forward(pass.norm.data(), mean, rstd, pass.x.back().data(), p.norm_gain, p.norm_bias,
                     rows, C, transformer_block::kEpsilon, stream);
  gemm::best(
      head_product(pass.logits.data(), pass.norm.data(), p.head, rows, C, model.vocabulary()),
      stream);
  // end exercise
}

// Queues one step, one launch behind the other.
static void queue_operations(Training& t) {
  Pass& pass = t.plain;
  const size_t batch = pass.sizes.batch, rows = pass.rows(), C = pass.sizes.width;
  const size_t V = t.model.vocabulary();
  const Tensors<const float*>& p = t.model.parameters();
  const Tensors<float*>& grad = t.model.gradients();
  const hipStream_t stream = t.stream;
  launch_gather(pass.tokens.data(), pass.labels.data(), t.train(), batch, pass.sizes.context,
                t.drawn(), stream);
  forward(t.model, pass, batch, stream);
  losses::cross_entropy(t.loss.data(), pass.grad_logits.data(), pass.logits.data(),
                        {pass.labels.data(), rows, V}, pass.losses.workspace(), stream);
  launch_begin_update(t, stream);

  // exercise: back through head, normalization, blocks and embedding (about 14 lines)
  float* const top = pass.grad_x.back().data();
  dense_backward::backward({grad.head, nullptr, top}, pass.grad_logits.data(), pass.norm.data(),
                           rows, {C, V, p.head, nullptr}, 0, pass.head_workspace, stream);
  layernorm_backward::backward(top, grad.norm_gain, grad.norm_bias, top, pass.x.back().data(),
                               p.norm_gain, pass.statistics.data(), pass.statistics.data() + rows,
                               nullptr, rows, C, pass.norm_workspace, stream);
  for (size_t layer = pass.sizes.layers; layer-- > 0;)
    transformer_block::backward(grad.blocks[layer], pass.grad_x[layer].data(),
                                pass.grad_x[layer + 1].data(), pass.x[layer].data(),
                                p.blocks[layer], pass.shape(batch), *pass.kept[layer],
                                pass.workspaces[layer % 2], pass.mode, stream);
  embedding::backward(grad.token, grad.position, pass.grad_x[0].data(), pass.tokens.data(),
                      pass.embedding_shape(batch, V), pass.embedding_workspace, stream);
  // end exercise
  optimizers::launch_update(t.settings.kind, t.model.arena(), t.schedule.data(), stream);
}

void run_operations(Training& t, size_t steps) {
  t.run_in_pieces(steps, [&](size_t piece) {
    for (size_t i = 0; i < piece; ++i) queue_operations(t);
  });
}

}  // namespace train_shakespeare
