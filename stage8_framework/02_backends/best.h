// The policy `best`: which plug-in is the fastest for a call, measured once.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "stage8_framework/02_backends/dispatch.h"

namespace framework {

class BestChoices {
 public:
  // The plug-in that is asked first; nullptr where none but the reference takes the call. Measures
  // where the call is new: then the outputs hold a result already.
  Seat* of(PluginDevice& device, const Call& call, CCall& c);

  const std::vector<Choice>& list() const { return list_; }
  void forget() { chosen_.clear(), list_.clear(); }

 private:
  using Key = std::vector<std::int64_t>;
  struct Hash {
    size_t operator()(const Key& key) const;
  };
  static void write_key(const Call& call, Key& key);
  Seat* measured(PluginDevice& device, const Call& call, CCall& c);

  Key key_;  // of the call at hand; its memory is used again
  std::unordered_map<Key, Seat*, Hash> chosen_;
  std::vector<Choice> list_;
};

}  // namespace framework
