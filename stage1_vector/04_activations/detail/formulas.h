// The activations y = f(x) and their derivatives: functors for host and device, which later steps
// build into their own kernels. Plain C++. Each has
//
//   operator()(x)   f(x) in float     cpu(x)             f(x) in double, the reference
//   derivative(x)   f'(x) in float    derivative_cpu(x)  f'(x) in double
//   bound(x), derivative_bound(x)     how far a correct float result may be from the reference
//
// The bounds count, to first order in u = 2^-24, one u for each operation and for each rounded
// constant, and for the functions of the math library what CUDA, AMD's OCML and glibc promise at
// worst: 4 u for expf and log1pf (2 ulp), 8 u for erff (4 ulp), 10 u for tanhf (5 ulp). kTiny
// covers results below float's normal range, where u is no relative error any more.
#pragma once

#include <cmath>

#include "common/gpu_runtime.h"
#include "common/rounding.h"

namespace activations {

inline constexpr double kU = kFloatRoundoff;
inline constexpr double kTiny = 2.3509887016445750e-38;  // 2^-125

// max(x, 0), with derivative 0 at 0.
struct Relu {
  static constexpr const char* kName = "relu";
  __host__ __device__ float operator()(float x) const { return x < 0 ? 0.0f : x; }  // NaN stays
  __host__ __device__ float derivative(float x) const { return x > 0 ? 1.0f : x <= 0 ? 0.0f : x; }

  static double cpu(double x) { return std::fmax(x, 0.0); }
  static double derivative_cpu(double x) { return x > 0 ? 1 : 0; }
  static double bound(double) { return 0; }
  static double derivative_bound(double) { return 0; }
};

// 1 / (1 + exp(-x)). exp overflows to infinity below -88, and 1 / infinity is the 0 that is wanted.
struct Sigmoid {
  static constexpr const char* kName = "sigmoid";
  __host__ __device__ float operator()(float x) const { return 1.0f / (1.0f + expf(-x)); }
  // exp(-|x|) / (1 + exp(-|x|))^2: f (1 - f) would lose all digits where f is nearly 1.
  __host__ __device__ float derivative(float x) const {
    const float e = expf(-fabsf(x)), r = 1.0f / (1.0f + e);
    return e * r * r;
  }

  static double cpu(double x) { return 1 / (1 + std::exp(-x)); }
  static double derivative_cpu(double x) { return 0.25 / std::pow(std::cosh(x / 2), 2); }
  // 4 u from expf, 1 u each from the sum and the quotient.
  static double bound(double x) { return 6 * kU * cpu(x) + kTiny; }
  // 4 u from e; 4 u from r, twice (e is at most half of 1 + e); 1 u from each of two products.
  static double derivative_bound(double x) { return 14 * kU * derivative_cpu(x) + kTiny; }
};

struct Tanh {
  static constexpr const char* kName = "tanh";
  __host__ __device__ float operator()(float x) const { return tanhf(x); }
  // 4 exp(-2|x|) / (1 + exp(-2|x|))^2: 1 - f^2 would lose all digits where f is nearly 1.
  __host__ __device__ float derivative(float x) const {
    const float e = expf(-2.0f * fabsf(x)), r = 1.0f / (1.0f + e);
    return 4.0f * e * r * r;
  }

  static double cpu(double x) { return std::tanh(x); }
  static double derivative_cpu(double x) { return 1 / std::pow(std::cosh(x), 2); }
  static double bound(double x) { return 10 * kU * std::fabs(cpu(x)) + kTiny; }
  static double derivative_bound(double x) { return 14 * kU * derivative_cpu(x) + kTiny; }
};

// x Phi(x), where Phi(x) = (1 + erf(x / sqrt 2)) / 2 is the share of a normal distribution below x
// (Hendrycks and Gimpel: Gaussian error linear units, 2016). Not for infinite x: 0 * infinity.
struct GeluErf {
  static constexpr const char* kName = "gelu_erf";
  __host__ __device__ float operator()(float x) const {
    return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  }
  // Phi(x) + x phi(x) with the normal density phi.
  __host__ __device__ float derivative(float x) const {
    const float phi = 0.39894228f * expf(-0.5f * x * x);
    return 0.5f * (1.0f + erff(x * 0.70710678f)) + x * phi;
  }

