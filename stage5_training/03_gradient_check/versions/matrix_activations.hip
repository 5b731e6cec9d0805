// *_matrix: f(x + bias) by x, as step 3.1 computes it.
#include "stage5_training/03_gradient_check/detail/biased_activation.h"
#include "stage5_training/03_gradient_check/gradient_check.h"

namespace gradient_check {

// Step 3.1, which adds the bias and leaves its gradient to others.
template <class Activation>
static void backward_of_matrix(float* grad_x, float*, const float* grad_y, const float* x,
                               const float* bias, size_t rows, size_t cols) {
  matrix_activations::launch_backward_vectorized<Activation>(grad_x, grad_y, x, bias, rows, cols);
}

template <class Activation>
Case matrix_activation(const Sizes& sizes, std::uint64_t seed) {
  return biased_activation<Activation>(sizes, seed, backward_of_matrix<Activation>, false);
}

template Case matrix_activation<Relu>(const Sizes&, std::uint64_t);
template Case matrix_activation<Sigmoid>(const Sizes&, std::uint64_t);
template Case matrix_activation<Tanh>(const Sizes&, std::uint64_t);
template Case matrix_activation<GeluErf>(const Sizes&, std::uint64_t);
template Case matrix_activation<GeluTanh>(const Sizes&, std::uint64_t);
template Case matrix_activation<Softplus>(const Sizes&, std::uint64_t);

}  // namespace gradient_check
