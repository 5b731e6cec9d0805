// A program that ends in a sum, a mean or a maximum: what it computes is reduced where it is made.
//
//   rows      in0 | | | | | | | |   ->  element  ->  a thread's value  ->  a block's  ->  out
//             256 threads take every 256th element of a row, then make one value of two
//   columns   8 columns and 128 rows at a time, or 32 and 32, the same way down
//
// On a GPU a thread loads a group of elements before it computes the first, and adds one by one.
//
// Fixes: compiled writes the last value to memory, and a second kernel reads it from there.
// Idea:  the kernels of 8.2's reductions, with the program in place of the load. They add in the
//        same order, block by block, so the sums have the same bits. Other outputs are stored on
//        the way.
// Costs: the inputs once; the last output is not written. Where there are few results, each is made
//        of parts, which 8.2's own kernel makes one of.
#include <algorithm>
#include <cmath>

#include "stage8_framework/06_fusion/text.h"

namespace fusion {

namespace {

// The value of two, as own/reductions.hip has it.
std::string combined_of(const KernelText& kernel) {
  const std::string expression = kernel.program.reduction == Reduction::max
                                     ? "a == b ? (copysign(1.0f, a) > 0.0f ? a : b)\n"
                                       "                : a > b || a != a ? a : b"
                                     : "a + b";
  Fillings words = words_of(kernel);
  words["expression"] = expression;
  return filled(
      "\n$function float $(name)_combined(float a, float b) {\n  return $expression;\n}\n", words);
}

// Computes element i of `inputs`, stores all outputs but the last one, and adds that to `value`.
std::string lines_of_one(const KernelText& kernel, const std::vector<std::string>& inputs,
                         const std::string& value, const std::string& indent) {
  std::string lines = call_with(kernel, inputs, indent);
  // exercise: outputs but the last one are stored; the last one joins `value` (about 5 lines)
  const size_t last = kernel.program.outputs.size() - 1;
  for (size_t i = 0; i < last; ++i)
    lines += indent + "out" + std::to_string(i) + "[i] = y" + std::to_string(i) + ";\n";
  lines += indent + value + " = " + kernel.name + "_combined(" + value + ", y" +
           std::to_string(last) + ");\n";
  // end exercise
  return lines;
}

// Loads that a thread has on their way at the same time. A block of columns has 1024 threads: with
// more than 32 registers for each of them, there is no room for a second block.
constexpr size_t kLoadsOfRows = 16, kLoadsOfColumns = 4;

// A thread's elements are at, at + step, ... below end. While there is a whole group of them, it is
// loaded before the first one is computed. They are added in the same order as without groups.
std::string loop_of_gpu(const KernelText& kernel, size_t loads_in_flight) {
  const std::vector<std::string> loads = elements_of(kernel, "i");
  const size_t inputs = std::max<size_t>(loads.size(), 1);
  const std::string group = std::to_string(std::max<size_t>(loads_in_flight / inputs, 1));
  std::vector<std::string> held;
  std::string arrays, loading;
  for (size_t k = 0; k < loads.size(); ++k) {
    const std::string array = "x" + std::to_string(k);
    held.push_back(array + "[k]");
    arrays += "    float " + array + "[" + group + "];\n";
    loading += "      " + held.back() + " = " + loads[k] + ";\n";
  }
  Fillings words = words_of(kernel);
  words["group"] = group, words["arrays"] = arrays, words["loading"] = loading;
  words["of_group"] = lines_of_one(kernel, held, "value", "      ");
  words["of_rest"] = lines_of_one(kernel, loads, "value", "    ");
  return filled(R"(  for (; at + ($group - 1) * step < end; at += $group * step) {
$arrays#pragma unroll
    for (unsigned k = 0; k < $group; ++k) {
      const $index i = at + k * step;
$loading    }
#pragma unroll
    for (unsigned k = 0; k < $group; ++k) {
      const $index i = at + k * step;
$of_group    }
  }
  for (; at < end; at += step) {
    const $index i = at;
$of_rest  }
)",
                words);
}

