// Who says what a step does, for the kernel of versions/flat.hip: begin() returns it to every
// thread, and all threads call end() when they no longer need it.
#pragma once

#include "common/gpu.h"
#include "stage5_training/04_optimizers/counted.h"
#include "stage5_training/04_optimizers/detail/rules.h"

namespace optimizers {

// An earlier kernel has begun the step.
struct Begun {
  const Schedule* schedule;
  template <class Rule>
  __device__ Schedule begin() const {
    return *schedule;
  }
  __device__ void end() const {}
};

// Each block begins the step by itself. Whoever is done last counts it: then all have read the
// count.
struct CountedByLast {
  CountedStep counted;

  template <class Rule>
  __device__ Schedule begin() const {
    Schedule s;
    s.hyper = counted.hyper, s.hyper.learning_rate = *counted.rate;
    if constexpr (Rule::kStates == 2) {  // the others need no powers
      __shared__ float factors[3];
      if (threadIdx.x == 0) {
        s.step = static_cast<std::uint64_t>(*counted.step);
        advance(s);
        factors[0] = s.step_size, factors[1] = s.root_scale, factors[2] = s.decay;
      }
      __syncthreads();  // the step's factors are there
      s.step_size = factors[0], s.root_scale = factors[1], s.decay = factors[2];
    }
    return s;
  }
  __device__ void end() const {
    if (threadIdx.x != 0) return;
    if (gridDim.x > 1) {
      __threadfence();  // this block has read the count before it is seen to be done
      if (atomicAdd(counted.finished, 1u) != gridDim.x - 1) return;
      *counted.finished = 0;  // for the next launch
    }
    ++*counted.step;
  }
};

}  // namespace optimizers
