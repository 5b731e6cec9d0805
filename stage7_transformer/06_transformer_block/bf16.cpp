#include "stage7_transformer/06_transformer_block/bf16.h"

#include <stdexcept>
#include <string>

#include "stage7_transformer/04_attention/bf16.h"
#include "stage7_transformer/05_attention_backward/attention_backward.h"

namespace transformer_block {

void check_bf16(const Shape& shape) {
  check(shape);
  if (shape.D() > attention_backward::kMostBf16Depth)
    throw std::invalid_argument("transformer_block: heads of " + std::to_string(shape.D()) +
                                " channels; in bf16 up to " +
                                std::to_string(attention_backward::kMostBf16Depth));
}

SavedBf16::SavedBf16(const Shape& shape)
    : norm1(shape.rows() * shape.C),
      qkv(3 * shape.rows() * shape.C),
      attended(shape.rows() * shape.C),
      norm2(shape.rows() * shape.C),
      sums(kExpansion * shape.rows() * shape.C),
      hidden(kExpansion * shape.rows() * shape.C),
      h(shape.rows() * shape.C),
      statistics(4 * shape.rows()),
      lse(shape.rows() * shape.H),
      attention(attention::memory_of_forward_bf16(attention_problem(shape))) {}

size_t SavedBf16::bytes() const {
  return norm1.bytes() + qkv.bytes() + attended.bytes() + norm2.bytes() + sums.bytes() +
         hidden.bytes() + h.bytes() + statistics.bytes() + lse.bytes() + attention.bytes();
}

WorkspaceBf16::WorkspaceBf16(const Shape& shape)
    : grad_sums(kExpansion * shape.rows() * shape.C),
      grad_norm(shape.rows() * shape.C),
      grad_h(shape.rows() * shape.C),
      grad_attended(shape.rows() * shape.C),
      grad_qkv(3 * shape.rows() * shape.C),
      attention(attention_backward::memory_of_flash_bf16(attention_problem(shape))),
      norm(shape.rows(), shape.C) {
  check_bf16(shape);
  const size_t C = shape.C, wide = kExpansion * C;
  const auto task = [](size_t out, size_t in) {
    return WeightTaskBf16{nullptr, out, nullptr, out, in, nullptr, nullptr};
  };
  weights = DeviceBuffer<float>(
      sums_of_bf16({task(3 * C, C), task(C, C), task(wide, C), task(C, wide)}, shape.rows()));
}

}  // namespace transformer_block