  static double cpu(double x) { return x * below(x); }
  static double derivative_cpu(double x) { return below(x) + x * density(x); }
  // erff's argument t is off by 2 u t, which moves erf by at most 2 u * 0.49; then 8 u from erff
  // and 2 u from the sum: 11 u in 1 + erf. Near -5 that sum cancels: the bound is relative to x,
  // not y.
  static double bound(double x) { return kU * (5.5 * std::fabs(x) + std::fabs(cpu(x))) + kTiny; }
  // 11/2 u from Phi; phi is relatively off by 6 u + u x^2 / 2 (its argument); 1 u from the sum.
  static double derivative_bound(double x) {
    return 5.5 * kU + kU * (8 + x * x) * std::fabs(x) * density(x) +
           kU * std::fabs(derivative_cpu(x)) + kTiny;
  }

 private:
  static double below(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
  static double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0)); }
};

// x (1 + tanh(z / 2)) / 2 = x sigmoid(z) with z = 2 sqrt(2 / pi) (x + 0.044715 x^3), which is close
// to GeluErf (same paper). The sigmoid costs less than the tanh and keeps the digits of a small
// result. Not for infinite x.
struct GeluTanh {
  static constexpr const char* kName = "gelu_tanh";
  __host__ __device__ float operator()(float x) const { return x * Sigmoid{}(argument(x)); }
  // s + x z' s (1 - s) with s = sigmoid(z). Where e is 0 only s counts: z' may be infinite there.
  __host__ __device__ float derivative(float x) const {
    const float z = argument(x), slope = 1.5957691f + 0.21406435f * x * x;
    const float e = expf(-fabsf(z)), r = 1.0f / (1.0f + e);
    const float s = z < 0 ? e * r : r;
    return s + (e > 0 ? x * slope * (e * r * r) : 0.0f);
  }

  static double cpu(double x) { return x * Sigmoid::cpu(argument_cpu(x)); }
  static double derivative_cpu(double x) {
    const double z = argument_cpu(x);
    return Sigmoid::cpu(z) + x * slope_cpu(x) * Sigmoid::derivative_cpu(z);
  }
  // z is off by 5 u |z|, so exp(-z) by 4 u + 5 u |z|; that counts by exp's share of 1 + exp(-z).
  // 1 u each from the sum, the quotient and the product.
  static double bound(double x) {
    const double z = argument_cpu(x);
    return kU * std::fabs(cpu(x)) * (3 + Sigmoid::cpu(-z) * (4 + 5 * std::fabs(z))) +
           kTiny * (1 + std::fabs(x));
  }
  // s and s (1 - s) are off by 5 u |z| as above, and by 9 u and 14 u from their own operations; the
  // slope by 4 u, the products by 2 u, the sum by 1 u.
  static double derivative_bound(double x) {
    const double z = argument_cpu(x), from_z = 5 * std::fabs(z);
    return kU * (Sigmoid::cpu(z) * (9 + Sigmoid::cpu(-z) * from_z) +
                 std::fabs(x) * slope_cpu(x) * Sigmoid::derivative_cpu(z) * (20 + from_z) +
                 std::fabs(derivative_cpu(x))) +
           kTiny * (1 + std::fabs(x) * slope_cpu(x));
  }

 private:
  // z = x (a + b x^2) with a = 2 sqrt(2 / pi), b = 0.044715 a.
  __host__ __device__ static float argument(float x) {
    return x * (1.5957691f + 0.071354814f * x * x);
  }
  static double argument_cpu(double x) { return x * (kA + kB * x * x); }
  static double slope_cpu(double x) { return kA + 3 * kB * x * x; }
  static constexpr double kA = 1.5957691216057308, kB = 0.044715 * kA;
};

// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|)): this exp can't overflow, and log1p keeps the
// digits of a small one. Its derivative is the sigmoid.
struct Softplus {
  static constexpr const char* kName = "softplus";
  __host__ __device__ float operator()(float x) const {
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
  }
  __host__ __device__ float derivative(float x) const { return Sigmoid{}(x); }

  static double cpu(double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
  static double derivative_cpu(double x) { return Sigmoid::cpu(x); }
  // 4 u each from expf and log1pf, whose relative errors log1p does not increase; 1 u from the sum.
  static double bound(double x) { return 9 * kU * cpu(x) + kTiny; }
  static double derivative_bound(double x) { return Sigmoid::bound(x); }
};

// Calls visit(f) with each of the functions.
template <class Visit>
void for_each_activation(Visit&& visit) {
  visit(Relu{}), visit(Sigmoid{}), visit(Tanh{});
  visit(GeluErf{}), visit(GeluTanh{}), visit(Softplus{});
}

}  // namespace activations
