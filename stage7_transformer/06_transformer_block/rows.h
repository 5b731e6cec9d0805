// The parts of the version `rows`: what a block does between two attentions, in one launch. Step
// 7.7 calls them for neighbouring blocks at a time. Plain C++.
#pragma once

#include "stage7_transformer/06_transformer_block/memory.h"
#include "stage7_transformer/06_transformer_block/problem.h"

namespace transformer_block {

// Whether `rows` takes such blocks: of few channels, so that a tile of rows fits shared memory, and
// not so many rows that each product fills the device. Others are left to `grouped`.
bool is_in_rows(const Shape& shape);

// A block on its way forwards, and back: what forward() and backward() are given.
struct BlockPass {
  const Parameters& p;
  SavedActivations& kept;
  const float* x;
  float* y;
};
struct BlockGradient {
  const Parameters& p;
  SavedActivations& kept;
  Workspace& w;
  const float *x, *grad_y;
  float* grad_x;
};

// From what attention has left in `ends` to its y; from that, which is the x of `begins`, or from x
// where nothing ends, to its queries, keys and values. Either may be nullptr.
void launch_rows(const BlockPass* ends, const BlockPass* begins, const Shape& shape,
                 hipStream_t stream);
// From what attention has left in `begins`, the gradients of its queries, keys and values, to
// grad_x; from that, which is the grad_y of `ends`, or from grad_y where nothing begins, to the
// gradient of attention's result and to delta of step 7.5. Either may be nullptr.
void launch_rows_backward(const BlockGradient* begins, const BlockGradient* ends,
                          const Shape& shape, hipStream_t stream);
// Attention in between, whose delta is there already.
void attend_backward_in_rows(SavedActivations& kept, Workspace& w, const Shape& shape,
                             hipStream_t stream);

// The gradients of the gains and biases of both normalizations, from what the launches have left.
void norm_gradients_of_rows(const Gradients& grad, const Shape& shape, Workspace& w,
                            hipStream_t stream);

// Of one: a launch leaves parts (row tiles, 2, C), so many floats, for each normalization.
size_t norm_parts_of_rows(const Shape& shape);
void add_norm_parts(float* grad_gain, float* grad_bias, const float* parts, const Shape& shape,
                    hipStream_t stream);

// forward() and chain_backward() of a block alone.
void forward_in_rows(float* y, const float* x, const Parameters& p, const Shape& shape,
                     SavedActivations& kept, hipStream_t stream);
void backward_in_rows(const Gradients& grad, float* grad_x, const float* grad_y, const float* x,
                      const Parameters& p, const Shape& shape, SavedActivations& kept, Workspace& w,
                      hipStream_t stream);

}  // namespace transformer_block
