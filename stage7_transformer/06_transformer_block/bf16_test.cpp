// The block in bf16 on awkward shapes: against the reference that rounds what it rounds, against
// the block in float, bit for bit against itself; its parts on integers; and mistakes that must be
// caught.
#include "stage7_transformer/06_transformer_block/bf16.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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
    for (DeviceBuffer<float>* buffer : {&kept.h, &kept.statistics, &kept.lse, &kept.attention,
                                        &workspace.attention, &workspace.weights})
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
  const Shape shapes[] = {{1, 1, 1, 1},   {1, 2, 4, 2},   {2, 5, 8, 1},
                          {3, 7, 6, 3},   {2, 31, 16, 2}, {1, 33, 24, 3},
                          {1, 65, 16, 1}, {5, 16, 40, 5}, {2, 6, 9, 3}};
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

TEST_CASE("bf16: the same bits on every run, and a token changes no output before it") {
  if (!has_bf16()) return;
  const Inputs in({2, 37, 24, 3});
  const Outputs once = run(in), again = run(in);
  REQUIRE(same_bits(once.y, again.y));
  REQUIRE(same_bits(once.grad_x, again.grad_x));
  for (size_t k = 0; k < kTensors; ++k) REQUIRE(same_bits(once.gradients[k], again.gradients[k]));

  constexpr size_t kChanged = 20;
  Inputs other = in;
  other.x[kChanged * in.shape.C + 1] += 0.5f;
  const std::vector<float> after = run(other).y;
  for (size_t row = 0; row < in.shape.rows(); ++row) {
    const bool same = std::memcmp(after.data() + row * in.shape.C, once.y.data() + row * in.shape.C,
                                  in.shape.C * sizeof(float)) == 0;
    REQUIRE(same == (row < kChanged || row >= in.shape.T));
  }
}

TEST_CASE("bf16: a single parameter, or input, that is off by a fiftieth is seen", "[harness]") {
  if (!has_bf16()) return;
  const Inputs in({2, 9, 12, 3});
  const Reference want = reference(in);
  for (size_t k = 0; k < kTensors + 2; ++k) {
    CAPTURE(k);
    Inputs off = in;
    // What goes through all of attention's roundings, x and qkv's weights: by a twentieth.
    const float by = k == 2 || k == kTensors ? 5e-2f : 2e-2f;
    (k == kTensors ? off.x : k > kTensors ? off.grad_y : off.parameters[k]).back() += by;
    CHECK(!against(run(off), want).ok);
  }
}

TEST_CASE("bf16: the bounds refuse the block in float, and gradients with a term too few",
          "[harness]") {
  if (!has_bf16()) return;
  const Inputs in({3, 25, 24, 3});
  const Outputs got = run(in);
  const Reference want = reference(in);
  REQUIRE_OK(against(got, want));
  // A bias's gradient without the last row, and a weight's.
  const size_t C = in.shape.C, last = (in.shape.rows() - 1) * C;
  for (size_t c = 0; c < C; ++c) {
    Outputs wrong = got;
    wrong.gradients[11][c] -= in.grad_y[last + c];
    const bool is_small = std::fabs(in.grad_y[last + c]) < 0.05f;
    CHECK((is_small || !against(wrong, want).ok));
  }
  for (const std::vector<float>* swapped : {&got.y, &got.grad_x}) {
    Outputs wrong = got;
    std::vector<float>& rows = swapped == &got.y ? wrong.y : wrong.grad_x;
    std::swap_ranges(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(C),
                     rows.begin() + static_cast<std::ptrdiff_t>(C));
    CHECK(!against(wrong, want).ok);
    rows.assign(rows.size(), 0.0f);
    CHECK(!against(wrong, want).ok);
  }
}

