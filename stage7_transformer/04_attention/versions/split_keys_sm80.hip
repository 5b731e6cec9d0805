// split_keys_mma: the products of a slice on matrix units, from registers to registers.
#include <cfloat>

#include "common/gpu.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/bf16.h"
#include "stage7_transformer/04_attention/detail/key_slices.h"
#include "stage7_transformer/04_attention/detail/products_sm80.h"

namespace attention {

#if !defined(GPU_BACKEND_HIP)

// What a warp's 16 keys need of 16-byte loads: below the kernel.
template <int kDepth_>
struct MatrixTeam;
// Chunk `chunk` of row `row`, of which there are `rows`; zeros where there is none.
__device__ inline uint4 load_chunk(const bfloat16* head, size_t stride, int row, int rows,
                                   int chunk, int D);
// The lower, or the upper, halves of two words as one word.
__device__ inline unsigned low_halves(unsigned a, unsigned b) { return (a & 0xFFFF) | b << 16; }
__device__ inline unsigned high_halves(unsigned a, unsigned b) {
  return a >> 16 | (b & 0xFFFF0000u);
}

// parts[row, slice] = max, sum and out of the row's keys in the slice   (B, H, Tq, slices, 2 + D)
// Fixes : with four queries per key, split_keys computes for longer than it reads: each number of K
//         is converted, multiplied by four others, and takes part in exchanges.
// Idea  : queries are the rows of one product and the columns of the other. A sum along the head
//         may take its numbers in any order: so 16 bytes as they lie in memory are an operand, and
//         scores become weights in the very registers from which the next product takes them.
// Thread: a warp has 16 keys at a time; lane 4 g + t has query g's scores of keys 2 t, 2 t + 1,
//         2 t + 8 and 2 t + 9; then out's columns 8 g, ... of queries 2 t and 2 t + 1.
// Costs : K and V once per 8 queries; 4 exchanges per 16 keys; 1 barrier in all.
template <class Team>
static __global__ void GPU_LAUNCH_BOUNDS(Team::kThreads, Team::kBlocks)
    attend_slices_mma(Bf16View out, float* lse, ConstBf16View q, ConstBf16View k, ConstBf16View v,
                      Problem p, Slices slices, float* parts) {
  if constexpr (gemm_mixed::kHaveMma) {
    using gemm_mixed::kLanes;
    constexpr int kRows = Team::kRows, kKeys = Team::kKeys;
    const SliceOfBlock block(slices, p);
    const size_t query0 = size_t{block.group} * kRows, key0 = block.slice * slices.keys;
    const int rows = static_cast<int>(min(p.Tq - query0, size_t{kRows}));
    const int end = static_cast<int>(min(slices.keys, p.Tk - key0)), D = static_cast<int>(p.D);
    const int lane = gemm_mixed::warp_lane(), g = lane / 4, t = lane % 4;
    const int warp = static_cast<int>(threadIdx.x) / kLanes;
    const bfloat16* const head_q = block.rows_of(q) + query0 * q.stride_row;
    const bfloat16* const head_k = block.rows_of(k) + key0 * k.stride_row;
    const bfloat16* const head_v = block.rows_of(v) + key0 * v.stride_row;

    uint4 row_q[Team::kScoreChunks], keys[2][Team::kScoreChunks], values[4][Team::kValueChunks];
    const auto load_keys = [&](int key) {
      for (int n = 0; n < 2; ++n)
        for (int j = 0; j < Team::kScoreChunks; ++j)
          keys[n][j] = load_chunk(head_k, k.stride_row, key + 8 * n + g, end, 4 * j + t, D);
    };
    const auto load_values = [&](int key) {
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < Team::kValueChunks; ++j)
          values[i][j] =
              load_chunk(head_v, v.stride_row, key + i / 2 * 8 + 2 * t + i % 2, end, 8 * j + g, D);
    };
    for (int j = 0; j < Team::kScoreChunks; ++j)
      row_q[j] = load_chunk(head_q, q.stride_row, g, rows, 4 * j + t, D);
    load_keys(warp * kKeys), load_values(warp * kKeys);

    float largest = -FLT_MAX, sum = 0, sums[4 * Team::kValueChunks][4] = {};
    for (int begin = 0; begin < end; begin += Team::kStep) {
      const int key = begin + warp * kKeys;
      float scores[2][4] = {};  // of queries g; those of g + 8 are not there
      GPU_UNROLL
      for (int n = 0; n < 2; ++n) {
        GPU_UNROLL
        for (int j = 0; j < Team::kScoreChunks; ++j) {
          const uint4 x = row_q[j], y = keys[n][j];
          gemm_mixed::multiply_add<bfloat16>(scores[n], {x.x, 0, x.y, 0}, y.x, y.y);
          gemm_mixed::multiply_add<bfloat16>(scores[n], {x.z, 0, x.w, 0}, y.z, y.w);
        }
      }
      load_keys(key + Team::kStep);  // on their way during the rest

      float weights[4] = {}, rescale = 1;
      // exercise: the running softmax of query g: its four scores here become weights, and
      // `rescale` what its sums so far are to be multiplied by (about 11 lines)
      const float before = largest;
      for (int i = 0; i < 4; ++i) {
        const bool seen = key + i / 2 * 8 + 2 * t + i % 2 < end;
        weights[i] = seen ? p.scale * scores[i / 2][i % 2] : -INFINITY;
        largest = fmaxf(largest, weights[i]);
      }
      for (int distance = 1; distance <= 2; distance *= 2)
        largest = fmaxf(largest, gpu::wave_shfl_xor(largest, distance));
      rescale = softmax::exponential(before - largest);
      sum *= rescale;
      for (float& weight : weights) sum += weight = softmax::exponential(weight - largest);
      // end exercise

      const int first_lane = gpu::lane_id() - lane;  // lane 4 g has what becomes of query g
      const float of_query[2] = {gpu::wave_shfl(rescale, first_lane + 8 * t),
                                 gpu::wave_shfl(rescale, first_lane + 8 * t + 4)};
      const unsigned b0 = pack(weights[0], weights[1]), b1 = pack(weights[2], weights[3]);
      GPU_UNROLL
      for (int m = 0; m < 4 * Team::kValueChunks; ++m) {
        for (int i = 0; i < 4; ++i) sums[m][i] *= of_query[i % 2];
        unsigned words[4];
        for (int i = 0; i < 4; ++i) {
          const uint4& four = values[i][m / 4];
          words[i] = m % 4 == 0 ? four.x : m % 4 == 1 ? four.y : m % 4 == 2 ? four.z : four.w;
        }
        gemm_mixed::multiply_add<bfloat16>(
            sums[m],
            {low_halves(words[0], words[1]), high_halves(words[0], words[1]),
             low_halves(words[2], words[3]), high_halves(words[2], words[3])},
            b0, b1);
      }
      load_values(key + Team::kStep);
    }

    __shared__ float all_max[Team::kWarps][kRows], all_sum[Team::kWarps][kRows];
    __shared__ float all_sums[Team::kWarps][kRows][Team::kDepth];
    for (int distance = 1; distance <= 2; distance *= 2) sum += gpu::wave_shfl_xor(sum, distance);
    if (t == 0) all_max[warp][g] = largest, all_sum[warp][g] = sum;
    GPU_UNROLL
    for (int m = 0; m < 4 * Team::kValueChunks; ++m)
      for (int i = 0; i < 4; ++i)
        all_sums[warp][2 * t + i % 2][8 * (m / 4 * 8 + g) + 2 * (m % 4) + i / 2] = sums[m][i];
    __syncthreads();  // what every warp knows is in shared memory
    for (int i = static_cast<int>(threadIdx.x); i < rows * D; i += Team::kThreads) {
      const int r = i / D, d = i % D;
      KeysSum all{-FLT_MAX, 0, 0};
      for (int w = 0; w < Team::kWarps; ++w)
        all = together(all, {all_max[w][r], all_sum[w][r], all_sums[w][r][d]});
      finish_slice(out, lse, p, parts, slices, block, query0 + static_cast<size_t>(r),
                   static_cast<size_t>(d), all);
    }
  }
}

