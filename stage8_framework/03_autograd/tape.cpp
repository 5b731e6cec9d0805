#include "stage8_framework/03_autograd/tape.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "stage8_framework/02_backends/dispatch.h"
#include "stage8_framework/03_autograd/rules.h"

namespace framework {

namespace {

thread_local bool recording = true;

bool is_float(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f64 || dtype == Dtype::f16 || dtype == Dtype::bf16;
}

void save(Node& node, std::uint32_t bit, const Tensor& tensor) {
  node.kept |= bit;
  node.saved.push_back({tensor.detach(), tensor.version()});
}

// What the gradients of the inputs need that are wanted.
void save_needed(Node& node, const Rule& rule, const Call& call) {
  std::uint32_t needed = rule.also_needs != nullptr ? rule.also_needs(call) : 0;
  for (size_t i = 0; i < node.edges.size(); ++i)
    if (node.edges[i] != nullptr) needed |= rule.needs[i];
  for (int i = 0; i < call.input_count; ++i)
    if ((needed & input_bit(i)) != 0 && call.inputs[i].is_defined())
      save(node, input_bit(i), call.inputs[i]);
  for (int i = 0; i < call.output_count; ++i)
    if ((needed & output_bit(i)) != 0) save(node, output_bit(i), call.outputs[i]);
}

void keep_shapes(Node& node, const Call& call) {
  bool alike = call.output_count == 1;
  for (int i = 0; i < call.input_count; ++i)
    alike = alike && call.inputs[i].shape() == call.outputs[0].shape();
  if (alike) return;
  for (int i = 0; i < call.input_count; ++i) node.shapes.push_back(call.inputs[i].shape());
}

// Gives each output its slot.
void track(const std::shared_ptr<Node>& node, int i, Tensor& output) {
  node->outputs[i] = {node.get(), i};
  output.set_autograd(Slot(node, &node->outputs[i]));
}

void before_call(const Call& call) {
  if (!recording) return;
  const Rule& rule = rule_of(*call.op);
  for (int i = 0; i < call.output_count; ++i)
    if (call.outputs[i].requires_grad() ||
        (call.outputs[i].is_defined() && !rule.is_constant && !call.outputs[i].is_only_handle()))
      throw std::invalid_argument(
          described(call) + ": output " + std::to_string(i) + ", " + call.outputs[i].text() +
          ", is written in place, which has no gradient: do it under NoGrad");
  if (rule.run == nullptr && !rule.is_constant)
    throw std::invalid_argument(described(call) + ": it has no gradient, " + rule.reason +
                                ": call it under NoGrad");
}

void after_call(Call& call) {
  if (!recording) return;
  const Rule& rule = rule_of(*call.op);
  if (rule.is_constant) return;
  const auto node = std::make_shared<Node>();
  node->rule = &rule;
  std::copy(call.attributes, call.attributes + kMaxAttributes, node->attributes);
  node->edges.resize(static_cast<size_t>(call.input_count));
  for (size_t i = 0; i < node->edges.size(); ++i) node->edges[i] = call.inputs[i].autograd();
  node->device = &call.outputs[0].device(), node->dtype = call.inputs[0].dtype();
  keep_shapes(*node, call);
  save_needed(*node, rule, call);
  for (int i = 0; i < call.output_count; ++i)
    if (is_float(call.outputs[i].dtype())) track(node, i, call.outputs[i]);
}

// The node of what was made of `from`, without its outputs.
std::shared_ptr<Node> node_of(const Tensor& from, const Derivation& how) {
  auto node = std::make_shared<Node>();
  node->rule = &rule_of(how.kind);
  static_assert(kMaxAttributes >= static_cast<int>(kMaxRank));
  std::copy(how.numbers, how.numbers + kMaxRank, node->attributes);
  node->edges = {from.autograd()};
  node->shapes = {from.shape()};
  node->device = &from.device(), node->dtype = from.dtype();
  return node;
}

void made(const Tensor& from, Tensor& result, const Derivation& how) {
  if (!recording || !is_float(result.dtype())) return;
  if (how.kind == Derivation::other)
    throw std::invalid_argument(
        "view of " + from.text() +
        " by a layout has no gradient: detach() it, or use slice and others");
  track(node_of(from, how), 0, result);
}

void before_copy(const Tensor& out, const Tensor& source) {
  if (recording)
    throw std::invalid_argument("copy of " + source.text() + " into " + out.text() +
                                ": a write in place has no gradient: do it under NoGrad");
}

// Before there is a tracked tensor, nobody asks for these.
void install_hooks() {
  static const bool is_done = [] {
    Tensor::autograd_hooks = {made, before_copy};
    record_tracked({before_call, after_call});
    return true;
  }();
  static_cast<void>(is_done);
}

}  // namespace

// A chain of a million nodes is taken apart by a loop: node by node from within their destructors
// would take a stack frame for each.
Node::~Node() {
  std::vector<Slot> left = std::move(edges);
  while (!left.empty()) {
    const Slot slot = std::move(left.back());
    left.pop_back();
    if (slot == nullptr || slot->node == nullptr || slot.use_count() > 1) continue;
    for (Slot& edge : slot->node->edges) left.push_back(std::move(edge));
    slot->node->edges.clear();
  }
}

std::vector<Slot> use_up(Node& node) {
  node.is_used_up = true;
  node.saved = {};
  return std::exchange(node.edges, {});
}

void use_up_all(const Slot& slot) {
  std::vector<Slot> left{slot};
  while (!left.empty()) {
    const Slot next = std::move(left.back());
    left.pop_back();
    if (next == nullptr || next->node == nullptr) continue;
    for (Slot& edge : use_up(*next->node)) left.push_back(std::move(edge));
  }
}

std::vector<Tensor> unbind(const Tensor& a, std::int64_t axis) {
  const auto rank = static_cast<std::int64_t>(a.rank());
  const std::int64_t from_front = axis < 0 ? axis + rank : axis;
  const bool is_there = from_front >= 0 && from_front < rank;
  const std::int64_t count = is_there ? a.shape()[static_cast<size_t>(from_front)] : 0;
  if (!is_there || count > kMaxOutputs)
    throw std::invalid_argument("unbind of " + a.text() + " along axis " + std::to_string(axis) +
                                ": it takes an axis of up to " + std::to_string(kMaxOutputs) +
                                " elements");
  const Tensor values = a.detach();
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < count; ++i) parts.push_back(values.select(axis, i));
  if (!recording || !a.requires_grad()) return parts;
  const auto node = node_of(a, {Derivation::unbind, {from_front}});
  for (size_t i = 0; i < parts.size(); ++i) track(node, static_cast<int>(i), parts[i]);
  return parts;
}

