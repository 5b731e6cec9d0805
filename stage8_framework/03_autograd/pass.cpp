#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>

#include "stage8_framework/02_backends/functions.h"
#include "stage8_framework/03_autograd/autograd.h"
#include "stage8_framework/03_autograd/rules.h"

namespace framework {

namespace {

// "input b" of "a b", "output 1".
std::string role_of(const Node& node, size_t i) {
  std::uint32_t kept = node.kept;
  for (; i > 0; --i) kept &= kept - 1;  // without the lowest bit
  int bit = 0;
  while ((kept >> bit & 1) == 0) ++bit;
  if (bit >= kMaxInputs) return "output " + std::to_string(bit - kMaxInputs);
  std::string names = op_named(node.rule->name).inputs;
  for (; bit > 0; --bit) names.erase(0, names.find(' ') + 1);
  return "input " + names.substr(0, names.find_first_of(" ?"));
}

}  // namespace

const Shape& WayBack::shape(int i) const {
  return node_.shapes.empty() ? grad().shape() : node_.shapes[static_cast<size_t>(i)];
}

const Tensor& WayBack::saved(std::uint32_t bit) const {
  static const Tensor kAbsent;
  if ((node_.kept & bit) == 0) return kAbsent;
  size_t place = 0;
  for (std::uint32_t below = node_.kept & (bit - 1); below != 0; below &= below - 1) ++place;
  return node_.saved[place].tensor;
}

Tensor WayBack::home(int i) const {
  const Slot& edge = node_.edges[static_cast<size_t>(i)];
  if (edge == nullptr || edge->node != nullptr) return {};
  Leaf& leaf = static_cast<Leaf&>(*edge);
  if (leaf.grad.is_defined() || leaf.written_by == pass_) return {};
  leaf.written_by = pass_;
  return leaf.home;
}

void WayBack::give(int i, const Tensor& grad) {
  if (!wants(i)) return;
  const bool is_broadcast = !(grad.shape() == shape(i));
  autograd::accumulate(given_[i], unbroadcast(grad, shape(i), is_broadcast ? home(i) : Tensor()));
}

}  // namespace framework

namespace autograd {

using namespace framework;

void accumulate(Tensor& sum, const Tensor& grad) { sum = sum.is_defined() ? add(sum, grad) : grad; }

namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

Pass::Pass(bool retains_graph) : retains_graph_(retains_graph), number_(next_number()) {}

void Pass::run(const Node& node, const Gradients& grads, Tensor (&given)[kMaxInputs]) const {
  const auto refuse = [&](const std::string& reason) {
    throw std::runtime_error(std::string("backward of ") + node.rule->name + ": " + reason);
  };
  const auto has_come = [](const Tensor& grad) { return grad.is_defined(); };
  if (std::none_of(grads.of, grads.of + kMaxOutputs, has_come))
    refuse("no gradient has come to it: what uses its result runs first");
  if (node.is_used_up) refuse("the graph was used up by a backward() before: retain it there");
  for (size_t i = 0; i < node.saved.size(); ++i) {
    const auto& [tensor, version] = node.saved[i];
    if (tensor.version() == version) continue;
    refuse("its " + role_of(node, i) + ", " + tensor.text() + ", was saved at version " +
           std::to_string(version) + " and is at version " + std::to_string(tensor.version()) +
           ": " + tensor.last_writer() + " has written it in place");
  }
  WayBack back(node, grads.of, given, number_);
  node.rule->run(back);
  for (size_t i = 0; i < node.edges.size(); ++i)  // the mean of layernorm does not know of its gain
    if (node.edges[i] != nullptr && !given[i].is_defined())
      given[i] = full(*node.device, back.shape(static_cast<int>(i)), 0, back.grad_dtype());
}

std::vector<Slot> Pass::done(Node& node) const {
  return retains_graph_ ? node.edges : use_up(node);
}

void Pass::arrive(const Slot& slot, const Tensor& grad) {
  const auto leaf = std::static_pointer_cast<Leaf>(slot);
  if (leaf->place >= arrived_.size() || arrived_[leaf->place].leaf != leaf) {
    leaf->place = arrived_.size();
    arrived_.push_back({leaf, {}});
  }
  accumulate(arrived_[leaf->place].sum, grad);
}

void Pass::commit() {
  for (Arrived& entry : arrived_) {
    Tensor& sum = entry.sum;
    if (entry.leaf->grad.is_defined()) sum = add(entry.leaf->grad, sum);
    // What nobody else sees: the gradient of one leaf may be that of another, or the seed.
    if (!entry.leaf->home.is_defined() && (!sum.is_only_handle() || !sum.is_contiguous()))
      sum = sum.clone();
  }
  for (Arrived& entry : arrived_) {
    const Tensor& home = entry.leaf->home;
    if (!home.is_defined()) continue;
    home.copy_from(entry.sum);  // no work where a rule has written there at once
    entry.sum = home;
  }
  for (Arrived& entry : arrived_) entry.leaf->grad = std::move(entry.sum);
  arrived_.clear();
}

void backward(const Tensor& root, const Tensor& seed, bool retain_graph, Launch launch) {
  const auto refuse = [&](const std::string& reason) {
    throw std::invalid_argument("backward of " + root.text() + ": " + reason);
  };
  if (!root.requires_grad()) refuse("nothing that it was computed from requires a gradient");
  if (seed.shape() != root.shape() || seed.dtype() != gradient_type(root.dtype()))
    refuse("the seed is " + seed.text());
  if (&seed.device() != &root.device())
    refuse(std::string("the seed is on ") + seed.device().name() + ", not on " +
           root.device().name());
  const Autocast none(Dtype::f32);  // the rules say in which type their products are
  Pass pass(retain_graph);
  launch(root.autograd(), seed.detach(), pass);
  pass.commit();
  if (!retain_graph) use_up_all(root.autograd());
}

}  // namespace autograd

namespace framework {

void Tensor::backward() const {
  if (elements() != 1)
    throw std::invalid_argument("backward of " + text() +
                                ": only a tensor of one element needs no seed");
  if (!requires_grad()) return autograd::backward(*this, *this, false);  // refuses it
  autograd::backward(*this, full(device(), shape(), 1, gradient_type(dtype_)), false);
}

void Tensor::backward(const Tensor& seed, bool retain_graph) const {
  autograd::backward(*this, seed, retain_graph);
}

}  // namespace framework
