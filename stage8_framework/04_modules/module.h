// Module: a part of a model, with parameters and parts of its own. A model is a tree of them; a
// tensor's name is the path to it, as PyTorch has it: "encoder.0.weight". Plain C++ that knows no
// device.
//
//   struct Net : Module {
//     Linear first, last;
//     explicit Net(Device& device) : first(device, 784, 128), last(device, 128, 10) {
//       add_module("first", first), add_module("last", last);
//     }
//     Tensor forward(const Tensor& x) override { return last(relu(first(x))); }
//   };
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "stage8_framework/01_tensor/handle.h"

namespace framework {

// A tensor of a module and the path to it. The module owns the handle, which may be replaced by one
// of the same values that lie elsewhere.
struct NamedTensor {
  std::string name;
  Tensor* tensor;
};

using StateDict = std::map<std::string, Tensor>;

// It stays where it was made, as its parents know its address. Whoever derives from it registers
// its tensors and parts in its constructor; they are members, and live as long as it does.
class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // What comes out for x. Shapes and errors are the layer's.
  virtual Tensor forward(const Tensor& x) = 0;
  Tensor operator()(const Tensor& x) { return forward(x); }

  // In the order of registration, a module's own before those of its parts. Parameters are trained:
  // each is a leaf that requires a gradient. Buffers are not, such as a running mean.
  std::vector<NamedTensor> parameters();
  std::vector<NamedTensor> buffers();
  std::int64_t parameter_count();

  // Some layers do something else while a model is trained, as Dropout. A new module is in
  // training.
  void train(bool is_training = true);
  void eval() { train(false); }
  bool is_training() const { return is_training_; }

  // Moves all tensors to another device. Gradients are forgotten. An optimizer that was made before
  // updates what it knows: make another one.
  void to(Device& device);

  // All parameters and buffers by name: detached handles to the elements themselves, not copies.
  StateDict state_dict();
  // Copies the values of all parameters and buffers from `state`, from any device and of any
  // floating-point type. Throws std::invalid_argument, one line, where a name is missing, or one is
  // too many, or a shape is another: then nothing has changed. An integer buffer may be missing.
  void load_state_dict(const StateDict& state);

 protected:
  // Throw std::invalid_argument where the name is empty, has a dot or is taken. A parameter
  // requires a gradient from here on. An undefined tensor is no parameter, such as a bias that is
  // left out.
  void add_parameter(const std::string& name, Tensor& tensor);
  void add_buffer(const std::string& name, Tensor& tensor);
  void add_module(const std::string& name, Module& part);

 private:
  enum class Kind { parameter, buffer };
  struct Entry {
    std::string name;
    Kind kind;
    Tensor* tensor;
  };
  void require_new(const std::string& name) const;
  void collect(Kind kind, const std::string& path, std::vector<NamedTensor>& into);

  std::vector<Entry> tensors_;
  std::vector<std::pair<std::string, Module*>> parts_;
  bool is_training_ = true;
};

}  // namespace framework
