// im2col: every window is laid out as the column of a matrix; the rest is step 2.3's product.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/detail/geometry.h"
#include "stage6_cnn/01_conv2d/problem.h"

namespace conv2d {

// columns[n, (c,r,s), (p,q)] = x[n, c, p stride_h - pad_h + r, q stride_w - pad_w + s] or 0 outside
// Fixes : tiled multiplies from shared memory, far from the rate of step 2.3's products.
// Idea  : with each window laid out as a column, the convolution of an image is the matrix product
//         y[n] = w columns[n], of (K, C R S) and (C R S, P Q).
// Thread: t owns element t of columns.
// Costs : columns is R S / (stride_h stride_w) times as large as x, is written and read.
static __global__ void __launch_bounds__(kBlock)
    conv2d_columns(float* columns, const float* x, Geometry g, size_t count) {
  const size_t i = size_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= count) return;
  const size_t row = i / static_cast<size_t>(g.pixels());  // of all images' columns
  const int pixel = static_cast<int>(i % static_cast<size_t>(g.pixels()));
  const size_t window = static_cast<size_t>(g.C * g.taps());
  const int line = static_cast<int>(row % window);
  const float* image = x + row / window * g.image_of_x();
  // exercise: the channel and the place in it that this element shows (about 4 lines)
  const int c = line / g.taps(), r = line / g.S % g.R, s = line % g.S;
  const int h = pixel / g.Q * g.stride_h - g.pad_h + r;
  const int col = pixel % g.Q * g.stride_w - g.pad_w + s;
  columns[i] = is_inside(h, g.H, col, g.W) ? image[(c * g.H + h) * g.W + col] : 0;
  // end exercise
}

// Makes the columns of as many images as there is memory for, then multiplies all of them in one
// launch, until there are no more images.
template <class Activation>
void launch_im2col(float* y, const float* x, const float* w, const float* bias,
                   const Problem& problem, Workspace& workspace, hipStream_t stream) {
  check_forward(y, x, w, problem);
  const Geometry g = geometry_of(problem);
  const size_t per_image = columns_per_image(problem);
  const size_t room = per_image == 0 ? problem.N : workspace.columns.size() / per_image;
  if (size_of_y(problem) == 0) return;
  if (room == 0) throw std::invalid_argument("conv2d: no memory for the columns of an image");
  gemm::Product p;
  p.M = problem.K, p.N = static_cast<size_t>(g.pixels()), p.K = window_of(problem);
  p.a = w, p.lda = p.K;
  p.b = workspace.columns.data(), p.ldb = p.N, p.stride_b = per_image;
  p.ldc = p.N, p.stride_c = g.image_of_y();
  for (size_t n = 0; n < problem.N; n += room) {
    p.batch = std::min(room, problem.N - n);
    p.c = y + n * p.stride_c;
    const size_t count = p.batch * per_image;
    if (count > 0)  // else there are no channels
      LAUNCH_ON(stream, conv2d_columns, grid_of(count), kBlock, 0, workspace.columns.data(),
                x + n * g.image_of_x(), g, count);
    gemm::best<gemm::Layouts<gemm::Layout::NN>>(p, BiasActivation<Activation>{bias}, stream);
  }
}

template void launch_im2col<dense::Linear>(float*, const float*, const float*, const float*,
                                           const Problem&, Workspace&, hipStream_t);
template void launch_im2col<activations::Relu>(float*, const float*, const float*, const float*,
                                               const Problem&, Workspace&, hipStream_t);

}  // namespace conv2d
