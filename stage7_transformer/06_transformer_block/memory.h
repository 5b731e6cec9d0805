// What a block keeps for its backward pass, and what that works in. Plain C++.
#pragma once

#include "common/device_buffer.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage7_transformer/03_layernorm_backward/layernorm_backward.h"
#include "stage7_transformer/06_transformer_block/problem.h"

namespace transformer_block {

using gpu::DeviceBuffer;

// What a forward pass of this mode keeps for the backward pass.
struct SavedActivations {
  SavedActivations(const Shape& shape, const Mode& mode);
  size_t bytes() const;

  DeviceBuffer<float> norm1, qkv, attended, h, norm2;
  DeviceBuffer<float> sums, hidden;  // of fc, before and behind GELU
  DeviceBuffer<float> statistics;    // mean and 1 / deviation of norm1's rows, then of norm2's
  DeviceBuffer<float> lse;           // of attention's rows
  DeviceBuffer<float> attention;     // its memory, with the T x T matrices where they are kept
};

// Whether `grouped` computes the weights' gradients of such a block in one launch. Beyond, each
// product fills the device alone.
bool is_grouped(const Shape& shape);

// The gradients of what SavedActivations keeps, and what the parts' backward passes need.
struct Workspace {
  explicit Workspace(const Shape& shape);

  DeviceBuffer<float> grad_hidden, grad_norm, grad_h, grad_attended, grad_qkv;
  DeviceBuffer<float> sums;        // of weight_gradients
  DeviceBuffer<float> norm_parts;  // of norm1 and of norm2, where is_in_rows(shape)
  layernorm_backward::Workspace norm;
  dense_backward::Workspace qkv, proj, fc, out;
};

}  // namespace transformer_block
