// What the files of the reference share: the table of its operations, in parts.
#pragma once

#include <functional>
#include <vector>

#include "stage8_framework/02_backends/reference/numbers.h"

namespace reference {

struct Operation {
  const char* name;  // of its row in kOps
  std::function<void(const Arguments&)> run;
};

std::vector<Operation> elementwise();
std::vector<Operation> moves();
std::vector<Operation> reductions();
std::vector<Operation> products();
std::vector<Operation> rows();
std::vector<Operation> losses();
std::vector<Operation> convolutions();
std::vector<Operation> attentions();
std::vector<Operation> updates();

}  // namespace reference
