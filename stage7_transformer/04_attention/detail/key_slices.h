// How split_keys and split_keys_mma cut the keys of a head into slices, and put slices together.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>

#include "common/gpu.h"
#include "common/half.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"
#include "stage7_transformer/04_attention/problem.h"

namespace attention {

inline constexpr int kSliceBlock = 128;  // threads

struct Slices {
  unsigned groups;  // of Team::kRows queries, in a head
  unsigned count;   // slices of a head's keys
  size_t keys;      // of a slice
};

// What a block has: a slice of the keys of a head, for a group of its queries. A grid has less than
// 2^31 blocks, so all that follows from a block's number is divided with 32 bits: with 64 the first
// loads would wait for half a microsecond.
struct SliceOfBlock {
  unsigned slice, group, head, batch, head_of_batch;

  __device__ SliceOfBlock(const Slices& slices, const Problem& p)
      : slice(blockIdx.x % slices.count),
        group(blockIdx.x / slices.count % slices.groups),
        head(blockIdx.x / slices.count / slices.groups),
        batch(head / static_cast<unsigned>(p.H)),
        head_of_batch(head % static_cast<unsigned>(p.H)) {}
  // Where the head's rows begin in a view.
  template <class AnyView>
  __device__ auto rows_of(const AnyView& view) const {
    return view.head(batch, head_of_batch);
  }
};

// Where one slice for each group nearly fills the device, that is all: nothing has to be put
// together. Else one round of all multiprocessors if that gives every group two slices or more, or
// nearly four, so that the last round is almost full. A slice has at least two steps.
template <class Team>
Slices slices_of(const Problem& p) {
  Slices slices{grid_of(gpu::ceil_div(p.Tq, Team::kRows)), 1, p.Tk};
  const size_t resident = size_t{gpu::multiprocessors()} * Team::kBlocks;
  const size_t blocks = std::max(p.heads() * slices.groups, size_t{1});
  if (blocks <= resident && blocks * 16 >= resident * 15) return slices;
  const size_t wanted =
      2 * blocks <= resident ? resident / blocks : std::max(4 * resident / blocks, size_t{1});
  const size_t most = std::max(p.Tk / (2 * Team::kStep), size_t{1});
  const size_t steps = gpu::ceil_div(gpu::ceil_div(p.Tk, std::min(wanted, most)), Team::kStep);
  slices.keys = std::max(steps, size_t{1}) * Team::kStep;
  slices.count = grid_of(std::max(gpu::ceil_div(p.Tk, slices.keys), size_t{1}));
  return slices;
}

// What is known of a row from some of its keys: their largest score, the sum of exp(score - max),
// and that of exp(score - max) v, of one column. Of no keys: {-FLT_MAX, 0, 0}.
struct KeysSum {
  float max, sum, out;  // shared memory takes no initial values
};

// Of the keys of both.
__device__ inline KeysSum together(const KeysSum& a, const KeysSum& b) {
  const float max = fmaxf(a.max, b.max);
  const float of_a = softmax::exponential(a.max - max), of_b = softmax::exponential(b.max - max);
  return {max, of_a * a.sum + of_b * b.sum, of_a * a.out + of_b * b.out};
}

// Stores column d of query `query` of head `head` of all, and with column 0 its lse: `all` is of
// all its keys.
template <class T>
__device__ inline void finish_row(const ViewOf<T>& out, float* lse, const Problem& p, unsigned head,
                                  size_t query, size_t d, const KeysSum& all) {
  const unsigned H = static_cast<unsigned>(p.H);
  out.head(head / H, head % H)[query * out.stride_row + d] =
      gpu::from_float<T>(all.sum == 0 ? 0 : all.out / all.sum);
  if (d == 0 && lse != nullptr)
    lse[head * p.Tq + query] = all.sum == 0 ? -INFINITY : all.max + logf(all.sum);
}

// The same from one slice: to its place in parts (B, H, Tq, slices, 2 + D), or to out if there is
// no other slice.
template <class T>
__device__ inline void finish_slice(const ViewOf<T>& out, float* lse, const Problem& p,
                                    float* parts, const Slices& slices, const SliceOfBlock& block,
                                    size_t query, size_t d, const KeysSum& all) {
  if (slices.count == 1) return finish_row(out, lse, p, block.head, query, d, all);
  const size_t row = block.head * p.Tq + query;
  float* const part = parts + (row * slices.count + block.slice) * (2 + p.D);
  if (d == 0) part[0] = all.max, part[1] = all.sum;
  part[2 + d] = all.out;
}

// The floats of `parts`.
inline size_t parts_of(const Problem& p, size_t slices) {
  return slices == 1 ? 0 : p.heads() * p.Tq * slices * (2 + p.D);
}

// out, lse = the slices put together; nothing for a single one. versions/split_keys.hip has the
// kernel.
template <class T>
void launch_merge(const ViewOf<T>& out, float* lse, const float* parts, const Problem& p,
                  unsigned slices, hipStream_t stream);

}  // namespace attention
