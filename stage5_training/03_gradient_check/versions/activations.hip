// relu ... softplus: f(x + bias) by x and bias, as step 5.2 computes it from the sums.
#include "stage5_training/03_gradient_check/detail/biased_activation.h"
#include "stage5_training/03_gradient_check/gradient_check.h"

namespace gradient_check {

template <class Activation>
Case activation_layer(const Sizes& sizes, std::uint64_t seed) {
  return biased_activation<Activation>(sizes, seed, backward_of_layer<Activation>, true);
}

template Case activation_layer<Relu>(const Sizes&, std::uint64_t);
template Case activation_layer<Sigmoid>(const Sizes&, std::uint64_t);
template Case activation_layer<Tanh>(const Sizes&, std::uint64_t);
template Case activation_layer<GeluErf>(const Sizes&, std::uint64_t);
template Case activation_layer<GeluTanh>(const Sizes&, std::uint64_t);
template Case activation_layer<Softplus>(const Sizes&, std::uint64_t);

}  // namespace gradient_check
