// 7.3  layernorm_backward: the gradients of layernorm (step 7.2), along the rows and down the
// columns.
//
// With n[r,c] = (x[r,c] - mean[r]) rstd[r] and g[r,c] = grad_y[r,c] gain[c],
//
//   grad_x[r,c]  = rstd (g[r,c] - mean over k of g[r,k] - n[r,c] mean over k of g[r,k] n[r,k])
//   grad_gain[c] = sum over r of grad_y[r,c] n[r,c]      grad_bias[c] = sum over r of grad_y[r,c]
//
//   x, grad_y, grad_x (rows, cols)   gain, grad_gain, grad_bias (cols)   mean, rstd (rows)
//
// The last two terms of grad_x are what x[r,c] does to the mean and to rstd of its row. The limit
// is 2 reads and 1 write of every element. grad_x needs sums along the rows, gain and bias need
// sums down the columns: the ladder is about reading the matrices once for both.
//
// mean and rstd are those that layernorm::forward() has left. Where rstd is 0, the elements of the
// row get no gradient. Matrices are row-major without gaps, everything on the device and aligned to
// 4 bytes; any rows (0 too) and at least one column. Every version gives the same bits on every run
// of one device. Errors: gpu::Error, and std::invalid_argument for 0 columns, or where the
// workspace is for fewer.
#pragma once

#include <cstddef>

#include "common/device_parts.h"
#include "common/half.h"
#include "common/version.h"

namespace layernorm_backward {

// What a pass over rows x cols elements reads and writes beside the gradients of gain and bias.
// grad_residual, the gradient that goes past the layer, is added to grad_x unless it is null.
// grad_x may be any of the matrices. G, of grad_y: float or bfloat16. `rounded`: grad_x once more,
// in bf16, unless it is null.
template <class G>
struct PassOf {
  float* grad_x;
  const G* grad_y;
  const float *x, *gain, *mean, *rstd, *grad_residual;
  size_t rows, cols;
  gpu::bfloat16* rounded = nullptr;
};
using Pass = PassOf<float>;

// For matrices of at most so many rows and columns: memory of `parts`, or its own. No two streams
// use it at the same time.
struct Workspace {
  Workspace(size_t max_rows, size_t max_cols, gpu::DeviceParts* parts = nullptr);
  // How many parts of the rows a launch may leave sums of. Throws where there is no room for one.
  size_t parts(size_t rows, size_t cols) const;

  gpu::DeviceArray<float> partials;  // (parts, 2, cols): sums for gain, then for bias
};

// grad_gain and grad_bias are overwritten. The launchers leave the check for 0 columns to their
// caller.
void launch_separate(float* grad_gain, float* grad_bias, const Pass& pass, Workspace& workspace,
                     hipStream_t stream = nullptr);
void launch_fused(float* grad_gain, float* grad_bias, const Pass& pass, Workspace& workspace,
                  hipStream_t stream = nullptr);

// What later steps call. On the CPU backend it is `separate` with a thread for each row.
void backward(float* grad_x, float* grad_gain, float* grad_bias, const float* grad_y,
              const float* x, const float* gain, const float* mean, const float* rstd,
              const float* grad_residual, size_t rows, size_t cols, Workspace& workspace,
              hipStream_t stream = nullptr);
// The same where products of bf16 stand before and behind the layer.
void backward(float* grad_gain, float* grad_bias, const PassOf<gpu::bfloat16>& pass,
              Workspace& workspace, hipStream_t stream = nullptr);

using Launch = void (*)(float* grad_gain, float* grad_bias, const Pass& pass, Workspace& workspace,
                        hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"separate", launch_separate, "along the rows for grad_x, down the columns for gain and bias"},
    {"fused", launch_fused, "both rows in registers, and the columns' sums too: one pass"},
};

}  // namespace layernorm_backward
