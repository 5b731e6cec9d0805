// Each element of the output from the elements at its place in the inputs, which are broadcast.
#include <cmath>

#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage8_framework/02_backends/reference/operations.h"

namespace reference {
namespace {

// An operation from a function of one, two or three numbers.
template <class Formula>
std::function<void(const Arguments&)> each(Formula f) {
  return [f](const Arguments& arguments) {
    const Numbers y = arguments.out(0);
    const auto in = [&](int i) { return arguments.in(i).broadcast_like(y); };
    for (Integer n = 0; n < y.size(); ++n) {
      if constexpr (std::is_invocable_v<Formula, double>)
        y[n] = f(in(0)[n]);
      else if constexpr (std::is_invocable_v<Formula, double, double>)
        y[n] = f(in(0)[n], in(1)[n]);
      else
        y[n] = f(in(0)[n], in(1)[n], in(2)[n]);
    }
  };
}

// The gradient that comes in times a slope.
template <class Slope>
std::function<void(const Arguments&)> slope(Slope f) {
  return each([f](double grad, double kept) { return grad * f(kept); });
}

}  // namespace

std::vector<Operation> elementwise() {
  using namespace activations;
  return {
      {"neg", each([](double a) { return -a; })},
      {"abs", each([](double a) { return std::fabs(a); })},
      {"square", each([](double a) { return a * a; })},
      {"sqrt", each([](double a) { return std::sqrt(a); })},
      {"rsqrt", each([](double a) { return 1 / std::sqrt(a); })},
      {"reciprocal", each([](double a) { return 1 / a; })},
      {"exp", each([](double a) { return std::exp(a); })},
      {"log", each([](double a) { return std::log(a); })},
      {"tanh", each([](double a) { return std::tanh(a); })},
      {"sigmoid", each(Sigmoid::cpu)},
      {"relu", each([](double a) { return a < 0 ? 0 : a; })},  // NaN stays
      {"gelu", each(GeluTanh::cpu)},

      {"add", each([](double a, double b) { return a + b; })},
      {"sub", each([](double a, double b) { return a - b; })},
      {"mul", each([](double a, double b) { return a * b; })},
      {"div", each([](double a, double b) { return a / b; })},
      // NaN where one of the two is.
      {"maximum", each([](double a, double b) { return a > b || a != a ? a : b; })},
      {"minimum", each([](double a, double b) { return a < b || a != a ? a : b; })},
      {"pow", each([](double a, double b) { return std::pow(a, b); })},
      {"equal", each([](double a, double b) { return a == b; })},
      {"less", each([](double a, double b) { return a < b; })},
      {"less_equal", each([](double a, double b) { return a <= b; })},
      {"select", each([](double c, double a, double b) { return c != 0 ? a : b; })},

      // (grad_y, x)
      {"relu_backward", slope([](double x) { return x > 0    ? 1.0
                                                    : x <= 0 ? 0.0
                                                             : x; })},
      {"gelu_backward", slope(GeluTanh::derivative_cpu)},
      // (grad_y, y)
      {"sigmoid_backward", slope([](double y) { return y * (1 - y); })},
      {"tanh_backward", slope([](double y) { return 1 - y * y; })},
  };
}

}  // namespace reference