template <int kDepth_>
struct MatrixTeam {
  static constexpr int kDepth = kDepth_, kRows = 8, kKeys = 16;
  static constexpr int kThreads = kDepth == 256 ? 128 : kDepth == 128 ? 256 : 512;
  static constexpr int kWarps = kThreads / gemm_mixed::kLanes, kStep = kWarps * kKeys;
  static constexpr int kScoreChunks = kDepth / 32, kValueChunks = kDepth / 64;  // of a lane
  static constexpr int kBlocks = 1;  // resident: so that heads stay whole, without a second launch
};

__device__ inline uint4 load_chunk(const bfloat16* head, size_t stride, int row, int rows,
                                   int chunk, int D) {
  uint4 loaded = {};
  if (row < rows && chunk * 8 < D)
    loaded = *reinterpret_cast<const uint4*>(head + static_cast<size_t>(row) * stride + chunk * 8);
  return loaded;
}

template <class Use>
static auto with_matrix_team(size_t D, Use use) {
  if (D <= 64) return use(MatrixTeam<64>{});
  if (D <= 128) return use(MatrixTeam<128>{});
  return use(MatrixTeam<256>{});
}

size_t memory_of_split_keys_mma(const Problem& p) {
  if (p.D == 0 || p.D > 256) return 0;  // the launcher says so
  const size_t own = with_matrix_team(
      p.D, [&](auto team) { return parts_of(p, slices_of<decltype(team)>(p).count); });
  return std::max(own, memory_of_split_keys<bfloat16>(p));
}

// Rows that are not aligned, and queries that see different keys, are left to split_keys.
void launch_split_keys_mma(const Bf16View& out, float* lse, const ConstBf16View& q,
                           const ConstBf16View& k, const ConstBf16View& v, const Problem& p,
                           float* memory, hipStream_t stream) {
  check_bf16(p, kMostBf16Depth);
  if (p.heads() * p.Tq * p.D == 0) return;
  if (!have_aligned_rows({q, k, v}, p.D) || (p.causal && p.Tq > 1))
    return launch_split_keys<bfloat16>(out, lse, q, k, v, p, memory, stream);
  with_matrix_team(p.D, [&](auto team) {
    using Team = decltype(team);
    const Slices slices = slices_of<Team>(p);
    LAUNCH_ON(stream, attend_slices_mma<Team>, grid_of(p.heads() * slices.groups * slices.count),
              unsigned{Team::kThreads}, 0, out, lse, q, k, v, p, slices, memory);
    launch_merge(out, lse, memory, p, slices.count, stream);
  });
}

#else

size_t memory_of_split_keys_mma(const Problem&) { return 0; }
void launch_split_keys_mma(const Bf16View&, float*, const ConstBf16View&, const ConstBf16View&,
                           const ConstBf16View&, const Problem&, float*, hipStream_t) {
  refuse_bf16();
}

#endif

}  // namespace attention
