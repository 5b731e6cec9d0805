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

size_t partials_of(const Shape& shape, bool is_sorted) {
  if (is_sorted) return 2 * gpu::ceil_div(shape.positions(), size_t{kChunk}) * shape.C;
  return plan_table(shape).slices * shape.V * shape.C;
}

size_t partials_of(const Shape& largest) {
  const size_t tables = table_fits(largest.V) ? plan_table(largest).most * largest.V : 0;
  return std::max(partials_of(largest, true), tables * largest.C);
}

Workspace::Workspace(const Shape& largest)
    : first(DeviceBuffer<std::uint32_t>(largest.V)),
      last(DeviceBuffer<std::uint32_t>(largest.V)),
      partials(DeviceBuffer<float>(partials_of(checked(largest)))),
      largest_(largest),
      bad_token_(1) {
  for (auto& array : entries) array = DeviceBuffer<Entry>(largest.positions());
  bad_token_.poison();
}

Workspace::Workspace(const Shape& shape, gpu::DeviceParts& parts) : largest_(checked(shape)) {
  const bool is_sorted = !table_fits(shape.V);
  partials = parts.take<float>(partials_of(shape, is_sorted));
  if (!is_sorted) return;
  for (auto& array : entries) array = parts.take<Entry>(shape.positions());
  first = parts.take<std::uint32_t>(shape.V), last = parts.take<std::uint32_t>(shape.V);
}

void Workspace::check_tokens(size_t V) {
  if (bad_token() == nullptr) return;
  const unsigned long long bad_token = bad_token_.to_host()[0];
  bad_token_.poison();
  if (bad_token == ~0ull) return;  // poison: every byte 0xFF
  const auto token = static_cast<std::int32_t>(static_cast<std::uint32_t>(bad_token));
  throw std::out_of_range("position " + std::to_string(bad_token >> 32) + ": token " +
                          std::to_string(token) + " is not in [0, " + std::to_string(V) + ")");
}

const Entry* Workspace::sorted(size_t V) const { return entries[(sort_rounds(V) + 1) % 2].data(); }

void Workspace::require(const Shape& shape, bool is_sorted) const {
  const bool is_larger = shape.positions() > largest_.positions() || shape.V > largest_.V;
  const bool has_entries = entries[0].size() >= shape.positions() && first.size() >= shape.V;
  if (is_larger || (is_sorted && !has_entries) || partials_of(shape, is_sorted) > partials.size())
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
