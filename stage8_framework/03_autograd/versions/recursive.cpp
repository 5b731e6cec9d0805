// Backward by recursion: a node is run each time that a gradient reaches it.
//
//   loss = sum(a * b)       backward(sum, 1) -> backward(mul, g) -> leaf a
//                                                               \-> leaf b
//
// Idea:  the chain rule as it stands. A node's rule turns the gradient of its output into those of
//        its inputs, and each of these is passed on in the same way.
// Costs: a stack frame for each node of the longest path: a chain of a few thousand operations
//        overflows the stack. And a run for each path: where a result is used twice, all before it
//        is run twice, and 30 such places in a row take 2^30 runs.
#include "stage8_framework/03_autograd/autograd.h"

namespace autograd {

void backward_recursive(const Slot& root, const Tensor& seed, Pass& pass) {
  if (root->node == nullptr) return pass.arrive(root, seed);
  Node& node = *root->node;
  Gradients grads;
  grads.of[root->output] = seed;
  // exercise: run the node, and pass each gradient on (about 4 lines)
  Tensor given[kMaxInputs];
  pass.run(node, grads, given);
  for (size_t i = 0; i < node.edges.size(); ++i)
    if (node.edges[i] != nullptr) backward_recursive(node.edges[i], given[i], pass);
  // end exercise
}

}  // namespace autograd
