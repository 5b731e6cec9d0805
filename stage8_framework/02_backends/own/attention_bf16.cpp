// Attention of bf16, by the versions of 7.4 and 7.5 for matrix units. Sums and lse are f32.
#include "common/program.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/bf16.h"
#include "stage7_transformer/04_attention/problem.h"
#include "stage7_transformer/05_attention_backward/attention_backward.h"
#include "stage8_framework/02_backends/own/attention.h"

namespace own {
namespace {

using gpu::bfloat16;

// Few queries that see the same keys, and many of these: the keys in slices.
bool has_slices(const attention::Problem& p) {
  constexpr size_t kManyKeys = 1024;
  return p.Tq <= attention::kFewQueries && p.Tk >= kManyKeys && (p.Tq == 1 || !p.causal);
}

// The TMA reads no row twice.
bool suits_wgmma(const CourseCall& call, const attention::Problem& p) {
  for (int i = 0; i < call.input_count; ++i)
    for (int axis = 0; axis < 3; ++axis)
      if (call.inputs[i].stride[axis] == 0) return false;
  return attention::suits_wgmma(p);
}

// What a forward call takes: the version of step 7.4, and the memory that this works in.
attention::LaunchOf<bfloat16> version_of(const CourseCall& call, const attention::Problem& p) {
  if (has_slices(p)) return {attention::launch_split_keys_mma, attention::memory_of_split_keys_mma};
  if (suits_wgmma(call, p))
    return {attention::launch_flash_persistent, attention::memory_of_flash_persistent};
  return {attention::launch_flash_bf16};
}

void forward(const CourseCall& call, hipStream_t stream) {
  const auto in = [&](int i) { return view_of<bfloat16>(call.inputs[i]); };
  const attention::Problem p = problem_of(call);
  const attention::Bf16View out = output_of<bfloat16>(call.outputs[0]);
  float* const lse = floats(call.outputs[1]);
  version_of(call, p).run(out, lse, in(0), in(1), in(2), p, static_cast<float*>(call.workspace),
                          stream);
}

void backward(const CourseCall& call, hipStream_t stream) {
  const auto in = [&](int i) { return view_of<bfloat16>(call.inputs[i]); };
  const auto out = [&](int i) { return output_of<bfloat16>(call.outputs[i]); };
  const attention::Problem p = problem_of(call);
  const auto launch = suits_wgmma(call, p) ? attention_backward::launch_flash_wgmma
                                           : attention_backward::launch_flash_bf16;
  launch(out(0), out(1), out(2), in(0), in(4), floats(call.inputs[5]), in(1), in(2), in(3), p,
         static_cast<float*>(call.workspace), stream);
}

}  // namespace

const char* supports_bf16_attention(const CourseCall& call) {
  static const bool has_sm80 = missing(gemm_mixed::kNeedsOfMmaSync).empty();
  if (call.kernel > 0) return "the kernels that have names take f32";
  if (!has_sm80) return "attention of bf16 needs sm_80";
  if (const char* reason = unless_viewable(call)) return reason;
  const size_t D = problem_of(call).D;
  if (is_backward(call))
    return D >= 1 && D <= attention_backward::kMostBf16Depth
               ? nullptr
               : "gradients of bf16 are of heads of 1 to 128 numbers";
  return D >= 1 && D <= attention::kMostBf16Depth ? nullptr : "heads have 1 to 256 numbers";
}

size_t workspace_of_bf16_attention(const CourseCall& call) {
  const attention::Problem p = problem_of(call);
  const size_t memory = !is_backward(call)     ? version_of(call, p).memory(p)
                        : suits_wgmma(call, p) ? attention_backward::memory_of_flash_wgmma(p)
                                               : attention_backward::memory_of_flash_bf16(p);
  return memory * sizeof(float);
}

void run_bf16_attention(const CourseCall& call, hipStream_t stream) {
  return is_backward(call) ? backward(call, stream) : forward(call, stream);
}

}  // namespace own
