// 5.1  dense_backward: the gradients of a layer Y = X W^T + b, from grad_y, that of its output.
//
//   grad_w    = grad_y^T X       (out, in)       what a weight did to all samples
//   grad_bias = sum of rows      (out)           of grad_y: the same with an X of ones
//   grad_x    = grad_y W         (batch, in)     what goes on to the layer before
//
//   x (batch, in)   w (out, in)   grad_y (batch, out)      row-major, without gaps, as in step 4.1
//
// They follow from the chain rule: y[s,o] = sum over k of x[s,k] w[o,k] + b[o], so the loss L moves
// with w[o,k] by the sum over s of dL/dy[s,o] x[s,k]. Where an activation follows the sums, grad_y
// is what its backward pass makes (step 5.2).
//
// Any sizes (0 too), all arrays on the device and aligned to 4 bytes; gradients overlap no input.
// Every version gives the same bits on every run of one device. Errors: gpu::Error, and
// std::invalid_argument where an array that is needed is null or the workspace is too small.
#pragma once

#include <cstddef>

#include "common/device_parts.h"
#include "common/version.h"
#include "stage2_matrix/02_gemv/gemv.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage4_forward/01_dense/layer.h"
#include "stage5_training/01_dense_backward/branches.h"

namespace dense_backward {

using dense::Layer;  // its bias is not read, and may be null

// Where the gradients go. One that is null is not computed.
struct Gradients {
  float* w;     // (out, in)
  float* bias;  // (out)
  float* x;     // (batch, in)
};

// Device memory for layers whose batch is at most max_batch. Two calls that may run at the same
// time need two.
struct Workspace {
  Workspace() = default;  // none
  // Without memory for slices: grad_w of a long batch then keeps few multiprocessors busy.
  explicit Workspace(size_t max_batch);
  // With the memory that a layer of this size wants.
  Workspace(size_t max_batch, size_t in, size_t out);

  // Throws std::invalid_argument where the batch is larger than max_batch.
  void require(size_t batch) const;
  // For how many slices there is memory, and no more than suit the batch.
  size_t slices(size_t batch, const Layer& layer) const;

  gpu::DeviceBuffer<float> ones, partials;
  gpu::DeviceArray<float> slices_of_gradients;  // weights, then biases, of each slice
};

// The products and launches of a single gradient. beta is how often what is there already counts: 0
// overwrites it unread, 1 accumulates.
// grad_w = grad_y^T x + beta grad_w, a sum over the samples.
gemm::Product product_of_w(float* grad_w, const float* grad_y, const float* x, size_t batch,
                           const Layer& layer, float beta);
// grad_x = grad_y w + beta grad_x, a sum over the output units.
gemm::Product product_of_x(float* grad_x, const float* grad_y, size_t batch, const Layer& layer,
                           float beta);
// grad_bias = grad_y^T ones + beta grad_bias.
gemv::Product product_of_bias(float* grad_bias, const float* grad_y, const float* ones,
                              size_t batch, size_t out, float beta);

void launch_grad_w(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                   const Layer& layer, float beta, hipStream_t stream);
void launch_grad_x(const Gradients& to, const float* grad_y, size_t batch, const Layer& layer,
                   float beta, hipStream_t stream);
// `sum` is a version of step 2.2's transposed product.
void launch_grad_bias(const Gradients& to, const float* grad_y, size_t batch, const Layer& layer,
                      float beta, Workspace& workspace, hipStream_t stream,
                      void (*sum)(const gemv::Product&, const gemv::Workspace&, hipStream_t));
// All gradients that are wanted, queued on the caller's stream.
void launch_naive(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                  const Layer& layer, float beta, Workspace& workspace,
                  const Streams& streams = nullptr);
void launch_thread_per_column(const Gradients& to, const float* grad_y, const float* x,
                              size_t batch, const Layer& layer, float beta, Workspace& workspace,
                              const Streams& streams = nullptr);
void launch_row_slices(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                       const Layer& layer, float beta, Workspace& workspace,
                       const Streams& streams = nullptr);
void launch_weight_slices(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                          const Layer& layer, float beta, Workspace& workspace,
                          const Streams& streams = nullptr);
void launch_bias_by_tiles(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                          const Layer& layer, float beta, Workspace& workspace,
                          const Streams& streams = nullptr);
// Throws std::invalid_argument unless `streams` has branches.
void launch_concurrent(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                       const Layer& layer, float beta, Workspace& workspace,
                       const Streams& streams);

// What later stages call: `concurrent` where the caller has branches, which is faster at every
// measured layer in a graph (tests/python/test_fastest.py, results/h200/dense_backward.json); else
// `bias_by_tiles`, of a batch in slices. The bits are the same. Small layers that are not in a
// graph are faster without branches, since the host takes longer to fork than the device to
// compute.
void backward(const Gradients& to, const float* grad_y, const float* x, size_t batch,
              const Layer& layer, float beta, Workspace& workspace,
              const Streams& streams = nullptr);

using Launch = void (*)(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                        const Layer& layer, float beta, Workspace& workspace,
                        const Streams& streams);

inline constexpr Version<Launch> kVersions[] = {
    {"naive", launch_naive, "one thread per element of each gradient"},
    {"thread_per_column", launch_thread_per_column,
     "two matrix products; a thread walks down each column of grad_y"},
    {"row_slices", launch_row_slices, "slices of the batch for the bias, added in their order"},
    {"weight_slices", launch_weight_slices, "and for the weights: split-K"},
    {"bias_by_tiles", launch_bias_by_tiles, "the weights' tiles of grad_y make the bias, too"},
    {"concurrent", launch_concurrent, "more streams: in a graph the fork costs nothing"},
};

}  // namespace dense_backward
