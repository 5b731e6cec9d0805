// 5.2  activation_backward: what happens between two layers on the way back.
//
//   grad_x    = grad_y * f'(x)        (rows, cols)   through Y = f(X); x = sums of the layer below
//   grad_bias = sum of grad_x's rows  (cols)         what the layer below adds to them is its bias
//
// and through P = softmax(X), row by row, whose slopes are dp[k]/dx[j] = p[j] (1[j=k] - p[k]):
//
//   grad_x[j] = sum over k of grad_p[k] dp[k]/dx[j]
//             = p[j] (grad_p[j] - sum over k of p[k] grad_p[k])
//
// The first ladder is about the sums of columns, which cost a trip through memory of their own
// unless they are taken while grad_x is in a register, and about what f' is computed from: x, or y,
// which the next layer keeps anyway. The second gets rid of the Jacobian; the third, of softmax and
// cross-entropy, gets rid of grad_p. Theirs are softmax_backward.h and loss_backward.h.
//
// Matrices are row-major without gaps, on the device, aligned to 4 bytes, any sizes (0 too). grad_x
// may be grad_y, or what f' is computed from (softmax: grad_p or p, but not in `jacobian`); apart
// from that outputs overlap nothing. Every version gives the same bits on every run of one device.
// Errors: gpu::Error; std::invalid_argument where grad_bias is null or the workspace too small.
#pragma once

#include <cstddef>
#include <type_traits>

#include "common/version.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage5_training/02_activation_backward/loss_backward.h"
#include "stage5_training/02_activation_backward/softmax_backward.h"

namespace activation_backward {

using dense_backward::Workspace;

// `kept` is x, with the slope of F itself, or y = f(x), with that of OfOutput<F>. What y has lost
// in its own rounding its slope can't know: it is off by a few u, not by a few u of itself. Both
// GELUs fall before they rise, so that two x have the same y: there is no OfOutput of them.
template <class Activation>
struct OfOutput;  // versions/from_output.hip
template <class Activation>
inline constexpr bool kHasOfOutput = !std::is_same_v<Activation, activations::GeluErf> &&
                                     !std::is_same_v<Activation, activations::GeluTanh>;

template <class Activation>
float slope_of_output(float y);  // on the host, as the kernels compute it

// The launchers are compiled for the functions of step 1.4, and the first and the last also for
// OfOutput of those that have it. grad_bias becomes the sum plus beta times what is in it (0 does
// not read it). The workspace is for batches of at least `rows`.

// grad_x alone: the kernel of step 1.4.
template <class Slope>
void launch_without_bias(float* grad_x, const float* grad_y, const float* kept, size_t rows,
                         size_t cols, hipStream_t stream = nullptr);

// versions/separate.hip: grad_x, then the sum of rows of step 5.1.
template <class Slope>
void launch_separate(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                     size_t rows, size_t cols, float beta, Workspace& workspace,
                     hipStream_t stream = nullptr);
// versions/fused.hip: each thread adds up what it stores.
template <class Slope>
void launch_fused(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                  size_t rows, size_t cols, float beta, Workspace& workspace,
                  hipStream_t stream = nullptr);
// versions/vectorized.hip and versions/from_output.hip: 16 bytes per load, four rows on their way.
template <class Slope>
void launch_vectorized(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                       size_t rows, size_t cols, float beta, Workspace& workspace,
                       hipStream_t stream = nullptr);

// What later steps call: grad_x, and grad_bias unless it is null.
template <class Slope>
void backward(float* grad_x, float* grad_bias, const float* grad_y, const float* kept, size_t rows,
              size_t cols, float beta, Workspace& workspace, hipStream_t stream = nullptr) {
  if (grad_bias == nullptr)
    launch_without_bias<Slope>(grad_x, grad_y, kept, rows, cols, stream);
  else
    launch_vectorized<Slope>(grad_x, grad_bias, grad_y, kept, rows, cols, beta, workspace, stream);
}

// Through how many additions an element of a column's sum goes at most; cols > 0.
double roundings_separate(size_t rows, size_t cols);
double roundings_fused(size_t rows, size_t cols);
double roundings_vectorized(size_t rows, size_t cols);
struct Launch {
  using Run = void (*)(float* grad_x, float* grad_bias, const float* grad_y, const float* kept,
                       size_t rows, size_t cols, float beta, Workspace& workspace,
                       hipStream_t stream);
  Run run;  // null: there is no such version of f
  double (*roundings)(size_t rows, size_t cols);
  bool from_output;  // `kept` is y, else x
};

template <class Activation>
constexpr Launch::Run run_from_output() {
  if constexpr (kHasOfOutput<Activation>)
    return launch_vectorized<OfOutput<Activation>>;
  else
    return nullptr;
}

// The same versions for every function: kVersions<Relu>, kVersions<Sigmoid>, ...
template <class Activation>
inline constexpr Version<Launch> kVersions[] = {
    {"separate",
     {launch_separate<Activation>, roundings_separate, false},
     "the slopes, then the sums of columns: grad_x comes back from memory"},
    {"fused",
     {launch_fused<Activation>, roundings_fused, false},
     "each thread adds up what it stores; a second pass adds the threads' sums"},
    {"vectorized",
     {launch_vectorized<Activation>, roundings_vectorized, false},
     "16 bytes per load, four rows on their way"},
    {"from_output",
     {run_from_output<Activation>(), roundings_vectorized, true},
     "f' from y: x need not be stored by the forward pass"},
};

}  // namespace activation_backward
