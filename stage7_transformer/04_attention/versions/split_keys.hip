// split_keys: the keys in slices, a block for each; a second launch puts the slices together.
#include <cfloat>

#include "common/early_launch_sm90.h"
#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/bf16.h"
#include "stage7_transformer/04_attention/detail/key_team.h"

namespace attention {

constexpr unsigned kMergeColumns = 32, kMergeGroups = 8;  // of a block of merge_slices

// parts[row, slice] = max, sum and out of the row's keys in the slice   (B, H, Tq, slices, 2 + D)
// Fixes : flash has a block for many queries of a head. One query against a cache leaves it a few
//         blocks, each of which reads a whole head's keys: most of the device is idle.
// Idea  : the keys are cut, too, so that all multiprocessors read the cache, once. What is known of
//         a row from one slice is put together with the others as tiles are: by rescaling.
// Thread: kLanes neighbours share kKeys keys at a time, 16 bytes of each a load, and a running
//         softmax of kRows queries; kTeams of them share the slice.
// Costs : K and V once per kRows queries; log2(kLanes) exchanges per score; 2 barriers in all.
template <class T, class Team, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(kSliceBlock, Team::kBlocks)
    attend_slices(ViewOf<T> out, float* lse, ConstViewOf<T> q, ConstViewOf<T> k, ConstViewOf<T> v,
                  Problem p, Slices slices, float* parts) {
  constexpr int kRows = Team::kRows, kKeys = Team::kKeys, kNumbers = Team::kNumbers;
  const SliceOfBlock block(slices, p);
  const size_t query0 = size_t{block.group} * kRows, count = min(p.Tq - query0, size_t{kRows});
  const size_t key0 = block.slice * slices.keys, most = min(slices.keys, p.Tk - key0);
  const int team = static_cast<int>(threadIdx.x) / Team::kLanes, D = static_cast<int>(p.D);

  float rows_q[kRows][kNumbers], sums[kRows][kNumbers] = {}, sum[kRows] = {}, largest[kRows];
  int seen[kRows], end = 0;  // keys of this slice that each query sees, and that any of them does
  GPU_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const size_t query = query0 + static_cast<size_t>(r);
    const size_t visible = query < p.Tq ? visible_keys(p, query) : 0;
    largest[r] = -FLT_MAX;
    seen[r] = visible <= key0 ? 0 : static_cast<int>(min(visible - key0, most));
    end = max(end, seen[r]);
    const T* const row = block.rows_of(q) + min(query, p.Tq - 1) * q.stride_row;
    GPU_UNROLL
    for (int i = 0; i < kNumbers; ++i)
      rows_q[r][i] = Team::column(i) < D ? gpu::to_float(row[Team::column(i)]) : 0;
  }

  const size_t first = key0 + static_cast<size_t>(team * kKeys);
  const T *at_k = block.rows_of(k) + first * k.stride_row,
          *at_v = block.rows_of(v) + first * v.stride_row;
  Chunk<T> keys[kKeys][Team::kChunks], values[kKeys][Team::kChunks];
  load_keys<T, Team, kAligned>(keys, at_k, k.stride_row, end - team * kKeys, D);
  load_keys<T, Team, kAligned>(values, at_v, v.stride_row, end - team * kKeys, D);
  // All lanes of the block go round as often: they meet in the exchanges.
  for (int begin = 0; begin < end; begin += Team::kStep) {
    const int key = begin + team * kKeys, next_left = end - key - Team::kStep;
    float scores[kRows][kKeys] = {};
    GPU_UNROLL
    for (int n = 0; n < kKeys; ++n) {
      GPU_UNROLL
      for (int i = 0; i < kNumbers; ++i) {
        const float x = gpu::to_float(keys[n][i / Team::kInChunk].numbers[i % Team::kInChunk]);
        GPU_UNROLL
        for (int r = 0; r < kRows; ++r) scores[r][n] = fmaf(x, rows_q[r][i], scores[r][n]);
      }
    }
    at_k += Team::kStep * k.stride_row;  // the next ones are on their way during the rest
    load_keys<T, Team, kAligned>(keys, at_k, k.stride_row, next_left, D);

    GPU_UNROLL
    for (int r = 0; r < kRows; ++r) {
      GPU_UNROLL
      for (int n = 0; n < kKeys; ++n) {
        const float score = p.scale * dot::wave_sum(scores[r][n], Team::kLanes);
        scores[r][n] = key + n < seen[r] ? score : -INFINITY;
      }
      // exercise: the running softmax of row r takes these kKeys scores, which become their
      // exponentials; sum[r] and sums[r] are rescaled (about 7 lines)
      const float before = largest[r];
      GPU_UNROLL
      for (int n = 0; n < kKeys; ++n) largest[r] = fmaxf(largest[r], scores[r][n]);
      const float rescale = softmax::exponential(before - largest[r]);
      sum[r] *= rescale;
      GPU_UNROLL
      for (int n = 0; n < kKeys; ++n)
        sum[r] += scores[r][n] = softmax::exponential(scores[r][n] - largest[r]);
      GPU_UNROLL
      for (int i = 0; i < kNumbers; ++i) sums[r][i] *= rescale;
      // end exercise
    }

    GPU_UNROLL
    for (int n = 0; n < kKeys; ++n) {
      GPU_UNROLL
      for (int i = 0; i < kNumbers; ++i) {
        const float x = gpu::to_float(values[n][i / Team::kInChunk].numbers[i % Team::kInChunk]);
        GPU_UNROLL
        for (int r = 0; r < kRows; ++r)  // not all rows see all keys: 0 times NaN would be NaN
          if (scores[r][n] != 0) sums[r][i] = fmaf(scores[r][n], x, sums[r][i]);
      }
    }
    at_v += Team::kStep * v.stride_row;
    load_keys<T, Team, kAligned>(values, at_v, v.stride_row, next_left, D);
  }

