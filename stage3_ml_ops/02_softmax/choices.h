// Which version of the softmax `best` takes, by measurement. Plain C++.
#pragma once

#include <cstddef>

namespace softmax {

enum class Choice { online, row_in_registers, row_in_shared };

// `choice` was the fastest at a matrix of (rows, from_cols). It is taken from that many columns on.
struct Fastest {
  size_t from_cols, rows;
  Choice choice;
};

inline constexpr Fastest kFastest[] = {
    // choices: results/h200/softmax.json: online row_in_registers row_in_shared
    // NVIDIA H200, 2026-11-29
    {4096, 65536, Choice::row_in_registers},
    {8192, 8192, Choice::row_in_registers},
    {50257, 4096, Choice::row_in_registers},
    // end choices
};

// The choice for rows of `cols` elements. Shorter rows than any measured count as the shortest.
constexpr Choice choice(size_t cols) {
  Choice result = kFastest[0].choice;
  for (const Fastest& measured : kFastest)
    if (cols >= measured.from_cols) result = measured.choice;
  return result;
}

}  // namespace softmax
