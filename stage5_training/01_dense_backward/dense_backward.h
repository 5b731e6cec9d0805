// 5.1  dense_backward: the gradients of a layer Y = X W^T + b, from grad_y, that of its output.
//
//   grad_w    = grad_y^T X       (out, in)       what a weight did to all samples: layout TN
//   grad_bias = sum of rows      (out)           of grad_y: the same with an X of ones
//   grad_x    = grad_y W         (batch, in)     what goes on to the layer before: layout NN
//
//   x (batch, in)   w (out, in)   grad_y (batch, out)      row-major, without gaps, as in step 4.1
//
// They follow from the chain rule: y[s,o] = sum over k of x[s,k] w[o,k] + b[o], so the loss L moves
// with w[o,k] by the sum over s of dL/dy[s,o] x[s,k]. Where an activation follows the sums, grad_y
// is what its backward pass makes (step 3.1). No kernel is written here: both matrix products are
// step 2.3's, which reads the transposed operand as it lies, and a sum of rows is step 2.2's
// product with a vector of ones. What is left to the ladder is what products of such shapes wait
// for.
//
// Any sizes (0 too), all arrays on the device and aligned to 4 bytes; gradients overlap no input.
// Every version gives the same bits on every run of one device. Launchers throw
// std::invalid_argument where an array that is needed is null.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage2_matrix/02_gemv/gemv.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage2_matrix/03_gemm/reference.h"
#include "stage4_forward/01_dense/dense.h"

