// round_inputs: floats rounded to fp16, bf16, tf32 or e4m3, before any version multiplies them.
#include "common/fp8.h"
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage2_matrix/04_gemm_mixed/detail/round.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

// out[i] = the T nearest to in[i]    in, out (n), any n.
// Fixes : -
// Idea  : each element is rounded once, not each time a multiplication reads it.
// Thread: thread t owns the elements t, t + threads, ...
// Costs : 4 + sizeof(T) bytes of global memory per element.
template <class T>
static __global__ void round_inputs(T* out, const float* in, size_t n) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    out[i] = round_to<T>(in[i]);
}

template <class T>
void launch_round(T* out, const float* in, size_t n, hipStream_t stream) {
  if (n == 0) return;
  LAUNCH_ON(stream, (round_inputs<T>), vector_add::grid_stride_blocks(n), vector_add::kBlock, 0,
            out, in, n);
}

template void launch_round(gpu::half*, const float*, size_t, hipStream_t);
template void launch_round(gpu::bfloat16*, const float*, size_t, hipStream_t);
template void launch_round(gpu::fp8*, const float*, size_t, hipStream_t);
template void launch_round(float*, const float*, size_t, hipStream_t);

}  // namespace gemm_mixed
