// What attention in f32 (transformer.cpp) and in bf16 (attention_bf16.cpp) share: tensors as 7.4
// and 7.5 take them.
//
//   attention            (q, k, v) -> out, lse        q, out (B, H, Tq, D)    k, v (B, H, Tk, D)
//   attention_backward   (grad_out, q, k, v, out, lse) -> grad_q, grad_k, grad_v
#pragma once

#include "stage7_transformer/04_attention/views.h"
#include "stage8_framework/02_backends/own/own.h"

namespace own {

inline bool is_backward(const CourseCall& call) { return call.input_count > 3; }

template <class T = float>
attention::ConstViewOf<T> view_of(const CourseTensor& t) {
  return {data_of<T>(t), static_cast<size_t>(t.stride[0]), static_cast<size_t>(t.stride[1]),
          static_cast<size_t>(t.stride[2])};
}
template <class T = float>
attention::ViewOf<T> output_of(const CourseTensor& t) {
  return {data_of<T>(t), static_cast<size_t>(t.stride[0]), static_cast<size_t>(t.stride[1]),
          static_cast<size_t>(t.stride[2])};
}
inline attention::Problem problem_of(const CourseCall& call) {
  const CourseTensor* const q = call.inputs + (is_backward(call) ? 1 : 0);
  const CourseTensor& k = q[1];
  return {extent(*q, 0),
          extent(*q, 1),
          extent(*q, 2),
          extent(k, 2),
          extent(*q, 3),
          call.attributes[0] != 0,
          static_cast<float>(call.attributes[1])};
}

// Whether a tensor of rank 4 is one that a View can describe, and another one has no gaps.
inline const char* unless_viewable(const CourseTensor& t) {
  if (t.rank != 4) return is_contiguous(t) ? nullptr : "lse must be row-major without gaps";
  if (extent(t, 3) != 1 && t.stride[3] != 1) return "the numbers of a head must be neighbours";
  for (int axis = 0; axis < 3; ++axis)
    if (t.stride[axis] < 0) return "strides must not be negative";
  return nullptr;
}
inline const char* unless_viewable(const CourseCall& call) {
  for (int i = 0; i < call.input_count; ++i)
    if (const char* reason = unless_viewable(call.inputs[i])) return reason;
  for (int i = 0; i < call.output_count; ++i)
    if (const char* reason = unless_viewable(call.outputs[i])) return reason;
  return nullptr;
}

// ---- Of bf16: attention_bf16.cpp, for either call ----------------------------------------------

inline bool is_in_bf16(const CourseCall& call) { return is_of(call.inputs[0], Dtype::bf16); }
const char* supports_bf16_attention(const CourseCall& call);
size_t workspace_of_bf16_attention(const CourseCall& call);
void run_bf16_attention(const CourseCall& call, hipStream_t stream);

}  // namespace own
