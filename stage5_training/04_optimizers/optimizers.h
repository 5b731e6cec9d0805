// 5.4  Optimizers: SGD, momentum, Adam and AdamW. Each is one fused kernel over all parameters of a
// model: it reads parameter, gradient and state once and writes parameter and state once.
//
// Nothing here is computed twice or shared between parameters, so the time is the memory's: 12, 20
// and 28 bytes per parameter for SGD, momentum and Adam. What the ladder gets rid of is not bytes
// but launches: one per tensor, then one for a table of tensors, then one for one long array.
//
//   step(kind, arena, schedule, stream)   is what a training loop calls: one step for all
//                                         parameters, without a word from the host about which step
//
// Everything that changes from step to step is in device memory (Schedule), so that a captured
// graph can be replayed: its kernels' arguments never change.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage1_vector/01_vector_add/detail/grid.h"

namespace optimizers {

using device_matrix::DeviceBuffer;
using vector_add::full_grid;
using vector_add::kBlock;
using vector_add::Split;
using vector_add::split_vectors;

enum class Kind { Sgd, Momentum, Adam, AdamW };
inline constexpr Kind kKinds[] = {Kind::Sgd, Kind::Momentum, Kind::Adam, Kind::AdamW};

// The defaults are PyTorch's, but for the learning rate of SGD, which has none.
struct Hyperparameters {
  float learning_rate = 1e-3f;
  float momentum = 0.9f;               // Momentum
  float beta1 = 0.9f, beta2 = 0.999f;  // Adam, AdamW
  float epsilon = 1e-8f;               // Adam, AdamW; above 0
  float weight_decay = 1e-2f;          // AdamW
};

// ---- What a step does to all parameters alike -------------------------------------------------

// One object in device memory per optimizer. The hyperparameters may be rewritten between steps, by
// a kernel or by a copy in the same stream: a learning rate that decays is one float.
struct Schedule {
  Hyperparameters hyper;
  std::uint64_t step = 0;  // t: how many steps have begun
  // What follows from the two for step t; advance() fills it in.
  float step_size = 0;   // learning_rate / (1 - beta1^t)
  float root_scale = 0;  // 1 / sqrt(1 - beta2^t)
  float decay = 0;       // 1 - learning_rate * weight_decay
};

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

// A schedule in device memory that has `steps` behind it: none, or those of a run that is resumed.
inline DeviceBuffer<Schedule> make_schedule(const Hyperparameters& hyper, std::uint64_t steps = 0) {
  Schedule schedule;
  schedule.hyper = hyper, schedule.step = steps;
  return DeviceBuffer<Schedule>(std::vector<Schedule>{schedule});
}

// schedule->step += 1, and the factors of that step.
// Fixes : a step number passed by the host is frozen into a captured graph.
// Idea  : the device counts. One thread computes once what all parameters need.
// Thread: the only one does it all.
// Costs : one launch of one thread per step, two powers in double.
static __global__ void begin_step(Schedule* schedule) { advance(*schedule); }

inline void launch_begin_step(Schedule* schedule, hipStream_t stream = nullptr) {
  LAUNCH_ON(stream, begin_step, 1, 1, 0, schedule);
}

// ---- The rules --------------------------------------------------------------------------------
// rule(w, g, m, v, schedule) updates one parameter w with gradient g. kStates says how many numbers
// the rule keeps per parameter: m, or m and v, both 0 before the first step. The fused
// multiply-adds are written out, so that all versions round alike and give the same bits.

// w -= learning_rate g
struct Sgd {
  static constexpr const char* kName = "sgd";
  static constexpr int kStates = 0;
  __host__ __device__ void operator()(float& w, float g, float&, float&, const Schedule& s) const {
    w = fmaf(-s.hyper.learning_rate, g, w);
  }
};

// m = momentum m + g;  w -= learning_rate m
// The form of PyTorch, where the learning rate is no part of m: it may change from step to step.
// (Polyak: Some methods of speeding up the convergence of iteration methods, 1964.)
struct Momentum {
  static constexpr const char* kName = "momentum";
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
  static constexpr const char* kName = "adam";
  static constexpr int kStates = 2;
  __host__ __device__ void operator()(float& w, float g, float& m, float& v,
                                      const Schedule& s) const {
    // exercise: m, v and w; s.step_size and s.root_scale correct the bias (about 4 lines)
    m = fmaf(s.hyper.beta1, m, (1.0f - s.hyper.beta1) * g);
    v = fmaf(s.hyper.beta2, v, (1.0f - s.hyper.beta2) * g * g);
    const float divisor = fmaf(sqrtf(v), s.root_scale, s.hyper.epsilon);
    w = fmaf(-s.step_size, m / divisor, w);
    // end exercise
  }
};

// w -= learning_rate weight_decay w, then Adam. A decay inside the gradient would be divided by the
// root as well, and so be weakest where the gradients are large: here it is decoupled from them.
// (Loshchilov and Hutter: Decoupled weight decay regularization, arXiv:1711.05101, algorithm 2. As
// in PyTorch the decay is multiplied by the learning rate, not by the schedule's multiplier alone.)
struct AdamW {
  static constexpr const char* kName = "adamw";
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

// "sgd", "momentum", "adam" or "adamw".
inline const char* name(Kind kind) {
  const char* result = nullptr;
  visit_rule(kind, [&](auto rule) { result = rule.kName; });
  return result;
}

// How many floats of state the kind keeps per parameter.
inline int states(Kind kind) {
  int result = 0;
  visit_rule(kind, [&](auto rule) { result = rule.kStates; });
  return result;
}

// The fewest bytes that a step moves per parameter: it reads the gradient, and reads and writes the
// parameter and its states.
inline size_t bytes_per_parameter(Kind kind) {
  return sizeof(float) * (3 + 2 * static_cast<size_t>(states(kind)));
}

// ---- Reference and bound ----------------------------------------------------------------------

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
inline void step_cpu(Kind kind, const Hyperparameters& hyper, std::uint64_t t,
                     const std::vector<float>& grad_w, std::vector<Element>& elements) {
  constexpr double u = kFloatRoundoff;
  const double rate = static_cast<double>(hyper.learning_rate);
  const double momentum = static_cast<double>(hyper.momentum);
  const double beta1 = static_cast<double>(hyper.beta1), beta2 = static_cast<double>(hyper.beta2);
  const double epsilon = static_cast<double>(hyper.epsilon);
  const double decay = 1 - rate * static_cast<double>(hyper.weight_decay);
  const double step_size = rate / (1 - std::pow(beta1, static_cast<double>(t)));
  const double root_scale = 1 / std::sqrt(1 - std::pow(beta2, static_cast<double>(t)));
  for (size_t i = 0; i < elements.size(); ++i) {
    Element& e = elements[i];
    const double g = static_cast<double>(grad_w[i]);
    if (kind == Kind::Sgd) {
      e.w -= rate * g;
      e.w_error += u * std::fabs(e.w) + kTiny;
      continue;
    }
    if (kind == Kind::Momentum) {
      e.m = momentum * e.m + g;
      e.m_error = momentum * e.m_error + u * std::fabs(e.m) + kTiny;
      e.w -= rate * e.m;
      e.w_error += rate * e.m_error + u * std::fabs(e.w) + kTiny;
      continue;
    }
    if (kind == Kind::AdamW) {
      e.w *= decay;
      e.w_error = std::fabs(decay) * e.w_error + 2 * u * std::fabs(e.w) + kTiny;
    }
    // 1 - beta is rounded once, each product once, the sum once.
    const double new_m = (1 - beta1) * g, new_v = (1 - beta2) * g * g;
    e.m = beta1 * e.m + new_m;
    e.m_error = beta1 * e.m_error + u * (2 * std::fabs(new_m) + std::fabs(e.m)) + kTiny;
    e.v = beta2 * e.v + new_v;
    e.v_error = beta2 * e.v_error + u * (3 * new_v + e.v) + kTiny;
    // |sqrt(a) - sqrt(b)| = |a - b| / (sqrt(a) + sqrt(b)), and never more than sqrt(|a - b|).
    const double root = std::sqrt(e.v);
    const double root_error = std::fmin(e.v_error / root, std::sqrt(e.v_error)) + 6 * u * root;
    const double divisor = root * root_scale + epsilon, quotient = e.m / divisor;
    const double divisor_error = root_scale * (root_error + u * root) + u * divisor;
    const double quotient_error =
        (e.m_error + std::fabs(quotient) * divisor_error) / (divisor - divisor_error) +
        5 * u * std::fabs(quotient);
    e.w -= step_size * quotient;
    e.w_error +=
        step_size * (quotient_error + u * std::fabs(quotient)) + u * std::fabs(e.w) + kTiny;
  }
}

// ---- Tuning -----------------------------------------------------------------------------------

inline constexpr size_t kSlice = 4096;  // parameters per block of multi_tensor

// ---- Tensors ----------------------------------------------------------------------------------

// n parameters with their gradients and states, all in device memory, n floats each and aligned to
// 4 bytes. A state that the optimizer does not keep may be nullptr.
struct ParameterArena {
  float* w = nullptr;
  const float* grad_w = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  size_t n = 0;

