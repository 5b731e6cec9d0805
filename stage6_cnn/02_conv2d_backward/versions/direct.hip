// direct: one thread per element of each gradient.
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage6_cnn/01_conv2d/detail/geometry.h"
#include "stage6_cnn/02_conv2d_backward/problem.h"

namespace conv2d_backward {

using conv2d::Geometry, conv2d::kBlock, conv2d::grid_of, conv2d::is_inside;

// grad_x[n,c,h,w] = sum over k, r, s of grad_y w    grad_x (N,C,H,W)  w (K,C,R,S), any sizes.
// Fixes : a CPU core computes the elements one after the other.
// Idea  : a thread per element asks which windows have covered it. With a stride only those count
//         that begin at a whole number of strides.
// Thread: t owns element t of grad_x.
// Costs : 2 loads per multiplication, a division for each row and column of the filter.
static __global__ void __launch_bounds__(kBlock)
    grad_x_direct(float* grad_x, const float* grad_y, const float* w, Geometry g, size_t count) {
  const size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= count) return;
  const size_t area = static_cast<size_t>(g.H * g.W), plane = i / area;
  const int h = static_cast<int>(i % area) / g.W, col = static_cast<int>(i % area) % g.W;
  const int c = static_cast<int>(plane % static_cast<size_t>(g.C));
  const float* image = grad_y + plane / static_cast<size_t>(g.C) * g.image_of_y();
  // exercise: the sum over the filters and over the windows that covered this element (about 12
  // lines)
  float sum = 0;
  for (int r = 0; r < g.R; ++r) {
    const int down = h + g.pad_h - r, p = down / g.stride_h;
    if (down < 0 || p * g.stride_h != down || p >= g.P) continue;
    for (int s = 0; s < g.S; ++s) {
      const int right = col + g.pad_w - s, q = right / g.stride_w;
      if (right < 0 || q * g.stride_w != right || q >= g.Q) continue;
      for (int k = 0; k < g.K; ++k)
        sum += image[(k * g.P + p) * g.Q + q] * w[(size_t(k) * g.C + c) * g.taps() + r * g.S + s];
    }
  }
  grad_x[i] = sum;
  // end exercise
}

// grad_w[k,c,r,s] = sum over n, p, q of grad_y x + beta grad_w    grad_w (K,C,R,S)
// Fixes : as grad_x_direct.
// Idea  : a thread per weight walks over all outputs that the weight had a part in.
// Thread: t owns element t of grad_w.
// Costs : 2 loads per multiplication; N P Q of them one after the other by few threads.
static __global__ void __launch_bounds__(kBlock)
    grad_w_direct(float* grad_w, const float* grad_y, const float* x, Geometry g, size_t images,
                  float beta, size_t count) {
  const size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= count) return;
  const int tap = static_cast<int>(i % static_cast<size_t>(g.taps()));
  const int r = tap / g.S, s = tap % g.S;
  const size_t plane = i / static_cast<size_t>(g.taps());
  const size_t c = plane % static_cast<size_t>(g.C), k = plane / static_cast<size_t>(g.C);
  float sum = 0;
  for (size_t n = 0; n < images; ++n) {
    const float* of_y = grad_y + n * g.image_of_y() + k * static_cast<size_t>(g.pixels());
    const float* of_x = x + n * g.image_of_x() + c * static_cast<size_t>(g.H * g.W);
    for (int p = 0; p < g.P; ++p)
      for (int q = 0; q < g.Q; ++q) {
        const int h = p * g.stride_h - g.pad_h + r, col = q * g.stride_w - g.pad_w + s;
        if (is_inside(h, g.H, col, g.W)) sum += of_y[p * g.Q + q] * of_x[h * g.W + col];
      }
  }
  grad_w[i] = gemm::AlphaBeta{1, beta}(sum, 0, 0, grad_w + i);
}

// grad_bias[k] = sum over n, p, q of grad_y + beta grad_bias    grad_bias (K)
// Fixes : as grad_x_direct.
// Idea  : a filter's outputs are planes of grad_y, one per image; a block adds them up.
// Thread: t of block k adds pixels t, t + kBlock, ... of the filter's planes.
// Costs : 4 bytes per element of grad_y; 1 barrier.
static __global__ void __launch_bounds__(kBlock)
    grad_bias_by_block(float* grad_bias, const float* grad_y, Geometry g, size_t images,
                       float beta) {
  const size_t k = blockIdx.x;
  float sum = 0;
  for (size_t n = 0; n < images; ++n)
    for (int i = static_cast<int>(threadIdx.x); i < g.pixels(); i += kBlock)
      sum += grad_y[n * g.image_of_y() + k * static_cast<size_t>(g.pixels()) + i];
  sum = dot::block_sum(sum);
  if (threadIdx.x == 0) grad_bias[k] = gemm::AlphaBeta{1, beta}(sum, 0, 0, grad_bias + k);
}

void launch_grad_bias(float* grad_bias, const float* grad_y, const Problem& problem, float beta,
                      hipStream_t stream) {
  if (problem.K > 0)
    LAUNCH_ON(stream, grad_bias_by_block, static_cast<unsigned>(problem.K), kBlock, 0, grad_bias,
              grad_y, geometry_of(problem), problem.N, beta);
}

void launch_direct(const Gradients& to, const float* grad_y, const float* x, const float* w,
                   const Problem& problem, float beta, Workspace&, hipStream_t stream) {
  check_backward(to, grad_y, x, w, problem);
  const Geometry g = geometry_of(problem);
  const size_t weights = size_of_w(problem), elements = size_of_x(problem);
  if (to.w != nullptr && weights > 0)
    LAUNCH_ON(stream, grad_w_direct, grid_of(weights), kBlock, 0, to.w, grad_y, x, g, problem.N,
              beta, weights);
  if (to.bias != nullptr) launch_grad_bias(to.bias, grad_y, problem, beta, stream);
  if (to.x != nullptr && elements > 0)
    LAUNCH_ON(stream, grad_x_direct, grid_of(elements), kBlock, 0, to.x, grad_y, w, g, elements);
}

}  // namespace conv2d_backward
