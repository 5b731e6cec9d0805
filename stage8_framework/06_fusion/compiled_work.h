// Programs that a compiler has taken, as Work: how their kernels are launched.
#pragma once

#include <memory>
#include <vector>

#include "stage8_framework/06_fusion/work.h"

namespace fusion {

// All of them from one text. Errors: as of compiled() in work.h.
std::vector<std::unique_ptr<ReadyWork>> compiled_together(const std::vector<Program>& programs);

}  // namespace fusion
