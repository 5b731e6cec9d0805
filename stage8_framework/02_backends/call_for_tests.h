// A call that tests make: inputs of any layout as numbers, and what a plug-in makes of them. It
// goes to the plug-in's own table, so that nothing else can step in for a backend.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "stage8_framework/01_tensor/detail/convert.h"
#include "stage8_framework/02_backends/abi.h"
#include "stage8_framework/02_backends/ops.h"
#include "stage8_framework/02_backends/registry.h"

namespace backends_test {

using framework::Dtype;
using framework::Layout;
using framework::Op;
using framework::OutputSpec;
using framework::Shape;

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// ---- Numbers and bytes --------------------------------------------------------------------------

inline std::vector<unsigned char> bytes_of(const std::vector<double>& values, Dtype dtype) {
  std::vector<unsigned char> bytes(values.size() * size_of(dtype));
  for (size_t i = 0; i < values.size(); ++i)
    tensor::store_as(bytes.data(), dtype, static_cast<std::int64_t>(i), values[i]);
  return bytes;
}

inline std::vector<double> values_of(const std::vector<unsigned char>& bytes, Dtype dtype) {
  std::vector<double> values(bytes.size() / size_of(dtype));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (dtype == Dtype::f64)
      values[i] = tensor::load_as<double>(bytes.data(), dtype, at);
    else if (dtype == Dtype::f32 || dtype == Dtype::f16 || dtype == Dtype::bf16)
      values[i] = static_cast<double>(tensor::load_as<float>(bytes.data(), dtype, at));
    else
      values[i] = static_cast<double>(tensor::load_as<std::int64_t>(bytes.data(), dtype, at));
  }
  return values;
}

// Calls visit(place) with where each element lies, in row-major order.
template <class Visit>
void for_each_place(const Layout& layout, Visit visit) {
  const std::int64_t elements = layout.elements();
  for (std::int64_t n = 0; n < elements; ++n) {
    std::int64_t rest = n, place = layout.offset;
    for (size_t axis = layout.shape.rank(); axis-- > 0; rest /= layout.shape[axis])
      place += rest % layout.shape[axis] * layout.strides[axis];
    visit(static_cast<size_t>(place));
  }
}

// ---- Calls --------------------------------------------------------------------------------------

// An input. The numbers of `storage` that the layout does not reach are NaN. All are floats.
struct Input {
  Layout layout;
  Dtype dtype = Dtype::f32;
  std::vector<double> storage;
  bool is_present = true;

  std::vector<double> values() const {
    std::vector<double> values;
    for_each_place(layout, [&](size_t place) { values.push_back(storage[place]); });
    return values;
  }
  bool is_real() const {
    return is_present && (dtype == Dtype::f32 || dtype == Dtype::bf16 || dtype == Dtype::f16);
  }
};

inline Input absent() { return {{}, Dtype::f32, {}, false}; }
inline Input dense(const Shape& shape, std::vector<double> values, Dtype dtype = Dtype::f32) {
  return {Layout::contiguous(shape), dtype, std::move(values)};
}

struct TestCall {
  const Op* op = nullptr;
  std::vector<Input> inputs;
  std::vector<double> attributes;
  bool in_double = false;         // f64 in place of other real types
  std::vector<Input> given = {};  // outputs that no input determines, with what they hold before

  Dtype dtype_of(const Input& input) const {
    return in_double && input.is_real() ? Dtype::f64 : input.dtype;
  }
  TestCall with_dense_inputs() const {
    TestCall other = *this;
    for (Input& input : other.inputs)
      if (input.is_present) input = dense(input.layout.shape, input.values(), input.dtype);
    return other;
  }
  // The arrays whose numbers the call reads.
  std::vector<Input*> read() {
    std::vector<Input*> all;
    for (Input& input : inputs) all.push_back(&input);
    for (Input& output : given)
      if (op->updates) all.push_back(&output);
    return all;
  }
  // The same call with f(value) in place of every real number.
  template <class F>
  TestCall mapped(F f) const {
    TestCall other = *this;
    for (Input& input : other.inputs)
      if (input.is_real())
        for (double& value : input.storage) value = f(value);
    return other;
  }
  std::string text() const {
    std::string text = op->name;
    for (const Input& input : inputs)
      text += !input.is_present
                  ? std::string(" none")
                  : std::string(" ") + name_of(dtype_of(input)) + input.layout.shape.text() +
                        " strides " + input.layout.strides.text();
    for (const Input& output : given)
      text += std::string("; into ") + name_of(dtype_of(output)) + output.layout.shape.text() +
              " from " + std::to_string(output.layout.offset);
    text += "; attributes";
    for (const double attribute : attributes) text += " " + std::to_string(attribute);
    return text;
  }
};

