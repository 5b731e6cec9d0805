// 1.4  Activations y = f(x) and their backward pass grad_x = grad_y * f'(x), over n floats:
// ReLU, sigmoid, tanh, GELU (with erf, and its tanh form) and softplus.
//
// forward moves 8 bytes per element (read x, write y), backward 12 (read x and grad_y, write
// grad_x): the memory's time, as long as f costs fewer instructions than the memory leaves time
// for. Each f is a functor that runs on host and device, so that later stages fuse it into their
// kernels. All of them are accurate and free of overflow for every |x| up to 1e4.
// Every launcher takes device arrays of n floats, any n (0 too), aligned to 4 bytes. The output is
// an input or does not overlap it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage1_vector/01_vector_add/detail/grid.h"

namespace activations {

using vector_add::full_grid;
using vector_add::kBlock;
using vector_add::kMaxThreads;
using vector_add::Split;
using vector_add::split_vectors;

// ---- The functions ----------------------------------------------------------------------------
// Each has   operator()(x)   f(x) in float      cpu(x)             f(x) in double, the reference
//            derivative(x)   f'(x) in float     derivative_cpu(x)  f'(x) in double
//            bound(x), derivative_bound(x)      what the float result may be off
//
// The bounds count, to first order in u = 2^-24, one u for each operation and for each rounded
// constant, and for the functions of the math library what CUDA, AMD's OCML and glibc promise at
// worst: 4 u for expf and log1pf (2 ulp), 8 u for erff (4 ulp), 10 u for tanhf (5 ulp). kTiny
// covers results below float's normal range, where u is no relative error any more.

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
  // s + x z' s (1 - s) with s = sigmoid(z).
  __host__ __device__ float derivative(float x) const {
    const float z = argument(x), slope = 1.5957691f + 0.21406435f * x * x;
    const float e = expf(-fabsf(z)), r = 1.0f / (1.0f + e);
    const float s = z < 0 ? e * r : r;
    return s + x * slope * (e * r * r);
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

// The references: y = f(x) and grad_x = grad_y * f'(x) in double.
template <class Activation>
std::vector<double> forward_cpu(const std::vector<float>& x) {
  std::vector<double> y(x.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = Activation::cpu(static_cast<double>(x[i]));
  return y;
}
template <class Activation>
std::vector<double> backward_cpu(const std::vector<float>& x, const std::vector<float>& grad_y) {
  std::vector<double> grad_x(x.size());
  for (size_t i = 0; i < grad_x.size(); ++i)
    grad_x[i] =
        static_cast<double>(grad_y[i]) * Activation::derivative_cpu(static_cast<double>(x[i]));
  return grad_x;
}

// The backward pass multiplies the derivative's error by grad_y and rounds the product.
template <class Activation>
double backward_bound(double x, double grad_y) {
  return std::fabs(grad_y) *
             (Activation::derivative_bound(x) + kU * std::fabs(Activation::derivative_cpu(x))) +
         kTiny;
}

// ---- Tuning -----------------------------------------------------------------------------------

inline constexpr int kVectors = 2;  // float4s of each input on their way per thread

// ---- One element per thread -------------------------------------------------------------------

// y = f(x)    x, y (n), n < 2^32.
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element; the last block is cut off at n.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns y[t].
// Costs : 8 n bytes of global memory; 4 bytes on their way per thread.
template <class Activation>
static __global__ void forward_scalar(float* y, const float* x, size_t n) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = Activation{}(x[i]);
}

// grad_x = grad_y * f'(x)    grad_x, grad_y, x (n), n < 2^32.
// Fixes : forward keeps y only; backward needs the slope at x, which it computes anew from x.
// Idea  : one thread per element; the last block is cut off at n.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns grad_x[t].
// Costs : 12 n bytes of global memory; 8 bytes on their way per thread.
template <class Activation>
static __global__ void backward_scalar(float* grad_x, const float* grad_y, const float* x,
                                       size_t n) {
  // exercise: the chain rule for this thread's element, if it has one (about 2 lines)
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) grad_x[i] = grad_y[i] * Activation{}.derivative(x[i]);
  // end exercise
}

template <class Activation>
inline void launch_forward_scalar(float* y, const float* x, size_t n) {
  for (size_t begin = 0; begin < n; begin += kMaxThreads) {  // once, unless n is huge
    const size_t count = std::min(n - begin, kMaxThreads);
    LAUNCH((forward_scalar<Activation>), static_cast<unsigned>(gpu::ceil_div(count, kBlock)),
           kBlock, 0, y + begin, x + begin, count);
  }
}

template <class Activation>
inline void launch_backward_scalar(float* grad_x, const float* grad_y, const float* x, size_t n) {
  for (size_t begin = 0; begin < n; begin += kMaxThreads) {
    const size_t count = std::min(n - begin, kMaxThreads);
    LAUNCH((backward_scalar<Activation>), static_cast<unsigned>(gpu::ceil_div(count, kBlock)),
           kBlock, 0, grad_x + begin, grad_y + begin, x + begin, count);
  }
}

// ---- 128-bit loads, several on their way ------------------------------------------------------

template <class Activation>
__device__ inline float4 value(float4 x) {
  const Activation f{};
  return make_float4(f(x.x), f(x.y), f(x.z), f(x.w));
}

template <class Activation>
__device__ inline float4 chain_rule(float4 grad_y, float4 x) {
  const Activation f{};
  return make_float4(grad_y.x * f.derivative(x.x), grad_y.y * f.derivative(x.y),
                     grad_y.z * f.derivative(x.z), grad_y.w * f.derivative(x.w));
}

// y = f(x)    x, y (n), any n, any alignment.
// Fixes : scalar asks for 4 bytes at a time and has nothing to ask for while it computes f.
// Idea  : a thread loads kVectors float4s before it uses the first.
// Thread: t owns the float4s t, t + T, ..., kVectors per round; of head and tail t, t + T, ...
// Costs : 8 n bytes of global memory; 16 kVectors bytes on their way, 4 kVectors registers.
template <class Activation>
static __global__ void forward_vectorized(float* y, const float* x, Split split) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  // exercise: rounds of kVectors float4s, the float4s left over, the single ones (about 15 lines)
  const float4* x4 = reinterpret_cast<const float4*>(x + split.head);
  float4* y4 = reinterpret_cast<float4*>(y + split.head);
  size_t v = thread;
  for (; v + (kVectors - 1) * threads < split.vectors; v += kVectors * threads) {
    float4 held[kVectors];
    for (int k = 0; k < kVectors; ++k) held[k] = x4[v + k * threads];
    for (int k = 0; k < kVectors; ++k) y4[v + k * threads] = value<Activation>(held[k]);
  }
  for (; v < split.vectors; v += threads) y4[v] = value<Activation>(x4[v]);
  for (size_t s = thread; s < split.head + split.tail; s += threads) {
    const size_t i = s < split.head ? s : s + 4 * split.vectors;
    y[i] = Activation{}(x[i]);
  }
  // end exercise
}

