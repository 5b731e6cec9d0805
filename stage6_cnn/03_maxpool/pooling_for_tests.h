// What the tests of step 6.3 share: windows of all kinds, and a pass held against the reference.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/guarded.h"
#include "common/random.h"
#include "common/testing.h"
#include "stage6_cnn/03_maxpool/maxpool.h"
#include "stage6_cnn/03_maxpool/reference.h"

namespace maxpool_test {

using namespace maxpool;
using testing::random_floats;
using testing::same_bits;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// N, C, H, W, R, S, both strides, both paddings.
inline constexpr Problem kProblems[] = {
    {1, 1, 1, 1, 1, 1, 1, 1},           // nothing to choose from
    {0, 3, 4, 4, 2, 2, 2, 2},           // no image
    {3, 0, 4, 4, 2, 2, 2, 2},           // no channel
    {2, 3, 8, 12, 2, 2, 2, 2},          // rows of whole float4s
    {3, 5, 7, 16, 2, 2, 2, 2},          // with a last row in no window
    {2, 7, 14, 14, 2, 2, 2, 2},         // rows of whole float2s
    {2, 3, 5, 10, 2, 2, 2, 2},          // the same with a last row
    {2, 3, 6, 7, 2, 2, 2, 2},           // an odd number of columns
    {1, 2, 2, 2060, 2, 2, 2, 2},        // more than a block in a row
    {2, 3, 15, 260, 2, 2, 2, 2},        // several blocks
    {5, 67, 2, 4, 2, 2, 2, 2},          // more than a block in many planes
    {2, 2, 9, 11, 2, 2, 2, 2, 1, 1},    // padding
    {2, 3, 9, 12, 3, 3, 2, 2, 1, 1},    // overlapping: each cell in up to four windows
    {1, 3, 10, 300, 3, 3, 1, 1, 1, 1},  // in up to nine
    {2, 2, 7, 7, 3, 3, 3, 3},           // side by side, and a row and a column left out
    {2, 2, 6, 9, 4, 4, 1, 1, 3, 3},     // windows that hold one cell only, in the corners
    {2, 2, 11, 9, 2, 2, 3, 4},          // cells that no window has
    {2, 2, 11, 10, 2, 2, 3, 3, 1, 1},   // the same between padding
    {2, 2, 5, 6, 1, 1, 2, 2},           // one cell in each
    {1, 2, 7, 10, 5, 2, 1, 3, 4, 1},    // other numbers for rows and columns
    {2, 1, 9, 8, 1, 4, 2, 3, 0, 3},     //
    {2, 3, 1, 1, 3, 3, 2, 2, 1, 1},     // a window larger than the image
    {1, 2, 20, 30, 20, 30, 1, 1},       // one window for all of it
    {1, 1, 256, 256, 256, 256, 1, 1},   // whose places need all of 16 bits
    {1, 1, 400, 3, 2, 2, 2, 2, 0, 1},   // a column of windows
    {2, 2, 12, 13, 3, 3, 2, 2},         // 3x3 without padding
    {1, 3, 9, 8, 3, 3, 2, 2, 2, 2},     // with two of it
    {1, 2, 8, 9, 3, 3, 2, 2, 1, 0},     // with some above but not beside
    {1, 2, 5, 6, 3, 3, 1, 1, 2, 2},     //
    {2, 2, 8, 8, 2, 2, 2, 1},           // 2x2, but not every 2
    {2, 2, 8, 8, 2, 2, 1, 2},
    {2, 2, 7, 9, 2, 3, 2, 2},  // as high as a known window, but wider
    {2, 2, 9, 7, 3, 2, 2, 2},  // and narrower
};

inline std::string text_of(const Problem& p) {
  std::string text;
  for (const size_t n : {p.N, p.C, p.H, p.W, p.R, p.S, p.stride_h, p.stride_w, p.pad_h, p.pad_w})
    text += (text.empty() ? "" : " ") + std::to_string(n);
  return text;
}

inline size_t cells_of(const Problem& p) { return p.N * p.C * p.H * p.W; }
inline size_t outputs_of(const Problem& p) {
  const Extent out = output_of(p);
  return p.N * p.C * out.height * out.width;
}

// Few different values, so that most windows hold several equal ones.
inline std::vector<float> few_values(size_t n, std::uint32_t stream) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = std::floor(3 * random_numbers::uniform(7, stream, i)) / 2;
  return values;
}

