// 8.3  autograd: the gradient of a tensor by all leaves that it was computed from. What was run is
// kept on a tape, and gone through backwards.
//
//   tape.h     what is recorded, and Tensor's functions for gradients
//   rules.h    how each operation passes a gradient on to its inputs
//
// This file has the ladder: in which order the nodes of the tape are run. Each version computes the
// gradients of all leaves that lead to `root` and hands them to the pass, given `seed`, the
// gradient of `root` itself, of its shape and type. What nodes save is detached, so that nothing is
// recorded meanwhile. Errors are those of Pass::run().
#pragma once

#include <cstdint>
#include <vector>

#include "common/version.h"
#include "stage8_framework/03_autograd/tape.h"

namespace autograd {

using framework::AutogradSlot;
using framework::kMaxInputs;
using framework::kMaxOutputs;
using framework::Leaf;
using framework::Node;
using framework::Slot;
using framework::Tensor;

// The gradients of a node's outputs, undefined where none has arrived yet.
struct Gradients {
  Tensor of[kMaxOutputs];
};

// Gives a node its place behind the others of `list`, unless it has one there. Whether it is new.
inline bool enlist(std::vector<Node*>& list, Node& node) {
  if (node.place < list.size() && list[node.place] == &node) return false;
  node.place = list.size();
  list.push_back(&node);
  return true;
}

// One way back through a graph: what the versions have in common.
class Pass {
 public:
  explicit Pass(bool retains_graph);

  // Runs a node's rule: given[i] is the gradient of input i, undefined where none is wanted. Throws
  // std::runtime_error where the node is used up or a tensor that it saved was written since.
  void run(const Node& node, const Gradients& grads, Tensor (&given)[kMaxInputs]) const;
  // The edges of a node that won't be run again: frees what it saved, if the graph isn't retained.
  std::vector<Slot> done(Node& node) const;
  // A gradient has come to a leaf.
  void arrive(const Slot& leaf, const Tensor& grad);
  // Adds to each leaf's gradient what has arrived. After an error none has changed, but for those
  // of leaves with a home that had one before.
  void commit();

 private:
  struct Arrived {
    std::shared_ptr<Leaf> leaf;
    Tensor sum;
  };
  bool retains_graph_;
  std::uint64_t number_;  // no other Pass has it
  std::vector<Arrived> arrived_;
};

// sum += grad, where an undefined sum is 0.
void accumulate(Tensor& sum, const Tensor& grad);

void backward_recursive(const Slot& root, const Tensor& seed, Pass& pass);
void backward_iterative(const Slot& root, const Tensor& seed, Pass& pass);
void backward_counted(const Slot& root, const Tensor& seed, Pass& pass);

using Launch = void (*)(const Slot& root, const Tensor& seed, Pass& pass);

inline constexpr Version<Launch> kVersions[] = {
    {"recursive", backward_recursive, "each gradient is passed on as it arrives, depth first"},
    {"iterative", backward_iterative, "a node runs once, behind its users; all is kept to the end"},
    {"counted", backward_counted, "a node that all users are done with runs, and is freed at once"},
};
constexpr const auto& best() { return kVersions[2]; }

// What Tensor::backward(seed) does, by this version.
void backward(const Tensor& root, const Tensor& seed, bool retain_graph,
              Launch launch = best().launch);

}  // namespace autograd
