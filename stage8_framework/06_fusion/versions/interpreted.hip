// interpreted: a kernel goes through the program, a step at a time, for many elements at once.
#include <math.h>  // exp(float) and the like outside of std, which <cmath> does not promise

#include <algorithm>
#include <stdexcept>

#include "common/gpu.h"
#include "stage8_framework/06_fusion/detail/bytecode.h"
#include "stage8_framework/06_fusion/walks.h"
#include "stage8_framework/06_fusion/work.h"

#define COURSE_FUNCTION static __device__ inline
#include "stage8_framework/02_backends/formulas.h"

namespace fusion {

// out[i] = the program of in[i]...    any number of elements; the inputs are broadcast to them
// Fixes : each operation by itself reads its inputs from memory and writes its value there.
// Idea  : the program is bytecode, and a kernel's argument: it lies in constant memory, where all
//         threads read the same word. The value before stays in registers, the others in slots.
// Thread: kGroups groups of four neighbours; all threads are at the same step.
// Costs : inputs and outputs once. A step is decoded once for the kOfThread elements of a thread,
//         and a value that waits takes 4 bytes of shared memory for each of them.
static __global__ void __launch_bounds__(kThreads) interpret(const Bytecode code) {
  DYNAMIC_SHARED(float4, slots);
  const Self self = self_of(code, slots);
  Values x{};
  for (int i = 0; i < code.length; ++i) {
    const Step& step = code.steps[i];
    // exercise: the first operand into x; a case for a load and for each formula; then where x
    // goes: to a slot, to outputs (about 17 lines)
    if (step.from[0].slot != kBefore) fetch(x, self, step.from[0]);
    switch (step.code) {
      case static_cast<int>(Formula::number):
        break;
      default:  // kLoad: there are no others
        load_input(x, code, self, step.input);
        break;
#define FORMULA(name, inputs, expression)                                                    \
  case static_cast<int>(Formula::name):                                                      \
    apply<inputs>(x, step, self,                                                             \
                  [](float a, [[maybe_unused]] float b, [[maybe_unused]] float c) -> float { \
                    return static_cast<float>(expression);                                   \
                  });                                                                        \
    break;
#include "stage8_framework/02_backends/formula_list.h"
    }
    if (step.to != kNowhere) keep(self, step.to, x);
    if (step.outputs != 0) store(code, self, step.outputs, x);
    // end exercise
  }
}

namespace {

// How the kernel reads an input whose rows have `extent` elements.
Access access_of(const Way& way, std::int64_t extent) {
  if (way.is_one) return Access::one;
  if (way.is_flat) return Access::flat;
  return extent % 4 == 0 ? Access::rows : Access::any;
}

bool is_at(const void* pointer, size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

class Interpreted : public ReadyWork {
 public:
  explicit Interpreted(const Program& program)
      : outputs_(program.outputs.size()), is_reduced_(program.reduction != Reduction::none) {
    const own::Axes<kMaxInputs> axes = axes_of(program);
    const Schedule schedule = schedule_of(program);
    slots_ = static_cast<size_t>(schedule.slots);
    std::copy(schedule.steps.begin(), schedule.steps.end(), code_.steps);
    code_.length = static_cast<int>(schedule.steps.size());
    code_.elements = static_cast<size_t>(program.elements());
    code_.places = own::Positions<kMaxInputs>(axes);
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      Source& source = code_.in[i];
      source.is_boolean = program.inputs[i].dtype == Dtype::boolean;
      const Way way = way_of(axes, i);
      source.access = access_of(way, axes.rank == 0 ? 1 : axes.extent[axes.rank - 1]);
      source.step = way.step, source.is_aligned = way.is_wide;
      require_places(program, way.is_one || way.is_flat);
    }
    if (!is_reduced_) return;
    task_ = reduction_task_of(program), reduction_ = reduction_of(program);
  }

  void run(const FusedArrays& arrays, hipStream_t stream) const override {
    auto* const workspace = static_cast<float*>(arrays.workspace);
    Bytecode code = code_;
    code.are_outputs_wide = true;
    for (size_t i = 0; i < kMaxInputs; ++i) {
      Source& source = code.in[i];
      source.data = arrays.in[i];
      source.is_aligned = source.is_aligned && is_at(source.data, source.is_boolean ? 4 : 16);
      if (source.access == Access::flat && source.is_aligned && !source.is_boolean)
        source.access = Access::wide;
    }
    for (size_t i = 0; i < outputs_; ++i) {
      code.out[i] =
          is_reduced_ && i + 1 == outputs_ ? workspace : static_cast<float*>(arrays.out[i]);
      code.are_outputs_wide = code.are_outputs_wide && is_at(code.out[i], 16);
    }
    if (code.elements > 0)
      LAUNCH_ON(stream, interpret,
                static_cast<unsigned>(gpu::ceil_div(code.elements, kThreads * kOfThread)), kThreads,
                slots_ * kSlotBytes, code);
    if (is_reduced_)
      own::launch_reduction(reduction_, task_, static_cast<float*>(arrays.out[outputs_ - 1]),
                            workspace, workspace + code.elements, stream);
  }
  size_t workspace_bytes() const override {
    return !is_reduced_ ? 0 : code_.elements * sizeof(float) + task_.part_bytes();
  }
  std::string note() const override { return "interpreted"; }

 private:
  Bytecode code_ = {};
  size_t outputs_, slots_ = 0;
  bool is_reduced_;
  own::Reduction reduction_{};
  own::ReductionTask task_;
};

}  // namespace

std::unique_ptr<ReadyWork> interpreted(const Program& program) {
  return std::make_unique<Interpreted>(program);
}

}  // namespace fusion
