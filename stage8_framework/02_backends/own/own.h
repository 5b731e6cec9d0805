// What the plug-in `own` is made of: the launchers of stages 1 to 7 under the names of kOps. Each
// file of this folder has the rows of a few operations; plugin.cpp puts them into one table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/gpu_runtime.h"
#include "stage8_framework/02_backends/c_tensor.h"

namespace own {

using namespace framework;

struct Operation {
  const char* name;  // in kOps
  // nullptr where run() takes the call, else why not. All outputs are row-major without gaps,
  // unless writes_any_strides: plugin.cpp has asked.
  const char* (*supports)(const CourseCall& call);
  // Queues the call. Throws gpu::Error or std::invalid_argument.
  void (*run)(const CourseCall& call, hipStream_t stream);
  // The names of the kernels that call.kernel counts from 1 on, nullptr behind the last one; kernel
  // 0 is the best. nullptr where there is but one.
  const char* (*kernel)(std::int32_t number) = nullptr;
  // How many bytes of call.workspace run() uses at most, from shapes, strides, types and attributes
  // alone: a plan is made once, and tensors may lie elsewhere later. nullptr: none.
  size_t (*workspace)(const CourseCall& call) = nullptr;
  bool writes_any_strides = false;
};

std::vector<Operation> elementwise();
std::vector<Operation> moves();
std::vector<Operation> gathers();
std::vector<Operation> reductions();
std::vector<Operation> products();
std::vector<Operation> row_operations();
std::vector<Operation> losses();
std::vector<Operation> images();
std::vector<Operation> transformer();
std::vector<Operation> updates();

// ---- Fused operations, of 8.6: 06_fusion/own/
// ----------------------------------------------------

class Fused {
 public:
  virtual ~Fused() = default;
  // Queues it. Throws gpu::Error.
  virtual void run(const CourseCall& call, hipStream_t stream) const = 0;
  virtual size_t workspace() const = 0;
  virtual const char* note() const = 0;  // what runs it, as CourseBackend::fused_note says
};
using FusedPrograms = std::vector<std::unique_ptr<Fused>>;
// Throws std::invalid_argument where the program or an input is not supported, std::runtime_error
// where it shall be compiled and can't be.
std::unique_ptr<Fused> fuse(const CourseProgram& program, const CourseTensor* inputs,
                            std::int32_t kernel);
// All of them, compiled together. Empty where they shall be interpreted; throws where one of
// them can't be compiled: then each of them has its own answer.
FusedPrograms fuse_together(const CourseProgram* programs, const CourseTensor* const* inputs,
                            size_t count, std::int32_t kernel);

// ---- What these files share ---------------------------------------------------------------------

// The names of a step's versions: name_of<gemm::kVersions>.
template <const auto& kVersions>
const char* name_of(std::int32_t number) {
  constexpr auto kCount = static_cast<std::int32_t>(sizeof kVersions / sizeof kVersions[0]);
  return number >= 1 && number <= kCount ? kVersions[number - 1].name : nullptr;
}

// nullptr, or why one of the inputs is none that the steps take.
inline const char* unless_f32(const CourseCall& call) {
  for (int i = 0; i < call.input_count; ++i)
    if (!is_absent(call.inputs[i]) && !is_of(call.inputs[i], Dtype::f32))
      return "only f32 is supported";
  return nullptr;
}
inline const char* unless_contiguous(const CourseCall& call) {
  for (int i = 0; i < call.input_count; ++i)
    if (!is_contiguous(call.inputs[i])) return "inputs must be row-major without gaps";
  return nullptr;
}
inline const char* unless_plain(const CourseCall& call) {
  const char* reason = unless_f32(call);
  return reason != nullptr ? reason : unless_contiguous(call);
}

// moves.hip: y[n] = value, for `elements` elements of a type.
void launch_fill(void* y, Dtype type, size_t elements, double value, hipStream_t stream);

// A whole number that is no negative one.
inline size_t count_of(const CourseCall& call, int attribute) {
  return static_cast<size_t>(call.attributes[attribute]);
}

}  // namespace own
