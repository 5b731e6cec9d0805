// Every element of the table looks for its positions.
#include "common/gpu.h"
#include "stage7_transformer/01_embedding/detail/rows.h"
#include "stage7_transformer/01_embedding/embedding.h"

namespace embedding {

// grad_token[v] = sum of grad_y[i] over all positions i with tokens[i] = v    grad_token (V, C).
// Fixes : atomic gives other bits on every run.
// Idea  : turned round: every element of the table looks for the positions that it wants, in order.
// Thread: k owns the elements k, k + K, ... of grad_token, with K threads in the grid.
// Costs : V C B T comparisons. Slower than atomic at every committed shape: the step to sorted.
static __global__ void embedding_gather(Scatter out) {
  const size_t C = out.shape.C, n = out.shape.V * C;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t k = size_t{blockIdx.x} * blockDim.x + threadIdx.x; k < n; k += threads) {
    const std::int32_t wanted = static_cast<std::int32_t>(k / C);
    float sum = 0;
    // exercise: add up the gradients of the positions that have this token (about 2 lines)
    for (size_t i = 0; i < out.shape.positions(); ++i)
      if (out.tokens[i] == wanted) sum += out.grad_y[i * C + k % C];
    // end exercise
    out.grad_token[k] = sum;
  }
}

// grad_position[t] = sum over b of grad_y[b,t]    grad_position (T_max, C), 0 where t >= T.
// Fixes : atomic adds what could be added in a register.
// Idea  : which gradients belong to a position is known without looking: the rows t, t + T, ...
// Thread: (x, y) of block (b, tile) owns Value tile * width + x of position b * height + y.
// Costs : 4 bytes of grad_y per element; B additions one after the other.
template <class Value>
static __global__ void embedding_sum_positions(Scatter out) {
  sum_positions<Value>(out, blockIdx.x, gridDim.x);
}

// The smallest position whose token is none    tokens (n).
// Fixes : gather never sees a token that no row of the table has.
// Idea  : look at each of them once.
// Thread: t owns the tokens t, t + T, ...
// Costs : 4 n bytes.
static __global__ void embedding_report(const std::int32_t* tokens, size_t n, size_t V,
                                        unsigned long long* bad_token) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    if (!is_token(tokens[i], V)) report(bad_token, i, tokens[i]);
}

void launch_gather(const Scatter& out, Workspace&, hipStream_t stream) {
  const size_t n = out.shape.V * out.shape.C, positions = out.shape.positions();
  if (positions > 0)
    LAUNCH_ON(stream, embedding_report, vector_add::full_grid(positions), kBlock, 0, out.tokens,
              positions, out.shape.V, out.bad_token);
  if (n > 0) LAUNCH_ON(stream, embedding_gather, vector_add::full_grid(n), kBlock, 0, out);
  if (out.shape.T_max == 0 || out.shape.C == 0) return;
  const BlockPlan shares = plan(out.shape.T_max, out.shape.C);
  LAUNCH_ON(stream, embedding_sum_positions<float>, shares.blocks, shares.threads, 0, out);
}

}  // namespace embedding
