// Operations on elements: contiguous sums, products and activations by stage 1, everything else by
// the kernels of detail/elementwise.h.
#include <type_traits>

#include "stage1_vector/01_vector_add/detail/operations.h"
#include "stage1_vector/01_vector_add/vector_add.h"
#include "stage1_vector/04_activations/activations.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage8_framework/02_backends/own/detail/elementwise.h"

namespace own {
namespace {

using activations::GeluTanh;
using activations::Relu;
using activations::Sigmoid;
using activations::Tanh;
using vector_add::Add;
using vector_add::Multiply;

// ---- The formulas -------------------------------------------------------------------------------

struct Neg {
  __device__ float operator()(float a) const { return -a; }
};
struct Abs {
  __device__ float operator()(float a) const { return fabsf(a); }
};
struct Square {
  __device__ float operator()(float a) const { return a * a; }
};
struct Sqrt {
  __device__ float operator()(float a) const { return sqrtf(a); }
};
struct Rsqrt {
  __device__ float operator()(float a) const { return 1 / sqrtf(a); }
};
struct Reciprocal {
  __device__ float operator()(float a) const { return 1 / a; }
};
struct Exp {
  __device__ float operator()(float a) const { return expf(a); }
};
struct Log {
  __device__ float operator()(float a) const { return logf(a); }
};

struct Sub {
  __device__ float operator()(float a, float b) const { return a - b; }
};
struct Div {
  __device__ float operator()(float a, float b) const { return a / b; }
};
struct Maximum {  // NaN where one of the two is
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};
struct Minimum {
  __device__ float operator()(float a, float b) const { return a < b || a != a ? a : b; }
};
struct Pow {
  __device__ float operator()(float a, float b) const { return powf(a, b); }
};
struct Equal {
  __device__ bool operator()(float a, float b) const { return a == b; }
};
struct Less {
  __device__ bool operator()(float a, float b) const { return a < b; }
};
struct LessEqual {
  __device__ bool operator()(float a, float b) const { return a <= b; }
};

struct Select {
  __device__ float operator()(std::uint8_t c, float a, float b) const { return c != 0 ? a : b; }
};

template <class Activation>
struct SlopeOfInput {
  __device__ float operator()(float grad_y, float x) const {
    return grad_y * Activation{}.derivative(x);
  }
};
struct SlopeOfSigmoid {
  __device__ float operator()(float grad_y, float y) const { return grad_y * (y * (1 - y)); }
};
struct SlopeOfTanh {
  __device__ float operator()(float grad_y, float y) const { return grad_y * (1 - y * y); }
};

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

// 1.4's launchers where x lies without gaps; kernels: its versions.
template <class F>
Operation activation(const char* name) {
  constexpr auto supports = [](const CourseCall& call) -> const char* {
    if (call.kernel > 0) return unless_plain(call);
    return supports_unary(call);
  };
  constexpr auto run = [](const CourseCall& call, hipStream_t stream) {
    const CourseTensor &x = call.inputs[0], &y = call.outputs[0];
    if (call.kernel > 0)
      activations::kVersions<F>[call.kernel - 1].launch.forward(floats(y), floats(x), elements(y),
                                                                stream);
    else if (is_contiguous(x))
      activations::launch_forward_vectorized<F>(floats(y), floats(x), elements(y), stream);
    else
      run_elementwise<float, float>(call, stream, F{});
  };
  return {name, supports, run, name_of<activations::kVersions<F>>};
}

// 1.1's launchers where nothing is broadcast and all lies without gaps; kernels: its versions.
bool are_alike(const CourseCall& call) {
  const size_t n = elements(call.outputs[0]);
  return unless_contiguous(call) == nullptr && elements(call.inputs[0]) == n &&
         elements(call.inputs[1]) == n;
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
  return {unary<Neg>("neg"),
          unary<Abs>("abs"),
          unary<Square>("square"),
          unary<Sqrt>("sqrt"),
          unary<Rsqrt>("rsqrt"),
          unary<Reciprocal>("reciprocal"),
          unary<Exp>("exp"),
          unary<Log>("log"),
          activation<Tanh>("tanh"),
          activation<Sigmoid>("sigmoid"),
          activation<Relu>("relu"),
          activation<GeluTanh>("gelu"),
          of_vectors<Add>("add"),
          binary<Sub>("sub"),
          of_vectors<Multiply>("mul"),
          binary<Div>("div"),
          binary<Maximum>("maximum"),
          binary<Minimum>("minimum"),
          binary<Pow>("pow"),
          binary<Equal, std::uint8_t>("equal"),
          binary<Less, std::uint8_t>("less"),
          binary<LessEqual, std::uint8_t>("less_equal"),
          {"select", supports_select,
           [](const CourseCall& call, hipStream_t stream) {
             run_elementwise<float, std::uint8_t, float, float>(call, stream, Select{});
           }},
          binary<SlopeOfInput<Relu>>("relu_backward"),
          binary<SlopeOfInput<GeluTanh>>("gelu_backward"),
          binary<SlopeOfSigmoid>("sigmoid_backward"),
          binary<SlopeOfTanh>("tanh_backward")};
}

}  // namespace own
