// Small grids for tests: kernels that go round over their items then do so at small sizes, too.
#pragma once

#include <cstddef>

#include "stage1_vector/01_vector_add/detail/grid.h"

namespace vector_add {

// While it lives, a grid that goes round over its items has at most so many blocks.
class FewBlocks {
 public:
  explicit FewBlocks(size_t blocks) : before_(block_limit) { block_limit = blocks; }
  ~FewBlocks() { block_limit = before_; }
  FewBlocks(const FewBlocks&) = delete;
  FewBlocks& operator=(const FewBlocks&) = delete;

 private:
  size_t before_;
};

}  // namespace vector_add
