// 6.1  conv2d: a layer that slides K small filters over every image of a batch, Y = f(X * W + b).
//
//   x (N, C, H, W)   w (K, C, R, S)   bias (K)   y (N, K, P, Q)          row-major, without gaps
//
//   y[n,k,p,q] = f(bias[k] + sum over c, r, s of
//                  w[k,c,r,s] * x[n, c, p stride_h - pad_h + r, q stride_w - pad_w + s])
//
// with zeros around the image. A sum has C R S products, and neighbouring sums share most of their
// numbers of x. Written as a matrix product, step 2.3, it has a column for each window of x. The
// ladder is about where these columns are: nowhere, in a patch of the image in shared memory, in a
// copy that is R S times as large as x, or in tiles that never leave the block.
//
// Any sizes (N, C and K may be 0), strides and padding, with fewer than 2^30 elements in an image
// of x or y. All arrays are on the device and aligned to 4 bytes; y overlaps no input. Launchers
// throw std::invalid_argument where a window does not fit or an array that is needed is null. Every
// version gives the same bits on every run of one device.
//
// The zeros of the padding are numbers like others: an infinite weight over them makes y NaN.
// `winograd` subtracts numbers of x: an infinity or a NaN makes NaN of a tile of 4 x 4 outputs.
#pragma once

#include <cstddef>

#include "common/device_parts.h"
#include "common/version.h"

namespace conv2d {

// N images of C channels of H x W; K filters of C channels of R x S, which move by stride_h rows or
// stride_w columns over images with pad_h rows and pad_w columns of zeros on each side.
struct Problem {
  size_t N, C, H, W, K, R, S;
  size_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
};

struct Extent {
  size_t height, width;
};

// P and Q. Throws std::invalid_argument where no window fits, or an image has too many elements.
Extent output_of(const Problem& p);

size_t window_of(const Problem& p);  // C R S, the products of a sum
size_t size_of_x(const Problem& p);  // elements
size_t size_of_w(const Problem& p);
size_t size_of_y(const Problem& p);

// Device memory, of `parts` or its own, for `largest` and for problems with fewer images: what
// forward() needs, or what any version needs. Two calls that may run at the same time need two.
struct Workspace {
  explicit Workspace(const Problem& largest, gpu::DeviceParts* parts = nullptr);
  static Workspace for_all_versions(const Problem& largest, gpu::DeviceParts* parts = nullptr);

  gpu::DeviceArray<float> columns;  // of im2col
  gpu::DeviceArray<float> tiles;    // of winograd
};

// y = f(x * w + bias), queued on `stream`. A bias that is null adds nothing. The launchers are
// compiled for dense::Linear and activations::Relu. Only im2col and winograd use the workspace, and
// throw where it was made for a smaller problem.
template <class Activation>
void launch_direct(float* y, const float* x, const float* w, const float* bias,
                   const Problem& problem, Workspace& workspace, hipStream_t stream = nullptr);
template <class Activation>
void launch_tiled(float* y, const float* x, const float* w, const float* bias,
                  const Problem& problem, Workspace& workspace, hipStream_t stream = nullptr);
template <class Activation>
void launch_im2col(float* y, const float* x, const float* w, const float* bias,
                   const Problem& problem, Workspace& workspace, hipStream_t stream = nullptr);
template <class Activation>
void launch_implicit_gemm(float* y, const float* x, const float* w, const float* bias,
                          const Problem& problem, Workspace& workspace,
                          hipStream_t stream = nullptr);
template <class Activation>
void launch_known_window(float* y, const float* x, const float* w, const float* bias,
                         const Problem& problem, Workspace& workspace,
                         hipStream_t stream = nullptr);
template <class Activation>
void launch_right_tile(float* y, const float* x, const float* w, const float* bias,
                       const Problem& problem, Workspace& workspace, hipStream_t stream = nullptr);
template <class Activation>
void launch_winograd(float* y, const float* x, const float* w, const float* bias,
                     const Problem& problem, Workspace& workspace, hipStream_t stream = nullptr);

// What later steps call: winograd where use_winograd() says so, else right_tile.
template <class Activation>
void forward(float* y, const float* x, const float* w, const float* bias, const Problem& problem,
             Workspace& workspace, hipStream_t stream = nullptr);

// Whether p has windows of 3 x 3 that move by 1: `winograd` leaves others to right_tile.
bool fits_winograd(const Problem& p);
bool use_winograd(const Problem& p);  // whether it is then the faster one

using Run = void (*)(float* y, const float* x, const float* w, const float* bias,
                     const Problem& problem, Workspace& workspace, hipStream_t stream);

struct Launch {
  Run run;
  bool (*transforms)(const Problem& p) = nullptr;  // whether it computes p as winograd does
};

template <class Activation>
inline constexpr Version<Launch> kVersions[] = {
    {"direct", {launch_direct<Activation>}, "one thread per output"},
    {"tiled", {launch_tiled<Activation>}, "a block reuses a patch of the image and 8 filters"},
    {"im2col", {launch_im2col<Activation>}, "windows as columns of a matrix, then step 2.3"},
    {"implicit_gemm",
     {launch_implicit_gemm<Activation>},
     "the columns are made in shared memory, where they are used"},
    {"known_window",
     {launch_known_window<Activation>},
     "3 x 3 at compile time: a bit per element instead of its place"},
    {"right_tile", {launch_right_tile<Activation>}, "and the tile that suits the shape"},
    {"winograd",
     {launch_winograd<Activation>, fits_winograd},
     "3 x 3: a quarter of the multiplications, and larger errors"},
    {"best", {forward<Activation>, use_winograd}, "the faster of the last two"},
};

}  // namespace conv2d
