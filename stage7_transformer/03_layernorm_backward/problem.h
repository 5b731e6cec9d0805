// What the versions of 7.3 share: the sums of parts of the rows, and who has a row in `separate`.
#pragma once

#include <cstddef>

#include "stage7_transformer/03_layernorm_backward/layernorm_backward.h"

namespace layernorm_backward {

// `separate` cuts the rows into slices of so many or more. A block of `fused` has so many rows or
// more, and so many blocks or fewer share a multiprocessor.
inline constexpr size_t kLeastSlice = 32, kLeastRows = 2, kMostResident = 4;

// versions/separate.hip: grad_gain[c] and grad_bias[c] = the sums over p < parts of
// partials[p, 0, c] and partials[p, 1, c].
void launch_add_parts(float* grad_gain, float* grad_bias, const float* partials, size_t parts,
                      size_t cols, hipStream_t stream);

// `separate` with a thread or with a block for each row of grad_x, in place of a wave.
template <class G>
void launch_separate_by_threads(float* grad_gain, float* grad_bias, const PassOf<G>& pass,
                                Workspace& workspace, hipStream_t stream);
template <class G>
void launch_separate_by_blocks(float* grad_gain, float* grad_bias, const PassOf<G>& pass,
                               Workspace& workspace, hipStream_t stream);

// versions/fused.hip with gradients of bf16.
void launch_fused_bf16(float* grad_gain, float* grad_bias, const PassOf<gpu::bfloat16>& pass,
                       Workspace& workspace, hipStream_t stream);

}  // namespace layernorm_backward
