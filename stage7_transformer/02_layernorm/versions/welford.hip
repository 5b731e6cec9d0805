// welford: mean and variance in one pass.
#include "common/gpu.h"
#include "stage7_transformer/02_layernorm/detail/moments.h"
#include "stage7_transformer/02_layernorm/detail/pass.h"
#include "stage7_transformer/02_layernorm/detail/stored.h"
#include "stage7_transformer/02_layernorm/detail/team.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/02_layernorm/problem.h"

namespace layernorm {

// Y = (X - mean) rstd gain + bias    X, Y (rows, cols), any sizes.
// Fixes : two_pass reads the row once for the mean and once more for the variance.
// Idea  : mean and variance grow together, element by element, in one pass. The mean moves by the
//         difference from it, divided by the new count; the squares grow by the difference from the
//         mean before times that from the mean after (Welford: Note on a method for calculating
//         corrected sums of squares and products. Technometrics 4, 1962). No large numbers are
//         subtracted. Then the threads' parts are merged.
// Thread: t of the block owns the columns t, t + block, ... of the row.
// Costs : 2 reads and 1 write; a quotient per element; 2 barriers per row.
template <class Y>
static __global__ void layernorm_welford(PassOf<Y> pass, const float* x) {
  using Team = RowBlock<kBlock>;
  const size_t cols = pass.cols;
  for (size_t row = Team::first_row(); row < pass.rows; row += Team::rows_in_grid()) {
    const float* row_x = x + row * cols;
    const float first = row_x[0], n = static_cast<float>(cols);
    RowMoments part = {0, 0, 0};
    for (size_t c = Team::rank(); c < cols; c += Team::size()) {
      const float d = row_x[c] - first;
      // exercise: count, mean and squares of the part with d among them (about 4 lines)
      part.count += 1.0f;
      const float before = d - part.mean;
      part.mean += before / part.count;
      part.squares += before * (d - part.mean);
      // end exercise
    }
    const RowMoments whole = merge_parts<Team>(part, n);
    const float rstd = finish<Team>(pass, row, first + whole.mean, whole.squares / whole.count);
    for (size_t c = Team::rank(); c < cols; c += Team::size())
      store_value(pass.y, row * cols + c,
                  (row_x[c] - first - whole.mean) * rstd * pass.gain[c] + pass.bias[c]);
  }
}

template <class Y>
static void launch(const PassOf<Y>& pass, const float* x, hipStream_t stream) {
  if (pass.rows > 0)
    LAUNCH_ON(stream, layernorm_welford<Y>, team_blocks<RowBlock<kBlock>>(pass.rows),
              RowBlock<kBlock>::kBlockThreads, 0, pass, x);
}
void launch_welford(const Pass& pass, const float* x, hipStream_t stream) {
  launch(pass, x, stream);
}
void launch_welford_bf16(const PassOf<gpu::bfloat16>& pass, const float* x, hipStream_t stream) {
  launch(pass, x, stream);
}

}  // namespace layernorm
