#include "stage2_matrix/03_gemm/problem.h"

#include <algorithm>
#include <string_view>

#include "common/gpu_runtime.h"

namespace gemm {

std::vector<Size> sizes() {
  return {{"M", 4096, 384, 129}, {"N", 4096, 384, 65}, {"K", 4096, 384, 255}};
}

const char* name_of(Layout layout) {
  return layout == Layout::NN ? "NN" : layout == Layout::NT ? "NT" : "TN";
}

std::string Table::name() const {
  return std::string(name_of(layout)) + "   M=" + size_text(M) + " N=" + size_text(N) +
         " K=" + size_text(K) + " float32";
}

std::vector<Table> printed(size_t M, size_t N, size_t K, bool sizes_given) {
  std::vector<Table> tables = {{Layout::NN, M, N, K, true}};
  if (std::string_view(gpu::kBackend) != "cpu" && !sizes_given)
    tables.push_back({Layout::NN, 2 * M, 2 * N, 2 * K, false});
  tables.push_back({Layout::NT, M, N, K, false});
  tables.push_back({Layout::TN, M, N, K, false});
  return tables;
}

Product product_of(const Table& table) {
  Product p = contiguous(nullptr, nullptr, nullptr, table.M, table.N, table.K);
  p.layout = table.layout;
  if (p.layout == Layout::TN) p.lda = p.M;
  if (p.layout == Layout::NT) p.ldb = p.K;
  return p;
}

RowSample rows_of(const Table& table, std::uint64_t seed) {
  const size_t row_cost = std::max(table.N * table.K, size_t{1});
  return choose_rows(table.M, table.N, std::max((size_t{1} << 28) / row_cost, size_t{8}), seed);
}

}  // namespace gemm
