// thread_per_output: a thread finds its window by divisions.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage6_cnn/03_maxpool/maxpool.h"

namespace maxpool {

// y, argmax = the largest of each window    x (planes,H,W), y, argmax (planes,P,Q), any sizes.
// Fixes : a CPU core takes the windows one after the other.
// Idea  : one thread per output; plane, row and column are what divisions leave of its number.
// Thread: t owns the outputs t, t + T, ... of flat memory, with T threads in the grid.
// Costs : 4 H W + 6 P Q bytes per plane; two 64-bit divisions per output, one load in flight.
static __global__ void forward_thread_per_output(float* y, Index* argmax, const float* x, Problem p,
                                                 size_t P, size_t Q, size_t outputs) {
  const int H = static_cast<int>(p.H), W = static_cast<int>(p.W);
  const int R = static_cast<int>(p.R), S = static_cast<int>(p.S);
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < outputs; i += threads) {
    const size_t row = i / Q, plane = row / P;
    const float* image = x + plane * p.H * p.W;
    const int top = static_cast<int>(row % P * p.stride_h) - static_cast<int>(p.pad_h);
    const int left = static_cast<int>(i % Q * p.stride_w) - static_cast<int>(p.pad_w);
    float best = 0;
    int place = -1;  // none yet
    // exercise: the largest of the window's cells that lie in the image, and its place (about 10
    // lines)
    for (int r = 0; r < R; ++r) {
      if (top + r < 0 || top + r >= H) continue;
      for (int s = 0; s < S; ++s) {
        if (left + s < 0 || left + s >= W) continue;
        const float value =
            image[static_cast<size_t>(top + r) * p.W + static_cast<size_t>(left + s)];
        // A comparison with NaN is false: a NaN is larger than every number, and nothing than it.
        const bool larger = !(value <= best) && best == best;
        if (place < 0 || larger) best = value, place = r * S + s;
      }
    }
    // end exercise
    y[i] = best;
    argmax[i] = static_cast<Index>(place);
  }
}

void launch_thread_per_output(float* y, Index* argmax, const float* x, const Problem& p,
                              hipStream_t stream) {
  const Extent out = output_of(p);
  const size_t outputs = p.N * p.C * out.height * out.width;
  if (outputs > 0)
    LAUNCH_ON(stream, forward_thread_per_output, vector_add::full_grid(outputs), vector_add::kBlock,
              0, y, argmax, x, p, out.height, out.width, outputs);
}

}  // namespace maxpool
