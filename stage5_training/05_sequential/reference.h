// The reference of 5.5: any model of layers in double, on host arrays, with how far a correct float
// version may be off carried along (common/rounding.h): forward, loss, backward, optimizer step.
// The models of 5.6 to 5.8, 6.4, 7.6 and 7.7 are held against it.
//
// One step of a model's present parameters is step_cpu(). A training is followed like this:
//
//   DoubleModel want(model);                                // its present parameters
//   for (uint64_t t = 1; t <= steps; ++t) {
//     const Values& y = want.forward(dense::exactly(batch_of(t)), batch);
//     const Loss loss = cross_entropy_cpu(y, labels_of(t), classes);
//     want.backward(loss.grad);                             // want.gradients() are these
//     want.step(kind, hyper, t);                            // the rules of step 5.4
//   }
//
// loss.mean, y and the gradients have values and errors. The errors follow each rounding, in the
// worst case, through every step: they hold for a few steps and say nothing after many. To follow
// more (train_toy::follow), a reference forgets them after each step with forget_errors(), and its
// twins differ from it by a Deviation: the parameters they begin with, what they store as floats,
// and on which side of ReLU's corner they see a sum that is nearly 0. parameter(k) may be changed
// between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/rounding.h"
#include "stage5_training/04_optimizers/optimizers.h"
#include "stage5_training/04_optimizers/reference.h"
#include "stage5_training/05_sequential/layer.h"
#include "stage5_training/05_sequential/model.h"

