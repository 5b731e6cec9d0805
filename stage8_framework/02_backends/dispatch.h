// Who runs a Call, and by which kernel. Plain C++ that knows no device.
//
//   Call  -- infer: shapes, types --> outputs are allocated
//         -- policy of the device --> the first plug-in that has the operation and takes the call
//         -- its table's run()    --> queued on the device's stream
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "stage8_framework/02_backends/ops.h"
#include "stage8_framework/02_backends/plugin_device.h"

namespace framework {

// Queues the call on the device of its inputs (where it has none: of its outputs). Outputs that are
// undefined are allocated, unless the operation updates them: then they must be given. Those that
// are given must have the right shape and type and overlap neither an input nor each other. Every
// output's version is one higher then. Each plug-in of the device's policy is asked in turn; where
// it does not take the strides of the inputs, for contiguous copies.
// Errors, after which nothing has changed (an output that was given may be written in part):
//   std::invalid_argument   the call itself is wrong
//   std::runtime_error      no plug-in of the policy takes it: the line says why, and who would
//   gpu::Error              a plug-in has failed, out of memory included
void run(Call& call);

// Who is told of calls before and after they run: the tape of 8.3 of those that have a tensor with
// a gradient. before() may refuse a call by throwing. after() sees its outputs; where it throws,
// the call has failed.
struct Recorder {
  void (*before)(const Call& call) = nullptr;
  void (*after)(Call& call) = nullptr;
};
void record_tracked(const Recorder& recorder);

// Who runs the calls of a device: plug-ins in the order in which they are asked, "vendor,own", or
// "best": each plug-in that takes a call is timed once for its operation, shapes, types, attributes
// and kind of strides, and the fastest is kept; of an operation that updates its outputs, which
// can't be repeated, the first that takes it is. A device begins with its own plug-in, then the
// reference where that can work in its memory. Throws std::invalid_argument for a plug-in that
// can't, and changes nothing.
void use(Device& device, const std::string& policy);

// From now on the operation is run by this kernel, a name of kernel_name() such as "naive", of the
// first plug-in that has one of that name; "" takes that back. Throws std::invalid_argument where
// there is none, and says which there are.
void kernel(Device& device, const std::string& op, const std::string& name);

// What was run by another plug-in than the policy's first one since the device was made, and why.
const std::vector<PluginDevice::Fallback>& fallbacks(Device& device);

// Why the first plug-in of the device's policy that has the operation does not take this call as it
// is; "" where it does. Nothing is queued. Throws std::invalid_argument where the call is wrong.
std::string refusal_of(Call call);

// What an Autocast has left in f32 on this device, and why.
const std::vector<PluginDevice::LeftInF32>& left_in_f32(Device& device);

// What `best` has measured: in the order of the first calls.
struct Choice {
  struct Timed {
    std::string plugin;
    double seconds;
  };
  std::string call;
  std::vector<Timed> times;
  std::string chosen;
};
std::vector<Choice> choices(Device& device);

// The same as a device of plug-ins. Throws std::invalid_argument where it is none.
PluginDevice& plugin_device(Device& device);

// ---- For plugin_device.cpp and best.cpp -----------------------------------------------------

// Queues a call whose outputs are allocated by the first of `order` that takes it. No version is
// counted.
void run_on(PluginDevice& device, const Call& call, const std::vector<Seat*>& order);

struct CCall;
// Queues a call that `seat` takes, as `c`, which is filled and has its op and kernel. What is only
// measured is not watched.
void queue(PluginDevice& device, Seat& seat, const Call& call, CCall& c, bool is_watched = true);
// nullptr where `seat` takes the call `c`, whose op and kernel are set then; else why not.
const char* refusal(const Seat& seat, const Call& call, CCall& c);

}  // namespace framework
