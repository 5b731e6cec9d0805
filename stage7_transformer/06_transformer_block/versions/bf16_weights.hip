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

// The columns of grad_y of all tasks that have a bias, and where in a slice's results their sums go.
struct ColumnList {
  const bfloat16* grad_y[kMostTasks];
  size_t pitch[kMostTasks], out[kMostTasks], place[kMostTasks];
  unsigned block_ends[kMostTasks], count;
  size_t rows, slice, results;
};

// sums[slice, place + c] = the sum of grad_y's column c over a slice of the rows, of all tasks
// grad_y (rows, out), sums (slices, results).
// Fixes : a bias's gradient reads all of grad_y, and each product of a layer would have a launch of
//         its own for it.
// Idea  : the columns of all tasks are one grid. A thread reads 16 bytes of a row at a time.
// Thread: (x, y) adds up the rows y, y + kDown, ... of its slice, kOwn columns of them.
// Costs : 2 bytes per element of grad_y; 1 barrier.
template <unsigned kOwn>
static __global__ void column_sums(ColumnList list, float* sums) {
  constexpr unsigned kColumns = kAcross * kOwn;
  __shared__ float parts[kDown][kColumns];
  unsigned number = 0;
  while (blockIdx.x >= list.block_ends[number]) ++number;
  const unsigned block = blockIdx.x - (number == 0 ? 0 : list.block_ends[number - 1]);
  const size_t out = list.out[number], first = size_t{block} * kColumns;
  const size_t column = first + threadIdx.x * kOwn;
  const size_t begin = blockIdx.y * list.slice, end = min(begin + list.slice, list.rows);
  const bfloat16* const from = list.grad_y[number] + column;
  float own[kOwn] = {};
  // exercise: add up this thread's rows, kOwn neighbours at a time (about 8 lines)
  for (size_t row = begin + threadIdx.y; column < out && row < end; row += kDown) {
    bfloat16 loaded[kOwn];
    if constexpr (kOwn == 1) {
      loaded[0] = from[row * list.pitch[number]];
    } else {
      const uint4 chunk = *reinterpret_cast<const uint4*>(from + row * list.pitch[number]);
      memcpy(loaded, &chunk, sizeof chunk);
    }
    GPU_UNROLL
    for (unsigned c = 0; c < kOwn; ++c) own[c] += gpu::to_float(loaded[c]);
  }
  // end exercise
  for (unsigned c = 0; c < kOwn; ++c) parts[threadIdx.y][threadIdx.x * kOwn + c] = own[c];
  __syncthreads();  // the sums of all threads are in shared memory
  const unsigned thread = threadIdx.y * kAcross + threadIdx.x;
  if (thread >= kColumns || first + thread >= out) return;
  float sum = 0;
  for (unsigned y = 0; y < kDown; ++y) sum += parts[y][thread];
  sums[blockIdx.y * list.results + list.place[number] + thread + first] = sum;
}

// ---- The tasks ----------------------------------------------------------------------------------

// A slice has so many rows or more. More slices keep more multiprocessors busy, and are more sums
// to add up.
constexpr size_t kLeastSlice = 2048;

static ResultList list_results(const std::vector<WeightTaskBf16>& tasks, size_t rows) {
  ResultList::check_count(tasks.size());
  ResultList list{};
  for (const WeightTaskBf16& task : tasks)
    list.add({nullptr, nullptr, task.out, task.in, task.w, task.bias}, task.pitch * task.in);
  constexpr size_t kDepth = 64;  // of a tile of the products
  const size_t slices = std::max(rows / kLeastSlice, size_t{1});
  list.rows = rows, list.slice = gpu::ceil_div(gpu::ceil_div(rows, slices), kDepth) * kDepth;
  return list;
}

size_t sums_of_bf16(const std::vector<WeightTaskBf16>& tasks, size_t rows) {
  const ResultList list = list_results(tasks, rows);
  return list.results() * list.slices();
}

// sums[slice] = grad_y^T x over each slice of the rows. All whole slices are one batch of products.
static void multiply_slices(float* sums, size_t results, const WeightTaskBf16& task, size_t rows,
                            size_t slice, hipStream_t stream) {
  auto p = gemm_mixed::contiguous(gemm_mixed::Layout::TN, sums, task.grad_y, task.x, task.pitch,
                                  task.in, std::min(slice, rows));
  p.batch = std::max(rows / slice, size_t{1});
  p.stride_a = slice * task.pitch, p.stride_b = slice * task.in, p.stride_c = results;
  gemm_mixed::best(p, stream);
  const size_t done = p.batch * slice;
  if (done >= rows) return;
  p.a += p.batch * p.stride_a, p.b += p.batch * p.stride_b, p.c += p.batch * p.stride_c;
  p.K = rows - done, p.batch = 1;
  gemm_mixed::best(p, stream);
}

void weight_gradients_bf16(const std::vector<WeightTaskBf16>& tasks, size_t rows, float* sums,
                           hipStream_t stream) {
  const ResultList list = list_results(tasks, rows);
  ColumnList columns{};
  columns.rows = rows, columns.slice = list.slice, columns.results = list.results();
  bool aligned = true;
  for (const WeightTaskBf16& task : tasks)
    aligned = aligned && (task.bias == nullptr ||
                          (task.out % gemm_mixed::kPerChunk<bfloat16> == 0 &&
                           gemm_mixed::chunks_are_aligned(task.grad_y, task.pitch * sizeof(bfloat16))));
  const unsigned per_block = kAcross * (aligned ? gemm_mixed::kPerChunk<bfloat16> : 1);
  unsigned blocks = 0;
  for (unsigned k = 0; k < list.count; ++k) {
    const WeightTaskBf16& task = tasks[k];
    multiply_slices(sums + list.sums_before(k), list.results(), task, rows, list.slice, stream);
    if (task.bias == nullptr) continue;
    const unsigned at = columns.count++;
    columns.grad_y[at] = task.grad_y, columns.pitch[at] = task.pitch, columns.out[at] = task.out;
    columns.place[at] = list.sums_before(k) + task.out * task.in;
    blocks += static_cast<unsigned>(gpu::ceil_div(task.out, per_block));
    columns.block_ends[at] = blocks;
  }
  const dim3 grid(blocks, list.slices()), threads(kAcross, kDown);
  if (blocks > 0 && aligned)
    LAUNCH_ON(stream, (column_sums<gemm_mixed::kPerChunk<bfloat16>>), grid, threads, 0, columns,
              sums);
  else if (blocks > 0)
    LAUNCH_ON(stream, (column_sums<1>), grid, threads, 0, columns, sums);
  launch_add_slices(list, sums, stream);
}

}  // namespace transformer_block
