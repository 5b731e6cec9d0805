// How large a workspace is, and how many roundings a product goes through in each version: one of
// its own, one per addition to its thread's sum, log2(kBlock) in the block, and those of the sums
// of the blocks.
#include <algorithm>
#include <cmath>

#include "stage1_vector/03_dot/detail/grid.h"
#include "stage1_vector/03_dot/dot.h"
#include "stage1_vector/03_dot/reference.h"

namespace dot {

namespace {

// Additions in a thread that reads float4s: its float4s, its single elements, and the four sums of
// a float4.
double sum_of_vectors(const Split& split, double threads) {
  return sum_of_thread(static_cast<double>(split.vectors), threads) +
         sum_of_thread(static_cast<double>(split.head + split.tail), threads) + 2;
}

double depth_of_partials(const Split& split, double blocks) {
  return 1 + sum_of_vectors(split, blocks * kBlock) + std::log2(kBlock) +
         sum_of_thread(blocks, kBlock) + std::log2(kBlock);
}

}  // namespace

size_t workspace_bytes(size_t n) {
  const size_t blocks = std::clamp(gpu::ceil_div(n, kBlock), size_t{1}, size_t{kMaxBlocks});
  return sizeof(unsigned) + blocks * sizeof(float);
}

double depth_atomic(const float* /*x*/, const float* /*y*/, size_t n) {
  return 1 + static_cast<double>(n);
}

double depth_block_atomics(const float* /*x*/, const float* /*y*/, size_t n) {
  const double blocks = dot_blocks(n);
  return 1 + sum_of_thread(static_cast<double>(n), blocks * kBlock) + std::log2(kBlock) + blocks;
}

double depth_loads_in_flight(const float* x, const float* y, size_t n) {
  const Split split = split_vectors(n, {x, y});
  const double blocks = dot_blocks(split);
  return 1 + sum_of_vectors(split, blocks * kBlock) + std::log2(kBlock) + blocks;
}

double depth_single_pass(const float* x, const float* y, size_t n) {
  const Split split = split_vectors(n, {x, y});
  return depth_of_partials(split, dot_blocks(split));
}

double depth_two_pass(const float* x, const float* y, size_t n) {
  const Split split = split_vectors(n, {x, y});
  return depth_of_partials(split, fixed_blocks(split));
}

}  // namespace dot
