// The tile that suits a shape and a device.
#pragma once

#include <cstddef>
#include <type_traits>

#include "common/gpu.h"

namespace attention {

template <class... Tiles>
struct Candidates {};

// Calls run(tile) for the first of the tiles whose memory fits a block and which make a block for
// each multiprocessor of `rows` rows of `heads` heads; else for the last that fits.
template <template <class> class Memory, class Run, class First, class... Rest>
void with_tile(Candidates<First, Rest...>, size_t heads, size_t rows, Run&& run) {
  if constexpr (sizeof...(Rest) == 0) {
    run(First{});
  } else {
    const bool fits = sizeof(Memory<First>) <= gpu::max_shared_bytes();
    const size_t blocks = heads * gpu::ceil_div(rows, First::kOwn);
    if (fits && blocks >= gpu::multiprocessors())
      run(First{});
    else
      with_tile<Memory>(Candidates<Rest...>{}, heads, rows, run);
  }
}
template <class First, class... Rest>
constexpr auto last_of(Candidates<First, Rest...>) {
  if constexpr (sizeof...(Rest) == 0)
    return Candidates<First>{};
  else
    return last_of(Candidates<Rest...>{});
}

// Calls run(constant) with the size that a head of D numbers is computed with.
template <class Run>
void with_head(size_t D, Run&& run) {
  if (D <= 16)
    run(std::integral_constant<int, 16>{});
  else if (D <= 32)
    run(std::integral_constant<int, 32>{});
  else if (D <= 64)
    run(std::integral_constant<int, 64>{});
  else if (D <= 128)
    run(std::integral_constant<int, 128>{});
  else
    run(std::integral_constant<int, 256>{});
}

// Calls run(tile, aligned) for heads of `head` numbers. What is not aligned has one tile only, the
// last, which fits everywhere.
template <template <class> class Memory, class List, class Run>
void with_kernel(List candidates, bool aligned, size_t heads, size_t rows, Run&& run) {
  if (aligned)
    with_tile<Memory>(candidates, heads, rows, [&](auto tile) { run(tile, std::true_type{}); });
  else
    with_tile<Memory>(last_of(candidates), heads, rows,
                      [&](auto tile) { run(tile, std::false_type{}); });
}

}  // namespace attention
