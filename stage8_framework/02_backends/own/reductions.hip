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
#include "stage8_framework/02_backends/own/reductions.h"

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

// out[part, col] = F over x[part * length, (part + 1) * length)[col], divided by `divisor`
//                                                            x (rows, cols)   out (parts, cols)
// Thread: column threadIdx.x of the block's, and every kRowsAtOnce-th row of part blockIdx.y, from
//         row threadIdx.y on. A loop over all rows would wait for one load after the other.
template <class F, unsigned kColumns>
static __global__ void __launch_bounds__(kThreadsOfColumns)
    reduce_columns(float* out, const float* x, size_t rows, size_t cols, size_t length,
                   float divisor) {
  constexpr unsigned kRowsAtOnce = kThreadsOfColumns / kColumns;
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

template <class F>
void launch_columns(const ReductionTask& task, float* to, const float* from, size_t count,
                    Parts parts, float divisor, hipStream_t stream) {
  const dim3 grid(static_cast<unsigned>(gpu::ceil_div(task.results, task.columns)),
                  static_cast<unsigned>(parts.count)),
      block(task.columns, task.rows_at_once());
  if (task.columns == kManyColumns)
    LAUNCH_ON(stream, (reduce_columns<F, kManyColumns>), grid, block, 0, to, from, count,
              task.results, parts.length, divisor);
  else
    LAUNCH_ON(stream, (reduce_columns<F, kFewColumns>), grid, block, 0, to, from, count,
              task.results, parts.length, divisor);
}
template <class F>
void launch_rows(size_t rows, float* to, const float* from, size_t count, Parts parts,
                 float divisor, hipStream_t stream) {
  LAUNCH_ON(stream, reduce_rows<F>, static_cast<unsigned>(rows * parts.count), kBlock, 0, to, from,
            count, parts.length, static_cast<unsigned>(parts.count), divisor);
}

// to = F over the `count` elements of each result in `from`, in parts.
template <class F>
void launch_parts(const ReductionTask& task, float* to, const float* from, size_t count,
                  Parts parts, float divisor, hipStream_t stream) {
  if (task.are_columns)
    launch_columns<F>(task, to, from, count, parts, divisor, stream);
  else
    launch_rows<F>(task.results, to, from, count, parts, divisor, stream);
}

// The last launch alone divides: a maximum and a sum by 1.
template <class F>
void launch(const ReductionTask& task, float* y, const float* x, float* of_parts, float divisor,
            hipStream_t stream) {
  if (task.is_between()) {
    const size_t inner = task.count / task.outer;
    launch_rows<F>(task.results * task.outer, of_parts, x, inner, {1, inner}, 1, stream);
    launch_columns<F>(task, y, of_parts, task.outer, {1, task.outer}, divisor, stream);
  } else if (task.parts.count > 1) {
    launch_parts<F>(task, of_parts, x, task.count, task.parts, 1, stream);
    launch_parts<F>(task, y, of_parts, task.parts.count, {1, task.parts.count}, divisor, stream);
  } else {
    launch_parts<F>(task, y, x, task.count, {1, std::max(task.count, size_t{1})}, divisor, stream);
  }
}

}  // namespace

void launch_reduction(Reduction kind, const ReductionTask& task, float* y, const float* x,
                      float* of_parts, hipStream_t stream) {
  if (task.results == 0) return;
  const auto of_kind = kind == Reduction::max ? launch<Max> : launch<Total>;
  of_kind(task, y, x, of_parts, task.divisor(kind), stream);
}

void launch_last_reduction(Reduction kind, const ReductionTask& task, float* y,
                           const float* of_parts, hipStream_t stream) {
  if (task.results == 0) return;
  const auto of_kind = kind == Reduction::max ? launch_parts<Max> : launch_parts<Total>;
  of_kind(task, y, of_parts, task.parts.count, {1, task.parts.count}, task.divisor(kind), stream);
}

namespace {

std::uint32_t mask_of(const CourseCall& call) {
  return static_cast<std::uint32_t>(call.attributes[0]);
}

size_t workspace(const CourseCall& call) {
  const ReductionTask task = task_of(call.inputs[0], mask_of(call));
  return task.copy_bytes() + task.part_bytes();
}

const char* supports(const CourseCall& call) {
  if (const char* reason = unless_f32(call)) return reason;
  const ReductionTask task = task_of(call.inputs[0], mask_of(call));
  return task.results * std::max(task.parts.count, task.outer) >= size_t{1} << 31
             ? "2^31 results or more"
             : nullptr;
}

template <Reduction kind>
Operation reduction(const char* name) {
  constexpr auto run = [](const CourseCall& call, hipStream_t stream) {
    const ReductionTask task = task_of(call.inputs[0], mask_of(call));
    if (task.results == 0) return;
    const float* x = floats(call.inputs[0]);
    float* const copied = static_cast<float*>(call.workspace);
    if (task.is_copied) {
      tensor::launch_vectorized(copied, x, sizeof(float),
                                with_axes_last(call.inputs[0], mask_of(call)), stream);
      x = copied;
    }
    launch_reduction(kind, task, floats(call.outputs[0]), x,
                     copied + task.copy_bytes() / sizeof(float), stream);
  };
  return {name, supports, run, nullptr, workspace};
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
  return {reduction<Reduction::sum>("sum"),
          reduction<Reduction::mean>("mean"),
          reduction<Reduction::max>("max"),
          {"argmax", supports_argmax, run_argmax}};
}

}  // namespace own
