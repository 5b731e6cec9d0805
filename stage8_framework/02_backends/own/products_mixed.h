// matmul and linear of two factors of bf16 or f16, which products.hip hands on.
#pragma once

#include "stage8_framework/02_backends/own/own.h"

namespace own {

inline bool is_mixed(const CourseCall& call) {
  return is_of(call.inputs[0], Dtype::bf16) || is_of(call.inputs[0], Dtype::f16);
}

// What the attribute of linear counts: the function behind the sum.
enum Activation { none, relu, sigmoid, tanh, gelu };

const char* supports_mixed_matmul(const CourseCall& call);
size_t workspace_of_mixed_matmul(const CourseCall& call);
void run_mixed_matmul(const CourseCall& call, hipStream_t stream);

const char* supports_mixed_linear(const CourseCall& call);
void run_mixed_linear(const CourseCall& call, hipStream_t stream);

}  // namespace own
