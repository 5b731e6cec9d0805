// What the backward pass for bf16 keeps of each query.
#pragma once

#include <cstddef>

#include "stage7_transformer/04_attention/views.h"

namespace attention_backward {

// What the backward pass wants to know of a query.
struct QueryData {
  float shift;  // lse / log 2; +infinity where the query sees no key: its weights are 0
  float delta;
};
// Each head's queries are padded with such as see no key to a multiple of this.
inline constexpr size_t kQueryPadding = 128;
inline size_t padded_queries(const attention::Problem& problem) {
  return gpu::ceil_div(problem.Tq, kQueryPadding) * kQueryPadding;
}

}  // namespace attention_backward