// grad_x = grad_y * f'(x)    grad_x, grad_y, x (n), any n, any alignment.
// Fixes : scalar asks for 4 bytes at a time and has nothing to ask for while it computes f'.
// Idea  : a thread loads kVectors float4s of both inputs before it uses the first.
// Thread: t owns the float4s t, t + T, ..., kVectors per round; of head and tail t, t + T, ...
// Costs : 12 n bytes of global memory; 32 kVectors bytes on their way, 8 kVectors registers.
template <class Activation>
static __global__ void backward_vectorized(float* grad_x, const float* grad_y, const float* x,
                                           Split split) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  const float4* x4 = reinterpret_cast<const float4*>(x + split.head);
  const float4* grad_y4 = reinterpret_cast<const float4*>(grad_y + split.head);
  float4* grad_x4 = reinterpret_cast<float4*>(grad_x + split.head);
  size_t v = thread;
  for (; v + (kVectors - 1) * threads < split.vectors; v += kVectors * threads) {
    float4 held_x[kVectors], held_grad[kVectors];
    for (int k = 0; k < kVectors; ++k) {
      held_x[k] = x4[v + k * threads];
      held_grad[k] = grad_y4[v + k * threads];
    }
    for (int k = 0; k < kVectors; ++k)
      grad_x4[v + k * threads] = chain_rule<Activation>(held_grad[k], held_x[k]);
  }
  for (; v < split.vectors; v += threads) grad_x4[v] = chain_rule<Activation>(grad_y4[v], x4[v]);
  for (size_t s = thread; s < split.head + split.tail; s += threads) {
    const size_t i = s < split.head ? s : s + 4 * split.vectors;
    grad_x[i] = grad_y[i] * Activation{}.derivative(x[i]);
  }
}

// Blocks for kVectors float4s per thread, or for one single element per thread where there are
// more.
inline unsigned vector_blocks(const Split& split) {
  return full_grid(std::max(gpu::ceil_div(split.vectors, kVectors), split.head + split.tail));
}

template <class Activation>
inline void launch_forward_vectorized(float* y, const float* x, size_t n) {
  if (n == 0) return;
  const Split split = split_vectors(n, {y, x});
  LAUNCH((forward_vectorized<Activation>), vector_blocks(split), kBlock, 0, y, x, split);
}

template <class Activation>
inline void launch_backward_vectorized(float* grad_x, const float* grad_y, const float* x,
                                       size_t n) {
  if (n == 0) return;
  const Split split = split_vectors(n, {grad_x, grad_y, x});
  LAUNCH((backward_vectorized<Activation>), vector_blocks(split), kBlock, 0, grad_x, grad_y, x,
         split);
}

// ---- The versions -----------------------------------------------------------------------------

struct Launch {
  void (*forward)(float* y, const float* x, size_t n);
  void (*backward)(float* grad_x, const float* grad_y, const float* x, size_t n);
};

// The same versions for every function: kVersions<Relu>, kVersions<Sigmoid>, ...
template <class Activation>
inline constexpr Version<Launch> kVersions[] = {
    {"scalar",
     {launch_forward_scalar<Activation>, launch_backward_scalar<Activation>},
     "one element per thread"},
    {"vectorized",
     {launch_forward_vectorized<Activation>, launch_backward_vectorized<Activation>},
     "16 bytes per load, several loads on their way"},
};

}  // namespace activations
