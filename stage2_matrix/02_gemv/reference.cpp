#include "stage2_matrix/02_gemv/reference.h"

#include <algorithm>
#include <cmath>

#include "common/gpu_runtime.h"
#include "stage2_matrix/02_gemv/detail/plan.h"

namespace gemv {

rounding::Sum gemv_cpu(float alpha, const std::vector<float>& line, const std::vector<float>& x,
                       float beta, float y) {
  rounding::Sum sum;
  if (alpha != 0) sum = rounding::dot(line.data(), x.data(), line.size());
  sum = sum.times(static_cast<double>(alpha));
  if (beta != 0) sum.add(static_cast<double>(beta) * static_cast<double>(y));
  return sum;
}

double bound(double depth, const rounding::Sum& want) { return want.mean_zero_bound(depth + 2); }

// Through how many roundings does a product go? It is one itself. It goes through one per addition
// to its thread's sum, and through those of the block's and the slices' sums.

static double share(double items, double threads) { return std::ceil(items / threads); }

double depth_thread_per_row(const Product& p) { return 1 + static_cast<double>(p.cols); }

double depth_block_per_row(const Product& p) {
  return 1 + share(static_cast<double>(p.cols), kBlock) + std::log2(kBlock);
}

double depth_wave_per_row(const Product& p) {
  const double wave = gpu::device_wave_size();
  return 1 + share(static_cast<double>(p.cols), wave) + std::log2(wave);
}

// One of the columns behind the last float4 may be a thread's, too.
static double depth_rows(const RowPlan& plan, size_t cols) {
  const double wave = gpu::device_wave_size();
  const double values = share(static_cast<double>(cols / plan.width), plan.slices);
  return 1 + plan.width * share(values, plan.team) + 1 + std::log2(wave) + plan.team / wave +
         plan.slices;
}
double depth_vectorized(const Product& p) { return depth_rows(plan_rows(p, false), p.cols); }
double depth_split_rows(const Product& p) { return depth_rows(plan_rows(p, true), p.cols); }

double depth_thread_per_column(const Product& p) { return 1 + static_cast<double>(p.rows); }

double depth_split_columns(const Product& p) {
  const auto depth = [&](const ColumnPlan& plan) {
    const double rows = share(static_cast<double>(p.rows), plan.slices);
    const double height = kBlock / plan.block_width;
    return 1 + share(rows, height) + height + plan.slices;
  };
  const size_t vectors = float4_columns(p);
  return std::max(depth(plan_columns(some_columns(p, 0, vectors), 4)),
                  depth(plan_columns(some_columns(p, vectors, p.cols - vectors), 1)));
}

}  // namespace gemv
