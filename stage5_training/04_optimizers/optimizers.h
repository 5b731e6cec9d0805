// 5.4  Optimizers: SGD, momentum, Adam and AdamW, for all parameters of a model.
//
// No parameter needs another. A step reads parameter, gradient and state once and writes parameter
// and state once, so the time is the memory's: 12, 20 and 28 bytes per parameter for SGD, momentum
// and Adam. What the ladder gets rid of is not bytes but launches: one per tensor, then one for a
// table of tensors, then one for one long array.
//
// Everything that changes from step to step is in device memory (Schedule), so that a captured
// graph can be replayed: its kernels' arguments never change.
//
// Arrays are on the device and aligned to 4 bytes; the work is queued on `stream`. All versions
// give the same bits. Errors: gpu::Error where a launch is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/device_buffer.h"
#include "common/version.h"

namespace optimizers {

enum class Kind { Sgd, Momentum, Adam, AdamW };
inline constexpr Kind kKinds[] = {Kind::Sgd, Kind::Momentum, Kind::Adam, Kind::AdamW};

const char* name(Kind kind);  // "sgd", "momentum", "adam" or "adamw"
int states(Kind kind);        // floats of state per parameter: m, or m and v
// The fewest bytes that a step moves per parameter: it reads the gradient, and reads and writes the
// parameter and its states.
size_t bytes_per_parameter(Kind kind);

// The defaults are PyTorch's, but for the learning rate of SGD, which has none.
struct Hyperparameters {
  float learning_rate = 1e-3f;
  float momentum = 0.9f;               // Momentum
  float beta1 = 0.9f, beta2 = 0.999f;  // Adam, AdamW
  float epsilon = 1e-8f;               // Adam, AdamW; above 0
  float weight_decay = 1e-2f;          // AdamW
};

// What a step does to all parameters alike: one object in device memory per optimizer. The
// hyperparameters may be rewritten between steps, by a kernel or by a copy in the same stream.
struct Schedule {
  Hyperparameters hyper;
  std::uint64_t step = 0;  // t: how many steps have begun
  // What follows from the two for step t; advance() of detail/rules.h fills it in.
  float step_size = 0;   // learning_rate / (1 - beta1^t)
  float root_scale = 0;  // 1 / sqrt(1 - beta2^t)
  float decay = 0;       // 1 - learning_rate * weight_decay
};

// A schedule in device memory that has `steps` behind it: none, or those of a run that is resumed.
gpu::DeviceBuffer<Schedule> make_schedule(const Hyperparameters& hyper, std::uint64_t steps = 0);

// n parameters with their gradients and states, all in device memory, n floats each. A state that
// the optimizer does not keep may be nullptr; both are 0 before the first step.
struct ParameterArena {
  float* w = nullptr;
  const float* grad_w = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  size_t n = 0;

  // The `count` parameters from `begin` on.
  ParameterArena part(size_t begin, size_t count) const;
};

inline constexpr size_t kSlice = 4096;  // parameters per block of multi_tensor

// The tensors of a model as the versions want them: one by one, cut into slices, and as one.
class TensorList {
 public:
  explicit TensorList(std::vector<ParameterArena> tensors);

  const std::vector<ParameterArena>& tensors() const { return tensors_; }
  const gpu::DeviceBuffer<ParameterArena>& slices() const { return slices_; }
  // All tensors as one. Throws std::invalid_argument unless each begins where the one before ends.
  const ParameterArena& arena() const;

 private:
  std::vector<ParameterArena> tensors_;
  gpu::DeviceBuffer<ParameterArena> slices_;
  ParameterArena arena_;
  bool contiguous_ = true;
};

// One optimizer step for a whole model: begins step t, then updates the arena. Tensors in the arena
// may have gaps between them, to be aligned, where w, grad_w, m and v are 0: they stay 0.
void step(Kind kind, const ParameterArena& arena, Schedule* schedule, hipStream_t stream = nullptr);

// The two halves of it: schedule->step += 1 with the factors of that step, and the update.
void launch_begin_step(Schedule* schedule, hipStream_t stream = nullptr);
void launch_update(Kind kind, ParameterArena arena, const Schedule* schedule,
                   hipStream_t stream = nullptr);

// Each updates all tensors by the rule of `kind`; the schedule's step has begun. launch_flat takes
// tensors that lie one behind the other, as arena() does.
void launch_per_tensor(Kind kind, const TensorList& list, const Schedule* schedule,
                       hipStream_t stream = nullptr);
void launch_multi_tensor(Kind kind, const TensorList& list, const Schedule* schedule,
                         hipStream_t stream = nullptr);
void launch_flat(Kind kind, const TensorList& list, const Schedule* schedule,
                 hipStream_t stream = nullptr);

using Launch = void (*)(Kind kind, const TensorList& list, const Schedule* schedule,
                        hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"per_tensor", launch_per_tensor, "one fused kernel, launched for each tensor"},
    {"multi_tensor", launch_multi_tensor, "one launch: a table says where the tensors are"},
    {"flat", launch_flat, "one launch: all tensors are one array, read 16 bytes at a time"},
};

}  // namespace optimizers