NoGrad::NoGrad() : before_(std::exchange(recording, false)) {}
NoGrad::~NoGrad() { recording = before_; }
bool is_recording() { return recording; }

// ---- Leaves -------------------------------------------------------------------------------------

void Tensor::set_requires_grad(bool requires_grad) {
  if (!requires_grad) return set_autograd(nullptr);
  if (autograd_ != nullptr) return;
  if (!is_float(dtype_))
    throw std::invalid_argument("set_requires_grad of " + text() + ": " + name_of(dtype_) +
                                " numbers have no gradient");
  install_hooks();
  set_autograd(std::make_shared<Leaf>());
}

namespace {

Leaf& leaf_of(const Tensor& tensor, const char* function) {
  const Slot& slot = tensor.autograd();
  if (slot == nullptr || slot->node != nullptr)
    throw std::invalid_argument(std::string(function) + " of " + tensor.text() +
                                ": it is no leaf that requires a gradient");
  return static_cast<Leaf&>(*slot);
}

}  // namespace

Tensor Tensor::grad() const { return leaf_of(*this, "grad").grad; }

void Tensor::set_grad(const Tensor& grad) const {
  Leaf& leaf = leaf_of(*this, "set_grad");
  if (grad.is_defined() && (grad.shape() != shape() || grad.dtype() != gradient_type(dtype_) ||
                            &grad.device() != &device()))
    throw std::invalid_argument("set_grad of " + text() + ": the gradient is " + grad.text());
  leaf.grad = grad.is_defined() ? grad.detach() : Tensor();
}

void set_gradient_home(const Tensor& leaf, const Tensor& home) {
  Leaf& of = leaf_of(leaf, "set_gradient_home");
  if (home.is_defined() &&
      (home.shape() != leaf.shape() || home.dtype() != gradient_type(leaf.dtype()) ||
       !home.is_contiguous() || &home.device() != &leaf.device()))
    throw std::invalid_argument("set_gradient_home of " + leaf.text() + ": the home is " +
                                home.text());
  of.home = home.is_defined() ? home.detach() : Tensor();
  if (home.is_defined()) of.grad = Tensor();
}

}  // namespace framework
