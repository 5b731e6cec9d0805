// A Call as the table of a plug-in takes it: the same numbers in structs of plain C.
//
//   Call    inputs[0]: Tensor { storage, layout, dtype }      CCall   inputs[0]: CourseTensor
//              layout.shape    | 2 3 |  <----------------------------- extent
//              layout.strides  | 3 1 |  <----------------------------- stride
//
// Nothing is allocated, and no number of a layout is copied.
#pragma once

#include "stage8_framework/02_backends/abi.h"
#include "stage8_framework/02_backends/ops.h"

namespace framework {

struct CCall {
  CourseCall call;
  CourseTensor tensors[kMaxInputs + kMaxOutputs];  // the inputs, then the outputs
};

// Fills `to` from `call`, whose outputs are allocated; an input that is undefined is absent. The
// operation and the kernel are 0 and the workspace is null: the caller knows them. `to` points into
// itself and into `call`: both must stay where they are.
void to_c(const Call& call, CCall* to);  // versions/table.cpp

}  // namespace framework
