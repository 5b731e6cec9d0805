// The tasks of a launch of weight_slices, as one grid; and the results of slices, which one launch
// adds up.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/thread_tile.h"
#include "stage2_matrix/03_gemm/detail/tile_loader.h"
#include "stage7_transformer/06_transformer_block/weight_gradients.h"

namespace transformer_block {

inline constexpr size_t kSliceRows = 64;    // the least rows of a slice
inline constexpr size_t kBlocksWanted = 2;  // of weight_slices, per multiprocessor

#if defined(GPU_BACKEND_CPU)
using WeightTile = gemm::Shape<64, 64, 32, 8, 16>;
using WeightPlaces = gemm::BlockedTiles<WeightTile>;
#else
using WeightTile = gemm::Shape<64, 64, 16, 4, 4, 3>;
using WeightPlaces = gemm::WaveTiles<WeightTile>;
#endif

// The results of all tasks, numbered through. Each lies in several parts, the sums over slices of
// the rows: part s of a task's first result is sums[begins[task] + s * strides[task]].
struct ResultList {
  WeightTask tasks[kMostTasks];
  size_t sum_ends[kMostTasks];  // of the results of each task: out x in, then out for the bias
  size_t begins[kMostTasks], strides[kMostTasks];
  unsigned parts[kMostTasks];
  unsigned count;

  // Throws std::invalid_argument unless there are 1 to kMostTasks.
  static void check_count(size_t tasks) {
    if (tasks == 0 || tasks > kMostTasks)
      throw std::invalid_argument("transformer_block: a launch takes 1 to " +
                                  std::to_string(kMostTasks) + " weights' gradients");
  }
  // A task with so many sums for its weights.
  void add(const WeightTask& task, size_t sums_of_w) {
    const size_t sums = std::max(sums_of_w, task.out * task.in + task.out);
    sum_ends[count] = results() + gpu::ceil_div(sums, 4) * 4;  // the next one is aligned
    tasks[count++] = task;
  }
  size_t results() const { return count == 0 ? 0 : sum_ends[count - 1]; }
  __host__ __device__ size_t sums_before(unsigned task) const {
    return task == 0 ? 0 : sum_ends[task - 1];
  }
};

// The tasks of a launch of weight_slices. Their tiles are numbered through, too.
struct TaskList : ResultList {
  unsigned tile_ends[kMostTasks];  // of the tiles of each task
  size_t rows, slice;              // rows of all, and of a slice

  unsigned tiles() const { return tile_ends[count - 1]; }
  unsigned slices() const { return static_cast<unsigned>(gpu::ceil_div(rows, slice)); }
  __device__ unsigned tiles_before(unsigned task) const {
    return task == 0 ? 0 : tile_ends[task - 1];
  }
};

// versions/grouped.hip: w and bias of all tasks = the sums of their parts, in the parts' order.
void launch_add_slices(const ResultList& list, const float* sums, hipStream_t stream);

inline TaskList list_tasks(const std::vector<WeightTask>& tasks, size_t rows) {
  ResultList::check_count(tasks.size());
  TaskList list{};
  unsigned tiles = 0;
  for (const WeightTask& task : tasks) {
    tiles += static_cast<unsigned>(gpu::ceil_div(task.out, WeightTile::kTileM) *
                                   gpu::ceil_div(task.in, WeightTile::kTileN));
    list.tile_ends[list.count] = tiles;
    list.add(task, 0);
  }
  list.rows = rows;
  const size_t wanted = size_t{gpu::multiprocessors()} * kBlocksWanted / std::max(tiles, 1u);
  const size_t slices = std::max(std::min(wanted, rows / kSliceRows), size_t{1});
  list.slice = gpu::ceil_div(gpu::ceil_div(rows, slices), WeightTile::kTileK) * WeightTile::kTileK;
  for (unsigned task = 0; task < list.count; ++task) {  // the parts of all tasks lie together
    list.begins[task] = list.sums_before(task), list.strides[task] = list.results();
    list.parts[task] = list.slices();
  }
  return list;
}

}  // namespace transformer_block
