// 7.2  layernorm: every row gets mean 0 and variance 1, then its columns a gain and a bias.
//
//   y[r,c] = (x[r,c] - mean[r]) rstd[r] gain[c] + bias[c]         x, y (rows, cols)
//     mean = sum over c of x[r,c] / cols                          gain, bias (cols)
//     rstd = 1 / sqrt(sum over c of (x[r,c] - mean)^2 / cols + eps)   mean, rstd (rows)
//
// (Ba, Kiros and Hinton: Layer normalization. arXiv:1607.06450, 2016.) As in softmax (step 3.2) a
// row is read, reduced and needed again. The limit is one read and one write of 4 bytes per
// element, and the ladder ends where a row is read only once. The variance takes care: as
// mean(x^2) - mean(x)^2 it would be a small difference of large numbers, so no version does that.
//
// Every version works on x - x[r,0], which shifts the mean and leaves the variance as it is. The
// difference is exact for elements that are near each other, and no element is further from the
// mean than sqrt(cols) standard deviations. So a row far from 0 is as accurate as one around 0, and
// a row of equal elements becomes 0 exactly, so that y is bias. Where variance + eps is 0 in float,
// which takes an eps of 0, rstd is 0 and not infinity: y is bias there, too.
//
// Matrices are row-major without gaps, everything on the device and aligned to 4 bytes; any rows (0
// too) and at least one column. mean and rstd may be null: they are not stored then. A NaN or an
// infinity makes its row of y NaN. Every version gives the same bits on every run of one device.
// Step 7.3 has the gradients.
#pragma once

#include <cstddef>

#include "common/half.h"
#include "common/version.h"

namespace layernorm {

// What a pass over rows x cols elements reads and writes beside x. Y: float or bfloat16.
template <class Y>
struct PassOf {
  Y* y;
  float *mean, *rstd;
  const float *gain, *bias;
  size_t rows, cols;
  float eps;
};
using Pass = PassOf<float>;

// Throws std::invalid_argument for 0 columns, and for an eps that is negative or NaN. forward() and
// forward_residual() call it; the launchers leave it to their caller.
void check(size_t cols, float eps);

// y may be x.
void launch_thread_per_row(const Pass& pass, const float* x, hipStream_t stream = nullptr);
void launch_two_pass(const Pass& pass, const float* x, hipStream_t stream = nullptr);
void launch_welford(const Pass& pass, const float* x, hipStream_t stream = nullptr);
void launch_wave_per_row(const Pass& pass, const float* x, hipStream_t stream = nullptr);
void launch_row_cached(const Pass& pass, const float* x, hipStream_t stream = nullptr);

// What later steps call: y, and unless they are null mean and rstd (rows). y may be x.
void forward(float* y, float* mean, float* rstd, const float* x, const float* gain,
             const float* bias, size_t rows, size_t cols, float eps, hipStream_t stream = nullptr);
// The same y, each element rounded to bf16 when it is stored, for a product of bf16: 6 bytes per
// element, and no launch that rounds. y may not be x.
void forward(gpu::bfloat16* y, float* mean, float* rstd, const float* x, const float* gain,
             const float* bias, size_t rows, size_t cols, float eps, hipStream_t stream = nullptr);

using Launch = void (*)(const Pass& pass, const float* x, hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"thread_per_row", launch_thread_per_row, "mean, variance, y: three reads, lanes a row apart"},
    {"two_pass", launch_two_pass, "a block shares the row: neighbours read neighbours"},
    {"welford", launch_welford, "mean and variance in one pass: two reads"},
    {"wave_per_row", launch_wave_per_row, "shuffles instead of barriers"},
    {"row_cached", launch_row_cached, "the row stays in registers: one read"},
};

// ---- With a residual --------------------------------------------------------------------------

// sum = x + residual, and y, mean, rstd of the sum. sum may be x or residual, and so may y, but sum
// and y may not be the same.
void launch_residual_separate(float* sum, const Pass& pass, const float* x, const float* residual,
                              hipStream_t stream = nullptr);
void launch_residual_fused(float* sum, const Pass& pass, const float* x, const float* residual,
                           hipStream_t stream = nullptr);

// What later steps call: one pass with 16 bytes per element, where a sum of its own and forward()
// take 20.
void forward_residual(float* sum, float* y, float* mean, float* rstd, const float* x,
                      const float* residual, const float* gain, const float* bias, size_t rows,
                      size_t cols, float eps, hipStream_t stream = nullptr);

using ResidualLaunch = void (*)(float* sum, const Pass& pass, const float* x, const float* residual,
                                hipStream_t stream);

inline constexpr Version<ResidualLaunch> kResidualVersions[] = {
    {"residual_separate", launch_residual_separate, "x + residual, then layernorm: 20 bytes"},
    {"residual_fused", launch_residual_fused, "the sum is stored while it is in registers: 16"},
};

}  // namespace layernorm
