// grouped: the gradients of all weights and biases in one launch.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage7_transformer/06_transformer_block/detail/weight_tasks.h"
#include "stage7_transformer/06_transformer_block/transformer_block.h"

namespace transformer_block {

// sums[slice] = grad_y^T x and the sums of grad_y's columns, over a slice of the rows, of all tasks
// grad_y (rows, out), x (rows, in), sums (slices, results).
// Fixes : each weight's gradient is a few tiles of long sums: four products are four launches that
//         leave the device idle, and four more that add slices, and each bias reads grad_y again.
// Idea  : the tiles of all weights and slices are one grid. The block that has columns of grad_y in
//         shared memory anyway adds them up: the bias's gradient is free.
// Thread: as in step 2.3's wave_tiled; thread i also owns column i of the tile's grad_y.
// Costs : 1 barrier per tile of rows; slices * results floats that come back in add_slices.
template <class Shape, class Places, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    weight_slices(TaskList list, float* sums) {
  __shared__ gemm::Tiles<Shape> tiles[2];
  constexpr int kColumns = (Shape::kTileM + Shape::kThreads - 1) / Shape::kThreads;
  const int thread = static_cast<int>(threadIdx.x);
  unsigned number = 0;
  while (blockIdx.x >= list.tile_ends[number]) ++number;
  const WeightTask task = list.tasks[number];
  const size_t tile = blockIdx.x - list.tiles_before(number);
  const size_t across = gpu::ceil_div(task.in, Shape::kTileN);
  const gemm::TileOrigin corner{tile / across * Shape::kTileM, tile % across * Shape::kTileN};
  const size_t first = blockIdx.y * list.slice;
  size_t left = min(list.slice, list.rows - first);

  gemm::TileLoader<false, kAligned, Shape::kTileK, Shape::kTileM, Shape::kThreads> a(
      {task.grad_y, task.out, 1, list.rows, task.out}, first, corner.row, thread);
  gemm::TileLoader<false, kAligned, Shape::kTileK, Shape::kTileN, Shape::kThreads> b(
      {task.x, task.in, 1, list.rows, task.in}, first, corner.col, thread);
  const auto load_next = [&] {
    const int lines = gemm::depth_of_tile<Shape>(left);
    a.load(lines), b.load(lines);
    left -= lines;
  };
  const gemm::ThreadTile place = Places::of(thread);
  const bool sums_bias = task.bias != nullptr && corner.col == 0;
  float products[Shape::kThreadM][Shape::kThreadN] = {}, columns[kColumns] = {};

  const size_t steps = gpu::ceil_div(left, Shape::kTileK);
  load_next();
  for (size_t step = 0; step < steps; ++step) {
    gemm::Tiles<Shape>& current = tiles[step % 2];
    a.store(current.a), b.store(current.b);
    __syncthreads();  // this tile is in shared memory, and all lines of the one before were read
    load_next();      // nothing, in the last step
    // exercise: multiply the tile's lines, and add up this thread's columns of grad_y (about 10
    // lines)
    GPU_UNROLL
    for (int k = 0; k < Shape::kTileK; ++k) {
      float held_a[Shape::kThreadM], held_b[Shape::kThreadN];
      gemm::load_fragment(held_a, &current.a[k][place.row], place.row_step);
      gemm::load_fragment(held_b, &current.b[k][place.col], place.col_step);
      gemm::add_outer_product(products, held_a, held_b);
    }
    for (int c = 0; sums_bias && c < kColumns; ++c) {
      const int column = thread + c * Shape::kThreads;
      for (int k = 0; column < Shape::kTileM && k < Shape::kTileK; ++k)
        columns[c] += current.a[k][column];
    }
    // end exercise
  }

  float* const to = sums + (blockIdx.y * list.sum_ends[list.count - 1] + list.sums_before(number));
  gemm::Product p;
  p.M = task.out, p.N = task.in, p.c = to, p.ldc = task.in;
  gemm::store_tile<Shape>(p, gemm::AlphaBeta{1, 0}, corner, place, products);
  for (int c = 0; sums_bias && c < kColumns; ++c) {
    const int column = thread + c * Shape::kThreads;
    if (column < Shape::kTileM && corner.row + column < task.out)
      to[task.out * task.in + corner.row + column] = columns[c];
  }
}

// w and bias of all tasks = their sums over all slices, in the slices' order    sums (slices,
// results).
// Fixes : a weight's gradient lies in as many parts as there are slices.
// Idea  : one launch for all weights and biases; the parts are in the L2 cache still.
// Thread: t owns result t.
// Costs : 4 results (slices + 1) bytes.
static __global__ void add_slices(TaskList list, const float* sums, unsigned slices) {
  const size_t results = list.sum_ends[list.count - 1];
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= results) return;
  unsigned number = 0;
  while (i >= list.sum_ends[number]) ++number;
  const WeightTask task = list.tasks[number];
  const size_t place = i - list.sums_before(number), weights = task.out * task.in;
  const bool is_bias = place >= weights;
  if (is_bias && (task.bias == nullptr || place >= weights + task.out)) return;  // a gap
  float sum = 0;
  for (unsigned s = 0; s < slices; ++s) sum += sums[s * results + i];
  (is_bias ? task.bias : task.w)[is_bias ? place - weights : place] = sum;
}

void weight_gradients(const std::vector<WeightTask>& tasks, size_t rows, float* sums,
                      hipStream_t stream) {
  const TaskList list = list_tasks(tasks, rows);
  if (list.results() == 0) return;
  bool aligned = true;
  for (const WeightTask& task : tasks)
    aligned = aligned && gemm::rows_are_aligned(task.grad_y, task.out, 0) &&
              gemm::rows_are_aligned(task.x, task.in, 0);
  constexpr unsigned kThreads = WeightTile::kThreads, kBlock = 256;
  const dim3 grid(list.tiles(), list.slices());
  if (aligned)
    LAUNCH_ON(stream, (weight_slices<WeightTile, WeightPlaces, true>), grid, kThreads, 0, list,
              sums);
  else
    LAUNCH_ON(stream, (weight_slices<WeightTile, WeightPlaces, false>), grid, kThreads, 0, list,
              sums);
  LAUNCH_ON(stream, add_slices, static_cast<unsigned>(gpu::ceil_div(list.results(), kBlock)),
            kBlock, 0, list, sums, list.slices());
}

size_t sums_of(const std::vector<WeightTask>& tasks, size_t rows) {
  const TaskList list = list_tasks(tasks, rows);
  return list.results() * list.slices();
}

// What chain_backward has left: nobody waits for it but the optimizer, so that it may run on
// another stream, beside the chain of the block below, as long as that one works in another
// Workspace.
void weights_backward(const Gradients& grad, const float* grad_y, const Shape& shape,
                      const SavedActivations& kept, Workspace& w, const Mode& mode,
                      hipStream_t stream) {
  if (!mode.group || !is_grouped(shape)) return;
  const size_t C = shape.C, wide = kExpansion * C;
  weight_gradients({{w.grad_qkv.data(), kept.norm1.data(), 3 * C, C, grad.qkv_w, grad.qkv_bias},
                    {w.grad_h.data(), kept.attended.data(), C, C, grad.proj_w, grad.proj_bias},
                    {w.grad_hidden.data(), kept.norm2.data(), wide, C, grad.fc_w, grad.fc_bias},
                    {grad_y, kept.hidden.data(), C, wide, grad.out_w, grad.out_bias}},
                   shape.rows(), w.sums.data(), stream);
}

}  // namespace transformer_block
