// Wrong kernels that optimizers_test.cpp must see fail.
#include "common/gpu.h"
#include "stage5_training/04_optimizers/detail/rules.h"
#include "stage5_training/04_optimizers/optimizers.h"

namespace optimizers_test {

using optimizers::Adam;
using optimizers::AdamW;
using optimizers::Momentum;
using optimizers::ParameterArena;
using optimizers::Schedule;

using Launcher = void (*)(const ParameterArena& arena, const Schedule* schedule);
extern const Launcher coupled_decay, decay_afterwards, bias_left_in, epsilon_inside_root,
    rate_in_velocity, no_bounds_check;

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

const Launcher coupled_decay = launch_rule<CoupledDecay>;
const Launcher decay_afterwards = launch_rule<DecayAfterwards>;
const Launcher bias_left_in = launch_rule<BiasLeftIn>;
const Launcher epsilon_inside_root = launch_rule<EpsilonInsideRoot>;
const Launcher rate_in_velocity = launch_rule<RateInVelocity>;

static __global__ void update_without_bounds_check(ParameterArena arena, const Schedule* schedule) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  optimizers::update<optimizers::Sgd>(arena.w, arena.grad_w, arena.m, arena.v, i, *schedule);
}
static void launch_without_bounds_check(const ParameterArena& arena, const Schedule* schedule) {
  LAUNCH(update_without_bounds_check, 2, 4, 0, arena, schedule);
}
const Launcher no_bounds_check = launch_without_bounds_check;

}  // namespace optimizers_test