  // The `count` parameters from `begin` on.
  ParameterArena part(size_t begin, size_t count) const {
    const auto behind = [&](float* p) { return p == nullptr ? p : p + begin; };
    return {w + begin, grad_w + begin, behind(m), behind(v), count};
  }
};

// The tensors of a model as the versions want them: one by one, cut into slices, and as one.
class TensorList {
 public:
  explicit TensorList(std::vector<ParameterArena> tensors) : tensors_(std::move(tensors)) {
    std::vector<ParameterArena> slices;
    for (const ParameterArena& tensor : tensors_)
      for (size_t begin = 0; begin < tensor.n; begin += kSlice)
        slices.push_back(tensor.part(begin, std::min(kSlice, tensor.n - begin)));
    slices_ = DeviceBuffer<ParameterArena>(slices);
    for (const ParameterArena& slice : slices) {
      if (arena_.n == 0) arena_ = slice.part(0, 0);
      const ParameterArena end = arena_.part(arena_.n, 0);
      contiguous_ = contiguous_ && slice.w == end.w && slice.grad_w == end.grad_w &&
                    slice.m == end.m && slice.v == end.v;
      arena_.n += slice.n;
    }
  }

  const std::vector<ParameterArena>& tensors() const { return tensors_; }
  const DeviceBuffer<ParameterArena>& slices() const { return slices_; }
  // All tensors as one. Throws std::invalid_argument unless each begins where the one before ends.
  const ParameterArena& arena() const {
    if (!contiguous_) throw std::invalid_argument("the tensors do not lie one behind the other");
    return arena_;
  }

