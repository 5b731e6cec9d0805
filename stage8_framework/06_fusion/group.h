// Calls of a graph that become one program. Plain C++ that knows no device.
//
//   12  %5 = mul(%0, %1)          inputs   %0 %1             a group has one domain: the shape of
//   13  %6 = add(%5, %0)          values   mul add gelu      all that its calls make
//   15  %7 = gelu(%6)             writes   %5 %6 %7
#pragma once

#include <cstddef>
#include <vector>

#include "stage8_framework/05_capture/graph.h"
#include "stage8_framework/06_fusion/program.h"

namespace fusion {

using framework::GraphCall;
using framework::GraphTensor;

// Numbers that the graph itself writes: which place holds what everywhere, if it does.
class Numbers {
 public:
  explicit Numbers(size_t places) : is_known_(places), numbers_(places) {}
  void set(int place, float number) { is_known_[at(place)] = true, numbers_[at(place)] = number; }
  void forget(int place) { is_known_[at(place)] = false; }
  const float* find(int place) const {
    return is_known_[at(place)] ? &numbers_[at(place)] : nullptr;
  }

 private:
  static size_t at(int place) { return static_cast<size_t>(place); }
  std::vector<bool> is_known_;
  std::vector<float> numbers_;
};

class Group {
 public:
  // Whether a call can be a part of a group: an operation that has a formula, by its plug-in's own
  // kernel, of f32 and bool, whose output has no gaps.
  static bool takes(const GraphCall& call);

  // False, and nothing has changed, where the call has another domain, where the program would be
  // too long or have too many inputs, or where what it reads of this group lies in another order.
  bool join(const GraphCall& call, const Numbers& numbers);
  // The same for all calls of another group, where neither touches what the other one writes: they
  // come behind this one's.
  bool join(const Group& other, const Numbers& numbers);
  // Ends with the sum, mean or maximum of a value; nothing can join it then. False where the call
  // is none of one of its values over the first or the last axes.
  bool reduce(const GraphCall& call);

  bool is_empty() const { return calls_.empty(); }
  bool reads(int place) const;
  bool writes(int place) const;

  struct Made {
    GraphCall call;  // its inputs and outputs, without the work
    Program program;
  };
  // The group as one call that stores what `is_needed(place)`. A program without outputs where
  // there are too many, or one of bool.
  template <class IsNeeded>
  Made made(const IsNeeded& is_needed) const {
    std::vector<size_t> stored;
    for (size_t i = 0; i < written_.size(); ++i)
      if (!(is_reduced_ && i + 1 == written_.size()) && is_needed(written_[i].tensor.place))
        stored.push_back(i);
    return made_of(stored);
  }
  // In an order in which they can run one by one.
  const std::vector<GraphCall>& calls() const { return calls_; }

 private:
  struct Value {
    GraphTensor tensor;
    std::uint8_t value;
  };
  Made made_of(std::vector<size_t> stored) const;
  // The value that the call reads as its input i; -1 where the group can't have it.
  int value_of(const GraphCall& call, int i, const Numbers& numbers);
  bool is_full() const;

  Program program_;
  std::vector<GraphTensor> inputs_;
  std::vector<int> number_places_;  // which the program does not read, and its calls do
  std::vector<Value> written_;
  std::vector<GraphCall> calls_;
  bool is_reduced_ = false;
};

}  // namespace fusion
