// The parts of a transformer: embedding by 7.1, layer norm by 7.2 and 7.3, attention by 7.4
// and 7.5.
#include "stage7_transformer/01_embedding/embedding.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/03_layernorm_backward/layernorm_backward.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/05_attention_backward/attention_backward.h"
#include "stage8_framework/02_backends/own/attention.h"
#include "stage8_framework/02_backends/own/detail/kept.h"
#include "stage8_framework/02_backends/own/own.h"

namespace own {
namespace {

// ---- Embedding: table (V, C), ids (...) -> y (..., C) -------------------------------------------

// 7.1 adds the row of a position to that of a token. Where that is -0, nothing is added: -0 + 0 is
// 0, and -0 + -0 is -0. Each id is a sequence of one position here.
embedding::Shape shape_of(const CourseTensor& ids, const CourseTensor& table) {
  return {elements(ids), 1, extent(table, 1), extent(table, 0), 1};
}
// The way back sums over the sequences of a position. That sum is not wanted, and it is long where
// the sequences are many: the last axis of the ids counts as the positions.
embedding::Shape shape_backward(const CourseTensor& ids, const CourseTensor& table) {
  embedding::Shape shape = shape_of(ids, table);
  const size_t positions = ids.rank == 0 ? 1 : extent(ids, -1);
  if (positions > 0) shape.B /= positions, shape.T = shape.T_max = positions;
  return shape;
}
const char* supports_embedding(const CourseCall& call) {
  if (!is_of(call.outputs[0], Dtype::f32)) return "only f32 is supported";
  if (elements(call.inputs[1]) >= embedding::kMost) return "2^32 ids or more";
  return unless_contiguous(call);
}
// That row. A table with more columns has one in the workspace, which each call fills.
constexpr size_t kKeptColumns = 1024;
struct NoPositions {};
size_t workspace_of_embedding(const CourseCall& call) {
  const size_t C = columns(call.outputs[0]);
  return C <= kKeptColumns ? 0 : C * sizeof(float);
}
const float* no_positions(const CourseCall& call, hipStream_t stream) {
  const size_t C = columns(call.outputs[0]);
  if (C <= kKeptColumns) return kept<NoPositions>(-0.0f, kKeptColumns);
  launch_fill(call.workspace, Dtype::f32, C, -0.0, stream);
  return static_cast<const float*>(call.workspace);
}
void run_embedding(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &table = call.inputs[0], &ids = call.inputs[1], &y = call.outputs[0];
  if (elements(y) == 0) return;
  const embedding::Shape shape = shape_of(ids, table);
  const float* const zeros = no_positions(call, stream);
  if (call.kernel == 0)
    return embedding::forward(floats(y), data_of<std::int32_t>(ids), floats(table), zeros, shape,
                              stream);
  embedding::kVersions[call.kernel - 1].launch.run(
      floats(y), {data_of<std::int32_t>(ids), floats(table), zeros, shape, nullptr}, stream);
}
// What 7.1 works in, and the gradients of positions, which nobody reads.
struct MemoryBackward {
  gpu::DeviceArray<float> grad_position;
  embedding::Workspace workspace;

