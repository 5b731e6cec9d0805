// What the launchers of 7.5 share on the host.
#pragma once

#include "stage7_transformer/05_attention_backward/attention_backward.h"

namespace attention_backward {

// Throws std::invalid_argument, one line, where sizes or arrays can't be.
void check_backward(const View& grad_q, const View& grad_k, const View& grad_v,
                    const ConstView& grad_out, const ConstView& out, const float* lse,
                    const ConstView& q, const ConstView& k, const ConstView& v, const Problem& p,
                    const float* memory);

// versions/composed.hip: delta[row] = sum over d of grad_out[row,d] out[row,d]    delta (B, H, Tq).
void launch_row_products(float* delta, const ConstView& grad_out, const ConstView& out,
                         const Problem& p, hipStream_t stream);

}  // namespace attention_backward