TEST_CASE("bf16: weights' gradients of integers are exact, of every slice, tile and pitch") {
  constexpr size_t kShapes[][3] = {
      {65, 70, 65}, {65, 64, 72}, {8, 16, 8}, {136, 3, 136}, {264, 256, 264}};
  for (const bool aligned : {true, false})
    for (const size_t rows : {1, 64, 2047, 4100}) {
      CAPTURE(rows, aligned);
      std::vector<std::vector<float>> all_w, all_bias;
      std::vector<std::unique_ptr<Guarded<bfloat16>>> arrays;
      std::vector<std::unique_ptr<Guarded<float>>> results;
      std::vector<WeightTaskBf16> tasks;
      for (const auto& [out, in, pitch] : kShapes) {
        if (aligned && (in % 8 != 0 || pitch % 8 != 0)) continue;
        if (out > 200 && (rows != 64 || !aligned)) continue;  // a large one, for `pairs`
        const std::vector<float> grad = integers(rows * out, 50), x = integers(rows * in, 51);
        std::vector<bfloat16> rounded_grad(rows * pitch), rounded_x(rows * in);
        std::vector<float> w(out * in), bias(out);
        for (size_t row = 0; row < rows; ++row) {
          for (size_t i = 0; i < in; ++i)
            rounded_x[row * in + i] = gpu::from_float<bfloat16>(x[row * in + i]);
          for (size_t o = 0; o < pitch; ++o) {
            const float g = o < out ? grad[row * out + o] : 0.0f;
            rounded_grad[row * pitch + o] = gpu::from_float<bfloat16>(g);
            if (o >= out) continue;
            bias[o] += g;
            for (size_t i = 0; i < in; ++i) w[o * in + i] += g * x[row * in + i];
          }
        }
        // Unaligned: every second array only, the first among them and the last not.
        const size_t offset = aligned || tasks.size() % 2 == 1 ? 0 : 1;
        arrays.push_back(std::make_unique<Guarded<bfloat16>>(rounded_grad, offset));
        arrays.push_back(std::make_unique<Guarded<bfloat16>>(rounded_x, 0));
        results.push_back(std::make_unique<Guarded<float>>(w.size(), 0));
        results.push_back(std::make_unique<Guarded<float>>(bias.size(), 1));
        tasks.push_back({arrays[arrays.size() - 2]->data(), pitch, arrays.back()->data(), out, in,
                         results[results.size() - 2]->data(),
                         pitch == out ? results.back()->data() : nullptr});
        all_w.push_back(w), all_bias.push_back(bias);
      }
      Guarded<float> sums(sums_of_bf16(tasks, rows), 0);
      weight_gradients_bf16(tasks, rows, sums.data());
      REQUIRE(sums.intact());
      for (size_t k = 0; k < tasks.size(); ++k) {
        CAPTURE(k);
        REQUIRE(same_bits(results[2 * k]->to_host(), all_w[k]));
        REQUIRE(results[2 * k]->intact());
        REQUIRE(results[2 * k + 1]->intact());
        if (tasks[k].bias != nullptr)
          REQUIRE(same_bits(results[2 * k + 1]->to_host(), all_bias[k]));
      }
    }
  REQUIRE_THROWS_AS(sums_of_bf16({}, 4), std::invalid_argument);
}

TEST_CASE("bf16: sums of integers are exact before GELU, in rows of any length") {
  if (!has_bf16()) return;
  constexpr size_t kShapes[][3] = {{1, 1, 1}, {5, 7, 9}, {70, 24, 33}, {64, 16, 256}};
  for (const auto& [rows, in, out] : kShapes) {
    CAPTURE(rows, in, out);
    const auto rounded = [](const std::vector<float>& values) {
      std::vector<bfloat16> to(values.size());
      std::transform(values.begin(), values.end(), to.begin(), gpu::from_float<bfloat16>);
      return to;
    };
    const std::vector<float> x = integers(rows * in, 52), w = integers(out * in, 53);
    const std::vector<float> bias = integers(out, 54);
    std::vector<float> sums(rows * out);
    for (size_t i = 0; i < sums.size(); ++i) {
      for (size_t k = 0; k < in; ++k) sums[i] += x[i / out * in + k] * w[i % out * in + k];
      sums[i] += bias[i % out];
    }
    const DeviceBuffer<bfloat16> d_x(rounded(x)), d_w(rounded(w));
    const DeviceBuffer<float> d_bias(bias);
    Guarded<bfloat16> d_sums(sums.size(), 0), d_hidden(sums.size(), 0);
    expand_bf16(d_hidden.data(), d_sums.data(), d_x.data(), d_w.data(), d_bias.data(), rows, out,
                in);
    const std::vector<bfloat16> want = rounded(sums), got = d_sums.to_host();
    const std::vector<bfloat16> hidden = d_hidden.to_host();
    REQUIRE((d_sums.intact() && d_hidden.intact()));
    for (size_t i = 0; i < sums.size(); ++i) {
      REQUIRE(gpu::to_float(got[i]) == gpu::to_float(want[i]));
      // Far from 0 GELU is its argument, or 0.
      if (sums[i] >= 8) REQUIRE(gpu::to_float(hidden[i]) == gpu::to_float(want[i]));
      if (sums[i] <= -8) REQUIRE(std::fabs(gpu::to_float(hidden[i])) < 1e-6f);
    }
  }
}

TEST_CASE("bf16: blocks that can't be are refused") {
  REQUIRE_THROWS_AS(check_bf16({1, 1, 258, 2}), std::invalid_argument);
  REQUIRE_THROWS_AS(check_bf16({1, 1, 10, 3}), std::invalid_argument);
  REQUIRE_NOTHROW(check_bf16({1, 1, 256, 2}));
  REQUIRE_THROWS_AS(WorkspaceBf16({1, 1, 258, 2}), std::invalid_argument);
}
