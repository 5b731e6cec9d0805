#include "stage8_framework/02_backends/dispatch.h"

#include <algorithm>
#include <stdexcept>

#include "common/error.h"
#include "stage8_framework/02_backends/best.h"
#include "stage8_framework/02_backends/c_call.h"
#include "stage8_framework/02_backends/detail/rules.h"
#include "stage8_framework/02_backends/registry.h"

namespace framework {

namespace {

// The inputs of a row: how many, and a bit for each that must be there.
struct Inputs {
  int count = 0;
  unsigned required = 0;
};

const Inputs& inputs_of(const Op& op) {
  static const std::vector<Inputs> all = [] {
    std::vector<Inputs> rows(static_cast<size_t>(kOpCount));
    for (size_t row = 0; row < rows.size(); ++row)
      for (const char *begin = kOps[row].inputs, *c = begin; *c != '\0'; ++c) {
        Inputs& inputs = rows[row];
        if (c == begin || c[-1] == ' ') inputs.required |= 1u << inputs.count++;
        if (*c == '?') inputs.required &= ~(1u << (inputs.count - 1));
      }
    return rows;
  }();
  return all[static_cast<size_t>(row_of(op))];
}

// Where the call is made. Refuses tensors that are missing or lie on several devices.
Device& device_of(const Call& call) {
  const Inputs& inputs = inputs_of(*call.op);
  if (call.input_count != inputs.count)
    refuse(call, "its inputs are \"" + std::string(call.op->inputs) + "\"");
  if (call.output_count != 0 && call.output_count != call.op->output_count)
    refuse(call, "it has " + std::to_string(call.op->output_count) + " outputs");
  Device* device = nullptr;
  const auto meet = [&](const Tensor& t) {
    if (device == nullptr) device = &t.device();
    if (device != &t.device())
      refuse(call, std::string("one tensor is on ") + device->name() + ", one on " +
                       t.device().name() + ": bring them together by to()");
  };
  for (int i = 0; i < inputs.count; ++i) {
    if (call.inputs[i].is_defined())
      meet(call.inputs[i]);
    else if ((inputs.required >> i & 1) != 0)
      refuse(call, "input " + std::to_string(i) + " of \"" + call.op->inputs + "\" is undefined");
  }
  for (int i = 0; i < call.output_count; ++i)
    if (call.outputs[i].is_defined()) meet(call.outputs[i]);
  if (device == nullptr) refuse(call, "no tensor says on which device");
  return *device;
}

bool overlap(const Tensor& a, const Tensor& b) {
  if (!a.is_defined() || !a.shares_storage(b)) return false;
  const Layout::Span one = a.layout().span(), other = b.layout().span();
  if (one.first >= other.end || other.first >= one.end) return false;
  if (a.shape() != b.shape() || !(a.layout().strides == b.layout().strides) || a.rank() == kMaxRank)
    return true;
  Layout both = a.layout();  // parts that lie between each other, such as those of one unbind()
  both.shape.insert(0, 2), both.strides.insert(0, b.layout().offset - a.layout().offset);
  return both.overlaps_itself();
}

void check_output(const Call& call, int i, const OutputSpec& spec) {
  const Tensor& out = call.outputs[i];
  if (out.shape() != spec.shape || out.dtype() != spec.dtype)
    refuse(call, "output " + std::to_string(i) + " is " + out.text() + ", not " +
                     name_of(spec.dtype) + " " + spec.shape.text());
  if (!out.is_contiguous() && out.layout().overlaps_itself())
    refuse(call, "several indices of output " + std::to_string(i) + " lead to one element");
  for (int k = 0; k < call.input_count; ++k)
    if (overlap(call.inputs[k], out))
      refuse(call, "output " + std::to_string(i) + " overlaps an input");
  for (int k = 0; k < i; ++k)
    if (overlap(call.outputs[k], out)) refuse(call, "two outputs overlap");
}

// Allocates what is missing of a call's outputs, and takes it back unless keep() is called.
class Outputs {
 public:
  Outputs(Call& call, Device& device) : call_(call), count_(call.output_count) {
    OutputSpec specs[kMaxOutputs];
    call.op->infer(call, specs);
    call.output_count = call.op->output_count;
    try {
      for (int i = 0; i < call.output_count; ++i) {
        if (call.outputs[i].is_defined()) {
          check_output(call, i, specs[i]);
        } else {
          call.outputs[i] = Tensor::empty(device, specs[i].shape, specs[i].dtype);
          made_[i] = true;
        }
      }
    } catch (...) {
      take_back();
      throw;
    }
  }
  ~Outputs() {
    if (!is_kept_) take_back();
  }
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;

