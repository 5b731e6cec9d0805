// The operations on elements, each as one expression of its inputs a, b and c: the only place where
// they are written for float. C++, CUDA, HIP and OpenCL C take this text, and 8.6 gives it to
// compilers that run while the program does. A list, so it has no include guard: whoever includes
// it says first what a row becomes, by FORMULA(name, inputs, expression), which is gone behind it.
// The functions that some of them call are those of formulas.h; exp, tanh and the like are those of
// float.
//
// Files that compile the expressions are told not to merge a product and a sum into one rounding
// (cmake/formulas.cmake): so the bits do not depend on which operations are run as one.
#ifndef FORMULA
#define FORMULA(name, inputs, expression)
#endif

// clang-format off
FORMULA(neg, 1, -a)
FORMULA(abs, 1, fabs(a))
FORMULA(square, 1, a * a)
FORMULA(sqrt, 1, sqrt(a))
FORMULA(rsqrt, 1, 1.0f / sqrt(a))
FORMULA(reciprocal, 1, 1.0f / a)
FORMULA(exp, 1, exp(a))
FORMULA(log, 1, log(a))
FORMULA(tanh, 1, tanh(a))
FORMULA(sigmoid, 1, formula_sigmoid(a))
FORMULA(relu, 1, a < 0.0f ? 0.0f : a)
FORMULA(gelu, 1, a * formula_sigmoid(formula_gelu_argument(a)))

FORMULA(add, 2, a + b)
FORMULA(sub, 2, a - b)
FORMULA(mul, 2, a * b)
FORMULA(div, 2, a / b)
FORMULA(maximum, 2, a > b || a != a ? a : b)
FORMULA(minimum, 2, a < b || a != a ? a : b)
FORMULA(pow, 2, pow(a, b))
FORMULA(equal, 2, a == b)
FORMULA(less, 2, a < b)
FORMULA(less_equal, 2, a <= b)
FORMULA(select, 3, a != 0.0f ? b : c)

FORMULA(relu_backward, 2, a * (b > 0.0f ? 1.0f : b <= 0.0f ? 0.0f : b))
FORMULA(gelu_backward, 2, a * formula_gelu_slope(b))
FORMULA(sigmoid_backward, 2, a * (b * (1.0f - b)))
FORMULA(tanh_backward, 2, a * (1.0f - b * b))
// clang-format on

#undef FORMULA
