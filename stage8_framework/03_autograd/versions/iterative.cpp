// Backward by a list: all nodes in an order in which users stand before what they use.
//
//          /- b = a * 2 -\        recursive   d b a c a        a is run twice
//   x - a =               = d     iterative   d c b a          with the sum of both gradients
//          \- c = a + 1 -/
//
// Fixes: recursive runs a node once for each path, and needs a stack frame for each node of a path.
// Idea:  a node is put on the list when all that it leads to is on it. Read from its end, the list
//        has every user before what it uses: each gradient is complete when its node is run. The
//        stack is a vector, as deep as memory is large.
// Costs: a run for each node. What nodes have saved, and all gradients, stay until the end.
#include "stage8_framework/03_autograd/autograd.h"

namespace autograd {

namespace {

// A node that is on the list, or will be: its place there is none yet.
struct Visit {
  Node* node;
  size_t next = 0;  // the edge to look at
};

// All nodes that lead to `root`, what is used before its users. A node knows its place.
std::vector<Node*> in_order(Node& root) {
  std::vector<Node*> order, seen;
  std::vector<Visit> stack;
  const auto visit = [&](Node& node) {
    if (enlist(seen, node)) stack.push_back({&node});
  };
  visit(root);
  // exercise: list each node behind those that it uses (about 8 lines)
  while (!stack.empty()) {
    Visit& top = stack.back();
    if (top.next == top.node->edges.size()) {
      order.push_back(top.node);
      stack.pop_back();
      continue;
    }
    const Slot& edge = top.node->edges[top.next++];
    if (edge != nullptr && edge->node != nullptr) visit(*edge->node);
  }
  // end exercise
  return order;
}

}  // namespace

void backward_iterative(const Slot& root, const Tensor& seed, Pass& pass) {
  if (root->node == nullptr) return pass.arrive(root, seed);
  const std::vector<Node*> order = in_order(*root->node);
  std::vector<Gradients> grads(order.size());
  grads[root->node->place].of[root->output] = seed;
  for (size_t at = order.size(); at-- > 0;) {
    Node& node = *order[at];
    Tensor given[kMaxInputs];
    pass.run(node, grads[node.place], given);
    for (size_t i = 0; i < node.edges.size(); ++i) {
      const Slot& edge = node.edges[i];
      if (edge == nullptr) continue;
      if (edge->node == nullptr)
        pass.arrive(edge, given[i]);
      else
        accumulate(grads[edge->node->place].of[edge->output], given[i]);
    }
  }
}

}  // namespace autograd
