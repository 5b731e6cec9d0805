// 16 bytes per load, blocks shaped like the rows.
#include "common/gpu.h"
#include "stage7_transformer/01_embedding/detail/rows.h"
#include "stage7_transformer/01_embedding/embedding.h"

namespace embedding {

__device__ inline void set(float& value, float to) { value = to; }
__device__ inline void set(float4& value, float to) {
  value.x = to, value.y = to, value.z = to, value.w = to;
}

// y[b,t] = token_table[tokens[b,t]] + position_table[t]    y (B, T, C); Value divides a row.
// Fixes : wave_per_row moves 4 bytes per load, and of a row of 16 float4s half the lanes have none.
// Idea  : 16 bytes per load; a block is shaped like the rows: as wide as one, or as a part of it.
// Thread: (x, y) of block (b, tile) owns Value tile * width + x of row b * height + y.
// Costs : 4 bytes of each table and of y per element; a division per thread.
template <class Value>
static __global__ void embedding_vectorized(float* y, Lookup in) {
  const size_t values = in.shape.C / kWidth<Value>;
  const size_t v = size_t{blockIdx.y} * blockDim.x + threadIdx.x;
  const size_t step = size_t{gridDim.x} * blockDim.y;
  if (v >= values) return;
  for (size_t i = size_t{blockIdx.x} * blockDim.y + threadIdx.y; i < in.shape.positions();
       i += step) {
    const std::int32_t token = in.tokens[i];
    const bool good = is_token(token, in.shape.V);
    if (!good && v == 0) report(in.bad_token, i, token);
    Value sum;
    set(sum, NAN);
    if (good) {
      sum = reinterpret_cast<const Value*>(in.token_table)[static_cast<size_t>(token) * values + v];
      add_to(sum, reinterpret_cast<const Value*>(in.position_table)[i % in.shape.T * values + v]);
    }
    reinterpret_cast<Value*>(y)[i * values + v] = sum;
  }
}

template <class Value>
static void queue_vectorized(float* y, const Lookup& in, hipStream_t stream) {
  const BlockPlan shares = plan(in.shape.positions(), in.shape.C / kWidth<Value>);
  LAUNCH_ON(stream, embedding_vectorized<Value>, shares.blocks, shares.threads, 0, y, in);
}
void launch_vectorized(float* y, const Lookup& in, hipStream_t stream) {
  if (in.shape.positions() == 0 || in.shape.C == 0) return;
  const auto launch = rows_are_aligned(in.shape.C, {y, in.token_table, in.position_table})
                          ? queue_vectorized<float4>
                          : queue_vectorized<float>;
  launch(y, in, stream);
}

}  // namespace embedding