  __shared__ float all_max[Team::kTeams][kRows], all_sum[Team::kTeams][kRows];
  __shared__ float all_sums[Team::kTeams][kRows][Team::kDepth];
  GPU_UNROLL
  for (int r = 0; r < kRows; ++r) {
    if (threadIdx.x % Team::kLanes == 0) all_max[team][r] = largest[r], all_sum[team][r] = sum[r];
    GPU_UNROLL
    for (int i = 0; i < kNumbers; ++i) all_sums[team][r][Team::column(i)] = sums[r][i];
  }
  __syncthreads();  // what every team knows is in shared memory
  for (size_t i = threadIdx.x; i < count * p.D; i += kSliceBlock) {
    const size_t r = i / p.D, d = i % p.D;
    KeysSum all{-FLT_MAX, 0, 0};
    for (int t = 0; t < Team::kTeams; ++t)
      all = together(all, {all_max[t][r], all_sum[t][r], all_sums[t][r][d]});
    finish_slice(out, lse, p, parts, slices, block, query0 + r, d, all);
  }
}

// out, lse = the row's slices put together, in a fixed order: the same bits on every run.
// Fixes : a row lies in as many parts as its keys have slices.
// Idea  : kMergeGroups threads take every kMergeGroups-th slice each, so that their loads are on
//         their way together. The blocks start while the last slices are computed, and wait.
// Thread: (x, y) owns slices y, y + kMergeGroups, ... of one column; y = 0 the groups' results.
// Costs : 4 (2 + D) bytes per row and slice, which the L2 cache still holds; 1 barrier.
template <class T>
static __global__ void __launch_bounds__(kMergeColumns* kMergeGroups)
    merge_slices(ViewOf<T> out, float* lse, const float* parts, Problem p, unsigned slices) {
  __shared__ KeysSum groups[kMergeGroups][kMergeColumns];
  const unsigned row = blockIdx.x, d = blockIdx.y * kMergeColumns + threadIdx.x;
  const unsigned Tq = static_cast<unsigned>(p.Tq);
  KeysSum all{-FLT_MAX, 0, 0};
  // exercise: wait; the slices of this group, then of all groups (about 10 lines)
  gpu::wait_for_launch_before();  // every slice is in parts
  if (d < p.D)
    for (unsigned s = threadIdx.y; s < slices; s += kMergeGroups) {
      const float* const part = parts + (size_t{row} * slices + s) * (2 + p.D);
      all = together(all, {part[0], part[1], part[2 + d]});
    }
  groups[threadIdx.y][threadIdx.x] = all;
  __syncthreads();  // every group's part is in shared memory
  if (threadIdx.y > 0 || d >= p.D) return;
  for (unsigned g = 1; g < kMergeGroups; ++g) all = together(all, groups[g][threadIdx.x]);
  // end exercise
  finish_row(out, lse, p, row / Tq, row % Tq, d, all);
}

template <class T>
void launch_merge(const ViewOf<T>& out, float* lse, const float* parts, const Problem& p,
                  unsigned slices, hipStream_t stream) {
  if (slices == 1) return;
  const dim3 grid(grid_of(p.heads() * p.Tq), grid_of(gpu::ceil_div(p.D, kMergeColumns)));
  LAUNCH_EARLY(stream, (merge_slices<T>), grid, dim3(kMergeColumns, kMergeGroups), 0, out, lse,
               parts, p, slices);
}
template void launch_merge<gpu::bfloat16>(const Bf16View&, float*, const float*, const Problem&,
                                          unsigned, hipStream_t);

template <class T>
size_t memory_of_split_keys(const Problem& p) {
  if (p.D == 0 || p.D > 256) return 0;  // the launcher says so
  return with_key_team<T>(
      p, [&](auto team) { return parts_of(p, slices_of<decltype(team)>(p).count); });
}
template size_t memory_of_split_keys<float>(const Problem& p);
template size_t memory_of_split_keys<gpu::bfloat16>(const Problem& p);

template <class T>
void launch_split_keys(const ViewOf<T>& out, float* lse, const ConstViewOf<T>& q,
                       const ConstViewOf<T>& k, const ConstViewOf<T>& v, const Problem& p,
                       float* memory, hipStream_t stream) {
  bool aligned = true;
  if constexpr (sizeof(T) == sizeof(float)) {
    check_forward(out, q, k, v, p);
    aligned = is_aligned(k, p.D) && is_aligned(v, p.D);
  } else {
    check_bf16(p, kMostBf16Depth);
    aligned = have_aligned_rows({k, v}, p.D);
  }
  if (p.heads() * p.Tq * p.D == 0) return;
  with_key_team<T>(p, [&](auto team) {
    using Team = decltype(team);
    const Slices slices = slices_of<Team>(p);
    const unsigned blocks = grid_of(p.heads() * slices.groups * slices.count);
    const auto kernel = aligned ? attend_slices<T, Team, true> : attend_slices<T, Team, false>;
    LAUNCH_ON(stream, kernel, blocks, kSliceBlock, 0, out, lse, q, k, v, p, slices, memory);
    launch_merge(out, lse, memory, p, slices.count, stream);
  });
}
template void launch_split_keys<float>(const View&, float*, const ConstView&, const ConstView&,
                                       const ConstView&, const Problem&, float*, hipStream_t);
template void launch_split_keys<gpu::bfloat16>(const Bf16View&, float*, const ConstBf16View&,
                                               const ConstBf16View&, const ConstBf16View&,
                                               const Problem&, float*, hipStream_t);

}  // namespace attention
