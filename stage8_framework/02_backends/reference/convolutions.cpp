// What slides a window over images: convolution, its gradients, and max pooling.
//
//   x (N, C, H, W)   w (K, C, R, S)   bias (K)   y (N, K, P, Q); pooling: y, argmax (N, C, P, Q)
#include <cmath>
#include <vector>

#include "stage8_framework/02_backends/reference/operations.h"

namespace reference {
namespace {

struct Slide {
  Integer stride_y, stride_x, pad_y, pad_x;

  // Calls visit(r, s, h, w) with the cells of the window for output (p, q), R rows of S, that lie
  // within an image of H rows of W; (h, w) is the cell's place in the image.
  template <class Visit>
  void for_each_cell(Integer p, Integer q, Integer R, Integer S, Integer H, Integer W,
                     Visit visit) const {
    for (Integer r = 0; r < R; ++r)
      for (Integer s = 0; s < S; ++s) {
        const Integer h = p * stride_y - pad_y + r, w = q * stride_x - pad_x + s;
        if (h >= 0 && h < H && w >= 0 && w < W) visit(r, s, h, w);
      }
  }
};

// The four attributes from `first` on.
Slide window_of(const Arguments& arguments, int first) {
  return {arguments.whole(first), arguments.whole(first + 1), arguments.whole(first + 2),
          arguments.whole(first + 3)};
}

// Calls visit(n, k, p, q) for every element of y (N, K, P, Q).
template <class Visit>
void for_each_output(const Numbers& y, Visit visit) {
  for (Integer n = 0; n < y.extent(0); ++n)
    for (Integer k = 0; k < y.extent(1); ++k)
      for (Integer p = 0; p < y.extent(2); ++p)
        for (Integer q = 0; q < y.extent(3); ++q) visit(n, k, p, q);
}

// Calls visit(n, k, p, q, c, r, s, h, w) for every product w[k,c,r,s] x[n,c,h,w] in y[n,k,p,q].
template <class Visit>
void for_each_product(const Numbers& x, const Numbers& w, const Numbers& y, const Slide& window,
                      Visit visit) {
  for_each_output(y, [&](Integer n, Integer k, Integer p, Integer q) {
    for (Integer c = 0; c < w.extent(1); ++c)
      window.for_each_cell(p, q, w.extent(2), w.extent(3), x.extent(2), x.extent(3),
                           [&](Integer r, Integer s, Integer h, Integer col) {
                             visit(n, k, p, q, c, r, s, h, col);
                           });
  });
}

// Totals in double for the elements of a tensor of rank 4, rounded when all are complete.
class Totals {
 public:
  explicit Totals(const Numbers& to) : to_(to), sums_(static_cast<size_t>(to.size())) {}
  double& operator()(Integer a, Integer b, Integer c, Integer d) {
    return sums_[static_cast<size_t>(((a * to_.extent(1) + b) * to_.extent(2) + c) * to_.extent(3) +
                                     d)];
  }
  void store() const {
    for (Integer n = 0; n < to_.size(); ++n) to_[n] = sums_[static_cast<size_t>(n)];
  }

