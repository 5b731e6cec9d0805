// Several elements become one: sums, means and maxima over any axes.
//
//   the axes are the last ones      a row of memory for each result       reduce_rows
//   the axes are the first ones     a column of memory for each result    reduce_columns
//   all but some in the middle      a row for each result and first index, then reduce_columns
//   any other axes                  8.1 copies them behind the others, then reduce_rows
//
// Where there are few results, each is first made of parts, so that the device has enough blocks.
#include <algorithm>
#include <cmath>

#include "stage1_vector/01_vector_add/detail/operations.h"
#include "stage8_framework/02_backends/own/detail/block_reduce.h"
#include "stage8_framework/02_backends/own/detail/permuted.h"
#include "stage8_framework/02_backends/own/own.h"

namespace own {
namespace {

using vector_add::kBlock;

struct Total : vector_add::Add {
  static constexpr float kNothing = 0;
};
struct Max {  // NaN is larger than every number, and 0 than -0: their order is of no account
  static constexpr float kNothing = -INFINITY;
  __device__ float operator()(float a, float b) const {
    if (a == b) return copysignf(1, a) > 0 ? a : b;
    return a > b || a != a ? a : b;
  }
};

// out[row, part] = F over x[row, part * length, (part + 1) * length), times `factor`
//                                                            x (rows, cols)   out (rows, parts)
// Thread: the block is row * parts + part; a thread takes every kBlock-th column.
template <class F>
static __global__ void __launch_bounds__(kBlock)
    reduce_rows(float* out, const float* x, size_t cols, size_t length, unsigned parts,
                float divisor) {
  const size_t row = blockIdx.x / parts, part = blockIdx.x % parts;
  const size_t end = part + 1 < parts ? (part + 1) * length : cols;
  const F combine;
  float value = F::kNothing;
  for (size_t c = part * length + threadIdx.x; c < end; c += kBlock)
    value = combine(value, x[row * cols + c]);
  value = block_reduce(value, combine);
  if (threadIdx.x == 0) out[blockIdx.x] = value / divisor;
}

constexpr unsigned kColumns = 8,
                   kRowsAtOnce = 128;  // of a block: 8 floats are a sector of 32 bytes

// out[part, col] = F over x[part * length, (part + 1) * length)[col], divided by `divisor`
//                                                            x (rows, cols)   out (parts, cols)
// Thread: column threadIdx.x of the block's, and every kRowsAtOnce-th row of part blockIdx.y, from
//         row threadIdx.y on. A loop over all rows would wait for one load after the other.
template <class F>
static __global__ void __launch_bounds__(kColumns* kRowsAtOnce)
    reduce_columns(float* out, const float* x, size_t rows, size_t cols, size_t length,
                   float divisor) {
  __shared__ float partial[kRowsAtOnce][kColumns];
  const size_t col = size_t{blockIdx.x} * kColumns + threadIdx.x, part = blockIdx.y;
  const size_t next = (part + 1) * length, end = next < rows ? next : rows;
  const F combine;
  float value = F::kNothing;
  if (col < cols)
    for (size_t row = part * length + threadIdx.y; row < end; row += kRowsAtOnce)
      value = combine(value, x[row * cols + col]);
  partial[threadIdx.y][threadIdx.x] = value;
  __syncthreads();  // all rows are in `partial`
  for (unsigned left = kRowsAtOnce / 2; left > 0; left /= 2) {
    if (threadIdx.y < left)
      partial[threadIdx.y][threadIdx.x] =
          combine(partial[threadIdx.y][threadIdx.x], partial[threadIdx.y + left][threadIdx.x]);
    __syncthreads();  // the upper half is added to the lower one
  }
  if (threadIdx.y == 0 && col < cols) out[part * cols + col] = partial[0][threadIdx.x] / divisor;
}

// How the `count` elements of each of `results` results are shared: parts of `length` elements.
struct Parts {
  size_t count, length;
};
// A second launch takes longer than a block with 32 numbers for each thread.
constexpr size_t kEnoughBlocks = 1024, kLeastOfThread = 32;
Parts divided(size_t blocks, size_t count, size_t threads) {
  const size_t wanted = gpu::ceil_div(kEnoughBlocks, std::max(blocks, size_t{1}));
  const size_t most = std::max(count / (kLeastOfThread * threads), size_t{1});
  const size_t length = gpu::ceil_div(std::max(count, size_t{1}), std::min(wanted, most));
  return {std::max(gpu::ceil_div(count, length), size_t{1}), length};
}

// What a call comes down to.
struct Task {
  bool is_copied = false, are_columns = false;
  size_t results, count;  // elements of each result
  Parts parts;
  size_t outer = 0;  // the first indices, where the results' axes lie between reduced ones

