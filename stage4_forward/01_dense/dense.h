// 4.1  dense: a layer of a network, Y = f(X W^T + b), for a batch of samples or for a single one.
//
//   x (batch, in)   w (out, in)   bias (out)   y (batch, out)      row-major, without gaps
//
// A sample is a row of x, an output unit is a row of w, as PyTorch stores them (torch.nn.Linear),
// so each element of y is the dot product of two rows: layout NT of step 2.3. No kernel is written
// here. The ladder is made of what is there already and asks what stands between the sums and y:
// how often are the weights read, and how often does y go to memory and come back?
//
// Any sizes (0 too; without inputs y = f(bias)), all arrays on the device and aligned to 4 bytes. y
// overlaps no input. Launchers throw std::invalid_argument where an array that is needed is null.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "common/rounding.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/02_gemv/gemv.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage3_ml_ops/01_matrix_activations/detail/passes.h"
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

// ---- Reference and bound ----------------------------------------------------------------------

// Numbers in double, and how far a float version's may be from them.
struct Values {
  std::vector<double> value, error;
};

inline Values exactly(const std::vector<float>& values) {
  return {std::vector<double>(values.begin(), values.end()), std::vector<double>(values.size())};
}

// No activation of step 1.4 has a slope beyond this (that of GELU at 1.41), so that f moves an
// error by no larger factor.
inline constexpr double kSteepest = 1.13;

// f(X W^T + b) for `batch` samples of x. What comes in wrong by x.error comes out of the sum wrong
// by sum |w| x.error; the sum itself is off by rounding::worst_case, its addition of the bias
// rounds once, and f passes that on and adds its own bound.
template <class Activation>
Values dense_cpu(const Values& x, const std::vector<float>& w, const std::vector<float>& bias,
                 size_t batch) {
  const size_t out = bias.size(), in = out == 0 ? 0 : w.size() / out;
  const double n = static_cast<double>(in);
  Values y{std::vector<double>(batch * out), std::vector<double>(batch * out)};
  for (size_t i = 0; i < batch * out; ++i) {
    const double *value = x.value.data() + i / out * in, *error = x.error.data() + i / out * in;
    const float* weight = w.data() + i % out * in;
    double sum = 0, absolute = 0, inherited = 0;
    for (size_t k = 0; k < in; ++k) {
      const double scale = std::fabs(static_cast<double>(weight[k]));
      sum += static_cast<double>(weight[k]) * value[k];
      absolute += scale * (std::fabs(value[k]) + error[k]);
      inherited += scale * error[k];
    }
    sum += static_cast<double>(bias[i % out]);
    double off = inherited + rounding::worst_case(n, n, absolute);
    off += kFloatRoundoff * (std::fabs(sum) + off);
    y.value[i] = Activation::cpu(sum);
    y.error[i] =
        kSteepest * off + std::max(Activation::bound(sum - off), Activation::bound(sum + off));
  }
  return y;
}

// ---- What all versions share ------------------------------------------------------------------

// X W^T: batch x out dot products of rows of x with rows of w.
inline gemm::Product product(float* y, const float* x, size_t batch, const Layer& layer) {
  if (layer.bias == nullptr && layer.out > 0) throw std::invalid_argument("dense: bias is null");
  gemm::Product p;
  // exercise: sizes, arrays and leading dimensions of y = x w^T in one of step 2.3's layouts (about
  // 5 lines)
  p.layout = gemm::Layout::NT;
  p.M = batch, p.N = layer.out, p.K = layer.in;
  p.a = x, p.lda = layer.in;
  p.b = layer.w, p.ldb = layer.in;
  p.c = y, p.ldc = layer.out;
  // end exercise
  return p;
}

// ---- One sample after the other ---------------------------------------------------------------

// y = f(W x + b) for each sample: a product of a matrix and a vector, step 2.2, then f(y + b) over
// all of y, step 3.1. The weights are read once per sample. A single sample needs no more.
template <class Activation>
inline void launch_sample_by_sample(float* y, const float* x, size_t batch, const Layer& layer,
                                    const gemv::Workspace& workspace,
                                    hipStream_t stream = nullptr) {
  const gemm::Product p = product(y, x, batch, layer);
  gemm::check(p);
  // exercise: step 2.2's best for each sample, y = W x; then step 3.1's bias and activation over
  // all of y (about 5 lines)
  for (size_t sample = 0; sample < batch; ++sample)
    gemv::best(false, {p.N, p.K, 1, p.b, p.ldb, x + sample * layer.in, 0, y + sample * layer.out},
               workspace, stream);
  matrix_activations::launch_forward_vectorized<Activation>(y, y, layer.bias, batch, layer.out,
                                                            stream);
  // end exercise
}

// ---- Product, bias, activation: three launches ------------------------------------------------

// All samples share each weight that is read. y goes to memory three times and comes back twice.
template <class Activation>
inline void launch_separate(float* y, const float* x, size_t batch, const Layer& layer,
                            const gemv::Workspace&, hipStream_t stream = nullptr) {
  using Bias = matrix_activations::Forward<matrix_activations::Identity>;
  gemm::best(product(y, x, batch, layer), stream);
  matrix_activations::launch_flat(y, Bias{y, layer.bias}, batch, layer.out, stream);
  if (!std::is_same_v<Activation, Linear>)
    matrix_activations::launch_activation<Activation>(y, y, batch, layer.out, stream);
}

// ---- Product, then bias and activation --------------------------------------------------------

// The kernel of step 3.1 that does both at once: y goes to memory twice and comes back once.
template <class Activation>
inline void launch_fused_activation(float* y, const float* x, size_t batch, const Layer& layer,
                                    const gemv::Workspace&, hipStream_t stream = nullptr) {
  gemm::best(product(y, x, batch, layer), stream);
  matrix_activations::launch_forward_vectorized<Activation>(y, y, layer.bias, batch, layer.out,
                                                            stream);
}

// ---- All in one kernel ------------------------------------------------------------------------

// What becomes of the sum of y[row, col] while it is still in a register of step 2.3's kernel.
template <class Activation>
struct BiasActivation {
  const float* bias;
  __device__ float operator()(float sum, size_t, size_t col, const float*) const {
    // exercise: the element's bias, then the activation (about 1 line)
    return Activation{}(sum + bias[col]);
    // end exercise
  }
};

// y = f(x w^T + bias), queued on `stream`: what later stages call. y goes to memory once.
template <class Activation>
void forward(float* y, const float* x, size_t batch, const Layer& layer,
             hipStream_t stream = nullptr) {
  gemm::best<gemm::Layouts<gemm::Layout::NT>>(product(y, x, batch, layer),
                                              BiasActivation<Activation>{layer.bias}, stream);
}
// Compiled once, in dense_instances.hip, and not in every program that has a layer.
extern template void forward<Linear>(float*, const float*, size_t, const Layer&, hipStream_t);
extern template void forward<activations::Relu>(float*, const float*, size_t, const Layer&,
                                                hipStream_t);

template <class Activation>
inline void launch_fused_epilogue(float* y, const float* x, size_t batch, const Layer& layer,
                                  const gemv::Workspace&, hipStream_t stream = nullptr) {
  forward<Activation>(y, x, batch, layer, stream);
}

// ---- The versions -----------------------------------------------------------------------------

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