// The host's memory as a device, for the shapes that infer() looks at. It computes nothing.
class HostDevice : public framework::Device {
 public:
  const char* name() const override { return "host"; }
  void* allocate(size_t bytes) override { return bytes == 0 ? nullptr : ::operator new(bytes); }
  void free(void* block) noexcept override { ::operator delete(block); }
  void to_device(void* to, const void* host, size_t bytes) override { copy_bytes(to, host, bytes); }
  void to_host(void* host, const void* from, size_t bytes) override {
    copy_bytes(host, from, bytes);
  }
  void copy(const framework::Tensor&, const framework::Tensor&) override {
    throw std::logic_error("a test's device copies no tensors");
  }

 private:
  static void copy_bytes(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
};

// The call as kOps' functions take it, with uninitialised elements.
inline framework::Call described(const TestCall& call) {
  static HostDevice device;
  framework::Call described;
  described.op = call.op;
  described.input_count = static_cast<int>(call.inputs.size());
  described.output_count = call.op->output_count;
  const auto tensor_of = [&](const Input& array) {
    const auto elements = static_cast<std::int64_t>(array.storage.size());
    return framework::Tensor::empty(device, {elements}, call.dtype_of(array)).view(array.layout);
  };
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (call.inputs[i].is_present) described.inputs[i] = tensor_of(call.inputs[i]);
  for (size_t i = 0; i < call.given.size(); ++i) described.outputs[i] = tensor_of(call.given[i]);
  std::copy(call.attributes.begin(), call.attributes.end(), described.attributes);
  return described;
}

// Shapes and types of the outputs. Throws what the row's infer() throws.
inline std::vector<OutputSpec> outputs_of(const TestCall& call) {
  std::vector<OutputSpec> specs(framework::kMaxOutputs);
  call.op->infer(described(call), specs.data());
  specs.resize(static_cast<size_t>(call.op->output_count));
  return specs;
}

// ---- Backends -----------------------------------------------------------------------------------

struct Output {
  Shape shape;
  Dtype dtype = Dtype::f32;
  std::vector<unsigned char> bytes;  // row-major
  std::vector<double> values() const { return values_of(bytes, dtype); }
};

struct Outcome {
  std::string refusal;  // why supports() will not have the call, else empty
  std::string failure;  // what went wrong, else empty
  std::vector<Output> outputs;
  size_t workspace = 0;  // bytes
};

// A plug-in, opened for device 0.
class Backend {
 public:
  // Nothing where this build has no such plug-in. Throws std::runtime_error where it can't be used.
  static std::shared_ptr<Backend> load(const std::string& name) {
    for (const framework::Plugin& plugin : framework::plugins()) {
      if (plugin.name != name) continue;
      if (plugin.table == nullptr) throw std::runtime_error(plugin.path + ": " + plugin.refused);
      return std::shared_ptr<Backend>(new Backend(plugin.table));
    }
    return nullptr;
  }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  ~Backend() { backend_->close(state_); }

  const char* name() const { return backend_->name; }
  bool has_memory() const { return backend_->allocate != nullptr; }
  bool has(const Op& op) const { return backend_->find(state_, op.name) >= 0; }
  // The names of an operation's kernels: kernel 1 is the first.
  std::vector<std::string> kernels(const Op& op) const {
    std::vector<std::string> names;
    const auto name = [&] {
      return backend_->kernel_name(state_, backend_->find(state_, op.name),
                                   static_cast<std::int32_t>(names.size() + 1));
    };
    for (const char* next = name(); next != nullptr; next = name()) names.push_back(next);
    return names;
  }

