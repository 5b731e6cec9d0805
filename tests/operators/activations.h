// The attribute "activation" of the adapters: which of step 1.4's functions a layer applies.
#pragma once

#include <string>

#include "tests/operators/operators.h"

namespace operators {

// Calls visit(F{}) with the one of the functions F whose kName the attribute is; without the
// attribute the first. Refused where it names none of them.
template <class First, class... Rest, class Visit>
void visit_activation(const Case& c, Visit&& visit) {
  const std::string name = c.word("activation", First::kName);
  bool found = false;
  const auto try_one = [&](auto function) {
    if (name != decltype(function)::kName) return;
    found = true;
    visit(function);
  };
  try_one(First{});
  (try_one(Rest{}), ...);
  require(found, "there is no activation " + name + " here");
}

}  // namespace operators
