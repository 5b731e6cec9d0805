// The products that the program prints, and what of them it compares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/options.h"
#include "common/sample.h"
#include "stage2_matrix/03_gemm/gemm.h"

namespace gemm {

// M, N and K on a GPU, on the CPU backend and with --quick.
std::vector<Size> sizes();

// "NN", "NT" or "TN".
const char* name_of(Layout layout);

struct Table {
  Layout layout;
  size_t M, N, K;
  bool whole_ladder;  // all versions, or those that take every Product

  std::string name() const;
};

// One table each: NN at these sizes, NT and TN at the same, and NN at twice the sizes on a GPU,
// unless the user has chosen the sizes (`sizes_given`) or wants small ones.
std::vector<Table> printed(size_t M, size_t N, size_t K, bool sizes_given);

// The product of a table on contiguous matrices, without arrays.
Product product_of(const Table& table);

// The rows of C that are compared: as many as the host multiplies in a moment, and at least 8.
RowSample rows_of(const Table& table, std::uint64_t seed);

}  // namespace gemm
