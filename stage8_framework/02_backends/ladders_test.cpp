// The three ladders: what crosses the table, every version of them, and mistakes that the program's
// checks must refuse.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "common/testing.h"
#include "stage8_framework/01_tensor/gpu_device.h"
#include "stage8_framework/02_backends/backends.h"
#include "stage8_framework/02_backends/c_call.h"
#include "stage8_framework/02_backends/ladders.h"
#include "stage8_framework/02_backends/network.h"
#include "stage8_framework/02_backends/problem.h"
#include "stage8_framework/02_backends/registry.h"

using backends::Case;
using backends::NetworkSizes;
using backends::NetworkValues;
using backends::Values;
using backends::Which;
using framework::Call;
using framework::CCall;
using framework::Dtype;
using framework::Shape;
using framework::Tensor;

namespace {

// out = a + b, allocated on `device`.
Call addition(framework::Device& device, const Tensor& a, const Tensor& b) {
  Call call;
  call.op = &framework::op_named("add");
  call.input_count = 2, call.output_count = 1;
  call.inputs[0] = a, call.inputs[1] = b;
  call.outputs[0] = Tensor::empty(device, a.shape());
  return call;
}

void require_same(const CourseTensor& got, const Tensor& want) {
  REQUIRE(got.rank == static_cast<std::int32_t>(want.rank()));
  REQUIRE(got.dtype == static_cast<std::int32_t>(want.dtype()));
  REQUIRE(got.data == (want.elements() > 0 ? want.data() : nullptr));
  for (size_t axis = 0; axis < want.rank(); ++axis) {
    REQUIRE(got.extent[axis] == want.shape()[axis]);
    REQUIRE(got.stride[axis] == want.strides()[axis]);
  }
}

}  // namespace

TEST_CASE("a call crosses the table as it is") {
  tensor::GpuDevice device;
  const Tensor rows = Tensor::empty(device, {3, 4, 5}, Dtype::f64);
  const std::vector<Tensor> tensors = {
      rows,
      rows.permute({2, 0, 1}),
      rows.slice(1, 3, -1, -2),
      rows.select(2, 4),
      rows.slice(0, 1, 2).expand({7, 4, 5}),
      Tensor::empty(device, {}),
      Tensor::empty(device, {2, 0, 3}, Dtype::i64),
      Tensor::empty(device, {1, 2, 1, 2, 1, 2, 1, 2}, Dtype::boolean),
  };
  Call call;
  call.op = &framework::op_named("add");
  call.input_count = framework::kMaxInputs, call.output_count = 2;
  for (int i = 0; i < call.input_count; ++i) call.inputs[i] = tensors[static_cast<size_t>(i)];
  call.outputs[0] = tensors[1], call.outputs[1] = tensors[0];
  call.attributes[0] = 0.5, call.attributes[framework::kMaxAttributes - 1] = -3;
  CCall c;
  std::memset(static_cast<void*>(&c), 0xFF, sizeof c);
  to_c(call, &c);
  REQUIRE(c.call.op == 0);
  REQUIRE(c.call.kernel == 0);
  REQUIRE(c.call.workspace == nullptr);
  REQUIRE(c.call.input_count == call.input_count);
  REQUIRE(c.call.output_count == call.output_count);
  for (int i = 0; i < call.input_count; ++i) require_same(c.call.inputs[i], call.inputs[i]);
  for (int i = 0; i < call.output_count; ++i) require_same(c.call.outputs[i], call.outputs[i]);
  REQUIRE(
      std::equal(call.attributes, call.attributes + framework::kMaxAttributes, c.call.attributes));
}

TEST_CASE("an input that is absent has the rank -1") {
  tensor::GpuDevice device;
  Call call;
  call.op = &framework::op_named("linear");
  call.input_count = 3, call.output_count = 1;
  call.inputs[0] = call.inputs[1] = call.outputs[0] = Tensor::empty(device, {2, 2});
  CCall c;
  std::memset(static_cast<void*>(&c), 0xFF, sizeof c);
  to_c(call, &c);
  REQUIRE(c.call.inputs[1].rank == 2);
  REQUIRE(c.call.inputs[2].rank == -1);
  REQUIRE(c.call.inputs[2].data == nullptr);
}