namespace sequential {

using rounding::Approximate;
inline Approximate at(const Values& values, size_t i) {
  return {values.value[i], values.error.empty() ? 0 : values.error[i]};
}

// Parameters as they are, with no error.
std::vector<Values> exactly(const std::vector<std::vector<float>>& parameters);

// How errors add up: as if all had one sign, or as those do that are independent with mean zero
// (common/rounding.h). The former is safe, and says nothing after a few layers.
enum class Roundings { worst_case, random };

// (rows, cols) sums over `terms` products a(row, k) b(k, col), each off by its own roundings and by
// what comes in wrong, or without errors. a and b return an Approximate.
template <class A, class B>
Values product_cpu(size_t rows, size_t cols, size_t terms, A a, B b, bool with_errors,
                   Roundings how = Roundings::worst_case) {
  Values product{std::vector<double>(rows * cols), {}};
  // b line by line, so that compilers make vector instructions of the innermost loops.
  if (!with_errors) {
    std::vector<double> lines(terms * cols);
    for (size_t i = 0; i < lines.size(); ++i) lines[i] = b(i / cols, i % cols).value;
    for (size_t row = 0; row < rows; ++row)
      for (size_t k = 0; k < terms; ++k) {
        const double factor = a(row, k).value, *line = lines.data() + k * cols;
        double* const to = product.value.data() + row * cols;
        for (size_t col = 0; col < cols; ++col) to[col] += factor * line[col];
      }
    return product;
  }
  std::vector<Approximate> lines(terms * cols);
  for (size_t i = 0; i < lines.size(); ++i) lines[i] = b(i / cols, i % cols);
  const double n = static_cast<double>(terms);
  for (size_t row = 0; row < rows; ++row) {
    std::vector<rounding::ApproximateSum> sums(cols);
    for (size_t k = 0; k < terms; ++k) {
      const Approximate factor = a(row, k), *line = lines.data() + k * cols;
      for (size_t col = 0; col < cols; ++col) sums[col].add(factor, line[col]);
    }
    for (size_t col = 0; col < cols; ++col) {
      const Approximate total =
          how == Roundings::random ? sums[col].random_bound(n) : sums[col].worst_case(n, n);
      product.value[row * cols + col] = total.value, product.error.push_back(total.error);
    }
  }
  return product;
}

// y (rows, out) = x (rows, in) w^T + bias, for w (out, in) and bias (out), which may be empty:
// there is none. The way back returns the gradient of x, and appends those of w and, where
// `with_bias` says so, of the bias.
Values linear_cpu(const Values& x, const Values& w, const Values& bias, size_t rows,
                  Roundings how = Roundings::worst_case);
Values linear_backward_cpu(std::vector<Values>& gradients, const Values& grad_y, const Values& x,
                           const Values& w, size_t rows, bool with_bias = true,
                           Roundings how = Roundings::worst_case);

// No activation of step 1.4 but ReLU has a derivative that moves faster than this (tanh's, 0.77,
// and GELU's, 0.80).
inline constexpr double kSharpest = 0.8;

// ---- One step ---------------------------------------------------------------------------------

struct Reference {
  Values y, grad_x;
  std::vector<Values> gradients;  // of tensors(), in their order
};

// Forward and backward of the model's present parameters in double, from layer to layer with what
// the float step may be off so far. x (batch, inputs), grad_y (batch, outputs). Waits for the
// default stream.
Reference step_cpu(const Sequential& model, const std::vector<float>& x,
                   const std::vector<float>& grad_y, size_t batch);

// ---- Losses -----------------------------------------------------------------------------------

struct Loss {
  Approximate mean;
  Values grad;  // of the mean, by y
};

// The mean of (y - target)^2 over all elements. No element: a mean of NaN, as in step 3.3.
Loss mean_squared_error_cpu(const Values& y, const std::vector<float>& targets);

// The mean of -log softmax(y)[label] over the rows of y (rows, classes) whose label is not
// negative. Softmax may turn what a row's logits are off by, at most e, into a factor of exp(2e) of
// a probability; the loss of the row moves by no more than 2e. stores_floats: the gradient is that
// of probabilities that are rounded to float: of one near 1, less 1, a multiple of 2^-24 is left.
Loss cross_entropy_cpu(const Values& y, const std::vector<int>& labels, size_t classes,
                       bool stores_floats = false);

// ---- A training -------------------------------------------------------------------------------

// How a twin's run differs from the reference's, where a float version's might.
struct Deviation {
  // Each layer's output is rounded to float, and tanh's slope is taken of what is stored.
  bool stores_floats = false;
  // What an activation stores is so many floats nearer to 0; below 0: farther from it, but tanh's
  // not beyond 1.
  int toward_zero = 0;
  // A value of x on which a decision hangs, as a sum on ReLU's corner, is decided otherwise where
  // it is nearer to the other side than this times its error / sqrt(n), n being the terms of a sum
  // of the layer before: n roundings usually come to sqrt(n) of them.
  double other_side = 0;
  // Values only, which takes a third of the time: errors are followed forward, and only where
  // other_side asks for them.
  bool no_errors = false;
};

// Layers one after the other. They must outlive what is made of them.
struct DoubleNetwork {
  std::vector<const DoubleLayer*> layers;
  size_t inputs;  // values of a sample
  std::string description;
};
// Those of a Sequential, which may train on meanwhile.
DoubleNetwork network_of(const Sequential& model);

// Layers with parameters and optimizer states of their own on the host.
class DoubleModel {
 public:
  // The parameters, in the order of the layers; the states are 0. Throws std::invalid_argument
  // where one is missing or of another size.
  DoubleModel(DoubleNetwork network, const std::vector<std::vector<float>>& parameters,
              Deviation deviation = {});
  DoubleModel(const Sequential& model, const std::vector<std::vector<float>>& parameters,
              Deviation deviation = {})
      : DoubleModel(network_of(model), parameters, deviation) {}
  // The present parameters. Waits for the default stream.
  explicit DoubleModel(const Sequential& model, Deviation deviation = {});

  // y (batch, outputs) of x (batch, inputs).
  const Values& forward(Values x, size_t batch);
  // grad_x; leaves the gradients of all parameters. Throws std::logic_error without a forward pass.
  Values backward(const Values& grad_y);
  // Step number t, the first being 1, by the rules of step 5.4.
  void step(optimizers::Kind kind, const optimizers::Hyperparameters& hyper, std::uint64_t t);

  // In the order of the layers: the gradients of the last backward pass, and w, m and v.
  const std::vector<Values>& gradients() const { return gradients_; }
  const std::vector<optimizers::Element>& parameter(size_t k) const { return elements_[k]; }
  std::vector<optimizers::Element>& parameter(size_t k) { return elements_[k]; }
  size_t parameters() const { return elements_.size(); }
  // From here on what there is now counts as exact.
  void forget_errors();

 private:
  bool follows_errors() const { return !deviation_.no_errors || deviation_.other_side > 0; }
  std::vector<Values> parameters_of(size_t layer) const;

  DoubleNetwork network_;
  Deviation deviation_;
  std::vector<size_t> first_;  // of each layer's tensors, and behind the last
  std::vector<std::vector<optimizers::Element>> elements_;
  std::vector<HostPass> passes_;  // of the layers
  Values y_;
  std::vector<Values> gradients_;
};

}  // namespace sequential
