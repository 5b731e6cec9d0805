// The rules of differentiation: for every row of kOps, and every kind of view, the gradient of its
// inputs, given that of its outputs (a vector-Jacobian product). They are written in operations of
// functions.h, so that they run wherever the operation does. Plain C++ that knows no device.
#pragma once

#include <cstdint>

#include "stage8_framework/03_autograd/tape.h"

namespace framework {

constexpr std::uint32_t input_bit(int i) { return 1u << i; }
constexpr std::uint32_t output_bit(int i) { return 1u << (kMaxInputs + i); }

// A node on the way back: what its rule reads, and what it gives.
class WayBack {
 public:
  // grads: of the node's outputs, undefined where none has arrived; one at least has. given: of its
  // inputs, all undefined. pass: a number of the way back that this is a part of.
  WayBack(const Node& node, const Tensor* grads, Tensor* given, std::uint64_t pass)
      : node_(node), grads_(grads), given_(given), pass_(pass) {}

  bool has_grad(int output) const { return grads_[output].is_defined(); }
  const Tensor& grad(int output = 0) const { return grads_[output]; }
  const Tensor& input(int i) const { return saved(input_bit(i)); }
  const Tensor& output(int i = 0) const { return saved(output_bit(i)); }
  const Shape& shape(int i) const;                                 // of input i
  Dtype dtype() const { return node_.dtype; }                      // of the first input
  Dtype grad_dtype() const { return gradient_type(node_.dtype); }  // of its gradient
  Device& device() const { return *node_.device; }
  double attribute(int i) const { return node_.attributes[i]; }
  std::int64_t whole(int i) const { return static_cast<std::int64_t>(node_.attributes[i]); }

  // Where a rule may write the gradient of input i, which it then gives: the home of a leaf that
  // has no gradient yet. Else undefined. For what is summed over axes that were
  // broadcast, give() asks.
  Tensor home(int i) const;
  bool wants(int i) const { return node_.edges[static_cast<size_t>(i)] != nullptr; }
  // The gradient of input i, summed over what the operation has broadcast. A second one is added.
  void give(int i, const Tensor& grad);

 private:
  const Tensor& saved(std::uint32_t bit) const;  // undefined where it is an input that was absent
  const Node& node_;
  const Tensor* grads_;
  Tensor* given_;
  std::uint64_t pass_;
};

struct Rule {
  const char* name;         // of the operation
  void (*run)(WayBack& b);  // gives a gradient to each input that wants one; nullptr: there is none
  std::uint32_t needs[4];   // what the gradient of input i needs: input_bit, output_bit
  const char* reason;       // where there is none: why
  bool is_constant = false;  // and the result counts as a constant; else the call is refused
  std::uint32_t (*also_needs)(const Call& call) = nullptr;  // what depends on attributes
};

const Rule& rule_of(const Op& op);
const Rule& rule_of(Derivation::Kind kind);
// The number of rows of the table: kOpCount, or a row of kOps has no rule.
int rule_count();

// The sum of a tensor over the axes along which it was broadcast from `shape`, written to `home` if
// that is defined; what was not broadcast is returned as it is.
Tensor unbroadcast(const Tensor& grad, const Shape& shape, const Tensor& home = {});

}  // namespace framework
