#include "stage7_transformer/07_train_shakespeare/bf16_pass.h"

namespace train_shakespeare {

constexpr size_t kInChunk = 16 / sizeof(bfloat16);

Bf16Pass::Bf16Pass(const Model& model)
    : BatchSizes{model.sizes()},
      pitch(gpu::ceil_div(model.vocabulary(), kInChunk) * kInChunk),
      copy(model.arena().n + pitch * sizes.width),
      parameters(model.pointers_into(copy.data())),
      tokens(rows()),
      labels(rows()),
      grad(rows() * sizes.width),
      statistics(2 * rows()),
      logits(rows() * model.vocabulary()),
      loss(1),
      norm(rows() * sizes.width),
      grad_norm(rows() * sizes.width),
      grad_logits(rows() * pitch),
      losses(rows()),
      workspaces{transformer_block::WorkspaceBf16(shape(sizes.batch)),
                 transformer_block::WorkspaceBf16(shape(sizes.batch))},
      norm_workspace(rows(), sizes.width),
      embedding_workspace(embedding_shape(sizes.batch, model.vocabulary())),
      head_sums(transformer_block::sums_of_bf16({head_task({}, model.vocabulary())}, rows())) {
  HIP_CHECK(hipMemset(copy.data(), 0, copy.bytes()));  // the rows behind the head stay 0
  HIP_CHECK(hipDeviceSynchronize());
  for (size_t layer = 0; layer < sizes.layers; ++layer)
    kept.push_back(std::make_unique<transformer_block::SavedBf16>(shape(sizes.batch)));
  for (size_t i = 0; i <= sizes.layers; ++i) {
    x.emplace_back(rows() * sizes.width);
    grad_x.emplace_back(rows() * sizes.width);
  }
}

}  // namespace train_shakespeare