  // Runs the call in memory of `owner` (this plug-in's, if it has one), with guards around each
  // array and around the workspace; the workspace and outputs that are not given are poisoned.
  // Kernel 0 is its own choice. The workspace has `lacking` bytes fewer than it says.
  Outcome run(const TestCall& call, const Backend& owner, std::int32_t kernel = 0,
              size_t lacking = 0) const {
    Outcome outcome;
    Arguments arguments(call, owner, backend_->find(state_, call.op->name), kernel);
    const CourseCall* const c_call = arguments.call();
    const char* const refusal = backend_->supports(state_, c_call);
    if (refusal != nullptr) return outcome.refusal = refusal, outcome;
    outcome.workspace = backend_->workspace(state_, c_call);
    const Block workspace(owner, outcome.workspace - std::min(lacking, outcome.workspace), 0xFF);
    arguments.use_workspace(workspace.data());
    CourseError error = {};
    if (backend_->run(state_, c_call, nullptr, &error) != 0)
      return outcome.failure = error.text[0] == 0 ? "failed without a reason" : error.text, outcome;
    arguments.fetch(outcome);
    bool intact = false;
    workspace.fetch(&intact);
    if (!intact) outcome.failure = "wrote outside its workspace";
    if (arguments.without_addresses([&](const CourseCall& blind) {
          return backend_->workspace(state_, &blind);
        }) != outcome.workspace)
      outcome.failure = "its workspace depends on addresses";
    return outcome;
  }
  Outcome run(const TestCall& call) const { return run(call, *this); }

 private:
  explicit Backend(const CourseBackend* backend) : backend_(backend) {
    CourseError error = {};
    if (backend->open(0, &state_, &error) != 0)
      throw std::runtime_error(std::string("a plug-in does not open: ") + error.text);
  }

  void require(std::int32_t failed, const CourseError& error) const {
    if (failed != 0) throw std::runtime_error(std::string(name()) + ": " + error.text);
  }

  // Memory of a plug-in with guards around it.
  class Block {
   public:
    Block(const Backend& owner, size_t bytes, unsigned char content)
        : Block(owner, std::vector<unsigned char>(bytes, content)) {}
    Block(const Backend& owner, const std::vector<unsigned char>& content)
        : owner_(owner), bytes_(content.size()) {
      std::vector<unsigned char> all(bytes_ + 2 * kGuard, kCanary);
      std::copy(content.begin(), content.end(), all.begin() + kGuard);
      CourseError error = {};
      owner.require(owner.backend_->allocate(owner.state_, all.size(), &memory_, &error), error);
      owner.require(
          owner.backend_->to_device(owner.state_, memory_, all.data(), all.size(), nullptr, &error),
          error);
    }
    ~Block() { owner_.backend_->free(owner_.state_, memory_); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    void* data() const { return bytes_ == 0 ? nullptr : static_cast<char*>(memory_) + kGuard; }
    // The content. Sets *intact to whether the guards are what they were.
    std::vector<unsigned char> fetch(bool* intact) const {
      std::vector<unsigned char> all(bytes_ + 2 * kGuard);
      CourseError error = {};
      owner_.require(
          owner_.backend_->to_host(owner_.state_, all.data(), memory_, all.size(), nullptr, &error),
          error);
      const auto end = all.begin() + static_cast<std::ptrdiff_t>(kGuard + bytes_);
      const auto is_canary = [](unsigned char byte) { return byte == kCanary; };
      *intact = std::all_of(all.begin(), all.begin() + kGuard, is_canary) &&
                std::all_of(end, all.end(), is_canary);
      return {all.begin() + kGuard, end};
    }

   private:
    static constexpr size_t kGuard = 256;  // keeps the content aligned to 256 bytes
    static constexpr unsigned char kCanary = 0xA5;
    const Backend& owner_;
    size_t bytes_;
    void* memory_ = nullptr;
  };