// The block is row * parts + part; a thread takes every $threads-th element of the part.
std::string rows_of_gpu() {
  return R"(  $shared float values[$threads];
  const size_t row = $block_x / (unsigned)parts, part = $block_x % (unsigned)parts;
  const size_t last = part + 1 < parts ? (part + 1) * length : count;
  const size_t end = row * count + last, step = $threads;
  size_t at = row * count + part * length + $thread_x;
  float value = $nothing;
$loop  values[$thread_x] = value;
  $barrier;
  for (unsigned left = $threads / 2; left > 0; left /= 2) {
    if ($thread_x < left)
      values[$thread_x] = $(name)_combined(values[$thread_x], values[$thread_x + left]);
    $barrier;
  }
  if ($thread_x == 0) $out[$block_x] = values[0] / (float)divisor;
}
)";
}
std::string rows_of_host() {
  return R"(  const size_t row = block_x / parts, part = block_x % parts;
  const size_t end = part + 1 < parts ? (part + 1) * length : count;
  float values[$threads];
  for (unsigned t = 0; t < $threads; ++t) values[t] = $nothing;
  for (size_t c = part * length; c < end; c += $threads) {
    const unsigned threads = end - c < $threads ? end - c : $threads;
    for (unsigned t = 0; t < threads; ++t) {
      const $index i = row * count + c + t;
$one    }
  }
  for (unsigned left = $threads / 2; left > 0; left /= 2)
    for (unsigned t = 0; t < left; ++t)
      values[t] = $(name)_combined(values[t], values[t + left]);
  $out[block_x] = values[0] / (float)divisor;
}
)";
}

// Thread: a column of the block's $columns, and every $rows-th row of part block_y.
std::string columns_of_gpu() {
  return R"(  $shared float values[$rows][$columns];
  const unsigned x = $thread_x, y = $thread_y;
  const size_t column = $block_x * (size_t)$columns + x, part = $block_y;
  const size_t rows = (part + 1) * length < count ? (part + 1) * length : count;
  const size_t end = column < results ? rows * results : 0, step = $rows * results;
  size_t at = (part * length + y) * results + column;
  float value = $nothing;
$loop  values[y][x] = value;
  $barrier;
  for (unsigned left = $rows / 2; left > 0; left /= 2) {
    if (y < left) values[y][x] = $(name)_combined(values[y][x], values[y + left][x]);
    $barrier;
  }
  if (y == 0 && column < results) $out[part * results + column] = values[0][x] / (float)divisor;
}
)";
}
std::string columns_of_host() {
  return R"(  const size_t first = block_x * (size_t)$columns, part = block_y;
  const size_t end = (part + 1) * length < count ? (part + 1) * length : count;
  const unsigned columns = results - first < $columns ? results - first : $columns;
  float values[$rows][$columns];
  for (unsigned y = 0; y < $rows; ++y)
    for (unsigned x = 0; x < $columns; ++x) values[y][x] = $nothing;
  for (size_t row = part * length; row < end; ++row)
    for (unsigned x = 0; x < columns; ++x) {
      const unsigned y = (row - part * length) % $rows;
      const $index i = row * results + first + x;
$one    }
  for (unsigned left = $rows / 2; left > 0; left /= 2)
    for (unsigned y = 0; y < left; ++y)
      for (unsigned x = 0; x < columns; ++x)
        values[y][x] = $(name)_combined(values[y][x], values[y + left][x]);
  for (unsigned x = 0; x < columns; ++x)
    $out[part * results + first + x] = values[0][x] / (float)divisor;
}
)";
}

}  // namespace

std::string reduction_kernel(const KernelText& kernel) {
  const bool is_host = kernel.dialect == Dialect::host;
  const own::ReductionTask task = reduction_task_of(kernel.program);
  const bool are_columns = task.are_columns;
  Fillings words = words_of(kernel);
  const bool is_max = kernel.program.reduction == Reduction::max;
  words["nothing"] = is_max ? text_of(-INFINITY, kernel.dialect) : "0.0f";
  words["threads"] = std::to_string(vector_add::kBlock);
  words["columns"] = std::to_string(task.columns);
  words["rows"] = std::to_string(task.rows_at_once());
  words["out"] = "out" + std::to_string(kernel.program.outputs.size() - 1);
  words["one"] = lines_of_one(kernel, elements_of(kernel, "i"),
                              are_columns ? "values[y][x]" : "values[t]", "      ");
  words["loop"] = loop_of_gpu(kernel, are_columns ? kLoadsOfColumns : kLoadsOfRows);
  const unsigned threads_x = are_columns ? task.columns : vector_add::kBlock;
  const unsigned threads_y = are_columns ? task.rows_at_once() : 1;
  const std::string pattern = are_columns ? (is_host ? columns_of_host() : columns_of_gpu())
                                          : (is_host ? rows_of_host() : rows_of_gpu());
  return combined_of(kernel) +
         beginning_of(kernel, threads_x, threads_y,
                      {"count", "results", "length", "parts", "divisor"}) +
         filled(pattern, words);
}

}  // namespace fusion
