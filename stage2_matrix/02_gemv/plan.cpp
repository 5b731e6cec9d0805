#include <algorithm>
#include <stdexcept>
#include <string>

#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage2_matrix/02_gemv/detail/plan.h"

namespace gemv {

Product checked(Product p, bool transposed) {
  if (p.lda < p.cols)
    throw std::invalid_argument("gemv: rows of " + std::to_string(p.cols) +
                                " elements begin only lda = " + std::to_string(p.lda) + " apart");
  size_t& terms = transposed ? p.rows : p.cols;
  if (p.alpha == 0) terms = 0;
  if (terms == 0) p.alpha = 0;  // an infinite alpha times a sum of nothing would be NaN
  return p;
}

void Launch::operator()(const Product& p, const Workspace& workspace, hipStream_t stream) const {
  if (general != nullptr) return general(p, workspace, stream);
  if (p.alpha != 1 || p.beta != 0 || p.lda != p.cols)
    throw std::invalid_argument("gemv: this version computes y = A x for an A without gaps only");
  simple(p.y, p.a, p.x, p.rows, p.cols, stream);
}

unsigned grid_size(size_t blocks) {
  return static_cast<unsigned>(std::min(blocks, vector_add::largest_grid(kBlock)));
}

// As many slices of `length` as fill the device with blocks when one slice needs `blocks` of them,
// but none shorter than `shortest`, and no more than there is workspace for.
static unsigned choose_slices(size_t blocks, size_t length, size_t shortest, size_t count) {
  const size_t resident = size_t{gpu::multiprocessors()} * kResidentBlocks;
  const size_t most = std::min({length / shortest, kMaxPartials / count, gpu::kMaxGridY});
  return static_cast<unsigned>(std::clamp(resident / blocks, size_t{1}, std::max(most, size_t{1})));
}

RowPlan plan_rows(const Product& p, bool split) {
  RowPlan plan{1, gpu::device_wave_size(), 1};
  if (is_float4_aligned(p.a) && is_float4_aligned(p.x) && p.lda % 4 == 0) plan.width = 4;
  const size_t values = p.cols / plan.width, loads = loads_in_flight(plan.width, kRowLoads);
  while (plan.team < kBlock && plan.team * loads < values) plan.team *= 2;
  if (split && p.rows > 0) {
    const size_t rows_per_block = size_t{kBlock / plan.team} * kRows;
    plan.slices =
        choose_slices(gpu::ceil_div(p.rows, rows_per_block), values, plan.team * loads, p.rows);
  }
  return plan;
}

ColumnPlan plan_columns(const Product& p, unsigned width) {
  ColumnPlan plan{width, 1, 1};
  const size_t values = p.cols / width, loads = loads_in_flight(width, kColumnLoads);
  while (plan.block_width < kMaxWidth && plan.block_width < values) plan.block_width *= 2;
  if (p.cols > 0)
    plan.slices = choose_slices(gpu::ceil_div(values, plan.block_width), p.rows,
                                kBlock / plan.block_width * loads, p.cols);
  return plan;
}

size_t float4_columns(const Product& p) {
  return is_float4_aligned(p.a) && p.lda % 4 == 0 ? p.cols - p.cols % 4 : 0;
}

Product some_columns(Product p, size_t first, size_t count) {
  p.a += first, p.y += first, p.cols = count;
  return p;
}

size_t workspace_bytes(bool transposed, const Product& p) {
  const auto bytes = [](unsigned slices, size_t count) {
    return slices > 1 ? slices * count * sizeof(float) : 0;
  };
  if (!transposed) return bytes(plan_rows(p, true).slices, p.rows);
  const size_t wide = float4_columns(p), single = p.cols - wide;
  return std::max(bytes(plan_columns(some_columns(p, 0, wide), 4).slices, wide),
                  bytes(plan_columns(some_columns(p, wide, single), 1).slices, single));
}

}  // namespace gemv
