// interpreted: a kernel goes through the program, a step at a time, for many elements at once.
#include <math.h>  // exp(float) and the like outside of std, which <cmath> does not promise

#include <algorithm>
#include <stdexcept>

#include "common/gpu.h"
#include "stage8_framework/02_backends/own/reductions.h"
#include "stage8_framework/06_fusion/detail/bytecode.h"
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

// How input `input` of the domain is walked.
Access access_of(const own::Axes<kMaxInputs>& axes, int input) {
  bool is_one = true, is_flat = true;
  std::int64_t flat = 1;
  for (int axis = axes.rank - 1; axis >= 0; flat *= axes.extent[axis--]) {
    is_one = is_one && axes.stride[input][axis] == 0;
    is_flat = is_flat && axes.stride[input][axis] == flat;
  }
  if (is_one) return Access::one;
  if (is_flat) return Access::flat;
  return axes.extent[axes.rank - 1] % 4 == 0 ? Access::rows : Access::any;
}

// The inputs beside the domain; those that a program has not are one element.
own::Axes<kMaxInputs> axes_of(const Program& program) {
  CourseTensor inputs[kMaxInputs] = {};
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const Layout& layout = program.inputs[i].layout;
    inputs[i].extent = layout.shape.begin(), inputs[i].stride = layout.strides.begin();
    inputs[i].rank = static_cast<std::int32_t>(layout.shape.rank());
  }
  CourseTensor domain = {};
  domain.extent = program.domain.begin();
  domain.rank = static_cast<std::int32_t>(program.domain.rank());
  return {inputs, domain};
}

own::ReductionTask task_of(const Program& program) {
  const Layout layout = Layout::contiguous(program.domain);
  CourseTensor domain = {};
  domain.extent = layout.shape.begin(), domain.stride = layout.strides.begin();
  domain.rank = static_cast<std::int32_t>(layout.shape.rank());
  return own::task_of(domain, program.axes);
}

bool is_at(const void* pointer, size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

class Interpreted : public ReadyWork {
 public:
  explicit Interpreted(const Program& program)
      : outputs_(program.outputs.size()), reduction_(program.reduction) {
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
      source.access = access_of(axes, static_cast<int>(i));
      source.step = axes.rank == 0 ? 0 : axes.stride[i][axes.rank - 1];
      source.is_aligned = source.step == 1;
      for (int axis = 0; axis + 1 < axes.rank && source.access == Access::rows; ++axis)
        source.is_aligned = source.is_aligned && axes.stride[i][axis] % 4 == 0;
      const bool is_near = source.access == Access::one || source.access == Access::flat;
      if (code_.elements >= size_t{1} << 31 && !is_near)
        throw std::invalid_argument("fused: 2^31 elements or more must lie without gaps");
    }
    if (reduction_ == Reduction::none) return;
    task_ = task_of(program);
    if (!task_.is_in_place())
      throw std::invalid_argument("fused: a reduction takes the first axes or the last ones");
    if (task_.results * task_.parts.count >= size_t{1} << 31)
      throw std::invalid_argument("fused: 2^31 results or more");
  }

  void run(const FusedArrays& arrays, hipStream_t stream) const override {
    const bool is_reduced = reduction_ != Reduction::none;
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
          is_reduced && i + 1 == outputs_ ? workspace : static_cast<float*>(arrays.out[i]);
      code.are_outputs_wide = code.are_outputs_wide && is_at(code.out[i], 16);
    }
    if (code.elements > 0)
      LAUNCH_ON(stream, interpret,
                static_cast<unsigned>(gpu::ceil_div(code.elements, kThreads * kOfThread)), kThreads,
                slots_ * kSlotBytes, code);
    if (is_reduced)
      own::launch_reduction(static_cast<own::Reduction>(static_cast<int>(reduction_) - 1), task_,
                            static_cast<float*>(arrays.out[outputs_ - 1]), workspace,
                            workspace + code.elements, stream);
  }
  size_t workspace_bytes() const override {
    return reduction_ == Reduction::none ? 0 : code_.elements * sizeof(float) + task_.part_bytes();
  }
  std::string note() const override { return "interpreted"; }

 private:
  Bytecode code_ = {};
  size_t outputs_, slots_ = 0;
  Reduction reduction_;
  own::ReductionTask task_;
};

}  // namespace

std::unique_ptr<ReadyWork> interpreted(const Program& program) {
  return std::make_unique<Interpreted>(program);
}

}  // namespace fusion
