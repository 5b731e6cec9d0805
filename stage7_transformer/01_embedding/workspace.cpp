// The memory of a backward pass, and the bounds of its sums.
#include "stage7_transformer/01_embedding/workspace.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "stage7_transformer/01_embedding/detail/plan.h"
#include "stage7_transformer/01_embedding/embedding.h"

namespace embedding {

Shape checked(Shape shape) {
  if (shape.T_max == 0) shape.T_max = shape.T;
  if (shape.T > shape.T_max)
    throw std::invalid_argument("embedding: sequences of " + std::to_string(shape.T) +
                                " positions, and a table for " + std::to_string(shape.T_max));
  if (shape.positions() >= kMost)
    throw std::invalid_argument("embedding takes fewer than 2^32 - 1 positions");
  if (shape.V >= kMost) throw std::invalid_argument("embedding takes fewer than 2^32 - 1 tokens");
  return shape;
}

TablePlan plan_table(const Shape& shape) {
  const size_t groups = std::min(kTableRows / shape.V, size_t{kBlock / kTableWidth});
  const size_t tiles = gpu::ceil_div(std::max(shape.C, size_t{1}), size_t{kTableWidth});
  const size_t wanted = std::max(size_t{gpu::multiprocessors()} * kTableBlocks / tiles, size_t{1});
  const size_t n = shape.positions(), least = groups * kTableLoads;
  const size_t slice = std::max(gpu::ceil_div(n, wanted), least);
  return {static_cast<unsigned>(groups), slice, gpu::ceil_div(n, slice),
          std::min(wanted, gpu::ceil_div(n, least))};
}

size_t partials_of(const Shape& shape) {
  const size_t chunks = gpu::ceil_div(shape.positions(), size_t{kChunk});
  const size_t tables = table_fits(shape.V) ? plan_table(shape).most * shape.V : 0;
  return std::max(2 * chunks, tables) * shape.C;
}

Workspace::Workspace(const Shape& largest)
    : first(largest.V), last(largest.V), partials(partials_of(checked(largest))), bad_token_(1) {
  for (DeviceBuffer<Entry>& buffer : entries) buffer = DeviceBuffer<Entry>(largest.positions());
  bad_token_.poison();
}

void Workspace::check_tokens(size_t V) {
  const unsigned long long bad_token = bad_token_.to_host()[0];
  bad_token_.poison();
  if (bad_token == ~0ull) return;  // poison: every byte 0xFF
  const auto token = static_cast<std::int32_t>(static_cast<std::uint32_t>(bad_token));
  throw std::out_of_range("position " + std::to_string(bad_token >> 32) + ": token " +
                          std::to_string(token) + " is not in [0, " + std::to_string(V) + ")");
}

const Entry* Workspace::sorted(size_t V) const { return entries[(sort_rounds(V) + 1) % 2].data(); }

void Workspace::require(const Shape& shape) const {
  if (shape.positions() > entries[0].size() || shape.V > first.size() ||
      partials_of(shape) > partials.size())
    throw std::invalid_argument("embedding: a batch of " + std::to_string(shape.positions()) +
                                " tokens of " + std::to_string(shape.V) + ", " +
                                std::to_string(shape.C) +
                                " columns each, is more than the workspace is for");
}

double roundings_in_order(double terms) { return terms; }

// Its chunk's, a group's share of the chunks and the groups; or its position's, in order.
double roundings_sorted(double terms) {
  const double chunks = terms / kChunk + 2;
  return std::fmin(terms, kChunk + chunks + kBlock);
}

void forward(float* y, const std::int32_t* tokens, const float* token_table,
             const float* position_table, const Shape& shape, hipStream_t stream,
             unsigned long long* bad_token) {
  launch_vectorized(y, {tokens, token_table, position_table, checked(shape), bad_token}, stream);
}

void backward(float* grad_token, float* grad_position, const float* grad_y,
              const std::int32_t* tokens, const Shape& shape, Workspace& workspace,
              hipStream_t stream) {
  const Scatter out{grad_token, grad_position,  grad_y,
                    tokens,     checked(shape), workspace.bad_token()};
  launch_table_or_sorted(out, workspace, stream);
}

}  // namespace embedding
