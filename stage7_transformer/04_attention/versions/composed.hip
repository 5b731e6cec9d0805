// composed: products, mask and softmax of earlier steps, through memory.
#include <algorithm>

#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage3_ml_ops/02_softmax/detail/launch_best.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/composed.h"
#include "stage7_transformer/04_attention/detail/finite.h"
#include "stage7_transformer/04_attention/problem.h"

namespace attention {

// scores = scale scores where the query sees the key, else -infinity    scores (B, H, Tq, Tk).
// Fixes : a product knows nothing of a mask.
// Idea  : one pass over the scores, in place; softmax makes 0 of -infinity.
// Thread: t owns key t of the queries blockIdx.y, blockIdx.y + gridDim.y, ..., and so with heads.
// Costs : 8 bytes per score.
static __global__ void mask_scores(float* scores, Problem p) {
  const size_t key = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (key >= p.Tk) return;
  for (size_t head = blockIdx.z; head < p.B * p.H; head += gridDim.z)
    for (size_t query = blockIdx.y; query < p.Tq; query += gridDim.y) {
      float& score = scores[(head * p.Tq + query) * p.Tk + key];
      // exercise: scale what the query sees, hide what it does not (about 2 lines)
      const bool seen = key < visible_keys(p, query);
      score = seen ? p.scale * score : -INFINITY;
      // end exercise
    }
}

// rows[b,h,t,d] = value    rows (B, H, T, D).
// Fixes : no product and no softmax knows what to do with a row without keys.
// Idea  : as device_matrix::fill_flat, through a view.
// Thread: t owns the elements t, t + all threads, ...
// Costs : 4 bytes per element.
static __global__ void fill_rows(View rows, size_t B, size_t H, size_t T, size_t D, float value) {
  const size_t threads = size_t{gridDim.x} * blockDim.x, n = B * H * T * D;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    const size_t row = i / D, head = row / T;
    rows.head(head / H, head % H)[row % T * rows.stride_row + i % D] = value;
  }
}

void launch_fill_rows(const View& rows, const Problem& p, size_t T, size_t D, float value,
                      hipStream_t stream) {
  const size_t n = p.heads() * T * D;
  if (n == 0) return;
  LAUNCH_ON(stream, fill_rows, vector_add::grid_stride_blocks(n), vector_add::kBlock, 0, rows, p.B,
            p.H, T, D, value);
}

// What step 3.2's softmax stores: the probabilities, and of each row lse. Its row r is one of p.Tq
// rows, the last ones of lse's T. A row with NaN is NaN, but not where the query sees no key.
struct ProbabilitiesAndLogSum {
  float* lse;
  size_t T;
  Problem p;

  struct Row {
    float* lse;
    size_t seen;
    __device__ void finish(softmax::MaxSum whole) const {
      if (lse != nullptr) *lse = whole.max + logf(whole.sum);
    }
    __device__ float operator()(size_t key, float probability) const {
      return key < seen ? probability : 0;
    }
  };
  __device__ Row row(size_t r) const {
    const size_t query = r % p.Tq;
    return {lse == nullptr ? nullptr : lse + (r / p.Tq * T + (T - p.Tq) + query),
            visible_keys(p, query)};
  }
};

// How many heads have blocks of their own, along y or z of a grid.
static size_t heads_of_grid(const Problem& p) {
  return std::min({p.heads(), gpu::kMaxGridY, vector_add::largest_grid(vector_add::kBlock)});
}

dim3 grid_of_scores(const Problem& p) {
  const size_t heads = heads_of_grid(p), across = gpu::ceil_div(p.Tk, vector_add::kBlock);
  const size_t blocks = vector_add::grid_stride_blocks(p.heads() * p.Tq * p.Tk);
  const size_t down =
      std::clamp(blocks / (across * heads), size_t{1}, std::min(p.Tq, gpu::kMaxGridY));
  return dim3(static_cast<unsigned>(across), static_cast<unsigned>(down),
              static_cast<unsigned>(heads));
}

void launch_probabilities(float* probabilities, float* lse, size_t Tq, const ConstView& q,
                          const ConstView& k, const Problem& p, hipStream_t stream) {
  multiply(gemm::Layout::NT, p.Tq, p.Tk, p.D, 1, q, k, matrix(probabilities, p), p, stream);
  LAUNCH_ON(stream, mask_scores, grid_of_scores(p), vector_add::kBlock, 0, probabilities, p);
  softmax::launch_best(probabilities, probabilities, p.heads() * p.Tq, p.Tk,
                       ProbabilitiesAndLogSum{lse, Tq, p}, stream);
}

struct AllPairSums {
  PairSums of[kMostPairSums];
};

