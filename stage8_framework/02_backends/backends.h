// 8.2  backends: one list of operations, and several who can run them. A backend is a table of C
// functions in a library of its own, loaded when the program starts: `reference`, `own` and
// `vendor`.
//
//   ops.h    kOps, Call                    abi.h       the table that a plug-in fills in
//   registry.h   who is there              dispatch.h  who runs a Call, and by which kernel
//   functions.h  add(a, b), matmul(a, b)
//
// This file has the three ladders. The first one asks what it costs to get from a Call to a
// launcher: each version queues the add of a Call on `stream`. Its inputs and its output are f32 of
// one shape, row-major without gaps, in the memory of this build's device. Errors: gpu::Error where
// the launch is refused, std::runtime_error where there is no plug-in.
#pragma once

#include <cstdint>
#include <vector>

#include "common/version.h"
#include "stage8_framework/02_backends/ops.h"

namespace backends {

using framework::Call;
using framework::Tensor;

void launch_virtual_call(const Call& call, hipStream_t stream = nullptr);
void launch_table(const Call& call, hipStream_t stream = nullptr);
void launch_plugin(const Call& call, hipStream_t stream = nullptr);

using Launch = void (*)(const Call& call, hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"virtual_call", launch_virtual_call, "a class per backend, operations found by name"},
    {"table", launch_table, "a table of C functions: the name is looked up once"},
    {"plugin", launch_plugin, "the same table, from a library that is loaded"},
};

// A network of two layers, y = softmax(relu(x w1 + bias) w2): five operations. All arrays are
// row-major on the host.
struct TwoLayers {
  framework::Device& device;
  std::int64_t batch, inputs, hidden, outputs;
  std::vector<float> w1, bias, w2;           // (inputs, hidden), (hidden), (hidden, outputs)
  Tensor device_w1, device_bias, device_w2;  // the same on `device`
};

// The second ladder: where the operands of these operations lie. y (batch, outputs) = the network
// of x (batch, inputs), both on the host; done on return.
using Forward = void (*)(float* y, const float* x, const TwoLayers& network);
void forward_offload(float* y, const float* x, const TwoLayers& network);
void forward_resident(float* y, const float* x, const TwoLayers& network);

inline constexpr Version<Forward> kMemoryVersions[] = {
    {"offload", forward_offload, "each operation brings its inputs and takes its output back"},
    {"resident", forward_resident, "weights and results stay where the operations are"},
};

// The third ladder: who computes. The kernels are those of the plug-ins.
struct Who {
  const char* device;
  const char* policy;  // see use() of dispatch.h
};
inline constexpr Version<Who> kKernelVersions[] = {
    {"reference", {"reference", "reference"}, "plain loops in double, on the host"},
    {"own", {"own", "own"}, "the best launchers of stages 1 to 7"},
    {"vendor", {"own", "vendor"}, "what the hardware's maker writes"},
    {"best", {"own", "best"}, "each shape is timed once, and the faster one is kept"},
};

}  // namespace backends