namespace dense_backward {

using dense::Layer;
using device_matrix::DeviceBuffer;

// Where the gradients go; null: nobody wants this one, and it is not computed. (The first layer's
// grad_x is the gradient of the data.)
struct Gradients {
  float* w;     // (out, in)
  float* bias;  // (out)
  float* x;     // (batch, in)
};

// ---- Reference and bound ----------------------------------------------------------------------

struct Shape {
  size_t batch, in, out;
};

// Rows of a gradient in double, row behind row, and what a float result may be off there.
struct Expected {
  std::vector<double> value, bound;
};

// Every gradient's rows are made alike, of the rows of another matrix: appends the sum over j of
// coefficients[j * stride] times row j of `matrix` (count, cols), plus beta times row `row` of
// `before`. The bound is that of a matrix product, step 2.3.
inline void append_row(Expected& to, const float* coefficients, size_t stride,
                       const std::vector<float>& matrix, size_t count, size_t cols, float beta,
                       const std::vector<float>& before, size_t row) {
  gemm::Reference sums{std::vector<double>(cols), std::vector<double>(cols),
                       std::vector<double>(cols)};
  for (size_t j = 0; j < count; ++j) {
    const double coefficient = static_cast<double>(coefficients[j * stride]);
    const float* values = matrix.data() + j * cols;
    for (size_t col = 0; col < cols; ++col) {
      const double product = coefficient * static_cast<double>(values[col]);
      sums.c[col] += product, sums.absolute[col] += std::fabs(product);
    }
  }
  gemm::Product p;
  p.K = count;
  for (size_t col = 0; col < cols; ++col) {
    if (beta != 0)
      sums.before[col] = static_cast<double>(beta) * static_cast<double>(before[row * cols + col]);
    to.value.push_back(sums.c[col] + sums.before[col]);
    to.bound.push_back(gemm::bound(p, sums, col));
  }
}

// The rows `rows` of the gradients; `before` is what is there before the launch, unless beta is 0.
inline Expected expect_w(const Shape& shape, const std::vector<float>& grad_y,
                         const std::vector<float>& x, float beta, const std::vector<float>& before,
                         const std::vector<size_t>& rows) {
  Expected to;
  for (const size_t row : rows)
    append_row(to, grad_y.data() + row, shape.out, x, shape.batch, shape.in, beta, before, row);
  return to;
}
inline Expected expect_x(const Shape& shape, const std::vector<float>& grad_y,
                         const std::vector<float>& w, float beta, const std::vector<float>& before,
                         const std::vector<size_t>& rows) {
  Expected to;
  for (const size_t row : rows)
    append_row(to, grad_y.data() + row * shape.out, 1, w, shape.out, shape.in, beta, before, row);
  return to;
}
inline Expected expect_bias(const Shape& shape, const std::vector<float>& grad_y, float beta,
                            const std::vector<float>& before) {
  Expected to;
  constexpr float kOne = 1;
  append_row(to, &kOne, 0, grad_y, shape.batch, shape.out, beta, before, 0);
  return to;
}

// ---- The three products -----------------------------------------------------------------------
// beta is how often what is there already counts: 0 overwrites it unread, 1 accumulates.

// grad_w = grad_y^T x + beta grad_w, a sum over the samples.
inline gemm::Product product_of_w(float* grad_w, const float* grad_y, const float* x, size_t batch,
                                  const Layer& layer, float beta) {
  gemm::Product p;
  // exercise: sizes, arrays and leading dimensions of grad_y^T x (about 5 lines)
  p.layout = gemm::Layout::TN;
  p.M = layer.out, p.N = layer.in, p.K = batch;
  p.a = grad_y, p.lda = layer.out;
  p.b = x, p.ldb = layer.in;
  p.c = grad_w, p.ldc = layer.in;
  // end exercise
  p.beta = beta;
  return p;
}

// grad_x = grad_y w + beta grad_x, a sum over the output units.
inline gemm::Product product_of_x(float* grad_x, const float* grad_y, size_t batch,
                                  const Layer& layer, float beta) {
  gemm::Product p;
  // exercise: sizes, arrays and leading dimensions of grad_y w (about 5 lines)
  p.layout = gemm::Layout::NN;
  p.M = batch, p.N = layer.in, p.K = layer.out;
  p.a = grad_y, p.lda = layer.out;
  p.b = layer.w, p.ldb = layer.in;
  p.c = grad_x, p.ldc = layer.in;
  // end exercise
  p.beta = beta;
  return p;
}

// grad_bias = grad_y^T ones + beta grad_bias.
inline gemv::Product product_of_bias(float* grad_bias, const float* grad_y, const float* ones,
                                     size_t batch, size_t out, float beta) {
  return {batch, out, 1, grad_y, out, ones, beta, grad_bias};
}

// ---- What the launches need beside the arrays -------------------------------------------------

// Up to so many operations per product, a layer's launches run at the same time.
inline constexpr double kConcurrentOperations = 1e9;
inline constexpr size_t kSliceRows = 256;             // the least samples of a slice of the batch
inline constexpr size_t kTilesPerMultiprocessor = 2;  // that run there at the same time

// Two streams beside the caller's. fork(): they wait for what the caller's stream has been given so
// far. join(): the caller's stream waits for them. Both only put events into queues, the host goes
// on, and a graph that captures the caller's stream captures all three.
//
//   caller's   ----+------ grad_w ------------+----
//                  |                          |
//   [0]            +------ grad_x ---------+--+
//   [1]            +-- grad_bias --+----------+
//                fork                       join
class Branches {
 public:
  Branches() {
    for (hipStream_t& stream : streams_)
      HIP_CHECK(hipStreamCreateWithFlags(&stream, hipStreamNonBlocking));
    for (hipEvent_t& event : events_)
      HIP_CHECK(hipEventCreateWithFlags(&event, hipEventDisableTiming));
  }
  ~Branches() {  // a destructor must not throw; these fail only once the device is lost
    for (hipStream_t stream : streams_) static_cast<void>(hipStreamDestroy(stream));
    for (hipEvent_t event : events_) static_cast<void>(hipEventDestroy(event));
  }
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;

  hipStream_t operator[](size_t i) const { return streams_[i]; }

  void fork(hipStream_t from) const {
    HIP_CHECK(hipEventRecord(events_[kCount], from));
    for (hipStream_t stream : streams_) HIP_CHECK(hipStreamWaitEvent(stream, events_[kCount], 0));
  }
  void join(hipStream_t to) const {
    for (size_t i = 0; i < kCount; ++i) {
      HIP_CHECK(hipEventRecord(events_[i], streams_[i]));
      HIP_CHECK(hipStreamWaitEvent(to, events_[i], 0));
    }
  }

