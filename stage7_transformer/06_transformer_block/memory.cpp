#include "stage7_transformer/06_transformer_block/memory.h"

#include "stage7_transformer/05_attention_backward/attention_backward.h"
#include "stage7_transformer/06_transformer_block/rows.h"
#include "stage7_transformer/06_transformer_block/weight_gradients.h"

namespace transformer_block {

constexpr double kGroupedOperations = 8e9;  // of all products of a block

SavedActivations::SavedActivations(const Shape& shape, const Mode& mode)
    : norm1(shape.rows() * shape.C),
      qkv(3 * shape.rows() * shape.C),
      attended(shape.rows() * shape.C),
      h(shape.rows() * shape.C),
      norm2(shape.rows() * shape.C),
      sums(kExpansion * shape.rows() * shape.C),
      hidden(kExpansion * shape.rows() * shape.C),
      statistics(4 * shape.rows()),
      lse(shape.rows() * shape.H),
      attention(mode.flash ? attention_backward::memory_of_flash(attention_problem(shape))
                           : attention_backward::memory_of_composed(attention_problem(shape))) {}

size_t SavedActivations::bytes() const {
  return norm1.bytes() + qkv.bytes() + attended.bytes() + h.bytes() + norm2.bytes() + sums.bytes() +
         hidden.bytes() + statistics.bytes() + lse.bytes() + attention.bytes();
}

bool is_grouped(const Shape& shape) {
  const double C = static_cast<double>(shape.C);
  return 24 * static_cast<double>(shape.rows()) * C * C <= kGroupedOperations;
}

Workspace::Workspace(const Shape& shape)
    : grad_hidden(kExpansion * shape.rows() * shape.C),
      grad_norm(shape.rows() * shape.C),
      grad_h(shape.rows() * shape.C),
      grad_attended(shape.rows() * shape.C),
      grad_qkv(3 * shape.rows() * shape.C),
      norm(shape.rows(), shape.C),
      qkv(shape.rows(), shape.C, 3 * shape.C),
      proj(shape.rows(), shape.C, shape.C),
      fc(shape.rows(), shape.C, kExpansion * shape.C),
      out(shape.rows(), kExpansion * shape.C, shape.C) {
  check(shape);
  if (is_in_rows(shape)) norm_parts = DeviceBuffer<float>(2 * norm_parts_of_rows(shape));
  if (is_grouped(shape)) {
    const size_t C = shape.C, wide = kExpansion * C;
    sums = DeviceBuffer<float>(sums_of({{nullptr, nullptr, 3 * C, C, nullptr, nullptr},
                                        {nullptr, nullptr, C, C, nullptr, nullptr},
                                        {nullptr, nullptr, wide, C, nullptr, nullptr},
                                        {nullptr, nullptr, C, wide, nullptr, nullptr}},
                                       shape.rows()));
  }
}

}  // namespace transformer_block
