// Passes of the model in bf16, and their memory: versions/bf16.hip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "stage3_ml_ops/03_losses/losses.h"
#include "stage7_transformer/01_embedding/embedding.h"
#include "stage7_transformer/06_transformer_block/bf16.h"
#include "stage7_transformer/07_train_shakespeare/batch_sizes.h"
#include "stage7_transformer/07_train_shakespeare/model.h"

namespace train_shakespeare {

using gpu::bfloat16;

// For up to sizes.batch pieces. The parameters stay float; a step begins with a copy of them in
// bf16. The gradient of the residual branch is one array: from block to block it is added to.
struct Bf16Pass : BatchSizes {
  explicit Bf16Pass(const Model& model);

  transformer_block::WeightTaskBf16 head_task(const Tensors<float*>& gradients,
                                              size_t vocabulary) const {
    return {grad_logits.data(), pitch,          norm.data(), vocabulary,
            sizes.width,        gradients.head, nullptr};
  }

  size_t pitch;                 // of the logits' gradient: a row begins at a multiple of 16 bytes
  DeviceBuffer<bfloat16> copy;  // of the parameters, and `pitch` rows of the head
  Tensors<const bfloat16*> parameters;
  DeviceBuffer<std::int32_t> tokens;
  DeviceBuffer<int> labels;
  std::vector<DeviceBuffer<float>> x;          // into each block, and out of the last
  DeviceBuffer<float> grad;                    // of the residual branch, where the way back is
  std::vector<DeviceBuffer<bfloat16>> grad_x;  // the same, rounded, of each x
  std::vector<std::unique_ptr<transformer_block::SavedBf16>> kept;
  DeviceBuffer<float> statistics, logits, loss;
  DeviceBuffer<bfloat16> norm, grad_norm, grad_logits;
  losses::Buffers losses;
  transformer_block::WorkspaceBf16 workspaces[2];
  layernorm_backward::Workspace norm_workspace;
  embedding::Workspace embedding_workspace;
  DeviceBuffer<float> head_sums;
};

// The logits (batch, context, V) of pass.tokens, of which there are `batch` pieces.
void forward(const Model& model, Bf16Pass& pass, size_t batch, hipStream_t stream);

}  // namespace train_shakespeare
