// What the launchers for bf16 check on the host.
#pragma once

#include <cstddef>
#include <initializer_list>

#include "stage7_transformer/04_attention/views.h"

namespace attention {

inline constexpr size_t kMostBf16Depth = 256;

// Throws std::invalid_argument, one line, for what the kernels can't do with heads of up to `most`
// numbers.
void check_bf16(const Problem& problem, size_t most);

// Whether the start of every row of all the views is aligned to 16 bytes.
bool have_aligned_rows(std::initializer_list<ConstBf16View> views, size_t D);

// Throws std::runtime_error: matrix instructions of sm_80 are NVIDIA's.
[[noreturn]] void refuse_bf16();

}  // namespace attention