  // A call's tensors in a plug-in's memory.
  class Arguments {
   public:
    Arguments(const TestCall& call, const Backend& owner, std::int32_t op, std::int32_t kernel)
        : attributes_(call.attributes), specs_(outputs_of(call)) {
      attributes_.resize(framework::kMaxAttributes);
      for (size_t i = 0; i < specs_.size(); ++i)
        layouts_.push_back(i < call.given.size() ? call.given[i].layout
                                                 : Layout::contiguous(specs_[i].shape));
      for (const Input& input : call.inputs) {
        if (!input.is_present) {
          tensors_.push_back({nullptr, nullptr, nullptr, -1, 0});
          continue;
        }
        const Dtype dtype = call.dtype_of(input);
        blocks_.push_back(std::make_unique<Block>(owner, bytes_of(input.storage, dtype)));
        add(input.layout, dtype);
      }
      for (size_t i = 0; i < specs_.size(); ++i) {
        const auto elements = static_cast<size_t>(layouts_[i].elements());
        before_.push_back(i < call.given.size() ? bytes_of(call.given[i].storage, specs_[i].dtype)
                                                : std::vector<unsigned char>(
                                                      elements * size_of(specs_[i].dtype), 0xFF));
        blocks_.push_back(std::make_unique<Block>(owner, before_.back()));
        add(layouts_[i], specs_[i].dtype);
      }
      const auto inputs = static_cast<std::int32_t>(call.inputs.size());
      call_ = {op,
               kernel,
               inputs,
               static_cast<std::int32_t>(specs_.size()),
               tensors_.data(),
               tensors_.data() + inputs,
               attributes_.data(),
               nullptr};
    }
    const CourseCall* call() const { return &call_; }
    void use_workspace(void* workspace) { call_.workspace = workspace; }
    // What `ask` says of the same call of tensors that are nowhere yet.
    template <class Ask>
    size_t without_addresses(Ask ask) const {
      std::vector<CourseTensor> nowhere = tensors_;
      for (CourseTensor& tensor : nowhere) tensor.data = nullptr;
      CourseCall blind = call_;
      blind.inputs = nowhere.data(), blind.outputs = nowhere.data() + call_.input_count;
      return ask(blind);
    }

    void fetch(Outcome& outcome) const {
      const size_t inputs = blocks_.size() - specs_.size();
      for (size_t i = 0; i < blocks_.size(); ++i) {
        bool intact = false;
        std::vector<unsigned char> bytes = blocks_[i]->fetch(&intact);
        if (!intact) outcome.failure = "wrote outside its arrays";
        if (i < inputs) continue;
        const OutputSpec& spec = specs_[i - inputs];
        Output output{spec.shape, spec.dtype, {}};
        // Takes the elements out; what is left is between them.
        const std::vector<unsigned char>& before = before_[i - inputs];
        for_each_place(layouts_[i - inputs], [&](size_t place) {
          const auto at = static_cast<std::ptrdiff_t>(place * size_of(spec.dtype));
          const auto end = at + static_cast<std::ptrdiff_t>(size_of(spec.dtype));
          output.bytes.insert(output.bytes.end(), bytes.begin() + at, bytes.begin() + end);
          std::copy(before.begin() + at, before.begin() + end, bytes.begin() + at);
        });
        if (bytes != before) outcome.failure = "wrote between the elements of an output";
        outcome.outputs.push_back(std::move(output));
      }
    }

   private:
    void add(const Layout& layout, Dtype dtype) {
      char* const first = static_cast<char*>(blocks_.back()->data());
      const auto bytes = layout.offset * static_cast<std::int64_t>(size_of(dtype));
      tensors_.push_back({first == nullptr || layout.elements() == 0 ? nullptr : first + bytes,
                          layout.shape.begin(), layout.strides.begin(),
                          static_cast<std::int32_t>(layout.shape.rank()),
                          static_cast<std::int32_t>(dtype)});
    }

    std::vector<double> attributes_;
    std::vector<OutputSpec> specs_;
    std::vector<Layout> layouts_;                     // of the outputs
    std::vector<std::vector<unsigned char>> before_;  // what is in them
    std::vector<std::unique_ptr<Block>> blocks_;
    std::vector<CourseTensor> tensors_;
    CourseCall call_;
  };

  const CourseBackend* backend_;
  void* state_ = nullptr;
};

}  // namespace backends_test
