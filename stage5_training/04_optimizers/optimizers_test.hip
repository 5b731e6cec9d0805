// Wrong kernels that planted_mistakes_test.cpp must see fail.
#include "common/gpu.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/04_optimizers/optimizers.h"

namespace optimizers_test {

using optimizers::Adam;
using optimizers::AdamW;
using optimizers::Momentum;
using optimizers::ParameterArena;
using optimizers::Schedule;

struct CoupledDecay : AdamW {
  __host__ __device__ void operator()(float& w, float g, float& m, float& v,
                                      const Schedule& s) const {
    Adam{}(w, fmaf(s.hyper.weight_decay, w, g), m, v, s);
  }
};
struct DecayAfterwards : AdamW {
  __host__ __device__ void operator()(float& w, float g, float& m, float& v,
                                      const Schedule& s) const {
    Adam{}(w, g, m, v, s);
    w *= s.decay;
  }
};
struct BiasLeftIn : Adam {
  __host__ __device__ void operator()(float& w, float g, float& m, float& v,
                                      const Schedule& s) const {
    Schedule uncorrected = s;
    uncorrected.step_size = s.hyper.learning_rate, uncorrected.root_scale = 1;
    Adam{}(w, g, m, v, uncorrected);
  }
};
struct EpsilonInsideRoot : Adam {
  __host__ __device__ void operator()(float& w, float g, float& m, float& v,
                                      const Schedule& s) const {
    m = fmaf(s.hyper.beta1, m, (1.0f - s.hyper.beta1) * g);
    v = fmaf(s.hyper.beta2, v, (1.0f - s.hyper.beta2) * g * g);
    w = fmaf(-s.step_size, m / sqrtf(fmaf(v * s.root_scale, s.root_scale, s.hyper.epsilon)), w);
  }
};
struct RateInVelocity : Momentum {
  __host__ __device__ void operator()(float& w, float g, float& m, float&,
                                      const Schedule& s) const {
    m = fmaf(s.hyper.momentum, m, s.hyper.learning_rate * g);
    w -= m;
  }
};

template <class Rule>
static __global__ void update_by_rule(ParameterArena arena, const Schedule* schedule) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < arena.n) optimizers::update<Rule>(arena.w, arena.grad_w, arena.m, arena.v, i, *schedule);
}
template <class Rule>
static void launch_rule(const ParameterArena& arena, const Schedule* schedule) {
  LAUNCH((update_by_rule<Rule>), gpu::ceil_div(arena.n, 256), 256, 0, arena, schedule);
}

void launch_coupled_decay(const ParameterArena& arena, const Schedule* schedule) {
  launch_rule<CoupledDecay>(arena, schedule);
}
void launch_decay_afterwards(const ParameterArena& arena, const Schedule* schedule) {
  launch_rule<DecayAfterwards>(arena, schedule);
}
void launch_bias_left_in(const ParameterArena& arena, const Schedule* schedule) {
  launch_rule<BiasLeftIn>(arena, schedule);
}
void launch_epsilon_inside_root(const ParameterArena& arena, const Schedule* schedule) {
  launch_rule<EpsilonInsideRoot>(arena, schedule);
}
void launch_rate_in_velocity(const ParameterArena& arena, const Schedule* schedule) {
  launch_rule<RateInVelocity>(arena, schedule);
}

static __global__ void update_without_bounds_check(ParameterArena arena, const Schedule* schedule) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  optimizers::update<optimizers::Sgd>(arena.w, arena.grad_w, arena.m, arena.v, i, *schedule);
}
void launch_without_bounds_check(const ParameterArena& arena, const Schedule* schedule) {
  LAUNCH(update_without_bounds_check, 2, 4, 0, arena, schedule);
}

}  // namespace optimizers_test
