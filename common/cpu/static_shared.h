// Where static shared memory lies. For common/cpu/*.cpp only.
#pragma once

#include <cstddef>
#include <vector>

namespace cpu {

// A __shared__ variable: its place in each host thread's copy of the program's thread-local
// variables.
struct SharedVariable {
  std::size_t offset, bytes;
};

// All of the program's, from its own table of symbols; none where that was stripped.
const std::vector<SharedVariable>& shared_variables();
// This host thread's copy of the program's thread-local variables.
char* thread_local_variables();

}  // namespace cpu
