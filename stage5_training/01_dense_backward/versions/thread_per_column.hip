// thread_per_column: the weights' and the inputs' gradients are products of step 2.3, and that of
// the bias is one of step 2.2. No kernel is written here.
#include <stdexcept>

#include "stage5_training/01_dense_backward/dense_backward.h"

namespace dense_backward {

// Fixes : naive loads two numbers for each multiplication.
// Idea  : step 2.3 uses every number many times, and reads grad_y^T as grad_y lies: layout TN.
gemm::Product product_of_w(float* grad_w, const float* grad_y, const float* x, size_t batch,
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

gemm::Product product_of_x(float* grad_x, const float* grad_y, size_t batch, const Layer& layer,
                           float beta) {
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

gemv::Product product_of_bias(float* grad_bias, const float* grad_y, const float* ones,
                              size_t batch, size_t out, float beta) {
  return {batch, out, 1, grad_y, out, ones, beta, grad_bias};
}

void launch_grad_w(const Gradients& to, const float* grad_y, const float* x, size_t batch,
                   const Layer& layer, float beta, hipStream_t stream) {
  if (to.w != nullptr) gemm::best(product_of_w(to.w, grad_y, x, batch, layer, beta), stream);
}

void launch_grad_x(const Gradients& to, const float* grad_y, size_t batch, const Layer& layer,
                   float beta, hipStream_t stream) {
  if (to.x != nullptr) gemm::best(product_of_x(to.x, grad_y, batch, layer, beta), stream);
}

void launch_grad_bias(const Gradients& to, const float* grad_y, size_t batch, const Layer& layer,
                      float beta, Workspace& workspace, hipStream_t stream,
                      void (*sum)(const gemv::Product&, const gemv::Workspace&, hipStream_t)) {
  if (to.bias == nullptr) return;
  workspace.require(batch);
  if (grad_y == nullptr && batch > 0 && layer.out > 0)
    throw std::invalid_argument("dense_backward: grad_y is null");
  sum(product_of_bias(to.bias, grad_y, workspace.ones.data(), batch, layer.out, beta),
      gemv::Workspace{workspace.partials.data()}, stream);
}

// The sum of rows by one thread per output unit, which walks down the whole batch: as many threads
// as there are units, with few loads on their way. The longer the batch, the longer all wait.
void launch_thread_per_column(const Gradients& to, const float* grad_y, const float* x,
                              size_t batch, const Layer& layer, float beta, Workspace& workspace,
                              const Streams& streams) {
  launch_grad_w(to, grad_y, x, batch, layer, beta, streams.caller);
  launch_grad_bias(to, grad_y, batch, layer, beta, workspace, streams.caller,
                   gemv::launch_thread_per_column);
  launch_grad_x(to, grad_y, batch, layer, beta, streams.caller);
}

}  // namespace dense_backward
