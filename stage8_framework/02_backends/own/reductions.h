// How `own` reduces, as plain C++: into how many parts, and by which blocks. The order in which it
// adds follows from these numbers alone. 8.6 reduces what it has computed in the same way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/gpu_runtime.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage8_framework/02_backends/c_tensor.h"

namespace own {

// Of the elements along the reduced axes; a mean is a sum that is divided at the end.
enum class Reduction { sum, mean, max };

// A block of rows has vector_add::kBlock threads. A block of columns has kThreadsOfColumns: 8
// columns, which are a sector of 32 bytes, or 32, which are read faster, where there are so many of
// them.
inline constexpr unsigned kThreadsOfColumns = 1024, kFewColumns = 8, kManyColumns = 32;
inline constexpr size_t kManyResults = 4096;

// How the `count` elements of each of `results` results are shared: parts of `length` elements, of
// which the last one may be shorter.
struct Parts {
  size_t count, length;
};
// A second launch takes longer than a block with 32 numbers for each thread.
inline constexpr size_t kEnoughBlocks = 1024, kLeastOfThread = 32;
inline Parts divided(size_t blocks, size_t count, size_t threads) {
  const size_t wanted = gpu::ceil_div(kEnoughBlocks, std::max(blocks, size_t{1}));
  const size_t most = std::max(count / (kLeastOfThread * threads), size_t{1});
  const size_t length = gpu::ceil_div(std::max(count, size_t{1}), std::min(wanted, most));
  return {std::max(gpu::ceil_div(count, length), size_t{1}), length};
}

// What a reduction over some axes comes down to. The elements are rows, (results, count), or
// columns, (count, results). Where there is more than one part, a second launch makes one of them:
//
//   rows      grid (results * parts)                        out (results, parts)   then parts = 1
//   columns   grid (ceil(results / columns), parts)         out (parts, results)   then parts = 1
//
// Elements (outer, results, inner) are rows of `inner` first, and then columns of `outer`.
struct ReductionTask {
  bool is_copied = false;  // into rows, before anything else
  bool are_columns = false;
  size_t results = 1, count = 1;  // elements of each result
  Parts parts = {};
  size_t outer = 0;                // where the results' axes lie between reduced ones
  unsigned columns = kFewColumns;  // of a block

  unsigned rows_at_once() const { return kThreadsOfColumns / columns; }
  bool is_between() const { return outer > 0; }
  // One pass over the elements as they lie does it.
  bool is_in_place() const { return !is_copied && !is_between(); }
  size_t copy_bytes() const { return is_copied ? results * count * sizeof(float) : 0; }
  size_t part_bytes() const {
    const size_t many = is_between() ? outer : parts.count;
    return many > 1 ? results * many * sizeof(float) : 0;
  }
  // What the last launch divides by.
  float divisor(Reduction kind) const {
    return kind == Reduction::mean ? static_cast<float>(count) : 1.0f;
  }
};

// The sum over images and pixels is between: (images, channels, pixels). Rows that are short would
// leave most threads of a block without work, and many images want parts.
inline constexpr size_t kLeastInner = 64,
                        kMostOuter = kLeastOfThread * kThreadsOfColumns / kFewColumns;

// The task of reducing x over the axes of a mask, of which bit d is axis d.
inline ReductionTask task_of(const CourseTensor& x, std::uint32_t mask) {
  ReductionTask task;
  bool are_last = true, are_first = true, seen_reduced = false, seen_kept = false;
  size_t outer = 1, inner = 1;  // of the reduced axes in front of the kept ones, and behind them
  bool is_divided = false;      // by a reduced axis: the kept axes are no neighbours
  for (int axis = 0; axis < x.rank; ++axis) {
    const bool is_reduced = mask >> axis & 1;
    (is_reduced ? task.count : task.results) *= framework::extent(x, axis);
    if (framework::extent(x, axis) == 1) continue;
    if (is_reduced) (seen_kept ? inner : outer) *= framework::extent(x, axis);
    if (!is_reduced && inner > 1) is_divided = true;
    if (is_reduced && seen_kept) are_first = false;
    if (!is_reduced && seen_reduced) are_last = false;
    (is_reduced ? seen_reduced : seen_kept) = true;
  }
  task.are_columns = !are_last && are_first && framework::is_contiguous(x);
  if (!are_first && !are_last && !is_divided && framework::is_contiguous(x) &&
      inner >= kLeastInner && outer <= kMostOuter)
    task.outer = outer;
  task.is_copied =
      !task.are_columns && !task.is_between() && !(are_last && framework::is_contiguous(x));
  if (task.results >= kManyResults) task.columns = kManyColumns;
  task.parts = task.are_columns ? divided(gpu::ceil_div(task.results, task.columns), task.count,
                                          task.rows_at_once())
                                : divided(task.results, task.count, vector_add::kBlock);
  return task;
}

// y[result] = the reduction of x, whose elements lie as the task says: rows where they are copied.
// `of_parts` is part_bytes() bytes. results * parts.count is below 2^31. Throws gpu::Error.
void launch_reduction(Reduction kind, const ReductionTask& task, float* y, const float* x,
                      float* of_parts, hipStream_t stream);
// The last launch of these alone, for a task in place of several parts, which are in `of_parts`.
void launch_last_reduction(Reduction kind, const ReductionTask& task, float* y,
                           const float* of_parts, hipStream_t stream);

}  // namespace own
