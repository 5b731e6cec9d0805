// A program that is ready to run on this build's device: what versions/ makes of it. This is the
// side of the plug-in `own`; a graph reaches it by the plug-in's table.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "common/gpu_runtime.h"
#include "stage8_framework/06_fusion/program.h"

namespace fusion {

// Where the inputs and outputs of a program begin: element (0, ..., 0), of f32 or bool as the
// program says. Outputs are row-major without gaps. They overlap nothing.
struct FusedArrays {
  const void* in[kMaxInputs] = {};
  void* out[kMaxOutputs] = {};
  void* workspace = nullptr;  // workspace_bytes() bytes, aligned to 128
};

class ReadyWork {
 public:
  virtual ~ReadyWork() = default;
  // Queues it. Throws gpu::Error.
  virtual void run(const FusedArrays& arrays, hipStream_t stream) const = 0;
  virtual size_t workspace_bytes() const { return 0; }
  virtual std::string note() const = 0;  // "interpreted", "compiled in 12.3 ms", "compiled, kept"
};

// The programs have no fault; one of no elements is run, too. Errors: std::invalid_argument where
// it can't be done by anybody: "2^31 elements or more must lie without gaps".
std::unique_ptr<ReadyWork> interpreted(const Program& program);  // versions/interpreted.hip
// std::runtime_error where there is no compiler, or it fails: one line that says why.
std::unique_ptr<ReadyWork> compiled(const Program& program);  // versions/compiled.cpp
// The compiled one where that can be done; else the interpreted one, whose note says why.
std::unique_ptr<ReadyWork> best(const Program& program);

}  // namespace fusion
