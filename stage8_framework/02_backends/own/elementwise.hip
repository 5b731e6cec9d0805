// Operations on elements, by the kernels of detail/elementwise.h; contiguous sums and products by
// those of 1.1. Compiled without contraction (cmake/formulas.cmake).
#include <math.h>  // exp(float) and the like outside of std, which <cmath> does not promise

#include <type_traits>

#include "stage1_vector/01_vector_add/detail/operations.h"
#include "stage1_vector/01_vector_add/vector_add.h"
#include "stage1_vector/04_activations/activations.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage8_framework/02_backends/own/detail/elementwise.h"

#define COURSE_FUNCTION static __device__ inline
#include "stage8_framework/02_backends/formulas.h"

namespace own {
namespace {

using vector_add::Add;
using vector_add::Multiply;

// neg_formula{}(a) and so on: a row of formula_list.h as a functor, of as many numbers as it
// takes. What is compared is 1 or 0 then.
#define FORMULA(name, inputs, expression)                                               \
  struct name##_formula {                                                               \
    __device__ float operator()([[maybe_unused]] float a, [[maybe_unused]] float b = 0, \
                                [[maybe_unused]] float c = 0) const {                   \
      return static_cast<float>(expression);                                            \
    }                                                                                   \
  };
#include "stage8_framework/02_backends/formula_list.h"

// ---- Who runs them ------------------------------------------------------------------------------

const char* supports_unary(const CourseCall& call) {
  const char* reason = unless_f32(call);
  return reason != nullptr ? reason : unless_walkable<1>(call);
}
const char* supports_binary(const CourseCall& call) {
  const char* reason = unless_f32(call);
  return reason != nullptr ? reason : unless_walkable<2>(call);
}
const char* supports_select(const CourseCall& call) {
  if (!is_of(call.outputs[0], Dtype::f32)) return "only f32 is supported";
  return unless_walkable<3>(call);
}

template <class F>
Operation unary(const char* name) {
  return {name, supports_unary, [](const CourseCall& call, hipStream_t stream) {
            run_elementwise<float, float>(call, stream, F{});
          }};
}
template <class F, class Out = float>
Operation binary(const char* name) {
  return {name, supports_binary, [](const CourseCall& call, hipStream_t stream) {
            run_elementwise<Out, float, float>(call, stream, F{});
          }};
}

// Kernels: the versions of 1.4, whose functors round as their compiler likes.
template <class F, class Activation>
Operation activation(const char* name) {
  constexpr auto supports = [](const CourseCall& call) -> const char* {
    if (call.kernel > 0) return unless_plain(call);
    return supports_unary(call);
  };
  constexpr auto run = [](const CourseCall& call, hipStream_t stream) {
    const CourseTensor &x = call.inputs[0], &y = call.outputs[0];
    if (call.kernel > 0)
      activations::kVersions<Activation>[call.kernel - 1].launch.forward(floats(y), floats(x),
                                                                         elements(y), stream);
    else
      run_elementwise<float, float>(call, stream, F{});
  };
  return {name, supports, run, name_of<activations::kVersions<Activation>>};
}

// 1.1's launchers where both inputs lie as the output does, which has no gaps; kernels: its
// versions.
bool are_alike(const CourseCall& call) {
  return lies_as(call.inputs[0], call.outputs[0]) && lies_as(call.inputs[1], call.outputs[0]);
}
template <class F>
Operation of_vectors(const char* name) {
  constexpr auto supports = [](const CourseCall& call) -> const char* {
    if (call.kernel > 0 && !are_alike(call)) return "1.1 takes arrays of one shape without gaps";
    return supports_binary(call);
  };
  constexpr auto run = [](const CourseCall& call, hipStream_t stream) {
    if (!are_alike(call)) return run_elementwise<float, float, float>(call, stream, F{});
    constexpr auto kLast = std::size(vector_add::kVersions) - 1;
    const auto& version =
        vector_add::kVersions[call.kernel > 0 ? static_cast<size_t>(call.kernel) - 1 : kLast];
    const auto launch = std::is_same_v<F, Add> ? version.launch.add : version.launch.multiply;
    launch(floats(call.outputs[0]), floats(call.inputs[0]), floats(call.inputs[1]),
           elements(call.outputs[0]), stream);
  };
  return {name, supports, run, name_of<vector_add::kVersions>};
}

}  // namespace

std::vector<Operation> elementwise() {
  return {unary<neg_formula>("neg"),
          unary<abs_formula>("abs"),
          unary<square_formula>("square"),
          unary<sqrt_formula>("sqrt"),
          unary<rsqrt_formula>("rsqrt"),
          unary<reciprocal_formula>("reciprocal"),
          unary<exp_formula>("exp"),
          unary<log_formula>("log"),
          activation<tanh_formula, activations::Tanh>("tanh"),
          activation<sigmoid_formula, activations::Sigmoid>("sigmoid"),
          activation<relu_formula, activations::Relu>("relu"),
          activation<gelu_formula, activations::GeluTanh>("gelu"),
          of_vectors<Add>("add"),
          binary<sub_formula>("sub"),
          of_vectors<Multiply>("mul"),
          binary<div_formula>("div"),
          binary<maximum_formula>("maximum"),
          binary<minimum_formula>("minimum"),
          binary<pow_formula>("pow"),
          binary<equal_formula, std::uint8_t>("equal"),
          binary<less_formula, std::uint8_t>("less"),
          binary<less_equal_formula, std::uint8_t>("less_equal"),
          {"select", supports_select,
           [](const CourseCall& call, hipStream_t stream) {
             run_elementwise<float, std::uint8_t, float, float>(call, stream, select_formula{});
           }},
          binary<relu_backward_formula>("relu_backward"),
          binary<gelu_backward_formula>("gelu_backward"),
          binary<sigmoid_backward_formula>("sigmoid_backward"),
          binary<tanh_backward_formula>("tanh_backward")};
}

}  // namespace own
