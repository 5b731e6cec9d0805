// The rules as functors, for kernels that are the same for all of them, and what a thread does with
// one. Later steps update parameters in kernels of their own with these.
#pragma once

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage5_training/04_optimizers/optimizers.h"

namespace optimizers {

using vector_add::kBlock;  // threads per block

// Begins the next step. m and v start from 0 and so are too small at first: their expectation is
// 1 - beta^t of what it should be, which step_size and root_scale correct (Kingma and Ba, section
// 3). In double: the float 1 - 0.999^1 would have lost three of its seven digits. Any kernel of a
// training step may call this from one of its threads, and save the launch of begin_step.
__host__ __device__ inline void advance(Schedule& schedule) {
  const Hyperparameters& hyper = schedule.hyper;
  const double t = static_cast<double>(++schedule.step);
  const double learning_rate = static_cast<double>(hyper.learning_rate);
  const double unseen1 = pow(static_cast<double>(hyper.beta1), t);
  const double unseen2 = pow(static_cast<double>(hyper.beta2), t);
  schedule.step_size = static_cast<float>(learning_rate / (1 - unseen1));
  schedule.root_scale = static_cast<float>(1 / sqrt(1 - unseen2));
  schedule.decay = static_cast<float>(1 - learning_rate * static_cast<double>(hyper.weight_decay));
}

// rule(w, g, m, v, schedule) updates one parameter w with gradient g. kStates says how many numbers
// the rule keeps per parameter: m, or m and v. The fused multiply-adds are written out, so that all
// kernels round alike and give the same bits.

// w -= learning_rate g
struct Sgd {
  static constexpr int kStates = 0;
  __host__ __device__ void operator()(float& w, float g, float&, float&, const Schedule& s) const {
    w = fmaf(-s.hyper.learning_rate, g, w);
  }
};

// m = momentum m + g;  w -= learning_rate m
// The form of PyTorch, where the learning rate is no part of m: it may change from step to step.
// (Polyak: Some methods of speeding up the convergence of iteration methods, 1964.)
struct Momentum {
  static constexpr int kStates = 1;
  __host__ __device__ void operator()(float& w, float g, float& m, float&,
                                      const Schedule& s) const {
    m = fmaf(s.hyper.momentum, m, g);
    w = fmaf(-s.hyper.learning_rate, m, w);
  }
};

// m = beta1 m + (1 - beta1) g             a mean of the gradients
// v = beta2 v + (1 - beta2) g^2           and of their squares
// w -= learning_rate m' / (sqrt(v') + epsilon)    m' = m / (1 - beta1^t),  v' = v / (1 - beta2^t)
// (Kingma and Ba: Adam: a method for stochastic optimization, arXiv:1412.6980, algorithm 1.)
struct Adam {
  static constexpr int kStates = 2;
  __host__ __device__ void operator()(float& w, float g, float& m, float& v,
                                      const Schedule& s) const {
    m = fmaf(s.hyper.beta1, m, (1.0f - s.hyper.beta1) * g);
    v = fmaf(s.hyper.beta2, v, (1.0f - s.hyper.beta2) * g * g);
    const float divisor = fmaf(sqrtf(v), s.root_scale, s.hyper.epsilon);
    w = fmaf(-s.step_size, m / divisor, w);
  }
};

// w -= learning_rate weight_decay w, then Adam. A decay inside the gradient would be divided by the
// root as well, and so be weakest where the gradients are large: here it is decoupled from them.
// (Loshchilov and Hutter: Decoupled weight decay regularization, arXiv:1711.05101, algorithm 2. As
// in PyTorch the decay is multiplied by the learning rate, not by the schedule's multiplier alone.)
struct AdamW {
  static constexpr int kStates = 2;
  __host__ __device__ void operator()(float& w, float g, float& m, float& v,
                                      const Schedule& s) const {
    w *= s.decay;
    Adam{}(w, g, m, v, s);
  }
};

// Calls visit(rule) with the rule of this kind.
template <class Visit>
void visit_rule(Kind kind, Visit&& visit) {
  switch (kind) {
    case Kind::Sgd:
      return visit(Sgd{});
    case Kind::Momentum:
      return visit(Momentum{});
    case Kind::Adam:
      return visit(Adam{});
    case Kind::AdamW:
      return visit(AdamW{});
  }
}

// One parameter, or four of them.
template <class Rule>
__device__ inline void apply(Rule rule, float& w, float g, float& m, float& v, const Schedule& s) {
  rule(w, g, m, v, s);
}
template <class Rule>
__device__ inline void apply(Rule rule, float4& w, float4 g, float4& m, float4& v,
                             const Schedule& s) {
  rule(w.x, g.x, m.x, v.x, s);
  rule(w.y, g.y, m.y, v.y, s);
  rule(w.z, g.z, m.z, v.z, s);
  rule(w.w, g.w, m.w, v.w, s);
}

// Element i of the arrays, a float or a float4: reads all that the rule needs, then writes.
template <class Rule, class T>
__device__ inline void update(T* w, const T* grad_w, T* m, T* v, size_t i, const Schedule& s) {
  T new_w = w[i], new_m = {}, new_v = {};
  if constexpr (Rule::kStates >= 1) new_m = m[i];
  if constexpr (Rule::kStates >= 2) new_v = v[i];
  apply(Rule{}, new_w, grad_w[i], new_m, new_v, s);
  w[i] = new_w;
  if constexpr (Rule::kStates >= 1) m[i] = new_m;
  if constexpr (Rule::kStates >= 2) v[i] = new_v;
}

}  // namespace optimizers
