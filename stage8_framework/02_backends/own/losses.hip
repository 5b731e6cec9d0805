// Losses, by 3.3.
#include "stage1_vector/01_vector_add/detail/operations.h"
#include "stage3_ml_ops/02_softmax/detail/online.h"
#include "stage3_ml_ops/03_losses/apart.h"
#include "stage3_ml_ops/03_losses/losses.h"
#include "stage8_framework/02_backends/own/detail/elementwise.h"
#include "stage8_framework/02_backends/own/detail/kept.h"

namespace own {
namespace {

using vector_add::Multiply;

// Where the parts of a workspace begin, in bytes: for `rows` rows of a cross-entropy, and sums of
// `blocks` blocks.
struct Sections {
  size_t counted = 0, partials = 16, losses, wholes, end;

  Sections(size_t rows, size_t blocks) {
    losses = partials + 2 * blocks * sizeof(float);
    wholes = (losses + rows * sizeof(float) + 15) / 16 * 16;
    end = wholes + rows * sizeof(softmax::MaxSum);
  }
  static Sections of_rows(size_t rows) { return {rows, losses::mean_blocks(rows)}; }
  static Sections of_elements(size_t n) { return {0, losses::scalar_blocks(n)}; }
};
// Where 3.3 leaves the number of a row whose label is none. Nobody reads it here.
struct BadLabel {};
unsigned long long* bad_label() { return kept<BadLabel>(~0ull); }
losses::Workspace workspace_of(const CourseCall& call, size_t rows, const Sections& at) {
  char* const memory = static_cast<char*>(call.workspace);
  return {rows,
          reinterpret_cast<float*>(memory + at.losses),
          reinterpret_cast<softmax::MaxSum*>(memory + at.wholes),
          reinterpret_cast<float*>(memory + at.partials),
          reinterpret_cast<unsigned*>(memory + at.counted),
          bad_label()};
}

// ---- squared_error(p, t), and squared_error_backward(grad, p, t) --------------------------------

size_t workspace_of_squared_error(const CourseCall& call) {
  return Sections::of_elements(elements(call.inputs[0])).end;
}
void run_squared_error(const CourseCall& call, hipStream_t stream) {
  const size_t n = elements(call.inputs[0]);
  losses::launch_squared_error_loss(floats(call.outputs[0]), floats(call.inputs[0]),
                                    floats(call.inputs[1]), n,
                                    workspace_of(call, 0, Sections::of_elements(n)), stream);
}

struct SquaredErrorSlope {
  float two_over_n;
  __device__ float operator()(float grad, float p, float t) const {
    return grad * (two_over_n * (p - t));
  }
};
const char* supports_squared_error_backward(const CourseCall& call) {
  const char* reason = unless_f32(call);
  return reason != nullptr ? reason : unless_walkable<3>(call);
}
void run_squared_error_backward(const CourseCall& call, hipStream_t stream) {
  const auto n = static_cast<double>(elements(call.outputs[0]));
  run_elementwise<float, float, float, float>(call, stream,
                                              SquaredErrorSlope{static_cast<float>(2 / n)});
}

// ---- cross_entropy(logits, labels), and cross_entropy_backward(grad, logits, labels) ------------

constexpr long long kIgnored = -1;

const char* supports_targets(const CourseCall& call, int logits) {
  if (!is_of(call.inputs[logits], Dtype::f32)) return "only f32 is supported";
  if (columns(call.inputs[logits]) == 0) return "there are no classes";
  return unless_contiguous(call);
}
losses::Targets targets_of(const CourseTensor& logits, const CourseTensor& labels) {
  return {data_of<int>(labels), rows(logits), columns(logits), kIgnored};
}

const char* supports_cross_entropy(const CourseCall& call) { return supports_targets(call, 0); }
size_t workspace_of_cross_entropy(const CourseCall& call) {
  return Sections::of_rows(rows(call.inputs[0])).end;
}
void run_cross_entropy(const CourseCall& call, hipStream_t stream) {
  const losses::Targets targets = targets_of(call.inputs[0], call.inputs[1]);
  const losses::Workspace workspace =
      workspace_of(call, targets.rows, Sections::of_rows(targets.rows));
  losses::launch_loss_apart(floats(call.outputs[0]), floats(call.inputs[0]), targets, workspace,
                            stream);
}

const char* supports_cross_entropy_backward(const CourseCall& call) {
  return supports_targets(call, 1);
}
size_t workspace_of_cross_entropy_backward(const CourseCall& call) {
  return Sections::of_rows(rows(call.inputs[1])).end + sizeof(float);
}
// A version of 3.3 has the loss, too, and the gradient for a grad of 1: it is multiplied by grad
// behind it.
void run_cross_entropy_backward(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &logits = call.inputs[1], &grad_x = call.outputs[0];
  const size_t n = elements(grad_x);
  if (n == 0) return;
  const losses::Targets targets = targets_of(logits, call.inputs[2]);
  const Sections sections = Sections::of_rows(targets.rows);
  const losses::Workspace workspace = workspace_of(call, targets.rows, sections);
  if (call.kernel == 0)
    return losses::launch_gradient_apart(floats(grad_x), floats(call.inputs[0]), floats(logits),
                                         targets, workspace, stream);
  auto* const loss = reinterpret_cast<float*>(static_cast<char*>(call.workspace) + sections.end);
  losses::kVersions[call.kernel - 1].launch.run(loss, floats(grad_x), floats(logits), targets,
                                                workspace, stream);
  LAUNCH_ON(stream, (elementwise_flat<Multiply, float, float, float>),
            static_cast<unsigned>(gpu::ceil_div(n, kAtOnce * kBlock)), kBlock, 0, Multiply{},
            floats(grad_x), n, Flat<float>{floats(call.inputs[0]), 0},
            Flat<float>{floats(grad_x), 1});
}

}  // namespace

std::vector<Operation> losses() {
  return {{"squared_error", unless_plain, run_squared_error, nullptr, workspace_of_squared_error},
          {"squared_error_backward", supports_squared_error_backward, run_squared_error_backward},
          {"cross_entropy", supports_cross_entropy, run_cross_entropy, nullptr,
           workspace_of_cross_entropy},
          {"cross_entropy_backward", supports_cross_entropy_backward, run_cross_entropy_backward,
           name_of<losses::kVersions>, workspace_of_cross_entropy_backward}};
}

}  // namespace own