  MemoryBackward(const embedding::Shape& s, gpu::DeviceParts& parts)
      : grad_position(parts.take<float>(s.T_max * s.C)), workspace(s, parts) {}
};
size_t workspace_of_embedding_backward(const CourseCall& call) {
  if (elements(call.outputs[0]) == 0) return 0;
  gpu::DeviceParts counted;
  MemoryBackward(shape_backward(call.inputs[1], call.outputs[0]), counted);
  return counted.bytes();
}
void run_embedding_backward(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &grad_y = call.inputs[0], &ids = call.inputs[1];
  const CourseTensor& grad_table = call.outputs[0];
  if (elements(grad_table) == 0) return;
  const embedding::Shape s = shape_backward(ids, grad_table);
  gpu::DeviceParts parts(call.workspace);
  MemoryBackward memory(s, parts);
  embedding::backward(floats(grad_table), memory.grad_position.data(), floats(grad_y),
                      data_of<std::int32_t>(ids), s, memory.workspace, stream);
}

// ---- Layer norm: x (..., C), gain, bias (C) -> y, mean, rstd ------------------------------------

const char* supports_layernorm(const CourseCall& call) {
  if (columns(call.inputs[0]) == 0) return "rows of no elements";
  return unless_plain(call);
}
void run_layernorm(const CourseCall& call, hipStream_t stream) {
  const CourseTensor& x = call.inputs[0];
  const layernorm::Pass pass{floats(call.outputs[0]),
                             floats(call.outputs[1]),
                             floats(call.outputs[2]),
                             floats(call.inputs[1]),
                             floats(call.inputs[2]),
                             rows(x),
                             columns(x),
                             static_cast<float>(call.attributes[0])};
  layernorm::check(pass.cols, pass.eps);
  if (call.kernel > 0) return layernorm::kVersions[call.kernel - 1].launch(pass, floats(x), stream);
  layernorm::forward(pass.y, pass.mean, pass.rstd, floats(x), pass.gain, pass.bias, pass.rows,
                     pass.cols, pass.eps, stream);
}
// (x, residual, gain, bias) -> y, mean, rstd, sum
void run_add_layernorm(const CourseCall& call, hipStream_t stream) {
  const auto in = [&](int i) { return floats(call.inputs[i]); };
  const auto out = [&](int i) { return floats(call.outputs[i]); };
  layernorm::forward_residual(out(3), out(0), out(1), out(2), in(0), in(1), in(2), in(3),
                              rows(call.inputs[0]), columns(call.inputs[0]),
                              static_cast<float>(call.attributes[0]), stream);
}
// (grad_y, x, gain, mean, rstd, grad_residual) -> grad_x, grad_gain, grad_bias
const char* supports_layernorm_backward(const CourseCall& call) {
  if (columns(call.inputs[1]) == 0) return "rows of no elements";
  return unless_plain(call);
}
size_t workspace_of_layernorm_backward(const CourseCall& call) {
  gpu::DeviceParts counted;
  layernorm_backward::Workspace(rows(call.inputs[1]), columns(call.inputs[1]), &counted);
  return counted.bytes();
}
void run_layernorm_backward(const CourseCall& call, hipStream_t stream) {
  const auto in = [&](int i) { return floats(call.inputs[i]); };
  const size_t count = rows(call.inputs[1]), cols = columns(call.inputs[1]);
  gpu::DeviceParts parts(call.workspace);
  layernorm_backward::Workspace workspace(count, cols, &parts);
  float* const grad_gain = floats(call.outputs[1]);
  float* const grad_bias = floats(call.outputs[2]);
  const layernorm_backward::Pass pass{
      floats(call.outputs[0]), in(0), in(1), in(2), in(3), in(4), in(5), count, cols};
  if (call.kernel > 0)
    return layernorm_backward::kVersions[call.kernel - 1].launch(grad_gain, grad_bias, pass,
                                                                 workspace, stream);
  layernorm_backward::backward(pass.grad_x, grad_gain, grad_bias, in(0), in(1), in(2), in(3), in(4),
                               in(5), count, cols, workspace, stream);
}

// ---- Attention: see attention.h ----------------------------------------------------------------

const char* supports_attention(const CourseCall& call) {
  if (is_in_bf16(call)) return supports_bf16_attention(call);
  if (const char* reason = unless_f32(call)) return reason;
  if (const char* reason = unless_viewable(call)) return reason;
  const size_t D = extent(call.outputs[0], 3);
  return D >= 1 && D <= attention::kMostDepth ? nullptr : "heads have 1 to 256 numbers";
}

size_t workspace_of_attention(const CourseCall& call) {
  if (is_in_bf16(call)) return workspace_of_bf16_attention(call);
  if (call.kernel == 0) return 0;
  return attention::kVersions[call.kernel - 1].launch.memory(problem_of(call)) * sizeof(float);
}
void run_attention(const CourseCall& call, hipStream_t stream) {
  if (is_in_bf16(call)) return run_bf16_attention(call, stream);
  const CourseTensor &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
  const attention::Problem p = problem_of(call);
  const attention::View out = output_of(call.outputs[0]);
  float* const lse = floats(call.outputs[1]);
  if (call.kernel == 0)
    return attention::forward(out, lse, view_of(q), view_of(k), view_of(v), p, stream);
  attention::kVersions[call.kernel - 1].launch.run(out, lse, view_of(q), view_of(k), view_of(v), p,
                                                   static_cast<float*>(call.workspace), stream);
}

// (grad_out, q, k, v, out, lse) -> grad_q, grad_k, grad_v; the last version is the best.
const auto& backward_version(const CourseCall& call) {
  constexpr auto kLast =
      sizeof attention_backward::kVersions / sizeof attention_backward::kVersions[0] - 1;
  return attention_backward::kVersions[call.kernel > 0 ? static_cast<size_t>(call.kernel) - 1
                                                       : kLast];
}
size_t workspace_of_attention_backward(const CourseCall& call) {
  if (is_in_bf16(call)) return workspace_of_bf16_attention(call);
  return backward_version(call).launch.memory(problem_of(call)) * sizeof(float);
}
void run_attention_backward(const CourseCall& call, hipStream_t stream) {
  if (is_in_bf16(call)) return run_bf16_attention(call, stream);
  const auto in = [&](int i) { return view_of(call.inputs[i]); };
  backward_version(call).launch.run(output_of(call.outputs[0]), output_of(call.outputs[1]),
                                    output_of(call.outputs[2]), in(0), in(4),
                                    floats(call.inputs[5]), in(1), in(2), in(3), problem_of(call),
                                    static_cast<float*>(call.workspace), stream);
}

}  // namespace

std::vector<Operation> transformer() {
  return {{"embedding", supports_embedding, run_embedding, name_of<embedding::kVersions>,
           workspace_of_embedding},
          {"embedding_backward", supports_embedding, run_embedding_backward, nullptr,
           workspace_of_embedding_backward},
          {"layernorm", supports_layernorm, run_layernorm, name_of<layernorm::kVersions>},
          {"add_layernorm", supports_layernorm, run_add_layernorm},
          {"layernorm_backward", supports_layernorm_backward, run_layernorm_backward,
           name_of<layernorm_backward::kVersions>, workspace_of_layernorm_backward},
          {"attention", supports_attention, run_attention, name_of<attention::kVersions>,
           workspace_of_attention, true},
          {"attention_backward", supports_attention, run_attention_backward,
           name_of<attention_backward::kVersions>, workspace_of_attention_backward, true}};
}

}  // namespace own
