// The tasks of a launch of weight_slices, as one grid.
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

// The tasks of a launch. Tiles and results of all tasks are numbered through.
struct TaskList {
  WeightTask tasks[kMostTasks];
  unsigned tile_ends[kMostTasks];  // of the tiles of each task
  size_t sum_ends[kMostTasks];     // of the results of each task: out x in, then out for the bias
  unsigned count;
  size_t rows, slice;  // rows of all, and of a slice

  unsigned tiles() const { return tile_ends[count - 1]; }
  size_t results() const { return sum_ends[count - 1]; }
  unsigned slices() const { return static_cast<unsigned>(gpu::ceil_div(rows, slice)); }
  __device__ unsigned tiles_before(unsigned task) const {
    return task == 0 ? 0 : tile_ends[task - 1];
  }
  __device__ size_t sums_before(unsigned task) const { return task == 0 ? 0 : sum_ends[task - 1]; }
};

inline TaskList list_tasks(const std::vector<WeightTask>& tasks, size_t rows) {
  if (tasks.empty() || tasks.size() > kMostTasks)
    throw std::invalid_argument("transformer_block: a launch takes 1 to " +
                                std::to_string(kMostTasks) + " weights' gradients");
  TaskList list{};
  unsigned tiles = 0;
  size_t results = 0;
  for (const WeightTask& task : tasks) {
    tiles += static_cast<unsigned>(gpu::ceil_div(task.out, WeightTile::kTileM) *
                                   gpu::ceil_div(task.in, WeightTile::kTileN));
    results += gpu::ceil_div(task.out * task.in + task.out, 4) * 4;  // the next one is aligned
    list.tasks[list.count] = task;
    list.tile_ends[list.count] = tiles, list.sum_ends[list.count] = results;
    ++list.count;
  }
  list.rows = rows;
  const size_t wanted = size_t{gpu::multiprocessors()} * kBlocksWanted / std::max(tiles, 1u);
  const size_t slices = std::max(std::min(wanted, rows / kSliceRows), size_t{1});
  list.slice = gpu::ceil_div(gpu::ceil_div(rows, slices), WeightTile::kTileK) * WeightTile::kTileK;
  return list;
}

}  // namespace transformer_block
