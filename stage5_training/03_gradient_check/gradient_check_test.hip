// Cases whose kernels compute something that looks like the gradient: gradient_check_test.cpp must
// see them fail.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/softmax.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage5_training/01_dense_backward/dense_backward.h"
#include "stage5_training/02_activation_backward/activation_backward.h"
#include "stage5_training/02_activation_backward/detail/rounds.h"
#include "stage5_training/02_activation_backward/detail/without_bias.h"
#include "stage5_training/03_gradient_check/detail/biased_activation.h"
#include "stage5_training/03_gradient_check/detail/cross_entropy_by.h"
#include "stage5_training/03_gradient_check/gradient_check.h"

namespace gradient_check_test {

using namespace gradient_check;

Case slope_of_value(const Sizes& sizes, std::uint64_t seed);
Case sums_of_grad_y(const Sizes& sizes, std::uint64_t seed);
Case other_gelu(const Sizes& sizes, std::uint64_t seed);
Case all_rows_counted(const Sizes& sizes, std::uint64_t seed, bool ignore);
Case without_softmax(const Sizes& sizes, std::uint64_t seed);

// f'(f(x)) in place of f'(x).
struct SlopeOfValue : Sigmoid {
  __host__ __device__ float derivative(float x) const { return Sigmoid::derivative((*this)(x)); }
};

// The sums of grad_y in place of those of grad_x.
static void backward_with_sums_of_grad_y(float* grad_x, float* grad_bias, const float* grad_y,
                                         const float* x, const float* bias, size_t rows,
                                         size_t cols) {
  backward_of_layer<Tanh>(grad_x, grad_bias, grad_y, x, bias, rows, cols);
  dense_backward::Workspace workspace(rows);
  dense_backward::launch_row_slices({nullptr, grad_bias, nullptr}, grad_y, nullptr, rows,
                                    {0, cols, nullptr, nullptr}, 0, workspace);
  HIP_CHECK(hipDeviceSynchronize());
}

// The mean over all rows, though some are ignored.
static void backward_counting_all_rows(float* grad, const float* logits,
                                       const losses::Targets& targets,
                                       const losses::Workspace& workspace) {
  gpu::DeviceBuffer<float> p(targets.rows * targets.classes);
  softmax::best(p.data(), logits, targets.rows, targets.classes);
  losses::launch_gradient(grad, losses::StoredProbabilities{p.data()},
                          losses::Gradient{targets, {targets.rows}}, nullptr);
  static_cast<void>(workspace);
  HIP_CHECK(hipDeviceSynchronize());
}

// What softmax's own backward pass would still have to be applied to.
static void backward_without_softmax(float* grad, const float* logits,
                                     const losses::Targets& targets,
                                     const losses::Workspace& workspace) {
  gpu::DeviceBuffer<float> p(targets.rows * targets.classes);
  softmax::best(p.data(), logits, targets.rows, targets.classes);
  const losses::Count count = losses::count_rows(targets, workspace, nullptr);
  activation_backward::launch_grad_p(grad, p.data(), targets, count);
  HIP_CHECK(hipDeviceSynchronize());
}

Case slope_of_value(const Sizes& sizes, std::uint64_t seed) {
  return biased_activation<Sigmoid>(sizes, seed, backward_of_layer<SlopeOfValue>, true);
}

Case sums_of_grad_y(const Sizes& sizes, std::uint64_t seed) {
  return biased_activation<Tanh>(sizes, seed, backward_with_sums_of_grad_y, true);
}

// One GELU's slope for the other's.
Case other_gelu(const Sizes& sizes, std::uint64_t seed) {
  return biased_activation<GeluErf>(sizes, seed, backward_of_layer<GeluTanh>, true);
}

Case all_rows_counted(const Sizes& sizes, std::uint64_t seed, bool ignore) {
  return cross_entropy_by(sizes, seed, backward_counting_all_rows, ignore);
}

Case without_softmax(const Sizes& sizes, std::uint64_t seed) {
  return cross_entropy_by(sizes, seed, backward_without_softmax, false);
}

}  // namespace gradient_check_test
