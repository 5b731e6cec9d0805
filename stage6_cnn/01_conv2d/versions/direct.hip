// direct: one thread per output.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/problem.h"

namespace conv2d {

// y = f(x * w + bias)    x (N,C,H,W)  w (K,C,R,S)  bias (K) or null  y (N,K,P,Q), any sizes.
// Fixes : a CPU core computes the elements of y one after the other.
// Idea  : every element is a sum of its own over a window of x; one thread for each.
// Thread: t owns element t of y; its neighbours' windows overlap its own.
// Costs : 2 loads per multiplication, which the caches must serve.
template <class Activation>
static __global__ void conv2d_direct(float* y, const float* x, const float* w, const float* bias,
                                     Problem p, int P, int Q, size_t outputs) {
  const int C = static_cast<int>(p.C), H = static_cast<int>(p.H), W = static_cast<int>(p.W);
  const int R = static_cast<int>(p.R), S = static_cast<int>(p.S);
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= outputs) return;
  const size_t pixels = static_cast<size_t>(P * Q), plane = i / pixels;
  const int pixel = static_cast<int>(i % pixels);
  const size_t n = plane / p.K, k = plane % p.K;
  const float* image = x + n * p.C * p.H * p.W;
  const float* filter = w + k * p.C * p.R * p.S;
  // exercise: the sum over this output's window, with zeros around the image (about 10 lines)
  const int h0 = pixel / Q * static_cast<int>(p.stride_h) - static_cast<int>(p.pad_h);
  const int w0 = pixel % Q * static_cast<int>(p.stride_w) - static_cast<int>(p.pad_w);
  float sum = 0;
  for (int c = 0; c < C; ++c, image += H * W)
    for (int r = 0; r < R; ++r, filter += S)
      for (int s = 0; s < S; ++s) {
        const int h = h0 + r, col = w0 + s;
        // As an unsigned number a negative one is large: one comparison for both ends.
        const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(H) &&
                            static_cast<unsigned>(col) < static_cast<unsigned>(W);
        sum += filter[s] * (inside ? image[h * W + col] : 0);
      }
  y[i] = Activation{}(bias == nullptr ? sum : sum + bias[k]);
  // end exercise
}

template <class Activation>
void launch_direct(float* y, const float* x, const float* w, const float* bias,
                   const Problem& problem, Workspace&, hipStream_t stream) {
  check_forward(y, x, w, problem);
  const size_t outputs = size_of_y(problem);
  if (outputs == 0) return;
  constexpr unsigned kThreads = 256;
  const Extent out = output_of(problem);
  LAUNCH_ON(stream, (conv2d_direct<Activation>),
            static_cast<unsigned>(gpu::ceil_div(outputs, kThreads)), kThreads, 0, y, x, w, bias,
            problem, static_cast<int>(out.height), static_cast<int>(out.width), outputs);
}

template void launch_direct<dense::Linear>(float*, const float*, const float*, const float*,
                                           const Problem&, Workspace&, hipStream_t);
template void launch_direct<activations::Relu>(float*, const float*, const float*, const float*,
                                               const Problem&, Workspace&, hipStream_t);

}  // namespace conv2d