  bool is_between() const { return outer > 0; }

  size_t copy_bytes() const { return is_copied ? results * count * sizeof(float) : 0; }
  size_t part_bytes() const {
    const size_t many = is_between() ? outer : parts.count;
    return many > 1 ? results * many * sizeof(float) : 0;
  }
};

// The sum over images and pixels is one such: (images, channels, pixels). Rows that are short would
// leave most threads of a block without work, and many images want parts.
constexpr size_t kLeastInner = 64, kMostOuter = kLeastOfThread * kRowsAtOnce;
Task task_of(const CourseCall& call) {
  const CourseTensor& x = call.inputs[0];
  const auto mask = static_cast<unsigned>(call.attributes[0]);
  Task task;
  task.results = elements(call.outputs[0]);
  task.count = 1;
  bool are_last = true, are_first = true, seen_reduced = false, seen_kept = false;
  size_t outer = 1, inner = 1;  // of the reduced axes in front of the kept ones, and behind them
  bool is_divided = false;      // by a reduced axis: the kept axes are no neighbours
  for (int axis = 0; axis < x.rank; ++axis) {
    const bool is_reduced = mask >> axis & 1;
    if (is_reduced) task.count *= extent(x, axis);
    if (extent(x, axis) == 1) continue;
    if (is_reduced && seen_kept) are_first = false;
    if (!is_reduced && seen_reduced) are_last = false;
    if (is_reduced) (seen_kept ? inner : outer) *= extent(x, axis);
    if (!is_reduced && inner > 1) is_divided = true;
    (is_reduced ? seen_reduced : seen_kept) = true;
  }
  task.are_columns = !are_last && are_first && is_contiguous(x);
  if (!are_first && !are_last && !is_divided && is_contiguous(x) && inner >= kLeastInner &&
      outer <= kMostOuter)
    task.outer = outer;
  task.is_copied = !task.are_columns && !task.is_between() && !(are_last && is_contiguous(x));
  task.parts = task.are_columns
                   ? divided(gpu::ceil_div(task.results, kColumns), task.count, kRowsAtOnce)
                   : divided(task.results, task.count, kBlock);
  return task;
}

size_t workspace(const CourseCall& call) {
  const Task task = task_of(call);
  return task.copy_bytes() + task.part_bytes();
}

const char* supports(const CourseCall& call) {
  if (const char* reason = unless_f32(call)) return reason;
  const Task task = task_of(call);
  return task.results * std::max(task.parts.count, task.outer) >= size_t{1} << 31
             ? "2^31 results or more"
             : nullptr;
}

template <class F>
void run(const CourseCall& call, hipStream_t stream, float divisor) {
  const Task task = task_of(call);
  if (task.results == 0) return;
  const float* x = floats(call.inputs[0]);
  float* const copied = static_cast<float*>(call.workspace);
  if (task.is_copied) {
    const auto mask = static_cast<unsigned>(call.attributes[0]);
    tensor::launch_vectorized(copied, x, sizeof(float), with_axes_last(call.inputs[0], mask),
                              stream);
    x = copied;
  }
  float* const y = floats(call.outputs[0]);
  float* const of_parts = copied + task.copy_bytes() / sizeof(float);
  const size_t parts = task.parts.count, length = task.parts.length;
  const auto of_columns = [&](float* to, const float* from, size_t count, size_t many, size_t each,
                              float by) {
    LAUNCH_ON(stream, reduce_columns<F>,
              dim3(static_cast<unsigned>(gpu::ceil_div(task.results, kColumns)),
                   static_cast<unsigned>(many)),
              dim3(kColumns, kRowsAtOnce), 0, to, from, count, task.results, each, by);
  };
  const auto of_rows = [&](float* to, const float* from, size_t rows, size_t count, size_t many,
                           size_t each, float by) {
    LAUNCH_ON(stream, reduce_rows<F>, static_cast<unsigned>(rows * many), kBlock, 0, to, from,
              count, each, static_cast<unsigned>(many), by);
  };
  if (task.is_between()) {
    const size_t inner = task.count / task.outer;
    of_rows(of_parts, x, task.results * task.outer, inner, 1, inner, 1);
    return of_columns(y, of_parts, task.outer, 1, task.outer, divisor);
  }
  const auto launch = [&](float* to, const float* from, size_t count, size_t many, size_t each,
                          float by) {
    task.are_columns ? of_columns(to, from, count, many, each, by)
                     : of_rows(to, from, task.results, count, many, each, by);
  };
  if (parts == 1) return launch(y, x, task.count, 1, std::max(task.count, size_t{1}), divisor);
  launch(of_parts, x, task.count, parts, length, 1);
  launch(y, of_parts, parts, 1, parts, divisor);
}

// ---- argmax -------------------------------------------------------------------------------------

// The first of the largest, where NaN is larger than every number.
struct Contender {
  float value;
  int column;  // -1: none yet
};
struct Foremost {
  __device__ Contender operator()(Contender a, Contender b) const {
    if (a.column < 0 || b.column < 0) return a.column < 0 ? b : a;
    const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
    const bool are_equal = a.value == b.value || (a_is_nan && b_is_nan);
    if (are_equal) return a.column < b.column ? a : b;
    return a_is_nan || a.value > b.value ? a : b;
  }
};

// y[row] = where the largest element of x[row] is       x (rows, cols)   y (rows)
// Thread: the block is a row; a thread takes every kBlock-th column.
static __global__ void __launch_bounds__(kBlock) argmax_rows(int* y, const float* x, int cols) {
  Contender best{0, -1};
  const Foremost foremost;
  for (int c = static_cast<int>(threadIdx.x); c < cols; c += static_cast<int>(kBlock))
    best = foremost(best, Contender{x[size_t{blockIdx.x} * static_cast<size_t>(cols) + c], c});
  best = block_reduce(best, foremost);
  if (threadIdx.x == 0) y[blockIdx.x] = best.column;
}

const char* supports_argmax(const CourseCall& call) {
  if (const char* reason = unless_plain(call)) return reason;
  const bool is_large =
      columns(call.inputs[0]) >= size_t{1} << 31 || elements(call.outputs[0]) >= size_t{1} << 31;
  return is_large ? "2^31 rows or columns or more" : nullptr;
}
void run_argmax(const CourseCall& call, hipStream_t stream) {
  const size_t rows = elements(call.outputs[0]);
  if (rows == 0) return;
  LAUNCH_ON(stream, argmax_rows, static_cast<unsigned>(rows), kBlock, 0,
            data_of<int>(call.outputs[0]), floats(call.inputs[0]),
            static_cast<int>(columns(call.inputs[0])));
}

}  // namespace

std::vector<Operation> reductions() {
  return {{"sum", supports,
           [](const CourseCall& call, hipStream_t stream) { run<Total>(call, stream, 1); }, nullptr,
           workspace},
          {"mean", supports,
           [](const CourseCall& call, hipStream_t stream) {
             run<Total>(call, stream, static_cast<float>(task_of(call).count));
           },
           nullptr, workspace},
          {"max", supports,
           [](const CourseCall& call, hipStream_t stream) { run<Max>(call, stream, 1); }, nullptr,
           workspace},
          {"argmax", supports_argmax, run_argmax}};
}

}  // namespace own
