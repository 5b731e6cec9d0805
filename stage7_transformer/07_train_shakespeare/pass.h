// Forward passes of the model, and the memory that forward and backward passes work in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "stage2_matrix/03_gemm/gemm.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage7_transformer/01_embedding/embedding.h"
#include "stage7_transformer/03_layernorm_backward/layernorm_backward.h"
#include "stage7_transformer/06_transformer_block/transformer_block.h"
#include "stage7_transformer/07_train_shakespeare/batch_sizes.h"
#include "stage7_transformer/07_train_shakespeare/model.h"
#include "stage7_transformer/07_train_shakespeare/pieces.h"

namespace train_shakespeare {

// For up to sizes.batch pieces. Neighbouring blocks have different workspaces: the weights'
// gradients of one may be on their way while the chain is in the other.
struct Pass : BatchSizes {
  Pass(const ModelSizes& wanted, size_t vocabulary, const transformer_block::Mode& how);

  transformer_block::WeightTask head_task(const Tensors<float*>& gradients,
                                          size_t vocabulary) const {
    return {grad_logits.data(), norm.data(), vocabulary, sizes.width, gradients.head, nullptr};
  }

  transformer_block::Mode mode;
  DeviceBuffer<std::int32_t> tokens;
  DeviceBuffer<int> labels;
  std::vector<DeviceBuffer<float>> x, grad_x;  // into each block, and out of the last
  std::vector<std::unique_ptr<transformer_block::SavedActivations>> kept;
  DeviceBuffer<float> statistics, norm, logits, grad_logits, loss;  // loss: of loss_of()
  losses::Buffers losses;
  transformer_block::Workspace workspaces[2];
  layernorm_backward::Workspace norm_workspace;
  embedding::Workspace embedding_workspace;
  dense_backward::Workspace head_workspace;
  DeviceBuffer<float> head_sums;
  DeviceBuffer<float> norm_parts;  // of rows.h
};

// logits (rows, V) = norm w^T. Step 4.1 has this product for layers with a bias.
gemm::Product head_product(float* logits, const float* norm, const float* w, size_t rows,
                           size_t width, size_t vocabulary);

// The logits (batch, context, V) of pass.tokens, of which there are `batch` pieces:
// versions/operations.hip.
void forward(const Model& model, Pass& pass, size_t batch, hipStream_t stream);

// The mean loss per character over as many whole pieces as the text has, at most `most` of them. P:
// Pass or Bf16Pass. Waits for the device.
template <class P>
double loss_of(const Model& model, P& pass, const Text& text, size_t most = ~size_t{0});

}  // namespace train_shakespeare
