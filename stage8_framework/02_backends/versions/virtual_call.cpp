// The obvious backend: a class with a virtual function, and the operations by their names.
//
// Idea:  a program that knows only `Backend` runs on each class that is derived from it.
// Costs: each call hashes and compares a name. And a class ties its user down: a plug-in would have
//        to come from the same compiler, with the same headers, to agree with the program on where
//        a Call has its fields and how a virtual function is found.
#include <stdexcept>
#include <string>
#include <unordered_map>

#include "stage1_vector/01_vector_add/vector_add.h"
#include "stage8_framework/02_backends/backends.h"

namespace backends {
namespace {

class Backend {
 public:
  virtual ~Backend() = default;
  virtual void run(const Call& call, hipStream_t stream) const = 0;
};

void queue_add(const Call& call, hipStream_t stream) {
  const Tensor &a = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
  vector_add::launch_vectorized_add(
      static_cast<float*>(out.data()), static_cast<const float*>(a.data()),
      static_cast<const float*>(b.data()), static_cast<size_t>(out.elements()), stream);
}

class OwnBackend : public Backend {
 public:
  void run(const Call& call, hipStream_t stream) const override {
    const auto found = functions_.find(call.op->name);
    if (found == functions_.end())
      throw std::runtime_error(std::string("no function for ") + call.op->name);
    found->second(call, stream);
  }

 private:
  std::unordered_map<std::string, void (*)(const Call&, hipStream_t)> functions_{
      {"add", queue_add}};
};

const Backend& backend() {
  static const OwnBackend once;
  return once;
}

}  // namespace

void launch_virtual_call(const Call& call, hipStream_t stream) { backend().run(call, stream); }

}  // namespace backends