 private:
  std::vector<ParameterArena> tensors_;
  DeviceBuffer<ParameterArena> slices_;
  ParameterArena arena_;
  bool contiguous_ = true;
};

// ---- One launch per tensor --------------------------------------------------------------------

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

// w, m, v = rule(w, grad_w, m, v)    each (n), any n, any alignment.
// Fixes : an optimizer written as tensor operations (m *= beta1, m += (1 - beta1) g, ...) reads and
//         writes each array once per operation.
// Idea  : one fused kernel: every number is read once and written once.
// Thread: t = blockIdx.x * blockDim.x + threadIdx.x owns the elements t, t + T, ...
// Costs : bytes_per_parameter n bytes of global memory; a launch per tensor, a bias's too.
template <class Rule>
static __global__ void update_per_tensor(ParameterArena tensor, const Schedule* schedule) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  const Schedule s = *schedule;
  for (size_t i = thread; i < tensor.n; i += threads)
    update<Rule>(tensor.w, tensor.grad_w, tensor.m, tensor.v, i, s);
}

inline void launch_per_tensor(Kind kind, const TensorList& list, const Schedule* schedule,
                              hipStream_t stream = nullptr) {
  visit_rule(kind, [&](auto rule) {
    for (const ParameterArena& tensor : list.tensors())
      if (tensor.n > 0)
        LAUNCH_ON(stream, (update_per_tensor<decltype(rule)>), full_grid(tensor.n), kBlock, 0,
                  tensor, schedule);
  });
}

// ---- One launch for a table of tensors --------------------------------------------------------

// w, m, v = rule(w, grad_w, m, v)    for each slice: (n), n at most kSlice, any alignment.
// Fixes : per_tensor pays a launch for a bias of ten floats, and its kernels can't overlap.
// Idea  : a table in device memory says where the tensors are, in slices of one block's work.
// Thread: thread t of block b owns the elements t, t + blockDim.x, ... of slice b.
// Costs : the same bytes, 40 more per slice, and the wait for them before the first load.
template <class Rule>
static __global__ void update_multi_tensor(const ParameterArena* slices, const Schedule* schedule) {
  // exercise: find this block's slice, and update it (about 4 lines)
  const ParameterArena slice = slices[blockIdx.x];
  const Schedule s = *schedule;
  for (size_t i = threadIdx.x; i < slice.n; i += blockDim.x)
    update<Rule>(slice.w, slice.grad_w, slice.m, slice.v, i, s);
  // end exercise
}

inline void launch_multi_tensor(Kind kind, const TensorList& list, const Schedule* schedule,
                                hipStream_t stream = nullptr) {
  const DeviceBuffer<ParameterArena>& slices = list.slices();
  if (slices.size() == 0) return;
  visit_rule(kind, [&](auto rule) {
    LAUNCH_ON(stream, (update_multi_tensor<decltype(rule)>), static_cast<unsigned>(slices.size()),
              kBlock, 0, slices.data(), schedule);
  });
}

// ---- One array --------------------------------------------------------------------------------

// w, m, v = rule(w, grad_w, m, v)    each (n), any n, any alignment.
// Fixes : multi_tensor looks up where its data is, and a tensor may begin where no float4 can.
// Idea  : all tensors lie in one arena; the rule is the same for all, so nobody looks for borders.
// Thread: t owns the float4s t, t + T, ... and of the head and tail the elements t, t + T, ...
// Costs : bytes_per_parameter n bytes of global memory, in a quarter of the instructions.
template <class Rule>
static __global__ void update_flat(ParameterArena arena, Split split, const Schedule* schedule) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  const Schedule s = *schedule;
  // exercise: the float4s between head and tail, then the single elements (about 10 lines)
  float4* w4 = reinterpret_cast<float4*>(arena.w + split.head);
  const float4* grad_w4 = reinterpret_cast<const float4*>(arena.grad_w + split.head);
  float4* m4 = reinterpret_cast<float4*>(arena.m + split.head);
  float4* v4 = reinterpret_cast<float4*>(arena.v + split.head);
  for (size_t i = thread; i < split.vectors; i += threads) update<Rule>(w4, grad_w4, m4, v4, i, s);
  for (size_t k = thread; k < split.head + split.tail; k += threads) {
    const size_t i = k < split.head ? k : k + 4 * split.vectors;
    update<Rule>(arena.w, arena.grad_w, arena.m, arena.v, i, s);
  }
  // end exercise
}

