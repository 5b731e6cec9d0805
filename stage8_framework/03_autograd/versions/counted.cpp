// Backward by counts: a node runs when all of its users are done, and is freed at once.
//
//          /- b = a * 2 -\        users of a: 2     d runs: b and c have none left
//   x - a =               = d     users of b: 1     c runs: a has one left
//          \- c = a + 1 -/        users of c: 1     b runs: a has none left, and runs
//
// Fixes: iterative keeps what every node saved, and every gradient, until the last node has run.
// Idea:  count each node's users first. When a node's count reaches 0 its gradient is complete. It
//        runs, and what it saved is freed, and its gradient. Its edges are moved out: a node that
//        nothing else leads to lives no longer than it waits.
// Costs: a walk to count, and a table of the gradients that wait, which is small.
#include <unordered_map>
#include <utility>

#include "stage8_framework/03_autograd/autograd.h"

namespace autograd {

namespace {

// By its place: how many edges lead to each node that leads to `root`.
std::vector<int> count_users(Node& root) {
  std::vector<int> users;
  std::vector<Node*> nodes;
  const auto visit = [&](Node& node) {
    if (enlist(nodes, node)) users.push_back(0);
  };
  visit(root);
  for (size_t at = 0; at < nodes.size(); ++at)
    for (const Slot& edge : nodes[at]->edges) {
      if (edge == nullptr || edge->node == nullptr) continue;
      visit(*edge->node);
      ++users[edge->node->place];
    }
  return users;
}

}  // namespace

void backward_counted(const Slot& root, const Tensor& seed, Pass& pass) {
  if (root->node == nullptr) return pass.arrive(root, seed);
  std::vector<int> users = count_users(*root->node);
  std::unordered_map<Node*, Gradients> waiting;
  waiting[root->node].of[root->output] = seed;
  std::vector<Slot> ready{root};  // it keeps nodes that nobody else does
  // exercise: run the nodes that are ready, until there are none (about 15 lines)
  while (!ready.empty()) {
    const Slot slot = std::move(ready.back());
    ready.pop_back();
    Node& node = *slot->node;
    Tensor given[kMaxInputs];
    pass.run(node, waiting[&node], given);
    waiting.erase(&node);
    std::vector<Slot> edges = pass.done(node);
    for (size_t i = 0; i < edges.size(); ++i) {
      if (edges[i] == nullptr) continue;
      if (edges[i]->node == nullptr) {
        pass.arrive(edges[i], given[i]);
        continue;
      }
      accumulate(waiting[edges[i]->node].of[edges[i]->output], given[i]);
      if (--users[edges[i]->node->place] == 0) ready.push_back(std::move(edges[i]));
    }
  }
  // end exercise
}

}  // namespace autograd
