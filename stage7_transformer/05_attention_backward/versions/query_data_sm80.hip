// What flash_bf16 wants to know of each query, before its two passes.
#include "common/gpu.h"
#include "stage7_transformer/04_attention/detail/sizes_sm80.h"
#include "stage7_transformer/04_attention/detail/store_sm80.h"
#include "stage7_transformer/05_attention_backward/detail/backward_tiles_sm80.h"

namespace attention_backward {

#if !defined(GPU_BACKEND_HIP)

constexpr int kLanesPerQuery = 8;

// data[b,h,i] = {lse / log 2, sum over d of grad_out out}    data (B,H,padded)  lse (B,H,Tq)
//                                                 grad_out, out (B,H,Tq,D)
// Fixes : both passes need a query's delta in every tile.
// Idea  : a quarter of a wave, or less, takes a query, each lane chunks of its rows.
// Thread: kLanesPerQuery neighbours own data[t / kLanesPerQuery].
// Costs : 4 D bytes of global memory per query.
template <bool kAligned>
static __global__ void flash_bf16_prepare(QueryData* data, const float* lse, ConstBf16View grad_out,
                                          ConstBf16View out, Sizes shape, unsigned padded,
                                          size_t n) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t number = thread / kLanesPerQuery, query = number % padded;
  const size_t head = number / padded % static_cast<unsigned>(shape.H);
  const size_t batch = number / padded / static_cast<unsigned>(shape.H);
  const bool inside = number < n && query < static_cast<size_t>(shape.Tq);
  float delta = 0;
  if (inside) {
    const auto row = [&](const ConstBf16View& view) {
      return view.data + batch * view.stride_batch + head * view.stride_head +
             query * view.stride_row;
    };
    const int step = kLanesPerQuery * kPerChunk;
    for (int d = static_cast<int>(thread % kLanesPerQuery) * kPerChunk; d < shape.D; d += step) {
      bfloat16 a[kPerChunk], b[kPerChunk];
      const uint4 chunk_a = load_row_chunk<kAligned>(row(grad_out) + d, shape.D - d);
      const uint4 chunk_b = load_row_chunk<kAligned>(row(out) + d, shape.D - d);
      memcpy(static_cast<void*>(a), &chunk_a, sizeof chunk_a);
      memcpy(static_cast<void*>(b), &chunk_b, sizeof chunk_b);
      GPU_UNROLL
      for (int i = 0; i < kPerChunk; ++i) delta += gpu::to_float(a[i]) * gpu::to_float(b[i]);
    }
  }
  for (int distance = kLanesPerQuery / 2; distance > 0; distance /= 2)
    delta += gpu::wave_shfl_xor(delta, distance);
  if (number < n && thread % kLanesPerQuery == 0) {
    const float sum =
        inside ? lse[(batch * static_cast<size_t>(shape.H) + head) * static_cast<size_t>(shape.Tq) +
                     query]
               : kNone;
    data[number] = {sum == kNone ? -kNone : sum / kLogTwo, delta};
  }
}

template <bool kAligned>
void launch_prepare(QueryData* data, const float* lse, const ConstBf16View& grad_out,
                    const ConstBf16View& out, const Problem& problem, hipStream_t stream) {
  constexpr size_t kBlock = 256;
  const size_t padded = padded_queries(problem), n = problem.B * problem.H * padded;
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>(gpu::ceil_div(n * kLanesPerQuery, kBlock));
  LAUNCH_ON(stream, (flash_bf16_prepare<kAligned>), blocks, static_cast<unsigned>(kBlock), 0, data,
            lse, grad_out, out, sizes_of(problem, 1), static_cast<unsigned>(padded), n);
}

template void launch_prepare<false>(QueryData*, const float*, const ConstBf16View&,
                                    const ConstBf16View&, const Problem&, hipStream_t);
template void launch_prepare<true>(QueryData*, const float*, const ConstBf16View&,
                                   const ConstBf16View&, const Problem&, hipStream_t);

#endif

}  // namespace attention_backward
