// What the program differentiates: a deep perceptron, and what its gradients must be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/compare.h"
#include "common/options.h"
#include "stage8_framework/02_backends/functions.h"

namespace autograd {

// Batch, width and layers, on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

// x becomes tanh(x w^T + bias) in each layer; x (batch, width), w (width, width), bias (width).
struct Case {
  std::size_t batch, width, layers;

  std::string name() const;
  std::size_t parameters() const { return layers * width * (width + 1); }
};

// Its leaves on a device, each of which requires a gradient.
struct Perceptron {
  framework::Tensor x;
  std::vector<framework::Tensor> w, bias;
  framework::Activation activation;

  framework::Tensor forward() const;  // what comes out of the last layer
  // Of x, and of each layer's w and bias, one after the other.
  std::vector<float> gradients() const;
  void forget_gradients() const;
};

// A leaf's gradient; where it has none, numbers that compare() takes for unwritten.
std::vector<float> gradient_of(const framework::Tensor& leaf);

// Random numbers for a case, or such that all gradients are exact in any order: integers, one
// weight of 1 or -1 for each neuron, and no tanh (`error` is 0 then).
struct Values {
  Values(const Case& c, bool with_integers, std::uint64_t seed);

  Perceptron on(framework::Device& device) const;
  framework::Tensor seed_on(framework::Device& device) const;
  Comparison compare(const std::vector<float>& gradients) const;

  Case size;
  framework::Activation activation;
  std::vector<float> x, seed;  // seed: the gradient of what comes out
  std::vector<std::vector<float>> w, bias;
  // The gradients in double, in the order of Perceptron::gradients(), and how far a correct float
  // result may be from them.
  std::vector<double> want, error;
  double reference_ms = 0;
};

}  // namespace autograd
