// The block in bf16 on awkward shapes: against the reference that rounds what it rounds, against the
// block in float, bit for bit against itself; its parts on integers; and mistakes that must be caught.
#include "stage7_transformer/06_transformer_block/bf16.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/program.h"
#include "stage7_transformer/06_transformer_block/blocks_for_tests.h"

namespace {

using namespace block_test;

bool has_bf16() { return missing(kBf16Versions[0].needs).empty(); }

// A rounded parameter's array begins `offset` numbers behind a multiple of 16 bytes.
struct Pass {
  Pass(const Inputs& in, size_t offset)
      : shape(in.shape),
        x(in.x, offset),
        grad_y(in.grad_y, offset),
        y(in.x.size(), offset),
        grad_x(in.x.size(), offset),
        rounded_y(in.x.size(), offset),
        rounded_x(in.x.size(), offset),
        kept(shape),
        workspace(shape) {
    for (const std::vector<float>& parameter : in.parameters) {
      values.push_back(std::make_unique<Guarded<float>>(parameter, offset));
      gradients.push_back(std::make_unique<Guarded<float>>(parameter.size(), offset));
      rounded.push_back(std::make_unique<Guarded<bfloat16>>(parameter.size(), offset));
      gemm_mixed::launch_round(rounded.back()->data(), values.back()->data(), parameter.size());
      from.push_back(values.back()->data()), to.push_back(gradients.back()->data());
      from_rounded.push_back(rounded.back()->data());
    }
    gemm_mixed::launch_round(rounded_y.data(), grad_y.data(), in.grad_y.size());
    for (DeviceBuffer<bfloat16>* buffer :
         {&kept.norm1, &kept.qkv, &kept.attended, &kept.norm2, &kept.sums, &kept.hidden,
          &workspace.grad_sums, &workspace.grad_norm, &workspace.grad_h, &workspace.grad_attended,
          &workspace.grad_qkv})
      buffer->poison();
    for (DeviceBuffer<float>* buffer :
         {&kept.h, &kept.statistics, &kept.lse, &workspace.attention, &workspace.weights})
      buffer->poison();
  }
  void forward() {
    forward_bf16(y.data(), x.data(), tensors_of<const float*>(from),
                 tensors_of<const bfloat16*>(from_rounded), shape, kept);
  }
  void backward() {
    const Gradients grad = tensors_of<float*>(to);
    chain_backward_bf16(grad, {grad_x.data(), rounded_x.data()}, {grad_y.data(), rounded_y.data()},
                        x.data(), tensors_of<const float*>(from),
                        tensors_of<const bfloat16*>(from_rounded), shape, kept, workspace);
    weights_backward_bf16(grad, rounded_y.data(), shape, kept, workspace);
  }
  Outputs outputs() {
    HIP_CHECK(hipDeviceSynchronize());
    Outputs out{y.to_host(), grad_x.to_host(), {}, true};
    const std::vector<bfloat16> twice = rounded_x.to_host();
    for (size_t i = 0; i < twice.size(); ++i)
      out.intact = out.intact && gpu::to_float(twice[i]) ==
                                     gpu::to_float(gpu::from_float<bfloat16>(out.grad_x[i]));
    for (const Guarded<float>* array : {&x, &grad_y, &y, &grad_x})
      out.intact = out.intact && array->intact();
    out.intact = out.intact && rounded_x.intact() && rounded_y.intact();
    for (size_t k = 0; k < kTensors; ++k) {
      out.gradients.push_back(gradients[k]->to_host());
      out.intact = out.intact && gradients[k]->intact() && rounded[k]->intact();
    }
    return out;
  }

  Shape shape;
  Guarded<float> x, grad_y, y, grad_x;
  Guarded<bfloat16> rounded_y, rounded_x;
  std::vector<std::unique_ptr<Guarded<float>>> values, gradients;
  std::vector<std::unique_ptr<Guarded<bfloat16>>> rounded;
  std::vector<const float*> from;
  std::vector<float*> to;
  std::vector<const bfloat16*> from_rounded;
  SavedBf16 kept;
  WorkspaceBf16 workspace;
};

Outputs run(const Inputs& in, size_t offset = 0) {
  Pass pass(in, offset);
  pass.forward(), pass.backward();
  return pass.outputs();
}

Reference reference(const Inputs& in) {
  return block_cpu(in.x, in.grad_y, in.parameters, in.shape, Precision::bf16);
}

}  // namespace

TEST_CASE("bf16 agrees with the reference that rounds alike, on every shape") {
  if (!has_bf16()) return;
  const Shape shapes[] = {{1, 1, 1, 1},   {1, 2, 4, 2},   {2, 5, 8, 1},   {3, 7, 6, 3},
                          {2, 31, 16, 2}, {1, 33, 24, 3}, {1, 65, 16, 1}, {5, 16, 40, 5}};
  size_t offset = 0;
  for (const Shape& shape : shapes) {
    const Inputs in(shape);
    CAPTURE(shape.B, shape.T, shape.C, shape.H, offset);
    const Outputs got = run(in, offset);
    REQUIRE_OK(against(got, reference(in)));
    REQUIRE(got.intact);
    offset = (offset + 1) % 2;
  }
}