  void keep() { is_kept_ = true; }

 private:
  void take_back() {
    for (int i = 0; i < kMaxOutputs; ++i)
      if (made_[i]) call_.outputs[i] = Tensor();
    call_.output_count = count_;
  }
  Call& call_;
  int count_;
  bool made_[kMaxOutputs] = {}, is_kept_ = false;
};

// Memory of the device while a call is queued: what is queued later may have it again.
class Workspace {
 public:
  Workspace(Device& device, size_t bytes)
      : device_(device), data(bytes > 0 ? device.allocate(bytes) : nullptr) {}
  ~Workspace() {
    if (data != nullptr) device_.free(data);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

 private:
  Device& device_;

 public:
  void* const data;
};

Recorder recorder;

bool has_tracked(const Call& call) {
  for (int i = 0; i < call.input_count; ++i)
    if (call.inputs[i].requires_grad()) return true;
  for (int i = 0; i < call.output_count; ++i)
    if (call.outputs[i].requires_grad()) return true;
  return false;
}

bool has_elements(const Call& call) {
  for (int i = 0; i < call.output_count; ++i)
    if (call.outputs[i].elements() != 0) return true;
  return false;
}

// The call with contiguous copies of its inputs, where `seat` takes that; else false.
bool is_taken_dense(PluginDevice& device, Seat& seat, const Call& call, CCall& c) {
  Shape strides[kMaxInputs];
  bool changes = false;
  for (int i = 0; i < call.input_count; ++i) {
    const Tensor& t = call.inputs[i];
    if (!t.is_defined() || t.is_contiguous()) continue;
    strides[i] = Layout::contiguous(t.shape()).strides;
    c.tensors[i].stride = strides[i].begin();
    changes = true;
  }
  const bool is_taken = changes && refusal(seat, call, c) == nullptr;
  to_c(call, &c);
  if (!is_taken) return false;
  Call dense = call;
  for (int i = 0; i < call.input_count; ++i)
    if (dense.inputs[i].is_defined()) dense.inputs[i] = dense.inputs[i].detach().contiguous();
  CCall of_dense;
  to_c(dense, &of_dense);
  if (refusal(seat, dense, of_dense) != nullptr) return false;
  queue(device, seat, dense, of_dense);
  return true;
}

// The error of a call that nobody in `order` takes: why, and who has it elsewhere.
[[noreturn]] void refuse_all(PluginDevice& device, const Call& call,
                             const std::vector<Seat*>& order, CCall& c) {
  std::string reasons, others;
  for (const Seat* seat : order)
    reasons += (reasons.empty() ? "" : "; ") + seat->name + ": " + refusal(*seat, call, c);
  for (const Plugin& plugin : plugins()) {
    const bool was_asked = std::any_of(order.begin(), order.end(),
                                       [&](const Seat* seat) { return seat->name == plugin.name; });
    if (was_asked || plugin.table == nullptr) continue;
    Seat other{plugin.name, plugin.table};
    try {
      other.open();
    } catch (const std::runtime_error&) {
      continue;
    }
    if (refusal(other, call, c) == nullptr) others += (others.empty() ? "" : ", ") + plugin.name;
    other.table->close(other.state);
  }
  throw std::runtime_error(described(call) + " on " + device.name() + ": " + reasons + "; " +
                           (others.empty() ? "nobody else takes it" : others + " would take it"));
}

void count_fallback(PluginDevice& device, const Call& call, const Seat& wanted,
                    const std::string& reason, const Seat& by) {
  for (PluginDevice::Fallback& row : device.fallbacks)
    if (row.op == call.op && row.reason == reason && row.wanted == wanted.name &&
        row.by == by.name) {
      ++row.times;
      return;
    }
  device.fallbacks.push_back({call.op, wanted.name, reason, by.name, 1});
}

}  // namespace

const char* refusal(const Seat& seat, const Call& call, CCall& c) {
  const auto row = static_cast<size_t>(row_of(*call.op));
  c.call.op = seat.ops[row];
  if (c.call.op < 0) return "it has no such operation";
  c.call.kernel = seat.kernels[row];
  return seat.table->supports(seat.state, &c.call);
}

void queue(PluginDevice& device, Seat& seat, const Call& call, CCall& c, bool is_watched) {
  if (seat.at_once) device.wait();
  const size_t bytes = seat.table->workspace(seat.state, &c.call);
  const Workspace workspace(device, bytes);
  c.call.workspace = workspace.data;
  CourseError error;
  if (seat.table->run(seat.state, &c.call, device.stream(), &error) != 0)
    throw_error(error, described(call) + " by " + seat.name + " on " + device.name());
  if (is_watched && call_watcher != nullptr)
    call_watcher->queued(device, seat, call, c.call.kernel, bytes);
}

void run_on(PluginDevice& device, const Call& call, const std::vector<Seat*>& order) {
  CCall c;
  to_c(call, &c);
  for (Seat* seat : order) {
    const char* reason = refusal(*seat, call, c);
    if (reason == nullptr)
      queue(device, *seat, call, c);
    else if (!is_taken_dense(device, *seat, call, c))
      continue;
    if (seat != order[0])
      count_fallback(device, call, *order[0], refusal(*order[0], call, c), *seat);
    return;
  }
  refuse_all(device, call, order, c);
}

void record_tracked(const Recorder& other) { recorder = other; }

void run(Call& call) {
  PluginDevice& device = plugin_device(device_of(call));
  const bool is_tracked = has_tracked(call);
  if (is_tracked) recorder.before(call);
  Outputs outputs(call, device);
  if (has_elements(call)) {
    if (device.takes_best && !call.op->updates) {  // which can't be repeated to be timed
      CCall c;
      to_c(call, &c);
      Seat* best = device.best->of(device, call, c);
      if (best != nullptr && refusal(*best, call, c) == nullptr)
        queue(device, *best, call, c);
      else
        run_on(device, call, device.policy);
    } else {
      run_on(device, call, device.policy);
    }
    for (int i = 0; i < call.output_count; ++i) call.outputs[i].count_write(call.op->name);
  }
  if (is_tracked) recorder.after(call);
  outputs.keep();
}

PluginDevice& plugin_device(Device& device) {
  thread_local Device* last = nullptr;  // a device of plug-ins: those live for ever
  if (&device == last) return static_cast<PluginDevice&>(device);
  auto* found = dynamic_cast<PluginDevice*>(&device);
  if (found == nullptr)
    throw std::invalid_argument(std::string("device ") + device.name() + " is of no plug-in");
  last = found;
  return *found;
}

void use(Device& device, const std::string& policy) {
  PluginDevice& on = plugin_device(device);
  if (policy == "best") {
    on.policy = on.default_policy(), on.takes_best = true;
    return;
  }
  std::vector<Seat*> order;
  for (size_t begin = 0; begin <= policy.size();) {
    const size_t end = std::min(policy.find(',', begin), policy.size());
    order.push_back(&on.seat(policy.substr(begin, end - begin)));
    begin = end + 1;
  }
  on.policy = std::move(order), on.takes_best = false;
}

void kernel(Device& device, const std::string& op, const std::string& name) {
  PluginDevice& on = plugin_device(device);
  const auto row = static_cast<size_t>(row_of(op_named(op.c_str())));
  std::string names;
  for (Seat& seat : on.seats()) {
    if (seat.state == nullptr) continue;
    const std::int32_t number = seat.ops[row];
    if (name.empty()) seat.kernels[row] = 0;
    if (name.empty() || number < 0) continue;
    for (std::int32_t i = 1; const char* found = seat.table->kernel_name(seat.state, number, i);
         ++i) {
      if (name == found) {
        seat.kernels[row] = i;
        on.best->forget();
        return;
      }
      names += (names.empty() ? "" : ", ") + std::string(found);
    }
  }
  on.best->forget();
  if (!name.empty())
    throw std::invalid_argument("kernel " + name + " of " + op + " on " + on.name() + ": " +
                                (names.empty() ? "there is but one" : "there is " + names));
}

const std::vector<PluginDevice::Fallback>& fallbacks(Device& device) {
  return plugin_device(device).fallbacks;
}

std::string refusal_of(Call call) {
  PluginDevice& device = plugin_device(device_of(call));
  const Outputs outputs(call, device);
  CCall c;
  to_c(call, &c);
  for (const Seat* seat : device.policy) {
    if (seat->ops[static_cast<size_t>(row_of(*call.op))] < 0) continue;
    const char* const reason = refusal(*seat, call, c);
    return reason == nullptr ? "" : seat->name + ": " + reason;
  }
  return "nobody whom the policy allows has it";
}

const std::vector<PluginDevice::LeftInF32>& left_in_f32(Device& device) {
  return plugin_device(device).left_in_f32;
}

std::vector<Choice> choices(Device& device) { return plugin_device(device).best->list(); }

}  // namespace framework
