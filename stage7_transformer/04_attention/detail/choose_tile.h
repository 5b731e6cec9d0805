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

// Calls run(constant) with the size that a head of D numbers is computed with, kLeast or more.
template <int kLeast = 16, class Run>
void with_head(size_t D, Run&& run) {
  if constexpr (kLeast <= 16)
    if (D <= 16) return run(std::integral_constant<int, 16>{});
  if constexpr (kLeast <= 32)
    if (D <= 32) return run(std::integral_constant<int, 32>{});
  if (D <= 64)
    run(std::integral_constant<int, 64>{});
  else if (D <= 128)
    run(std::integral_constant<int, 128>{});
  else
    run(std::integral_constant<int, 256>{});
}

// Calls run(tile, aligned) with the tile of Of<head>::List that suits heads of D numbers. What is
// not aligned has one tile, the last, which fits everywhere; there heads of fewer than
// kLeastUnaligned numbers take the tile of so many.
template <template <class> class Memory, template <int> class Of, int kLeastUnaligned = 16,
          class Run>
void with_kernel(size_t D, bool aligned, size_t heads, size_t rows, Run&& run) {
  if (aligned)
    with_head(D, [&](auto head) {
      with_tile<Memory>(typename Of<head()>::List{}, heads, rows,
                        [&](auto tile) { run(tile, std::true_type{}); });
    });
  else
    with_head<kLeastUnaligned>(D, [&](auto head) {
      with_tile<Memory>(last_of(typename Of<head()>::List{}), heads, rows,
                        [&](auto tile) { run(tile, std::false_type{}); });
    });
}

}  // namespace attention
