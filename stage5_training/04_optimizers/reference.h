// The reference of 5.4 in double, and how far a correct float version may be from it.
#pragma once

#include <cstdint>
#include <vector>

#include "stage5_training/04_optimizers/optimizers.h"

namespace optimizers {

// A parameter and its states in double, and how far floats may be from each.
struct Element {
  double w = 0, m = 0, v = 0;
  double w_error = 0, m_error = 0, v_error = 0;
};

inline constexpr double kTiny = 4.7019774032891500e-38;  // 2^-124: four results below 2^-126

// Step number t (the first is 1) for parameters with these gradients, and what their errors grow
// to.
//
// To first order in u = 2^-24: one u for each rounded operation or constant, 5 u for the quotient
// and 6 u for the root (2.5 and 3 ulp: what AMD's compilers may take; elsewhere both are correctly
// rounded). w, m and v enter the next step with a factor of at most 1, so no error is amplified:
// after T steps it is at most the sum of what the T steps have added.
void step_cpu(Kind kind, const Hyperparameters& hyper, std::uint64_t t,
              const std::vector<float>& grad_w, std::vector<Element>& elements);
// The same for gradients that are off by grad_error themselves.
void step_cpu(Kind kind, const Hyperparameters& hyper, std::uint64_t t,
              const std::vector<double>& grad_w, const std::vector<double>& grad_error,
              std::vector<Element>& elements);

// Numbers that float has, exactly: what a step starts from. One element per parameter.
std::vector<Element> elements_of(const std::vector<float>& w, const std::vector<float>& m,
                                 const std::vector<float>& v);

}  // namespace optimizers
