// grad_x as a convolution of grad_y. With a stride of 1 the outputs [h + pad - r, w + pad - s] have
// covered the element [h, w]. That is a window of grad_y for a filter that is turned by 180
// degrees, with C and K exchanged.
//
// With a longer stride the elements of x are of stride_h stride_w kinds. Only the rows r0, r0 +
// stride_h, ... of the filter have met those with (h + pad_h) % stride_h = r0:
//
//   stride 2, R = 3, pad 1     h = 0  r = 1         Each kind is a convolution of its own, with a
//                              h = 1  r = 0, 2      stride of 1 and a part of the filter. No zeros
//                              h = 2  r = 1         between the outputs are multiplied.
#pragma once

#include <cstdint>

#include "common/gpu_runtime.h"
#include "stage6_cnn/01_conv2d/detail/windows.h"

namespace conv2d_backward {

using conv2d::Geometry;
using conv2d::Windows;

// The rows start + i stride of one kind, i < count, which meet the taps r0 + stride t, t < taps;
// and columns alike.
struct Kind {
  int start, count, r0, taps;
};
inline Kind kind_of(int r0, int length, int taps, int stride, int pad) {
  const int start = (r0 - pad % stride + stride) % stride;
  return {start, length > start ? (length - start - 1) / stride + 1 : 0, r0,
          r0 < taps ? (taps - r0 - 1) / stride + 1 : 0};
}

// The windows of grad_y that make the elements of x of one kind of rows and one of columns.
inline Windows windows_of_kind(float* grad_x, const float* grad_y, const float* w,
                               const Geometry& g, const Kind& down, const Kind& across) {
  // The last tap comes first: rows run on to p = (start + pad - r0) / stride + i.
  const auto first = [](const Kind& kind, int stride, int pad) {
    return (kind.start + pad - kind.r0) / stride - (kind.taps - 1);
  };
  const auto last_tap = [](const Kind& kind, int stride) {
    return kind.r0 + (kind.taps - 1) * stride;
  };
  Windows p{};
  p.from = grad_y, p.channels = g.K, p.height = g.P, p.width = g.Q;
  p.rows = down.count, p.cols = across.count;
  p.step_h = 1, p.step_w = 1;
  p.first_h = first(down, g.stride_h, g.pad_h), p.first_w = first(across, g.stride_w, g.pad_w);
  p.filter = w + (last_tap(down, g.stride_h) * g.S + last_tap(across, g.stride_w));
  p.maps = g.C, p.taps_h = down.taps, p.taps_w = across.taps;
  p.filter_map = g.taps(), p.filter_channel = g.C * g.taps();
  p.filter_row = down.taps > 1 ? -g.stride_h * g.S : 0;
  p.filter_col = across.taps > 1 ? -g.stride_w : 0;
  p.to = grad_x + (down.start * g.W + across.start);
  p.to_map = g.H * g.W, p.to_row = down.count > 1 ? g.stride_h * g.W : 0, p.to_col = g.stride_w;
  p.whole = g.stride_h == 1 && g.stride_w == 1 && g.H * g.W % 4 == 0 &&
            reinterpret_cast<std::uintptr_t>(grad_x) % sizeof(float4) == 0;
  return p;
}

}  // namespace conv2d_backward
