// Few tokens: every block has a table of its own in shared memory.
#include "common/gpu.h"
#include "stage7_transformer/01_embedding/detail/rows.h"
#include "stage7_transformer/01_embedding/embedding.h"

namespace embedding {

// partials[s] = the sums of slice s of the positions, for every token    partials (slices, V, C).
// Fixes : sorted must sort first, however few tokens there are.
// Idea  : a table of few rows fits shared memory. A thread owns a column of it and goes through
//         its positions in order: nobody else adds there, so that no atomic is needed. Several
//         groups of threads have a table each, and add them up at the end.
// Thread: (x, y) of block (p + s, tile) owns column tile * kTableWidth + x of group y's share of
//         slice s. The first position_blocks = p blocks add up positions meanwhile.
// Costs : 8 bytes of grad_y per element; V C floats of partials per slice; 2 barriers;
//         kTableRows * kTableWidth floats of shared memory.
static __global__ void embedding_sum_in_table(Scatter out, unsigned position_blocks,
                                              float* partials, size_t slice) {
  __shared__ float tables[kTableRows * kTableWidth];
  if (blockIdx.x < position_blocks) return sum_positions<float>(out, blockIdx.x, position_blocks);
  const size_t C = out.shape.C, V = out.shape.V, c = size_t{blockIdx.y} * kTableWidth + threadIdx.x;
  const size_t s = blockIdx.x - position_blocks, share = gpu::ceil_div(slice, blockDim.y);
  const size_t begin = min(s * slice + threadIdx.y * share, out.shape.positions());
  const size_t end = min(min(begin + share, (s + 1) * slice), out.shape.positions());
  float* table = tables + threadIdx.y * V * kTableWidth + threadIdx.x;
  for (size_t v = 0; v < V; ++v) table[v * kTableWidth] = 0;  // this thread's own column
  if (c < C) {
    // exercise: rounds of kTableLoads positions: load tokens and gradients, then add them to this
    // thread's column (about 17 lines)
    for (size_t at = begin; at < end; at += kTableLoads) {
      std::int32_t token[kTableLoads] = {};
      float grad[kTableLoads] = {};
      GPU_UNROLL
      for (unsigned k = 0; k < kTableLoads; ++k)
        if (at + k < end) {
          token[k] = out.tokens[at + k];
          grad[k] = out.grad_y[(at + k) * C + c];
        }
      GPU_UNROLL
      for (unsigned k = 0; k < kTableLoads; ++k) {
        if (at + k >= end) continue;
        if (is_token(token[k], V))
          table[static_cast<size_t>(token[k]) * kTableWidth] += grad[k];
        else if (c == 0)
          report(out.bad_token, at + k, token[k]);
      }
    }
    // end exercise
  }
  __syncthreads();  // every group's table is complete
  if (c >= C) return;
  for (size_t v = threadIdx.y; v < V; v += blockDim.y) {
    float sum = 0;
    for (unsigned y = 0; y < blockDim.y; ++y)
      sum += tables[(y * V + v) * kTableWidth + threadIdx.x];
    partials[(s * V + v) * C + c] = sum;
  }
}

// grad_token[i] = sum over s of partials[s, i]    grad_token (n), partials (slices, n), n = V C.
// Fixes : a block can't know when the others have left their tables; the next launch can.
// Idea  : threads beside each other share an element's slices, in an order that is always the same.
// Thread: (x, y) adds the slices y, y + height, ... of element blockIdx.x * width + x.
// Costs : 4 bytes per element and slice, which the L2 cache still holds; 1 barrier.
static __global__ void embedding_add_tables(float* grad_token, const float* partials, size_t slices,
                                            size_t n) {
  __shared__ float sums[kBlock];
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  float sum = 0;
  if (i < n) sum = sum_of_rows<float>(partials, threadIdx.y, slices, blockDim.y, n, i);
  sums[threadIdx.y * blockDim.x + threadIdx.x] = sum;
  __syncthreads();  // the sums of all the block's threads are in shared memory
  if (threadIdx.y > 0 || i >= n) return;
  for (unsigned y = 1; y < blockDim.y; ++y) sum += sums[y * blockDim.x + threadIdx.x];
  grad_token[i] = sum;
}

// Returns false, and launches nothing, where there are too many tokens.
static bool launch_table(const Scatter& out, Workspace& workspace, hipStream_t stream) {
  if (!table_fits(out.shape.V)) return false;
  workspace.require(out.shape, false);
  if (out.shape.C == 0) return true;
  const TablePlan shares = plan_table(out.shape);
  const size_t tiles = gpu::ceil_div(out.shape.C, size_t{kTableWidth});
  const unsigned position_blocks =
      static_cast<unsigned>(gpu::ceil_div(out.shape.T_max, size_t{shares.groups}));
  const dim3 grid(position_blocks + static_cast<unsigned>(shares.slices),
                  static_cast<unsigned>(tiles));
  float* partials = workspace.partials.data();
  if (grid.x > 0)
    LAUNCH_ON(stream, embedding_sum_in_table, grid, dim3(kTableWidth, shares.groups), 0, out,
              position_blocks, partials, shares.slice);
  const size_t n = out.shape.V * out.shape.C;
  const dim3 threads(8, kBlock / 8);
  LAUNCH_ON(stream, embedding_add_tables, static_cast<unsigned>(gpu::ceil_div(n, threads.x)),
            threads, 0, out.grad_token, partials, shares.slices, n);
  return true;
}

void launch_table_or_sorted(const Scatter& out, Workspace& workspace, hipStream_t stream) {
  if (!launch_table(out, workspace, stream)) launch_sorted(out, workspace, stream);
}

}  // namespace embedding
