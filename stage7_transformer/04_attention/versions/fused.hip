// fused: rows of scores stay in shared memory from one product to the other.
#include <cfloat>

#include "common/gpu.h"
#include "stage1_vector/03_dot/detail/block_sum.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"
#include "stage7_transformer/04_attention/attention.h"
#include "stage7_transformer/04_attention/detail/finite.h"
#include "stage7_transformer/04_attention/problem.h"

namespace attention {

constexpr unsigned kBlock = dot::kBlock;
constexpr int kFusedRows = 8;    // queries of a block, where their scores fit
constexpr int kLoads = 8;        // keys or values that a thread has on their way
constexpr int kLanesPerKey = 8;  // neighbours that share a key's numbers: 32 bytes at a time

// The sum of `value` over the kLanesPerKey neighbours, in all of them.
__device__ inline float sum_of_key(float value) {
  for (int distance = kLanesPerKey / 2; distance > 0; distance /= 2)
    value += gpu::wave_shfl_xor(value, distance);
  return value;
}

static size_t fused_bytes(size_t rows, const Problem& p) {
  return rows * (p.D + p.Tk + kBlock) * sizeof(float);
}

// out = softmax(scale Q K^T + mask) V    kRows queries of one head per block.
// Fixes : composed stores Tq x Tk scores, and each goes through memory six times.
// Idea  : a row of scores needs no other row: a block keeps kRows of them in shared memory from the
//         first product to the second.
// Thread: scores: kLanesPerKey neighbours share a key; softmax: a wave has rows; out: thread t owns
//         column t % D of the keys t / D, t / D + kBlock / D, ...
// Costs : K and V once per kRows queries; kRows (Tk + D + kBlock) floats of shared memory. A
//         product of step 2.3 reads K and V once per 64 or 128 queries: where there are many, this
//         version is slower than composed. Where there is one, no product can do better. It wins at
//         no committed shape, and is the step to flash, which keeps more rows than fit here.
template <int kRows>
static __global__ void GPU_LAUNCH_BOUNDS(kBlock, 2)
    fused_forward(View out, float* lse, ConstView q, ConstView k, ConstView v, Problem p) {
  DYNAMIC_SHARED(float, rows_q);               // (kRows, D)
  float* const scores = rows_q + kRows * p.D;  // (kRows, Tk), of which `seen` are used
  float* const parts = scores + kRows * p.Tk;  // (kRows, slices, D)
  __shared__ float of_sum[kRows];              // 1 / the sum of the row's exponentials
  const size_t blocks = gpu::ceil_div(p.Tq, kRows);
  const size_t head = blockIdx.x / blocks, query0 = blockIdx.x % blocks * kRows;
  const size_t batch = head / p.H, of_batch = head % p.H;
  const size_t count = p.Tq - query0 < kRows ? p.Tq - query0 : kRows;
  const size_t seen = visible_keys(p, query0 + count - 1);
  const float *head_q = q.head(batch, of_batch) + query0 * q.stride_row,
              *head_k = k.head(batch, of_batch), *head_v = v.head(batch, of_batch);
  const size_t thread = threadIdx.x;

  for (size_t i = thread; i < kRows * p.D; i += kBlock)
    rows_q[i] = i / p.D < count ? head_q[i / p.D * q.stride_row + i % p.D] : 0;
  __syncthreads();  // the queries are in shared memory

  const size_t lane = thread % kLanesPerKey;
  constexpr size_t kTeams = kBlock / kLanesPerKey;
  // All lanes of a wave go round as often: they meet in the shuffles.
  for (size_t first = 0; first < seen; first += kTeams * kLoads) {
    const size_t key0 = first + thread / kLanesPerKey;
    float sums[kLoads][kRows] = {};
    for (size_t d = lane; d < p.D; d += kLanesPerKey) {
      float held[kLoads];
      GPU_UNROLL
      for (int n = 0; n < kLoads; ++n) {
        const size_t key = key0 + static_cast<size_t>(n) * kTeams;
        held[n] = key < seen ? head_k[key * k.stride_row + d] : 0;
      }
      GPU_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const float x = rows_q[static_cast<size_t>(r) * p.D + d];
        GPU_UNROLL
        for (int n = 0; n < kLoads; ++n) sums[n][r] += held[n] * x;
      }
    }
    GPU_UNROLL
    for (int n = 0; n < kLoads; ++n) {
      const size_t key = key0 + static_cast<size_t>(n) * kTeams;
      GPU_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const float score = sum_of_key(sums[n][r]);
        const size_t query = query0 + static_cast<size_t>(r);
        if (lane == 0 && key < seen)
          scores[static_cast<size_t>(r) * p.Tk + key] =
              query < p.Tq && key < visible_keys(p, query) ? p.scale * score : -INFINITY;
      }
    }
  }
  __syncthreads();  // the scores are in shared memory

  // exercise: a wave per row: exponentials in place, 1 / their sum, lse (about 16 lines)
  for (int r = gpu::wave_id(); r < kRows; r += static_cast<int>(kBlock) / gpu::wave_size()) {
    float* const row = scores + static_cast<size_t>(r) * p.Tk;
    const size_t lanes = static_cast<size_t>(gpu::wave_size());
    float max = -FLT_MAX, sum = 0;
    for (size_t j = static_cast<size_t>(gpu::lane_id()); j < seen; j += lanes)
      max = fmaxf(max, row[j]);
    max = softmax::wave_max(max);
    for (size_t j = static_cast<size_t>(gpu::lane_id()); j < seen; j += lanes)
      sum += row[j] = softmax::exponential(row[j] - max);
    sum = dot::wave_sum(sum);
    if (gpu::lane_id() > 0) continue;
    of_sum[r] = sum == 0 ? 0 : 1 / sum;
    if (lse != nullptr && static_cast<size_t>(r) < count)
      lse[head * p.Tq + query0 + static_cast<size_t>(r)] = sum == 0 ? -INFINITY : max + logf(sum);
  }
  // end exercise
  __syncthreads();  // the exponentials and their sums are in shared memory

  const size_t slices = kBlock / p.D, slice = thread / p.D, column = thread % p.D;
  if (slice < slices) {
    float sums[kRows] = {};
    for (size_t first = slice; first < seen; first += slices * kLoads) {
      float held[kLoads];
      GPU_UNROLL
      for (int n = 0; n < kLoads; ++n) {
        const size_t key = first + static_cast<size_t>(n) * slices;
        held[n] = key < seen ? head_v[key * v.stride_row + column] : 0;
      }
      GPU_UNROLL
      for (int n = 0; n < kLoads; ++n) {
        const size_t key = first + static_cast<size_t>(n) * slices;
        if (key >= seen) break;
        GPU_UNROLL
        for (int r = 0; r < kRows; ++r)
          sums[r] += scores[static_cast<size_t>(r) * p.Tk + key] * held[n];
      }
    }
    for (int r = 0; r < kRows; ++r)
      parts[(static_cast<size_t>(r) * slices + slice) * p.D + column] = sums[r];
    // Again, without hidden keys, whose weights are 0: see finite.h.
    const size_t repeated = are_finite(sums) ? 0 : kRows;
    for (size_t r = 0; r < repeated; ++r) {
      float sum = 0;
      for (size_t key = slice; key < seen; key += slices) {
        const float weight = scores[r * p.Tk + key];
        if (weight != 0) sum += weight * head_v[key * v.stride_row + column];
      }
      parts[(r * slices + slice) * p.D + column] = sum;
    }
  }
  __syncthreads();  // each slice's sums are in shared memory
  for (size_t i = thread; i < count * p.D; i += kBlock) {
    const size_t r = i / p.D, d = i % p.D;
    float sum = 0;
    for (size_t s = 0; s < slices; ++s) sum += parts[(r * slices + s) * p.D + d];
    out.head(batch, of_batch)[(query0 + r) * out.stride_row + d] = sum * of_sum[r];
  }
}

template <int kRows>
static bool launch_fused_rows(const View& out, float* lse, const ConstView& q, const ConstView& k,
                              const ConstView& v, const Problem& p, hipStream_t stream) {
  const size_t bytes = fused_bytes(kRows, p);
  if (bytes + kRows * sizeof(float) > gpu::max_shared_bytes()) return false;
  gpu::allow_shared_bytes(fused_forward<kRows>, bytes);
  LAUNCH_ON(stream, (fused_forward<kRows>), grid_of(p.heads() * gpu::ceil_div(p.Tq, kRows)), kBlock,
            bytes, out, lse, q, k, v, p);
  return true;
}

// Rows that do not fit shared memory are left to flash.
void launch_fused(const View& out, float* lse, const ConstView& q, const ConstView& k,
                  const ConstView& v, const Problem& p, float* memory, hipStream_t stream) {
  check_forward(out, q, k, v, p);
  if (p.heads() * p.Tq == 0) return;
  if ((p.Tq <= 2 || !launch_fused_rows<kFusedRows>(out, lse, q, k, v, p, stream)) &&
      !launch_fused_rows<1>(out, lse, q, k, v, p, stream))
    launch_flash(out, lse, q, k, v, p, memory, stream);
}

}  // namespace attention
