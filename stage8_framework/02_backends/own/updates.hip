// What works in place: a step of an optimizer, by 5.4, the masks of dropout, and a count alone. All
// count their calls on the device, so that a graph that is launched again goes on counting.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage5_training/04_optimizers/counted.h"
#include "stage8_framework/02_backends/detail/dropout.h"
#include "stage8_framework/02_backends/own/detail/kept.h"
#include "stage8_framework/02_backends/own/own.h"

namespace own {
namespace {

using vector_add::kBlock;

// ---- (grad, rate) -> w, state, step -------------------------------------------------------------

const char* supports_optimizer_step(const CourseCall& call) { return unless_plain(call); }
// How many blocks of the step at work are done.
struct Finished {};

void run_optimizer_step(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &w = call.outputs[0], &state = call.outputs[1], &step = call.outputs[2];
  const auto number = [&](int i) { return static_cast<float>(call.attributes[i]); };
  const optimizers::Hyperparameters hyper{0, number(1), number(2), number(3), number(4), number(5)};
  unsigned* const finished = kept<Finished>(0u);
  const auto kind = static_cast<optimizers::Kind>(count_of(call, 0));
  optimizers::ParameterArena arena{floats(w), floats(call.inputs[0]), nullptr, nullptr,
                                   elements(w)};
  if (optimizers::states(kind) > 0) arena.m = floats(state);
  if (optimizers::states(kind) > 1) arena.v = floats(state) + arena.n;
  optimizers::launch_counted_update(
      kind, arena, {hyper, floats(call.inputs[1]), data_of<std::int64_t>(step), finished}, stream);
}

// ---- () -> mask, step ---------------------------------------------------------------------------

const char* supports_dropout_mask(const CourseCall& call) {
  return is_of(call.outputs[0], Dtype::f32) ? nullptr : "only f32 is supported";
}

// mask[i] = 0 where rule.drops(*step, i), else `kept`    mask (n)
// Thread: t owns the elements 4t to 4t + 3, whose words come from one counter, and so on behind
//         those of all threads; it stores them at once where they are `aligned` to 16 bytes.
static __global__ void __launch_bounds__(kBlock)
    draw_mask(float* mask, size_t n, bool aligned, DropoutRule rule, float kept,
              const std::int64_t* step) {
  const size_t threads = size_t{gridDim.x} * kBlock;
  const std::int64_t steps = *step;
  for (size_t quad = size_t{blockIdx.x} * kBlock + threadIdx.x; quad << 2 < n; quad += threads) {
    float drawn[4];
    GPU_UNROLL
    for (unsigned k = 0; k < 4; ++k) drawn[k] = rule.drops(steps, quad << 2 | k) ? 0.0f : kept;
    if (aligned && (quad << 2) + 4 <= n) {
      reinterpret_cast<float4*>(mask)[quad] = {drawn[0], drawn[1], drawn[2], drawn[3]};
      continue;
    }
    GPU_UNROLL
    for (unsigned k = 0; k < 4; ++k)
      if ((quad << 2 | k) < n) mask[quad << 2 | k] = drawn[k];
  }
}

// A kernel of its own: when it runs, no block of draw_mask reads the step any more.
static __global__ void count_step(std::int64_t* step) { ++*step; }

void run_dropout_mask(const CourseCall& call, hipStream_t stream) {
  const CourseTensor& mask = call.outputs[0];
  auto* const step = data_of<std::int64_t>(call.outputs[1]);
  const DropoutRule rule(call.attributes[0], count_of(call, 1));
  const size_t n = elements(mask);
  const bool aligned = reinterpret_cast<std::uintptr_t>(mask.data) % sizeof(float4) == 0;
  if (n > 0)
    LAUNCH_ON(stream, draw_mask, vector_add::full_grid(gpu::ceil_div(n, 4)), kBlock, 0,
              floats(mask), n, aligned, rule, static_cast<float>(rule.kept), step);
  LAUNCH_ON(stream, count_step, 1, 1, 0, step);
}

// ---- () -> step ---------------------------------------------------------------------------------

void run_count_up(const CourseCall& call, hipStream_t stream) {
  LAUNCH_ON(stream, count_step, 1, 1, 0, data_of<std::int64_t>(call.outputs[0]));
}

}  // namespace

std::vector<Operation> updates() {
  return {{"optimizer_step", supports_optimizer_step, run_optimizer_step},
          {"dropout_mask", supports_dropout_mask, run_dropout_mask},
          {"count_up", [](const CourseCall&) -> const char* { return nullptr; }, run_count_up}};
}

}  // namespace own
