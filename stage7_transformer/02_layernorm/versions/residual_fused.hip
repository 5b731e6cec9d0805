// residual_fused: the sum is stored while it is in registers.
#include "common/gpu.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage7_transformer/02_layernorm/detail/input.h"
#include "stage7_transformer/02_layernorm/layernorm.h"

namespace layernorm {

// Fixes : residual_separate stores the sum and reads it again.
// Idea  : row_cached with another input: it adds the residual to what it has loaded, and stores the
//         sum from its registers (detail/input.h).
// Costs : 2 reads and 2 writes. Rows that no team can hold are left to residual_separate.
void launch_residual_fused(float* sum, const Pass& pass, const float* x, const float* residual,
                           hipStream_t stream) {
  if (pass.rows == 0) return;
  const bool aligned =
      gemv::rows_are_aligned(pass.cols, {sum, pass.y, x, residual, pass.gain, pass.bias});
  if (!launch_held(pass, Residual{sum, x, residual}, aligned, stream))
    launch_residual_separate(sum, pass, x, residual, stream);
}

}  // namespace layernorm