// What compares in its own way: NaN, both infinities and both zeros, each often.
inline std::vector<float> special_values(size_t n, std::uint32_t stream) {
  constexpr float kSpecial[] = {kNan, -kInfinity, -kInfinity, kInfinity, 0.0f, -0.0f, -1.0f};
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = kSpecial[random_numbers::word(7, stream, i) % 7];
  return values;
}

// How far the arrays begin behind a multiple of 16 bytes, in elements.
struct Offsets {
  size_t cells, outputs, argmax;
};
inline constexpr Offsets kOffsets[] = {{0, 0, 0}, {2, 0, 0}, {0, 1, 0},
                                       {0, 0, 1}, {0, 2, 2}, {3, 3, 3}};

// Values and places must be equal, and nothing else may be written.
inline Comparison check_forward(decltype(Launch::run) launch, const Problem& p,
                                const std::vector<float>& x, const Offsets& offsets = {}) {
  const Pooled want = forward_cpu(x, p);
  Guarded<float> d_x(x, offsets.cells), d_y(want.y.size(), offsets.outputs);
  Guarded<Index> d_argmax(want.y.size(), offsets.argmax);
  launch(d_y.data(), d_argmax.data(), d_x.data(), p, nullptr);
  const std::vector<float> y = d_y.to_host();
  const std::vector<Index> argmax = d_argmax.to_host();
  const auto exactly = [](size_t) { return 0.0; };
  Comparison result = compare(
      y.size(), [&](size_t i) { return y[i]; }, [&](size_t i) { return want.y[i]; }, exactly);
  if (result.ok)
    result = compare(
        argmax.size(), [&](size_t i) { return argmax[i]; },
        [&](size_t i) { return static_cast<double>(want.argmax[i]); }, exactly);
  result.ok = result.ok && d_x.intact() && d_y.intact() && d_argmax.intact();
  return result;
}

// The gradients of a forward pass of x, and what arrives at its outputs.
struct Routing {
  Routing(const Problem& pooled, const std::vector<float>& x)
      : p(pooled), grad_y(random_floats(outputs_of(p), 50)), argmax(forward_cpu(x, p).argmax) {
    for (const double value : forward_cpu(x, p).y) y.push_back(static_cast<float>(value));
  }
  // grad_y as a ReLU before the pooling leaves it.
  std::vector<float> through_relu() const {
    std::vector<float> grad = grad_y;
    for (size_t i = 0; i < grad.size(); ++i) grad[i] = y[i] > 0 ? grad[i] : 0.0f;
    return grad;
  }
  Problem p;
  std::vector<float> grad_y, y;
  std::vector<Index> argmax;
};

struct Result {
  std::vector<float> grad_x;
  bool intact;
};

template <class Run>
Result run_backward(const Routing& in, const Offsets& offsets, Run&& run) {
  Guarded<float> d_grad_y(in.grad_y, offsets.outputs), d_y(in.y, offsets.outputs);
  Guarded<float> d_grad_x(cells_of(in.p), offsets.cells);
  Guarded<Index> d_argmax(in.argmax, offsets.argmax);
  run(d_grad_x.data(), d_grad_y.data(), d_y.data(), d_argmax.data());
  return {d_grad_x.to_host(),
          d_grad_y.intact() && d_y.intact() && d_grad_x.intact() && d_argmax.intact()};
}

inline Result plainly(const BackwardLaunch& version, const Routing& in,
                      const Offsets& offsets = {}) {
  return run_backward(in, offsets,
                      [&](float* grad_x, const float* grad_y, const float*, const Index* argmax) {
                        version.run(grad_x, Arriving{grad_y}, argmax, in.p, nullptr);
                      });
}
inline Result through_relu(const BackwardLaunch& version, const Routing& in,
                           const Offsets& offsets = {}) {
  return run_backward(in, offsets,
                      [&](float* grad_x, const float* grad_y, const float* y, const Index* argmax) {
                        version.run(grad_x, Arriving{grad_y, y}, argmax, in.p, nullptr);
                      });
}

inline Comparison against(const Result& got, const Expected& want) {
  Comparison result = compare(
      got.grad_x.size(), [&](size_t i) { return got.grad_x[i]; },
      [&](size_t i) { return want.value[i]; }, [&](size_t i) { return want.bound[i]; });
  result.ok = result.ok && got.grad_x.size() == want.value.size() && got.intact;
  return result;
}

}  // namespace maxpool_test
