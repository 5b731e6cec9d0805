// What the expressions of formula_list.h call, in plain C that C++, CUDA, HIP and OpenCL C take:
// whoever includes it says first what stands before a function, COURSE_FUNCTION, and has exp and
// fabs of float.
#pragma once

#ifndef COURSE_FUNCTION
#include <math.h>
#define COURSE_FUNCTION static inline
#endif

COURSE_FUNCTION float formula_sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

// 1.4's GeluTanh: x sigmoid(z) with z = x (a + b x^2); and its derivative.
COURSE_FUNCTION float formula_gelu_argument(float x) {
  return x * (1.5957691f + 0.071354814f * x * x);
}
COURSE_FUNCTION float formula_gelu_slope(float x) {
  const float z = formula_gelu_argument(x), slope = 1.5957691f + 0.21406435f * x * x;
  const float e = exp(-fabs(z)), r = 1.0f / (1.0f + e);
  const float s = z < 0.0f ? e * r : r;
  return s + (e > 0.0f ? x * slope * (e * r * r) : 0.0f);
}
