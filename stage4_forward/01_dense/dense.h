// 4.1  dense: a layer of a network, Y = f(X W^T + b), for a batch of samples or for a single one.
//
//   x (batch, in)   w (out, in)   bias (out)   y (batch, out)      row-major, without gaps
//
// A sample is a row of x, an output unit is a row of w, as PyTorch stores them (torch.nn.Linear).
// So each element of y is the dot product of two rows: layout NT of step 2.3. No version has a
// kernel of its own: they are made of those of the steps before. The ladder asks how often the
// weights are read, and how often y goes to memory and comes back.
//
// Any sizes (0 too; without inputs y = f(bias)), all arrays on the device and aligned to 4 bytes. y
// overlaps no input. The work is queued on `stream`. Errors: gpu::Error where a launch is refused,
// std::invalid_argument where an array that is needed is null.
#pragma once

#include <cstddef>

#include "common/version.h"
#include "stage2_matrix/02_gemv/gemv.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage3_ml_ops/01_matrix_activations/matrix_activations.h"
#include "stage4_forward/01_dense/layer.h"

namespace dense {

// f(x) = x, for a layer without an activation; with all that step 1.4's functions have.
struct Linear : matrix_activations::Identity {
  static constexpr const char* kName = "linear";
  __host__ __device__ float derivative(float) const { return 1; }
  static double cpu(double x) { return x; }
  static double derivative_cpu(double) { return 1; }
  static double bound(double) { return 0; }
  static double derivative_bound(double) { return 0; }
};

// X W^T as a product of step 2.3: batch x out dot products of rows of x with rows of w.
// versions/separate.hip has it. Throws std::invalid_argument where the layer needs a bias and has
// none.
gemm::Product product(float* y, const float* x, size_t batch, const Layer& layer);

// The launchers are compiled for Linear, and for Relu, Sigmoid and GeluTanh of step 1.4. Only
// sample_by_sample uses the workspace.

// versions/sample_by_sample.hip: a matrix-vector product per sample, then one launch of step 3.1.
template <class Activation>
void launch_sample_by_sample(float* y, const float* x, size_t batch, const Layer& layer,
                             const gemv::Workspace& workspace, hipStream_t stream = nullptr);

// versions/separate.hip: product, bias, activation: three launches.
template <class Activation>
void launch_separate(float* y, const float* x, size_t batch, const Layer& layer,
                     const gemv::Workspace& workspace, hipStream_t stream = nullptr);

// versions/fused_activation.hip: product, then bias and activation: two launches.
template <class Activation>
void launch_fused_activation(float* y, const float* x, size_t batch, const Layer& layer,
                             const gemv::Workspace& workspace, hipStream_t stream = nullptr);

// versions/fused_epilogue.hip: all in one launch.
template <class Activation>
void launch_fused_epilogue(float* y, const float* x, size_t batch, const Layer& layer,
                           const gemv::Workspace& workspace, hipStream_t stream = nullptr);

// What later steps call: fused_epilogue, which needs no workspace. Compiled for Tanh, too.
template <class Activation>
void forward(float* y, const float* x, size_t batch, const Layer& layer,
             hipStream_t stream = nullptr);

using Launch = void (*)(float* y, const float* x, size_t batch, const Layer& layer,
                        const gemv::Workspace& workspace, hipStream_t stream);

// The same versions for every function: kVersions<Relu>, kVersions<Linear>, ...
template <class Activation>
inline constexpr Version<Launch> kVersions[] = {
    {"sample_by_sample", launch_sample_by_sample<Activation>,
     "the weights are read once per sample"},
    {"separate", launch_separate<Activation>,
     "the batch shares the weights; y is stored three times"},
    {"fused_activation", launch_fused_activation<Activation>,
     "bias and activation in one kernel: y is stored twice"},
    {"fused_epilogue", launch_fused_epilogue<Activation>,
     "bias and activation before the sum leaves its register"},
};

}  // namespace dense