// Of the sums a = all.of[blockIdx.z], those that are not finite once more: over the s that t sees,
// or of a key those that see it.
// Fixes : the product multiplies the zeros of m, too, and 0 times NaN or infinity is NaN.
// Idea  : where no row holds such numbers, reading the sums once is all that it costs.
// Thread: thread i of a block owns column i % D of the rows i / D, i / D + rows of the grid, ... of
//         the heads blockIdx.y, blockIdx.y + gridDim.y, ...; kLooks of them are on their way.
// Costs : 4 bytes per element; 8 more per pair and element that is computed again.
static __global__ void repeat_sums(AllPairSums all, Problem p) {
  constexpr int kLooks = 4;
  const PairSums& a = all.of[blockIdx.z];
  const unsigned D = static_cast<unsigned>(p.D), rows_of_block = blockDim.x / D;
  const unsigned d = threadIdx.x % D, row = threadIdx.x / D;
  if (row >= rows_of_block) return;  // D does not divide the block
  const size_t T = a.of_keys ? p.Tk : p.Tq, rows_of_grid = size_t{gridDim.x} * rows_of_block;
  for (size_t head = blockIdx.y; head < p.B * p.H; head += gridDim.y) {
    float* const sums = a.sums.head(head / p.H, head % p.H) + d;
    const float* const rows = a.rows.head(head / p.H, head % p.H) + d;
    const float* const m = a.m + head * p.Tq * p.Tk;
    for (size_t first = size_t{blockIdx.x} * rows_of_block + row; first < T;
         first += kLooks * rows_of_grid) {
      float held[kLooks];
      GPU_UNROLL
      for (int n = 0; n < kLooks; ++n) {
        const size_t t = first + static_cast<size_t>(n) * rows_of_grid;
        held[n] = t < T ? sums[t * a.sums.stride_row] : 0;
      }
      if (are_finite(held)) continue;
      for (size_t t = first; t < T && t < first + kLooks * rows_of_grid; t += rows_of_grid) {
        float& stored = sums[t * a.sums.stride_row];
        if (zero_times(stored) == 0) continue;
        const size_t begin = a.of_keys && t + p.Tq > p.Tk ? t + p.Tq - p.Tk : 0;
        const size_t end = a.of_keys ? p.Tq : visible_keys(p, t);
        float sum = 0;
        for (size_t s = begin; s < end; ++s)
          sum += m[a.of_keys ? s * p.Tk + t : t * p.Tk + s] * rows[s * a.rows.stride_row];
        stored = a.factor * sum;
      }
    }
  }
}

void launch_repeat_sums(std::initializer_list<PairSums> all, const Problem& p, hipStream_t stream) {
  if (!p.causal) return;
  AllPairSums sums{};
  std::copy(all.begin(), all.end(), sums.of);
  const size_t heads = heads_of_grid(p);
  const unsigned blocks = vector_add::grid_stride_blocks(heads * std::max(p.Tq, p.Tk) * p.D);
  const dim3 grid(static_cast<unsigned>(gpu::ceil_div(blocks, heads)), static_cast<unsigned>(heads),
                  static_cast<unsigned>(all.size()));
  LAUNCH_ON(stream, repeat_sums, grid, vector_add::kBlock, 0, sums, p);
}

size_t memory_of_composed(const Problem& p) { return p.heads() * p.Tq * p.Tk; }

// Four launches, and with a mask one that mends what is not finite: the product of step 2.3, the
// mask, step 3.2's softmax, the other product. Each score goes to memory three times and comes back
// three times.
void launch_composed(const View& out, float* lse, const ConstView& q, const ConstView& k,
                     const ConstView& v, const Problem& problem, float* memory,
                     hipStream_t stream) {
  check_forward(out, q, k, v, problem);
  const size_t blind = blind_queries(problem);
  launch_fill_rows(out, problem, blind, problem.D, 0, stream);
  if (lse != nullptr)
    launch_fill_rows(heads_first(lse, problem.H, problem.Tq, 1), problem, blind, 1, -INFINITY,
                     stream);
  const Problem p = seeing(problem);
  if (p.heads() * p.Tq == 0) return;
  check_array("memory", memory, 1);
  float* const probabilities = memory;
  launch_probabilities(probabilities, lse, problem.Tq, from_row(q, blind), k, p, stream);
  const View seeing_out = from_row(out, blind);
  multiply(gemm::Layout::NN, p.Tq, p.D, p.Tk, 1, matrix(probabilities, p), v, seeing_out, p,
           stream);
  launch_repeat_sums({{seeing_out, probabilities, v, 1, false}}, p, stream);
}

}  // namespace attention
