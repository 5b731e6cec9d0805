// per_tensor: one fused kernel per rule, launched for each tensor.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage5_training/04_optimizers/optimizers.h"

namespace optimizers {

// w -= learning_rate g    each (n), any n, any alignment.
// Fixes : an optimizer written as tensor operations (w' = learning_rate g, w -= w') reads and
//         writes each array once per operation.
// Idea  : one fused kernel: every number is read once and written once.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns the elements t, t + T, ...
// Costs : 12 n bytes of global memory; a launch per tensor, a bias's too.
static __global__ void sgd_per_tensor(float* w, const float* grad_w, size_t n,
                                      const Schedule* schedule) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  const float rate = schedule->hyper.learning_rate;
  for (size_t i = thread; i < n; i += threads) w[i] = fmaf(-rate, grad_w[i], w[i]);
}

// m = momentum m + g;  w -= learning_rate m    each (n), any n, any alignment.
// Fixes : SGD turns with every gradient, however much it differs from the one before.
// Idea  : m remembers the gradients of the last steps, the old ones less and less.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns the elements t, t + T, ...
// Costs : 20 n bytes of global memory; a launch per tensor, a bias's too.
static __global__ void momentum_per_tensor(float* w, const float* grad_w, float* m, size_t n,
                                           const Schedule* schedule) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  const Schedule s = *schedule;
  for (size_t i = thread; i < n; i += threads) {
    const float new_m = fmaf(s.hyper.momentum, m[i], grad_w[i]);
    w[i] = fmaf(-s.hyper.learning_rate, new_m, w[i]);
    m[i] = new_m;
  }
}

// m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
// w -= learning_rate m' / (sqrt(v') + epsilon)    m' = m / (1 - beta1^t),  v' = v / (1 - beta2^t)
// each (n), any n, any alignment; before that, where `decays` (AdamW), w -= learning_rate
// weight_decay w.
// Fixes : one learning rate is too large for some parameters and too small for others.
// Idea  : v remembers the size of a parameter's gradients, and its root divides them.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns the elements t, t + T, ...
// Costs : 28 n bytes of global memory; a launch per tensor, a bias's too.
static __global__ void adam_per_tensor(float* w, const float* grad_w, float* m, float* v, size_t n,
                                       bool decays, const Schedule* schedule) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  const Schedule s = *schedule;
  for (size_t i = thread; i < n; i += threads) {
    const float g = grad_w[i];
    float new_w = decays ? w[i] * s.decay : w[i], new_m = m[i], new_v = v[i];
    // exercise: m, v and w; s.step_size and s.root_scale correct the bias (about 4 lines)
    new_m = fmaf(s.hyper.beta1, new_m, (1.0f - s.hyper.beta1) * g);
    new_v = fmaf(s.hyper.beta2, new_v, (1.0f - s.hyper.beta2) * g * g);
    const float divisor = fmaf(sqrtf(new_v), s.root_scale, s.hyper.epsilon);
    new_w = fmaf(-s.step_size, new_m / divisor, new_w);
    // end exercise
    w[i] = new_w, m[i] = new_m, v[i] = new_v;
  }
}

void launch_per_tensor(Kind kind, const TensorList& list, const Schedule* schedule,
                       hipStream_t stream) {
  for (const ParameterArena& t : list.tensors()) {
    if (t.n == 0) continue;
    const unsigned blocks = vector_add::full_grid(t.n), threads = vector_add::kBlock;
    if (kind == Kind::Sgd)
      LAUNCH_ON(stream, sgd_per_tensor, blocks, threads, 0, t.w, t.grad_w, t.n, schedule);
    else if (kind == Kind::Momentum)
      LAUNCH_ON(stream, momentum_per_tensor, blocks, threads, 0, t.w, t.grad_w, t.m, t.n, schedule);
    else
      LAUNCH_ON(stream, adam_per_tensor, blocks, threads, 0, t.w, t.grad_w, t.m, t.v, t.n,
                kind == Kind::AdamW, schedule);
  }
}

}  // namespace optimizers
