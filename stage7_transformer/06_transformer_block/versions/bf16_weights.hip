// bf16_weights: the gradients of weights and biases, from activations and gradients of bf16.
#include <algorithm>
#include <cstring>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/chunk.h"
#include "stage2_matrix/04_gemm_mixed/product.h"
#include "stage7_transformer/06_transformer_block/bf16.h"
#include "stage7_transformer/06_transformer_block/detail/weight_tasks.h"

namespace transformer_block {

constexpr unsigned kAcross = 8, kDown = 32;  // threads of a block, along the columns and the rows

// The columns of grad_y of a task that has a bias: the sums of slice s go to sums + s * stride.
struct Columns {
  const bfloat16* grad_y;
  size_t pitch, out, slice, stride;
  float* sums;
};
struct ColumnList {
  Columns tasks[kMostTasks];
  unsigned block_ends[kMostTasks], count;
  size_t rows;
};

// sums[slice, c] = the sum of grad_y's column c over a slice of the rows, of all tasks
// grad_y (rows, out), sums (slices, stride).
// Fixes : a bias's gradient reads all of grad_y, and each product of a layer would have a launch of
//         its own for it.
// Idea  : the columns of all tasks are one grid. A thread reads 16 bytes of a row at a time.
// Thread: (x, y) adds up the rows y, y + kDown, ... of its slice, kOwn columns of them.
// Costs : 2 bytes per element of grad_y; 1 barrier.
template <unsigned kOwn>
static __global__ void column_sums(ColumnList list) {
  constexpr unsigned kColumns = kAcross * kOwn;
  __shared__ float parts[kDown][kColumns];
  unsigned number = 0;
  while (blockIdx.x >= list.block_ends[number]) ++number;
  const unsigned block = blockIdx.x - (number == 0 ? 0 : list.block_ends[number - 1]);
  const Columns task = list.tasks[number];
  const size_t first = size_t{block} * kColumns, column = first + threadIdx.x * kOwn;
  const size_t begin = blockIdx.y * task.slice, end = min(begin + task.slice, list.rows);
  if (begin >= list.rows) return;  // this task has fewer slices
  const bfloat16* const from = task.grad_y + column;
  float own[kOwn] = {};
  // exercise: add up this thread's rows, kOwn neighbours at a time (about 8 lines)
  for (size_t row = begin + threadIdx.y; column < task.out && row < end; row += kDown) {
    bfloat16 loaded[kOwn];
    if constexpr (kOwn == 1) {
      loaded[0] = from[row * task.pitch];
    } else {
      const uint4 chunk = *reinterpret_cast<const uint4*>(from + row * task.pitch);
      memcpy(loaded, &chunk, sizeof chunk);
    }
    GPU_UNROLL
    for (unsigned c = 0; c < kOwn; ++c) own[c] += gpu::to_float(loaded[c]);
  }
  // end exercise
  for (unsigned c = 0; c < kOwn; ++c) parts[threadIdx.y][threadIdx.x * kOwn + c] = own[c];
  __syncthreads();  // the sums of all threads are in shared memory
  const unsigned thread = threadIdx.y * kAcross + threadIdx.x;
  if (thread >= kColumns || first + thread >= task.out) return;
  float sum = 0;
  for (unsigned y = 0; y < kDown; ++y) sum += parts[y][thread];
  task.sums[blockIdx.y * task.stride + first + thread] = sum;
}

// ---- The tasks ----------------------------------------------------------------------------------

constexpr size_t kLeastSlice = 512;  // rows
constexpr size_t kPairTile = 256;  // rows and columns of C that two multiprocessors compute at once

// Rows of a slice: so many slices that a task's tiles keep all multiprocessors busy. More of them
// would be more sums to write and to add up. A power of two cuts a usual batch into equal slices.
static size_t slice_of(const WeightTaskBf16& task, size_t rows) {
#if defined(GPU_BACKEND_CPU)
  constexpr size_t kWanted = 8;
#else
  const size_t kWanted = gpu::multiprocessors() / 2;
#endif
  const size_t tiles = gpu::ceil_div(task.pitch, kPairTile) * gpu::ceil_div(task.in, kPairTile);
  size_t slices = 1;
  while (2 * slices * tiles <= kWanted && 2 * slices * kLeastSlice <= rows) slices *= 2;
  constexpr size_t kDepth = 64;  // of a tile of the products
  return gpu::ceil_div(gpu::ceil_div(rows, slices), kDepth) * kDepth;
}

static ResultList list_results(const std::vector<WeightTaskBf16>& tasks, size_t rows) {
  ResultList::check_count(tasks.size());
  ResultList list{};
  size_t begin = 0;
  for (const WeightTaskBf16& task : tasks) {
    const unsigned number = list.count;
    list.add({nullptr, nullptr, task.out, task.in, task.w, task.bias}, task.pitch * task.in);
    list.begins[number] = begin, list.strides[number] = list.results() - list.sums_before(number);
    list.parts[number] = static_cast<unsigned>(gpu::ceil_div(rows, slice_of(task, rows)));
    begin += list.parts[number] * list.strides[number];
  }
  return list;
}

size_t sums_of_bf16(const std::vector<WeightTaskBf16>& tasks, size_t rows) {
  const ResultList list = list_results(tasks, rows);
  return list.begins[list.count - 1] + list.parts[list.count - 1] * list.strides[list.count - 1];
}

// With `pairs`, step 2.4's fastest kernel, even where its large tiles are fewer than
// multiprocessors: the sums are long.
static void multiply(const gemm_mixed::Product<bfloat16>& p, hipStream_t stream) {
  constexpr gemm_mixed::Kernel kPairs = gemm_mixed::Kernel::pairs;
  if (p.M >= kPairTile && p.N >= kPairTile && gemm_mixed::takes(kPairs, p))
    gemm_mixed::launch(kPairs, p, stream);
  else
    gemm_mixed::best(p, stream);
}

// sums[slice] = grad_y^T x over each slice of the rows. All whole slices are one batch of products.
static void multiply_slices(float* sums, size_t stride, const WeightTaskBf16& task, size_t rows,
                            size_t slice, hipStream_t stream) {
  auto p = gemm_mixed::contiguous(gemm_mixed::Layout::TN, sums, task.grad_y, task.x, task.pitch,
                                  task.in, std::min(slice, rows));
  p.batch = std::max(rows / slice, size_t{1});
  p.stride_a = slice * task.pitch, p.stride_b = slice * task.in, p.stride_c = stride;
  multiply(p, stream);
  const size_t done = p.batch * slice;
  if (done >= rows) return;
  p.a += p.batch * p.stride_a, p.b += p.batch * p.stride_b, p.c += p.batch * p.stride_c;
  p.K = rows - done, p.batch = 1;
  multiply(p, stream);
}

void weight_gradients_bf16(const std::vector<WeightTaskBf16>& tasks, size_t rows, float* sums,
                           hipStream_t stream) {
  const ResultList list = list_results(tasks, rows);
  constexpr size_t kInChunk = gemm_mixed::kPerChunk<bfloat16>;
  ColumnList columns{};
  columns.rows = rows;
  bool aligned = true;
  for (const WeightTaskBf16& task : tasks)
    if (task.bias != nullptr)
      aligned = aligned && task.out % kInChunk == 0 &&
                gemm_mixed::chunks_are_aligned(task.grad_y, task.pitch * sizeof(bfloat16));
  const size_t per_block = kAcross * (aligned ? kInChunk : 1);
  unsigned blocks = 0, slices = 0;
  for (unsigned k = 0; k < list.count; ++k) {
    const WeightTaskBf16& task = tasks[k];
    float* const parts = sums + list.begins[k];
    const size_t slice = slice_of(task, rows), stride = list.strides[k];
    multiply_slices(parts, stride, task, rows, slice, stream);
    if (task.bias == nullptr) continue;
    blocks += static_cast<unsigned>(gpu::ceil_div(task.out, per_block));
    slices = std::max(slices, list.parts[k]);
    columns.block_ends[columns.count] = blocks;
    columns.tasks[columns.count++] = {task.grad_y, task.pitch, task.out,
                                      slice,       stride,     parts + task.out * task.in};
  }
  const dim3 grid(blocks, slices), threads(kAcross, kDown);
  if (blocks > 0 && aligned)
    LAUNCH_ON(stream, (column_sums<kInChunk>), grid, threads, 0, columns);
  else if (blocks > 0)
    LAUNCH_ON(stream, (column_sums<1>), grid, threads, 0, columns);
  launch_add_slices(list, sums, stream);
}

}  // namespace transformer_block