// Updates an arena by a rule: one of the above, or your own.
template <class Rule>
inline void launch_rule(ParameterArena arena, const Schedule* schedule,
                        hipStream_t stream = nullptr) {
  if (arena.n == 0) return;
  if (Rule::kStates < 1) arena.m = arena.w;  // not used: aligned like w, and no null pointer to
  if (Rule::kStates < 2) arena.v = arena.w;  // add an offset to
  const Split split = split_vectors(arena.n, {arena.w, arena.grad_w, arena.m, arena.v});
  LAUNCH_ON(stream, (update_flat<Rule>),
            full_grid(std::max(split.vectors, split.head + split.tail)), kBlock, 0, arena, split,
            schedule);
}

inline void launch_flat(Kind kind, const TensorList& list, const Schedule* schedule,
                        hipStream_t stream = nullptr) {
  visit_rule(kind, [&](auto rule) { launch_rule<decltype(rule)>(list.arena(), schedule, stream); });
}

// One optimizer step for a whole model: begins step t, then updates the arena. Tensors in the arena
// may have gaps between them, to be aligned, where w, grad_w, m and v are 0: they stay 0.
inline void step(Kind kind, const ParameterArena& arena, Schedule* schedule,
                 hipStream_t stream = nullptr) {
  launch_begin_step(schedule, stream);
  visit_rule(kind, [&](auto rule) { launch_rule<decltype(rule)>(arena, schedule, stream); });
}

// ---- The versions -----------------------------------------------------------------------------

// Updates all tensors by the rule of `kind`; the schedule's step has begun.
using Launch = void (*)(Kind kind, const TensorList& list, const Schedule* schedule,
                        hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"per_tensor", launch_per_tensor, "one fused kernel, launched for each tensor"},
    {"multi_tensor", launch_multi_tensor, "one launch: a table says where the tensors are"},
    {"flat", launch_flat, "one launch: all tensors are one array, read 16 bytes at a time"},
};

}  // namespace optimizers
