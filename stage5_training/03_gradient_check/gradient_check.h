// 5.3  gradient_check: is it the gradient at all?
//
// A gradient is a formula that somebody has derived and somebody has typed. Whether it is the slope
// of the loss can be asked without knowing the formula: move one parameter up and down, and look
// how the loss changes. checker.h says how, and how exactly.
//
// The gradient that is checked is the one that the kernels compute on the device, in float. The
// loss is computed in double, on the host, by references that share no code with the kernels. Every
// parameter and every input of each layer and loss of the course is moved, one after the other. A
// later step adds a Case of its own: arguments, a loss in double, and what launches its kernels.
//
// At a kink (ReLU at 0, a maximum of two equal values) there is no slope. Cases stay away from
// them; a Finding says so where one has not.
#pragma once

#include <cstdint>
#include <vector>

#include "common/version.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage5_training/03_gradient_check/checker.h"
#include "stage5_training/03_gradient_check/problem.h"
#include "stage5_training/03_gradient_check/reference.h"

namespace gradient_check {

// Makes a case of these sizes, with random numbers. Its `backward` waits for the device.
using MakeCase = Case (*)(const Sizes& sizes, std::uint64_t seed);

// versions/dense.hip
Case dense_layer(const Sizes& sizes, std::uint64_t seed);
// The same of integers in [-3, 3], for check_exactly().
Case dense_layer_of_integers(const Sizes& sizes, std::uint64_t seed);

// versions/matrix_activations.hip, activations.hip, from_output.hip: f(x + bias)
template <class Activation>
Case matrix_activation(const Sizes& sizes, std::uint64_t seed);
template <class Activation>
Case activation_layer(const Sizes& sizes, std::uint64_t seed);
template <class Activation>
Case activation_from_output(const Sizes& sizes, std::uint64_t seed);

// versions/softmax.hip, losses.hip
Case softmax_layer(const Sizes& sizes, std::uint64_t seed);
Case squared_error(const Sizes& sizes, std::uint64_t seed);
Case cross_entropy(const Sizes& sizes, std::uint64_t seed);
Case cross_entropy_ignore(const Sizes& sizes, std::uint64_t seed);
Case cross_entropy_composed(const Sizes& sizes, std::uint64_t seed);

// versions/network.hip, for Tanh and Relu. Cross-entropy of w2 f(w1 x + b1) + b2: the chain rule
// from one end of a network to the other. The arguments are x (batch, in), w1 (hidden, in), b1
// (hidden), w2 (out, hidden), b2 (out).
template <class Activation>
Case network(const std::vector<Argument>& arguments, const std::vector<int>& labels);
// Such a network with as many hidden units as inputs. Throws std::invalid_argument where it is so
// large that some hidden value always lies at a kink.
template <class Activation>
Case two_layers(const Sizes& sizes, std::uint64_t seed);

using activations::GeluErf;
using activations::GeluTanh;
using activations::Relu;
using activations::Sigmoid;
using activations::Softplus;
using activations::Tanh;

inline constexpr Version<MakeCase> kVersions[] = {
    {"dense", dense_layer, "5.1: a layer's inputs, weights and bias"},
    {"relu_matrix", matrix_activation<Relu>, "3.1: f(x + bias) by x"},
    {"sigmoid_matrix", matrix_activation<Sigmoid>, "3.1: f(x + bias) by x"},
    {"tanh_matrix", matrix_activation<Tanh>, "3.1: f(x + bias) by x"},
    {"gelu_erf_matrix", matrix_activation<GeluErf>, "3.1: f(x + bias) by x"},
    {"gelu_tanh_matrix", matrix_activation<GeluTanh>, "3.1: f(x + bias) by x"},
    {"softplus_matrix", matrix_activation<Softplus>, "3.1: f(x + bias) by x"},
    {"relu", activation_layer<Relu>, "5.2: f(x + bias) by x and bias"},
    {"sigmoid", activation_layer<Sigmoid>, "5.2: f(x + bias) by x and bias"},
    {"tanh", activation_layer<Tanh>, "5.2: f(x + bias) by x and bias"},
    {"gelu_erf", activation_layer<GeluErf>, "5.2: f(x + bias) by x and bias"},
    {"gelu_tanh", activation_layer<GeluTanh>, "5.2: f(x + bias) by x and bias"},
    {"softplus", activation_layer<Softplus>, "5.2: f(x + bias) by x and bias"},
    {"relu_from_output", activation_from_output<Relu>, "5.2: the slope, given f(x + bias)"},
    {"sigmoid_from_output", activation_from_output<Sigmoid>, "5.2: the slope, given f(x + bias)"},
    {"tanh_from_output", activation_from_output<Tanh>, "5.2: the slope, given f(x + bias)"},
    {"softplus_from_output", activation_from_output<Softplus>, "5.2: the slope, given f(x + bias)"},
    {"softmax", softmax_layer, "5.2: a row's Jacobian"},
    {"squared_error", squared_error, "3.3: by the predictions"},
    {"cross_entropy", cross_entropy, "3.3: by the logits"},
    {"cross_entropy_ignore", cross_entropy_ignore, "3.3: some rows do not count"},
    {"cross_entropy_composed", cross_entropy_composed, "5.2: through softmax's Jacobian"},
    {"mlp_tanh", two_layers<Tanh>, "two layers and a loss: the chain rule from end to end"},
    {"mlp_relu", two_layers<Relu>, "the same, away from the kinks"},
};

}  // namespace gradient_check
