// The tape: which operation made a tensor, from what, and what its gradient needs. It is not a list
// but a graph that tensors hold: a part that no tensor leads to is gone. Plain C++ that knows no
// device.
//
//   x, w: leaves          y = mul(x, w)           loss = sum(y)
//
//     loss --slot--> Node sum --edge--> Node mul --edge--> slot of x   .grad
//                    saved: nothing     saved: x, w  \---> slot of w   .grad
//
// Recorded are calls of run() with a tensor that requires a gradient, and views and copies of one.
// Such a tensor can't be written in place meanwhile, and no result of one can go into a tensor that
// somebody else has: its gradient would be wrong. Under a NoGrad nothing is recorded, and nothing
// of that is refused. Tensor's own functions:
//
//   set_requires_grad()  a leaf: gradients are summed in its grad(). Copies of this handle that are
//                        made from now on share it. false: this handle has no gradient any more.
//   backward()           of a tensor of one element: adds its gradient by every leaf to the leaf's
//   backward(seed)       of any tensor: the gradient of the sum of tensor * seed
//
// The gradient of a tensor of bf16 or f16 is f32, as that of its seed: gradients are sums.
// backward() makes no products in 16 bits but those of tensors that have 16, whatever Autocast
// there is.
//
// backward() uses the graph up, and what it saved is free, unless it is told to retain it. Errors
// are of std::invalid_argument, one line, std::runtime_error where a saved tensor has been written
// or the graph is used up, and what run() throws, gpu::Error out of memory included. No gradient
// has changed then. A graph of which a node has run may be used up.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "stage8_framework/02_backends/ops.h"

namespace framework {

struct Rule;
struct Node;

// Of a tensor that requires a gradient: output `output` of `node`, or a leaf.
struct AutogradSlot {
  Node* node = nullptr;  // nullptr: it is a Leaf
  int output = 0;
};
using Slot = std::shared_ptr<AutogradSlot>;  // of an output, it keeps the node

struct Leaf : AutogradSlot {
  Tensor grad;                   // undefined before the first backward()
  size_t place = 0;              // in a Pass
  Tensor home;                   // where grad shall lie; undefined: anywhere
  std::uint64_t written_by = 0;  // the number of the Pass that has written there last
};

// The type of the gradient of a tensor of `dtype`.
constexpr Dtype gradient_type(Dtype dtype) {
  return dtype == Dtype::bf16 || dtype == Dtype::f16 ? Dtype::f32 : dtype;
}

// From now on the leaf's gradients are written to `home`, of its gradient's shape and type,
// contiguous: into the memory of an optimizer. Most rules of parameters write there at once. The
// gradient that it has is forgotten. Where grad() is defined it is `home`, unless set_grad() has
// set another. An undefined home takes that back, and keeps the gradient. Where a copy home fails,
// at the very end of backward(), gradients that were home before may have changed. Throws
// std::invalid_argument where `leaf` is none.
void set_gradient_home(const Tensor& leaf, const Tensor& home);

// A tensor as it was when it was saved. It is detached: a node that saves its own output does not
// keep itself alive.
struct Saved {
  Tensor tensor;
  std::uint64_t version = 0;
};

// A call, or a view, as its gradient needs it.
struct Node {
  Node() = default;
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const Rule* rule = nullptr;
  double attributes[kMaxAttributes] = {};
  AutogradSlot outputs[kMaxOutputs];
  std::vector<Slot> edges;    // an entry for each input: nullptr where no gradient is wanted
  std::vector<Shape> shapes;  // of the inputs; empty where all have that of the one output
  Device* device = nullptr;   // of the first input, and its type
  Dtype dtype = Dtype::f32;
  std::vector<Saved> saved;  // in the order of the bits of `kept`
  std::uint32_t kept = 0;    // bit i: input i; bit kMaxInputs + i: output i
  bool is_used_up = false;   // saved and edges are gone
  size_t place = 0;          // in an engine's list
};

// Frees what a node saved and returns its edges: it can't be run again.
std::vector<Slot> use_up(Node& node);
// The same of everything that leads to this tensor.
void use_up_all(const Slot& slot);

// a.select(axis, 0), a.select(axis, 1), ...: all of them by one node, which puts their gradients
// side by side; by select() each would fill a tensor as large as `a`. Throws std::invalid_argument
// where there is no such axis, or its extent is larger than kMaxOutputs.
std::vector<Tensor> unbind(const Tensor& a, std::int64_t axis);

// While one lives, nothing is recorded in its thread.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};
bool is_recording();

}  // namespace framework