 private:
  static constexpr size_t kCount = 2;
  hipStream_t streams_[kCount] = {};
  hipEvent_t events_[kCount + 1] = {};  // one at each stream's end, one where they fork
};

// Into how many slices of the batch the sums of grad_w are cut: so many that all multiprocessors
// have tiles of step 2.3 to work on, but none of fewer than kSliceRows samples.
inline size_t count_slices(size_t batch, size_t in, size_t out) {
  if (in == 0 || out == 0) return 1;
  const size_t tiles =
      gpu::ceil_div(in, gemm::Large::kTileN) * gpu::ceil_div(out, gemm::Large::kTileM);
  const size_t wanted = size_t{gpu::multiprocessors()} * kTilesPerMultiprocessor / tiles;
  return std::max(std::min(wanted, batch / kSliceRows), size_t{1});
}

// For layers whose batch is at most max_batch. Two calls that may run at the same time need two.
struct Workspace {
  // Without memory for slices; grad_w of a long batch then keeps few multiprocessors busy.
  explicit Workspace(size_t max_batch)
      : ones(std::vector<float>(max_batch, 1)), partials(gemv::kMaxPartials) {}
  // With the memory that a layer of this size wants.
  Workspace(size_t max_batch, size_t in, size_t out) : Workspace(max_batch) {
    const size_t slices = count_slices(max_batch, in, out);
    if (slices < 2) return;
    slices_of_w = DeviceBuffer<float>(slices * in * out);
    partials_of_w = DeviceBuffer<float>(gemv::kMaxPartials);
  }
  DeviceBuffer<float> ones, partials;
  DeviceBuffer<float> slices_of_w, partials_of_w;
  Branches branches;
};

// ---- Three launches, a thread per column of grad_y --------------------------------------------

inline void launch_grad_w(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                          const Layer& layer, float beta, hipStream_t stream) {
  if (to.w != nullptr) gemm::best(product_of_w(to.w, grad_y, x, batch, layer, beta), stream);
}

inline void launch_grad_x(const Gradients& to, const float* grad_y, size_t batch,
                          const Layer& layer, float beta, hipStream_t stream) {
  if (to.x != nullptr) gemm::best(product_of_x(to.x, grad_y, batch, layer, beta), stream);
}

// Sum: gemv::best, or a version of gemv whose `transposed` is true.
template <class Sum>
void launch_grad_bias(const Gradients& to, const float* grad_y, size_t batch, const Layer& layer,
                      float beta, Workspace& workspace, hipStream_t stream, Sum&& sum) {
  if (to.bias == nullptr) return;
  if (batch > workspace.ones.size())
    throw std::invalid_argument("dense_backward: a batch of " + std::to_string(batch) +
                                " in a workspace for " + std::to_string(workspace.ones.size()));
  if (grad_y == nullptr && batch > 0 && layer.out > 0)
    throw std::invalid_argument("dense_backward: grad_y is null");
  sum(product_of_bias(to.bias, grad_y, workspace.ones.data(), batch, layer.out, beta),
      gemv::Workspace{workspace.partials.data()}, stream);
}

// The sum of rows by one thread per output unit, which walks down the whole batch: as many threads
// as there are units, with few loads on their way. The longer the batch, the longer all wait.
inline void launch_thread_per_column(const Gradients& to, const float* grad_y, const float* x,
                                     size_t batch, const Layer& layer, float beta,
                                     Workspace& workspace, hipStream_t stream = nullptr) {
  launch_grad_w(to, grad_y, x, batch, layer, beta, stream);
  launch_grad_bias(to, grad_y, batch, layer, beta, workspace, stream,
                   gemv::launch_thread_per_column);
  launch_grad_x(to, grad_y, batch, layer, beta, stream);
}

// ---- Three launches, grad_y in slices of rows -------------------------------------------------

// Step 2.2's best: slices of the batch keep every multiprocessor busy, and a second pass adds the
// slices' sums in their order, so that the bits are the same on every run.
inline void launch_row_slices(const Gradients& to, const float* grad_y, const float* x,
                              size_t batch, const Layer& layer, float beta, Workspace& workspace,
                              hipStream_t stream = nullptr) {
  launch_grad_w(to, grad_y, x, batch, layer, beta, stream);
  launch_grad_bias(to, grad_y, batch, layer, beta, workspace, stream, gemv::launch_split_columns);
  launch_grad_x(to, grad_y, batch, layer, beta, stream);
}

// ---- The weights in slices of the batch, too --------------------------------------------------

// grad_w has few elements for the length of its sums: 128 x 784 of them are seven tiles of step
// 2.3, which leave most multiprocessors idle however long the batch is. Each slice of the batch is
// a product of its own, all of them one launch; its result is a row of slices_of_w, and the sum of
// the rows is what the bias takes of grad_y. Known as split-K.
//
//   grad_y^T x  =  grad_y[0:r]^T x[0:r]  +  grad_y[r:2r]^T x[r:2r]  +  ...
inline void launch_grad_w_in_slices(const Gradients& to, const float* grad_y, const float* x,
                                    size_t batch, const Layer& layer, float beta,
                                    Workspace& workspace, hipStream_t stream) {
  const size_t weights = layer.in * layer.out;
  const size_t room = weights == 0 ? 0 : workspace.slices_of_w.size() / weights;
  const size_t slices = std::min(count_slices(batch, layer.in, layer.out), room);
  if (to.w == nullptr || slices < 2)
    return launch_grad_w(to, grad_y, x, batch, layer, beta, stream);
  const size_t rows = batch / slices, rest = batch % slices;
  float* const sums = workspace.slices_of_w.data();
  // exercise: a batch of products, one per slice, from product_of_w (about 4 lines)
  gemm::Product p = product_of_w(sums, grad_y, x, rows, layer, 0);
  p.batch = slices;
  p.stride_a = rows * layer.out, p.stride_b = rows * layer.in, p.stride_c = weights;
  gemm::best(p, stream);
  // end exercise
  if (rest > 0) {  // the last few samples go to the first slice's sums
    const size_t done = batch - rest;
    gemm::best(product_of_w(sums, grad_y + done * layer.out, x + done * layer.in, rest, layer, 1),
               stream);
  }
  gemv::best(true, product_of_bias(to.w, sums, workspace.ones.data(), slices, weights, beta),
             gemv::Workspace{workspace.partials_of_w.data()}, stream);
}

inline void launch_weight_slices(const Gradients& to, const float* grad_y, const float* x,
                                 size_t batch, const Layer& layer, float beta, Workspace& workspace,
                                 hipStream_t stream = nullptr) {
  launch_grad_w_in_slices(to, grad_y, x, batch, layer, beta, workspace, stream);
  launch_grad_bias(to, grad_y, batch, layer, beta, workspace, stream, gemv::launch_split_columns);
  launch_grad_x(to, grad_y, batch, layer, beta, stream);
}

// ---- All at the same time ---------------------------------------------------------------------

// No gradient needs another: three streams let the launches of a small layer, none of which fills
// the device, run side by side. A large layer gains nothing: each of its launches fills it alone.
inline void launch_concurrent(const Gradients& to, const float* grad_y, const float* x,
                              size_t batch, const Layer& layer, float beta, Workspace& workspace,
                              hipStream_t stream = nullptr) {
  const Branches& branches = workspace.branches;
  branches.fork(stream);
  launch_grad_x(to, grad_y, batch, layer, beta, branches[0]);
  launch_grad_bias(to, grad_y, batch, layer, beta, workspace, branches[1],
                   gemv::launch_split_columns);
  launch_grad_w_in_slices(to, grad_y, x, batch, layer, beta, workspace, stream);
  branches.join(stream);
}

// ---- What later stages call -------------------------------------------------------------------

// The gradients that are wanted, queued on `stream`: one after the other where each of them fills
// the device, at the same time where none does.
inline void backward(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                     const Layer& layer, float beta, Workspace& workspace,
                     hipStream_t stream = nullptr) {
  const double operations = 2.0 * static_cast<double>(batch) * static_cast<double>(layer.in) *
                            static_cast<double>(layer.out);
  const int wanted = (to.w != nullptr) + (to.bias != nullptr) + (to.x != nullptr);
  const auto launch =
      wanted > 1 && operations < kConcurrentOperations ? launch_concurrent : launch_weight_slices;
  launch(to, grad_y, x, batch, layer, beta, workspace, stream);
}

// ---- The versions -----------------------------------------------------------------------------

using Launch = void (*)(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                        const Layer& layer, float beta, Workspace& workspace, hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"thread_per_column", launch_thread_per_column,
     "two matrix products; a thread walks down each column of grad_y"},
    {"row_slices", launch_row_slices, "slices of the batch for the bias, added in their order"},
    {"weight_slices", launch_weight_slices, "and for the weights: split-K"},
    {"concurrent", launch_concurrent, "no gradient needs another: three streams"},
};

}  // namespace dense_backward
