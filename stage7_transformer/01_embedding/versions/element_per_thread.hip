// Every element looks for its own token.
#include "common/gpu.h"
#include "stage7_transformer/01_embedding/detail/rows.h"
#include "stage7_transformer/01_embedding/embedding.h"

namespace embedding {

// y[b,t,c] = token_table[tokens[b,t],c] + position_table[t,c]    y (B, T, C).
// Fixes : a CPU core takes the elements one after the other.
// Idea  : one thread per element, which finds its row by dividing.
// Thread: k owns the elements k, k + K, ... of flat memory, with K threads in the grid.
// Costs : 4 bytes of token, of each table and of y per element, two quotients and two remainders.
static __global__ void embedding_element_per_thread(float* y, Lookup in) {
  const size_t C = in.shape.C, n = in.shape.positions() * C;
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t k = size_t{blockIdx.x} * blockDim.x + threadIdx.x; k < n; k += threads) {
    // exercise: the element's token and position, then the sum (about 6 lines)
    const size_t i = k / C, c = k % C;
    const std::int32_t token = in.tokens[i];
    const bool good = is_token(token, in.shape.V);
    if (!good && c == 0) report(in.bad_token, i, token);
    y[k] = good ? in.token_table[static_cast<size_t>(token) * C + c] +
                      in.position_table[i % in.shape.T * C + c]
                : NAN;
    // end exercise
  }
}

void launch_element_per_thread(float* y, const Lookup& in, hipStream_t stream) {
  const size_t n = in.shape.positions() * in.shape.C;
  if (n > 0)
    LAUNCH_ON(stream, embedding_element_per_thread, vector_add::full_grid(n), kBlock, 0, y, in);
}

}  // namespace embedding
