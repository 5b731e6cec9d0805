// Operations on images (N, C, H, W): convolutions by 6.1 and 6.2, pooling by 6.3.
#include "stage4_forward/01_dense/dense.h"
#include "stage6_cnn/01_conv2d/conv2d.h"
#include "stage6_cnn/02_conv2d_backward/conv2d_backward.h"
#include "stage6_cnn/03_maxpool/maxpool.h"
#include "stage6_cnn/03_maxpool/wide.h"
#include "stage8_framework/02_backends/own/detail/elementwise.h"

namespace own {
namespace {

// ---- Convolutions -------------------------------------------------------------------------------

// Of x (N, C, H, W), w (K, C, R, S), and the attributes stride_y, stride_x, pad_y, pad_x.
conv2d::Problem problem_of(const CourseCall& call, const CourseTensor& x, const CourseTensor& w) {
  return {extent(x, 0),      extent(x, 1),      extent(x, 2),     extent(x, 3),
          extent(w, 0),      extent(w, 2),      extent(w, 3),     count_of(call, 0),
          count_of(call, 1), count_of(call, 2), count_of(call, 3)};
}

// The memory of a call, in `parts`; of a kernel that is asked for by its name, what any needs.
conv2d::Workspace workspace_of(const CourseCall& call, const conv2d::Problem& p,
                               gpu::DeviceParts& parts) {
  return call.kernel == 0 ? conv2d::Workspace(p, &parts)
                          : conv2d::Workspace::for_all_versions(p, &parts);
}
size_t workspace_of_conv2d(const CourseCall& call) {
  gpu::DeviceParts counted;
  workspace_of(call, problem_of(call, call.inputs[0], call.inputs[1]), counted);
  return counted.bytes();
}
void run_conv2d(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &x = call.inputs[0], &w = call.inputs[1], &bias = call.inputs[2];
  const conv2d::Problem p = problem_of(call, x, w);
  float* const y = floats(call.outputs[0]);
  const float* const of_bias = is_absent(bias) ? nullptr : floats(bias);
  gpu::DeviceParts parts(call.workspace);
  conv2d::Workspace workspace = workspace_of(call, p, parts);
  const auto run = call.kernel == 0 ? conv2d::forward<dense::Linear>
                                    : conv2d::kVersions<dense::Linear>[call.kernel - 1].launch.run;
  run(y, floats(x), floats(w), of_bias, p, workspace, stream);
}

conv2d_backward::Workspace workspace_of(const CourseCall& call, const conv2d::Problem& p,
                                        const conv2d_backward::Wanted& wanted,
                                        gpu::DeviceParts& parts) {
  return call.kernel == 0 ? conv2d_backward::Workspace(p, wanted, &parts)
                          : conv2d_backward::Workspace::for_all_versions(p, wanted, &parts);
}
void run_backward(const CourseCall& call, const conv2d_backward::Gradients& to, const float* grad_y,
                  const float* x, const float* w, const conv2d::Problem& p, hipStream_t stream) {
  gpu::DeviceParts parts(call.workspace);
  conv2d_backward::Workspace workspace =
      workspace_of(call, p, {to.x != nullptr, to.w != nullptr}, parts);
  const auto run = call.kernel == 0 ? conv2d_backward::backward
                                    : conv2d_backward::kVersions[call.kernel - 1].launch.run;
  run(to, grad_y, x, w, p, 0, workspace, stream);
}
// (grad_y, w) -> grad_x: no launcher reads x for it.
size_t workspace_of_conv2d_grad_x(const CourseCall& call) {
  gpu::DeviceParts counted;
  workspace_of(call, problem_of(call, call.outputs[0], call.inputs[1]), {true, false}, counted);
  return counted.bytes();
}
void run_conv2d_grad_x(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &grad_y = call.inputs[0], &w = call.inputs[1], &grad_x = call.outputs[0];
  const conv2d::Problem p = problem_of(call, grad_x, w);
  run_backward(call, {nullptr, nullptr, floats(grad_x)}, floats(grad_y), floats(grad_x), floats(w),
               p, stream);
}
// (grad_y, x) -> grad_w, grad_bias: no launcher reads w for them.
size_t workspace_of_conv2d_grad_w(const CourseCall& call) {
  gpu::DeviceParts counted;
  workspace_of(call, problem_of(call, call.inputs[1], call.outputs[0]), {false, true}, counted);
  return counted.bytes();
}
void run_conv2d_grad_w(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &grad_y = call.inputs[0], &x = call.inputs[1], &grad_w = call.outputs[0];
  const conv2d::Problem p = problem_of(call, x, grad_w);
  run_backward(call, {floats(grad_w), floats(call.outputs[1]), nullptr}, floats(grad_y), floats(x),
               floats(grad_w), p, stream);
}

// ---- Pooling ------------------------------------------------------------------------------------

// 6.3 has places in a window of 16 bits, the framework of 32. The most common windows have kernels
// for these; of the others the places are converted.
struct Widen {
  __device__ std::int32_t operator()(maxpool::Index place) const { return place; }
};
struct Narrow {
  __device__ maxpool::Index operator()(std::int32_t place) const {
    return static_cast<maxpool::Index>(place);
  }
};
template <class F, class Out, class In>
void convert(Out* out, const In* in, size_t n, hipStream_t stream) {
  LAUNCH_ON(stream, (elementwise_flat<F, Out, In>),
            static_cast<unsigned>(gpu::ceil_div(n, kAtOnce * kBlock)), kBlock, 0, F{}, out, n,
            Flat<In>{in, 1});
}

// Of x, and the attributes window_y, window_x, stride_y, stride_x, pad_y, pad_x.
maxpool::Problem problem_of(const CourseCall& call, const CourseTensor& x) {
  return {extent(x, 0),      extent(x, 1),      extent(x, 2),      extent(x, 3),
          count_of(call, 0), count_of(call, 1), count_of(call, 2), count_of(call, 3),
          count_of(call, 4), count_of(call, 5)};
}

size_t workspace_of_maxpool(const CourseCall& call) {
  return elements(call.outputs[0]) * sizeof(maxpool::Index);
}
void run_maxpool(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &x = call.inputs[0], &y = call.outputs[0], &argmax = call.outputs[1];
  if (elements(y) == 0) return;
  const maxpool::Problem p = problem_of(call, x);
  if (call.kernel == 0 &&
      maxpool::forward_wide(floats(y), data_of<std::int32_t>(argmax), floats(x), p, stream))
    return;
  auto* const places = static_cast<maxpool::Index*>(call.workspace);
  const auto launch =
      call.kernel == 0 ? maxpool::forward : maxpool::kVersions[call.kernel - 1].launch.run;
  launch(floats(y), places, floats(x), p, stream);
  convert<Widen>(data_of<std::int32_t>(argmax), places, elements(y), stream);
}

const char* supports_maxpool_backward(const CourseCall& call) {
  if (!is_of(call.inputs[0], Dtype::f32)) return "only f32 is supported";
  return unless_contiguous(call);
}
size_t workspace_of_maxpool_backward(const CourseCall& call) {
  return elements(call.inputs[0]) * sizeof(maxpool::Index);
}
void run_maxpool_backward(const CourseCall& call, hipStream_t stream) {
  const CourseTensor &grad_y = call.inputs[0], &argmax = call.inputs[1];
  const CourseTensor& grad_x = call.outputs[0];
  if (elements(grad_x) == 0) return;
  const maxpool::Problem p = problem_of(call, grad_x);
  if (maxpool::backward_wide(floats(grad_x), floats(grad_y), data_of<std::int32_t>(argmax), p,
                             stream))
    return;
  auto* const places = static_cast<maxpool::Index*>(call.workspace);
  if (elements(grad_y) > 0)
    convert<Narrow>(places, data_of<std::int32_t>(argmax), elements(grad_y), stream);
  maxpool::backward(floats(grad_x), floats(grad_y), places, p, stream);
}

}  // namespace

std::vector<Operation> images() {
  return {
      {"conv2d", unless_plain, run_conv2d, name_of<conv2d::kVersions<dense::Linear>>,
       workspace_of_conv2d},
      {"conv2d_grad_x", unless_plain, run_conv2d_grad_x, name_of<conv2d_backward::kVersions>,
       workspace_of_conv2d_grad_x},
      {"conv2d_grad_w", unless_plain, run_conv2d_grad_w, name_of<conv2d_backward::kVersions>,
       workspace_of_conv2d_grad_w},
      {"maxpool2d", unless_plain, run_maxpool, name_of<maxpool::kVersions>, workspace_of_maxpool},
      {"maxpool2d_backward", supports_maxpool_backward, run_maxpool_backward, nullptr,
       workspace_of_maxpool_backward}};
}

}  // namespace own
