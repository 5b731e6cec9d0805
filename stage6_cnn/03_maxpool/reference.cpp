#include "stage6_cnn/03_maxpool/reference.h"

#include <algorithm>
#include <cmath>

#include "common/rounding.h"

namespace maxpool {

Pooled forward_cpu(const std::vector<float>& x, const Problem& p) {
  const Extent out = output_of(p);
  Pooled pooled;
  for (size_t plane = 0; plane < p.N * p.C; ++plane)
    for (size_t i = 0; i < out.height * out.width; ++i) {
      bool found = false;
      double best = 0;
      size_t place = 0;
      for (size_t cell = 0; cell < p.R * p.S; ++cell) {
        const size_t row =
            i / out.width * p.stride_h + cell / p.S;  // from where the padding begins
        const size_t column = i % out.width * p.stride_w + cell % p.S;
        if (row < p.pad_h || row - p.pad_h >= p.H || column < p.pad_w || column - p.pad_w >= p.W)
          continue;
        const double value =
            static_cast<double>(x[(plane * p.H + row - p.pad_h) * p.W + column - p.pad_w]);
        if (!found || value > best || (std::isnan(value) && !std::isnan(best)))
          found = true, best = value, place = cell;
      }
      pooled.y.push_back(best);
      pooled.argmax.push_back(static_cast<Index>(place));
    }
  return pooled;
}

Expected backward_cpu(const std::vector<float>& grad_y, const std::vector<Index>& argmax,
                      const Problem& p) {
  const Extent out = output_of(p);
  const size_t cells = p.N * p.C * p.H * p.W;
  Expected grad_x{std::vector<double>(cells), std::vector<double>(cells)};
  std::vector<double> terms(cells);
  for (size_t i = 0; i < grad_y.size(); ++i) {
    const size_t plane = i / (out.height * out.width), window = i % (out.height * out.width);
    const size_t row = window / out.width * p.stride_h + argmax[i] / p.S - p.pad_h;
    const size_t column = window % out.width * p.stride_w + argmax[i] % p.S - p.pad_w;
    const size_t cell = (plane * p.H + row) * p.W + column;
    const double grad = static_cast<double>(grad_y[i]);
    grad_x.value[cell] += grad, grad_x.bound[cell] += std::fabs(grad);
    ++terms[cell];
  }
  for (size_t cell = 0; cell < cells; ++cell) {
    const double ku = std::max(terms[cell] - 1, 0.0) * kFloatRoundoff;
    grad_x.bound[cell] *= ku / (1 - ku);
  }
  return grad_x;
}

}  // namespace maxpool
