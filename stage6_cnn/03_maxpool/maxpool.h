// 6.3  maxpool: of each window of an image only the largest value goes on, and on the way back only
// that value's cell gets the gradient.
//
//   y[n,c,p,q]      = max of x[n,c, p stride_h - pad_h + r, q stride_w - pad_w + s], r < R, s < S
//   argmax[n,c,p,q] = r S + s of the cell that was taken: where its gradient goes
//   grad_x[n,c,h,w] = sum of grad_y over the windows whose argmax is the cell (h, w)
//
//   x, grad_x (N,C,H,W)    y, grad_y, argmax (N,C,P,Q)     row-major without gaps, on the device
//
// Nothing is computed: 2x2 windows every 2 cells compare three times per 22 bytes, and what can be
// won is in how the memory is asked. Windows may overlap (a stride smaller than the window) or
// leave cells out. What lies outside the image is no cell and is never taken. Of equal values the
// first in row-major order is, and NaN is larger than every number, so that a NaN is not lost: the
// first one.
//
// Any sizes; float arrays are aligned to 4 bytes and argmax to 2. Outputs overlap no input.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/version.h"

namespace maxpool {

struct Problem {
  size_t N, C, H, W;  // images, channels, rows and columns of x
  size_t R, S;        // rows and columns of a window
  size_t stride_h, stride_w;
  size_t pad_h = 0, pad_w = 0;  // rows above and below, columns left and right that hold no cell
};

struct Extent {
  size_t height, width;
};

// The place of a cell in its window, row-major: r * S + s.
using Index = std::uint16_t;

// P and Q: how many windows fit below and beside one another. Throws std::invalid_argument, one
// line, where the problem can't be. The padding is smaller than the window: each has a cell.
Extent output_of(const Problem& p);

// Launchers throw as output_of() does, and gpu::Error where a launch is refused. Those for certain
// windows leave others to the version before.
void launch_thread_per_output(float* y, Index* argmax, const float* x, const Problem& p,
                              hipStream_t stream = nullptr);
void launch_rows(float* y, Index* argmax, const float* x, const Problem& p,
                 hipStream_t stream = nullptr);
void launch_unrolled(float* y, Index* argmax, const float* x, const Problem& p,
                     hipStream_t stream = nullptr);
void launch_vectorized(float* y, Index* argmax, const float* x, const Problem& p,
                       hipStream_t stream = nullptr);

// The best of them.
void forward(float* y, Index* argmax, const float* x, const Problem& p,
             hipStream_t stream = nullptr);

struct Launch {
  void (*run)(float* y, Index* argmax, const float* x, const Problem& p, hipStream_t stream);
  bool row_pairs_only;  // for 2x2 windows every 2 cells
};

inline constexpr Version<Launch> kVersions[] = {
    {"thread_per_output", {launch_thread_per_output, false}, "one window per thread, by divisions"},
    {"rows", {launch_rows, false}, "a grid of the output's rows: a short division per row"},
    {"unrolled",
     {launch_unrolled, false},
     "2x2 and 3x3: all cells on their way before the first is used"},
    {"vectorized",
     {launch_vectorized, true},
     "2x2 every 2: 16 bytes of two rows at a time, no lane idle"},
};

// What arrives at the outputs: their gradient. If x is what a ReLU has made and y is given, it is
// the gradient of the ReLU's input: the cell that gets it has the value y.
struct Arriving {
  const float* grad_y;
  const float* y = nullptr;
};

// All overwrite grad_x.
void launch_scatter_atomic(float* grad_x, const Arriving& arriving, const Index* argmax,
                           const Problem& p, hipStream_t stream = nullptr);
void launch_gather(float* grad_x, const Arriving& arriving, const Index* argmax, const Problem& p,
                   hipStream_t stream = nullptr);
void launch_gather_unrolled(float* grad_x, const Arriving& arriving, const Index* argmax,
                            const Problem& p, hipStream_t stream = nullptr);
void launch_gather_vectorized(float* grad_x, const Arriving& arriving, const Index* argmax,
                              const Problem& p, hipStream_t stream = nullptr);

// The best of them: what later steps call.
void backward(float* grad_x, const float* grad_y, const Index* argmax, const Problem& p,
              hipStream_t stream = nullptr);
void backward_through_relu(float* grad_x, const float* grad_y, const float* y, const Index* argmax,
                           const Problem& p, hipStream_t stream = nullptr);

struct BackwardLaunch {
  void (*run)(float* grad_x, const Arriving& arriving, const Index* argmax, const Problem& p,
              hipStream_t stream);
  bool deterministic;   // also where windows overlap
  bool row_pairs_only;  // for 2x2 windows every 2 cells
};

inline constexpr Version<BackwardLaunch> kBackwardVersions[] = {
    {"scatter_atomic",
     {launch_scatter_atomic, false, false},
     "each output adds to its cell; grad_x is set to 0 before"},
    {"gather",
     {launch_gather, true, false},
     "each cell asks the windows over it: written once, in a fixed order"},
    {"gather_unrolled",
     {launch_gather_unrolled, true, false},
     "2x2 and 3x3: a thread asks for all cells that have the same windows over them"},
    {"gather_vectorized",
     {launch_gather_vectorized, true, true},
     "2x2 every 2: grad_x is written in its order, 16 bytes at a time"},
};

}  // namespace maxpool
