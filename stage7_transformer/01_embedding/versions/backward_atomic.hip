// Atomics: any order, other bits on every run.
#include "common/gpu.h"
#include "stage7_transformer/01_embedding/detail/rows.h"
#include "stage7_transformer/01_embedding/embedding.h"

namespace embedding {

// grad_token[tokens[b,t]] += grad_y[b,t], grad_position[t] += grad_y[b,t]    both are 0 before.
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element of grad_y; atomicAdd lets many add to the same place.
// Thread: k owns the elements k, k + K, ... of grad_y, with K threads in the grid.
// Costs : two atomics per element, which queue up where tokens are alike; any order: the bits
//         differ from run to run.
static __global__ void embedding_atomic(Scatter out) {
  const size_t C = out.shape.C, n = out.shape.positions() * C;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t k = size_t{blockIdx.x} * blockDim.x + threadIdx.x; k < n; k += threads) {
    const size_t i = k / C, c = k % C;
    const std::int32_t token = out.tokens[i];
    const float grad = out.grad_y[k];
    if (is_token(token, out.shape.V))
      atomicAdd(&out.grad_token[static_cast<size_t>(token) * C + c], grad);
    else if (c == 0)
      report(out.bad_token, i, token);
    atomicAdd(&out.grad_position[i % out.shape.T * C + c], grad);
  }
}

static void clear(float* values, size_t n, hipStream_t stream) {
  if (n > 0) HIP_CHECK(hipMemsetAsync(values, 0, n * sizeof(float), stream));
}

void launch_atomic(const Scatter& out, Workspace&, hipStream_t stream) {
  const size_t n = out.shape.positions() * out.shape.C;
  clear(out.grad_token, out.shape.V * out.shape.C, stream);
  clear(out.grad_position, out.shape.T_max * out.shape.C, stream);
  if (n > 0) LAUNCH_ON(stream, embedding_atomic, vector_add::full_grid(n), kBlock, 0, out);
}

}  // namespace embedding
