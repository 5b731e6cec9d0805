// 7.6  transformer_block: attention and a feed-forward network, the layer that language models
// stack.
//
//   h = x + proj(attention(qkv(norm1(x))))          tokens look at the tokens before them
//   y = h + out(gelu(fc(norm2(h))))                 each token for itself
//
//   x --+-> norm1 -> qkv -> attention -> proj -> (+) -> h --+-> norm2 -> fc -> gelu -> out -> (+)
//   -> y
//       |                                         ^         |                                  ^
//       +-----------------------------------------+         +----------------------------------+
//
// What goes round a box is added to what comes out of it, so the gradient goes round it too: a
// block begins as nearly the identity however many are stacked. The normalizations stand in front
// of the boxes and not in the way around them (Xiong et al.: On layer normalization in the
// transformer architecture, arXiv:2002.04745; so does GPT-2).
//
// Everything in it has been taught. What is left is what stands between the products: how often do
// the activations go to memory and come back, and how many launches wait for one another? That is
// the ladder.
//
//   B sequences, T tokens in each, C channels, H heads of D = C / H      x, h, y (B, T, C)
//   weights are (out, in) with a bias, as torch.nn.Linear's; fc makes 4 C, q, k, v lie side by side
//
// All arrays are float, row-major, on the device, aligned to 4 bytes; outputs overlap no input. The
// same bits on every run of one device.
#pragma once

#include <cstddef>

#include "common/version.h"
#include "stage7_transformer/06_transformer_block/memory.h"
#include "stage7_transformer/06_transformer_block/problem.h"
#include "stage7_transformer/06_transformer_block/weight_gradients.h"

namespace transformer_block {

using dense_backward::Streams;

// y (B, T, C) from x, queued on `stream`.
void forward(float* y, const float* x, const Parameters& p, const Shape& shape,
             SavedActivations& kept, const Mode& mode, hipStream_t stream = nullptr);

// The gradients of x and of all parameters from grad_y, all (B, T, C), behind forward() of the same
// mode. Overwrites them. Where the caller's stream has branches, a layer's gradients that do not
// need one another are computed on them at the same time, as step 5.1 does.
void backward(const Gradients& grad, float* grad_x, const float* grad_y, const float* x,
              const Parameters& p, const Shape& shape, SavedActivations& kept, Workspace& w,
              const Mode& mode, const Streams& streams = nullptr);

// Its two halves. What lies on the way from grad_y to grad_x, and the gradients of the
// normalizations' parameters. Where the weights' gradients are not left to weights_backward, it
// also has each layer make its own, as step 5.1 does.
void chain_backward(const Gradients& grad, float* grad_x, const float* grad_y, const float* x,
                    const Parameters& p, const Shape& shape, SavedActivations& kept, Workspace& w,
                    const Mode& mode, const Streams& streams = nullptr);
// What chain_backward has left: nobody waits for it but the optimizer, so that it may run on
// another stream, beside the chain of the block below, as long as that one works in another
// Workspace.
void weights_backward(const Gradients& grad, const float* grad_y, const Shape& shape,
                      const SavedActivations& kept, Workspace& w, const Mode& mode,
                      hipStream_t stream = nullptr);

// y = residual + x w^T + bias    y, residual (rows, out), x (rows, in).
void linear_beside(float* y, const float* residual, const float* x, size_t rows,
                   const dense::Layer& layer, const Mode& mode, hipStream_t stream = nullptr);

inline constexpr Version<Mode> kVersions[] = {
    {"composed",
     {false, false, false, false},
     "a kernel per operation, the T x T matrix in memory"},
    {"flash",
     {true, false, false, false},
     "attention keeps a number per row in place of the matrix"},
    {"fused",
     {true, true, false, false},
     "bias, GELU, its slope and the residual in the products' epilogues"},
    {"grouped", {true, true, true, false}, "the gradients of all weights and biases in one launch"},
    {"rows",
     {true, true, true, true},
     "few channels: rows stay in shared memory from attention to attention"},
};
inline constexpr Mode kBest = kVersions[4].launch;

}  // namespace transformer_block