TEST_CASE("every version of the dispatch adds") {
  tensor::GpuDevice device;
  for (const auto& version : testing::chosen(backends::kVersions))
    for (const std::int64_t n : {0, 1, 255, 256, 257, 1009}) {
      INFO(version.name << " n=" << n);
      const auto a = testing::random_floats(static_cast<size_t>(n), 0),
                 b = testing::random_floats(static_cast<size_t>(n), 1);
      const backends::RunsOn place = backends::runs_on(version.name, device);
      framework::Device& on = place.device;
      const Call call = addition(on, Tensor::from_host(on, a, {n}), Tensor::from_host(on, b, {n}));
      const std::vector<float> unwritten(a.size(), -77);
      on.to_device(call.outputs[0].data(), unwritten.data(), unwritten.size() * sizeof(float));
      version.launch(call, place.stream);
      place.wait();
      const std::vector<float> got = call.outputs[0].to_host<float>();
      for (size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == a[i] + b[i]);
    }
}

TEST_CASE("every version of the dispatch queues on its stream") {
  tensor::GpuDevice device;
  const auto a = testing::random_floats(1009, 0), b = testing::random_floats(1009, 1);
  const Call call =
      addition(device, Tensor::from_host(device, a, {1009}), Tensor::from_host(device, b, {1009}));
  const Tensor& out = call.outputs[0];
  for (const auto& version : testing::chosen(backends::kVersions)) {
    INFO(version.name);
    // A stream of one runtime is none of another's: see RunsOn.
    if (&backends::runs_on(version.name, device).device != &device) continue;
    testing::require_same_in_graph([&] { gpu::poison(out.data(), 1009 * sizeof(float)); },
                                   [&](hipStream_t stream) { version.launch(call, stream); },
                                   [&] { return out.to_host<float>(); });
  }
}

TEST_CASE("every version of the memory's ladder computes the network") {
  for (const NetworkSizes sizes :
       {NetworkSizes{1, 1, 1, 1}, NetworkSizes{33, 50, 17, 10}, NetworkSizes{5, 784, 128, 10}}) {
    const NetworkValues values(sizes, 3);
    const backends::TwoLayers network = values.on(framework::device("own"));
    for (const auto& version : testing::chosen(backends::kMemoryVersions)) {
      INFO(version.name << " " << sizes.name());
      std::vector<float> y(values.want.size());
      std::memset(y.data(), 0xFF, y.size() * sizeof(float));
      version.launch(y.data(), values.x.data(), network);
      REQUIRE_OK(values.compare(y));
    }
  }
}

TEST_CASE("the network's check refuses mistakes", "[harness]") {
  for (const NetworkSizes sizes : {NetworkSizes{33, 50, 17, 10}, NetworkSizes{256, 784, 128, 10}}) {
    const NetworkValues values(sizes, 1);
    testing::require_refusals(
        values.want, [&](size_t i) { return values.error[i]; }, static_cast<size_t>(sizes.outputs),
        [&](size_t i) { return values.want[i] * values.want[i]; });
    NetworkValues other = values;
    std::fill(other.bias.begin(), other.bias.end(), 0.0f);
    for (const auto& version : backends::kMemoryVersions) {
      std::vector<float> y(values.want.size());
      version.launch(y.data(), values.x.data(), other.on(framework::device("own")));
      REQUIRE_FALSE(values.compare(y).ok);
    }
  }
}

TEST_CASE("the kernels' checks refuse mistakes at every printed size", "[harness][long]") {
  for (const auto usual : {&Size::quick, &Size::cpu, &Size::gpu}) {
    std::vector<size_t> sizes;
    for (const Size& size : backends::sizes()) sizes.push_back(size.*usual);
    for (const Case& c : backends::printed(sizes))
      for (const bool with_integers : {false, true}) {
        INFO(c.name() << (with_integers ? " of integers" : ""));
        const Values values = values_of(c, with_integers, 1);
        const std::vector<double>& want = values.want;
        const size_t cols = values.sample.cols;
        // The typical term of a sum of products; of a softmax what a row's sum lacks, its largest.
        const double term = (with_integers ? 1 : 0.25) *
                            (c.which == Which::conv2d ? 1 / std::sqrt(9.0 * c.C) : 1.0);
        testing::require_refusals(
            // Equal integers may change places.
            want, [&](size_t i) { return values.error[i]; }, with_integers ? 0 : cols,
            [&](size_t i) {
              if (c.which != Which::softmax) return term;
              const auto row = want.begin() + static_cast<std::ptrdiff_t>(i / cols * cols);
              return want[i] * *std::max_element(row, row + static_cast<std::ptrdiff_t>(cols));
            });
      }
  }
}
