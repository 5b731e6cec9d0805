// Programs that a compiler has taken, as Work: how their kernels are launched.
#pragma once

#include <memory>
#include <vector>

#include "stage8_framework/06_fusion/work.h"

namespace fusion {

// Compiles those of them that this process has not compiled yet, from so many texts at the same
// time. Errors: as of compiled() in work.h, if only one of them has it.
std::vector<std::unique_ptr<ReadyWork>> compiled_together(const std::vector<Program>& programs,
                                                          size_t texts);

}  // namespace fusion
