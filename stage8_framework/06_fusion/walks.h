// How a program's inputs are walked, and what its reduction comes down to: the same for the
// interpreter and for the texts of kernels. Plain C++.
#pragma once

#include "stage8_framework/02_backends/own/axes.h"
#include "stage8_framework/02_backends/own/reductions.h"
#include "stage8_framework/06_fusion/program.h"

namespace fusion {

// The inputs beside the domain; those that a program has not are one element.
own::Axes<kMaxInputs> axes_of(const Program& program);

struct Way {
  bool is_one = false, is_flat = false;  // one element for all; as the domain is walked
  bool is_wide = false;                  // four neighbours are 16 bytes
  std::int64_t step = 0;                 // between neighbours in a row
};
Way way_of(const own::Axes<kMaxInputs>& axes, size_t input);

// Throws std::invalid_argument where there are 2^31 elements or more and an input is walked in
// another way than these two.
void require_places(const Program& program, bool are_flat);

// How a program that ends in a reduction does that, and by which of own's. Throws
// std::invalid_argument where its axes are neither the first ones nor the last, or there are 2^31
// results or more.
own::ReductionTask reduction_task_of(const Program& program);
own::Reduction reduction_of(const Program& program);

}  // namespace fusion