 private:
  Numbers to_;
  std::vector<double> sums_;
};

// y[n,k,p,q] = bias[k] + sum over c, r, s of
//              w[k,c,r,s] x[n, c, p stride_y - pad_y + r, q stride_x - pad_x + s]
// The zeros around the image are numbers like others, so that 0 times an infinite weight is NaN.
void conv2d(const Arguments& arguments) {
  const Numbers x = arguments.in(0), w = arguments.in(1), bias = arguments.in(2);
  const Numbers y = arguments.out(0);
  const Slide window = window_of(arguments, 0);
  for_each_output(y, [&](Integer n, Integer k, Integer p, Integer q) {
    double sum = bias.is_present() ? static_cast<double>(bias(k)) : 0;
    for (Integer c = 0; c < w.extent(1); ++c)
      for (Integer r = 0; r < w.extent(2); ++r)
        for (Integer s = 0; s < w.extent(3); ++s) {
          const Integer h = p * window.stride_y - window.pad_y + r;
          const Integer col = q * window.stride_x - window.pad_x + s;
          const bool inside = h >= 0 && h < x.extent(2) && col >= 0 && col < x.extent(3);
          sum += w(k, c, r, s) * (inside ? static_cast<double>(x(n, c, h, col)) : 0);
        }
    y(n, k, p, q) = sum;
  });
}

// Each product w x of the forward pass gives back w times the gradient of y to x ...
void conv2d_grad_x(const Arguments& arguments) {
  const Numbers grad_y = arguments.in(0), w = arguments.in(1), grad_x = arguments.out(0);
  Totals sums(grad_x);
  for_each_product(
      grad_x, w, grad_y, window_of(arguments, 0),
      [&](Integer n, Integer k, Integer p, Integer q, Integer c, Integer r, Integer s, Integer h,
          Integer col) { sums(n, c, h, col) += grad_y(n, k, p, q) * w(k, c, r, s); });
  sums.store();
}

// ... and x times the gradient of y to w. The bias has taken part in every element of y.
void conv2d_grad_w(const Arguments& arguments) {
  const Numbers grad_y = arguments.in(0), x = arguments.in(1), grad_w = arguments.out(0);
  const Numbers grad_bias = arguments.out(1);
  std::vector<double> of_bias(static_cast<size_t>(grad_y.extent(1)));
  for_each_output(grad_y, [&](Integer n, Integer k, Integer p, Integer q) {
    of_bias[static_cast<size_t>(k)] += grad_y(n, k, p, q);
  });
  for (Integer k = 0; k < grad_y.extent(1); ++k) grad_bias(k) = of_bias[static_cast<size_t>(k)];
  Totals sums(grad_w);
  for_each_product(
      x, grad_w, grad_y, window_of(arguments, 0),
      [&](Integer n, Integer k, Integer p, Integer q, Integer c, Integer r, Integer s, Integer h,
          Integer col) { sums(k, c, r, s) += grad_y(n, k, p, q) * x(n, c, h, col); });
  sums.store();
}

// The largest cell of each window, and where it is in the window, r S + s. NaN is larger than every
// number, and of equals the first is taken.
void maxpool2d(const Arguments& arguments) {
  const Numbers x = arguments.in(0), y = arguments.out(0), argmax = arguments.out(1);
  const Integer R = arguments.whole(0), S = arguments.whole(1);
  const Slide window = window_of(arguments, 2);
  for_each_output(y, [&](Integer n, Integer c, Integer p, Integer q) {
    bool found = false;
    double best = 0;
    Integer place = 0;
    window.for_each_cell(
        p, q, R, S, x.extent(2), x.extent(3), [&](Integer r, Integer s, Integer h, Integer w) {
          const double value = x(n, c, h, w);
          if (found && !(value > best) && !(std::isnan(value) && !std::isnan(best))) return;
          found = true, best = value, place = r * S + s;
        });
    y(n, c, p, q) = best;
    argmax(n, c, p, q) = static_cast<double>(place);
  });
}

// grad_x[n,c,h,w] = sum of grad_y over the windows whose argmax is the cell (h, w)
void maxpool2d_backward(const Arguments& arguments) {
  const Numbers grad_y = arguments.in(0), argmax = arguments.in(1), grad_x = arguments.out(0);
  const Integer R = arguments.whole(0), S = arguments.whole(1);
  const Slide window = window_of(arguments, 2);
  Totals sums(grad_x);
  for_each_output(grad_y, [&](Integer n, Integer c, Integer p, Integer q) {
    window.for_each_cell(p, q, R, S, grad_x.extent(2), grad_x.extent(3),
                         [&](Integer r, Integer s, Integer h, Integer w) {
                           if (argmax(n, c, p, q) == static_cast<double>(r * S + s))
                             sums(n, c, h, w) += grad_y(n, c, p, q);
                         });
  });
  sums.store();
}

}  // namespace

std::vector<Operation> convolutions() {
  return {{"conv2d", conv2d},
          {"conv2d_grad_x", conv2d_grad_x},
          {"conv2d_grad_w", conv2d_grad_w},
          {"maxpool2d", maxpool2d},
          {"maxpool2d_backward", maxpool2d_backward}};
}

}  // namespace reference
