// wave_per_row: a wave shares a row.
#include "common/gpu.h"
#include "stage7_transformer/02_layernorm/detail/moments.h"
#include "stage7_transformer/02_layernorm/detail/pass.h"
#include "stage7_transformer/02_layernorm/detail/team.h"
#include "stage7_transformer/02_layernorm/layernorm.h"

namespace layernorm {

// Y = (X - mean) rstd gain + bias    X, Y (rows, cols), any sizes.
// Fixes : in a short row the threads of welford's block have little to do but to wait.
// Idea  : a wave has the row to itself, and merges its parts with shuffles.
// Thread: t of the wave owns the columns t, t + wave, ... of the row.
// Costs : 2 reads and 1 write; a quotient per element; no barrier.
static __global__ void layernorm_wave_per_row(Pass pass, const float* x) {
  using Team = RowWave;
  const size_t cols = pass.cols;
  for (size_t row = Team::first_row(); row < pass.rows; row += Team::rows_in_grid()) {
    const float* row_x = x + row * cols;
    const float first = row_x[0], n = static_cast<float>(cols);
    RowMoments part = {0, 0, 0};
    for (size_t c = Team::rank(); c < cols; c += Team::size()) add_element(part, row_x[c] - first);
    const RowMoments whole = merge_parts<Team>(part, n);
    const float rstd = finish<Team>(pass, row, first + whole.mean, whole.squares / whole.count);
    for (size_t c = Team::rank(); c < cols; c += Team::size())
      pass.y[row * cols + c] = (row_x[c] - first - whole.mean) * rstd * pass.gain[c] + pass.bias[c];
  }
}

void launch_wave_per_row(const Pass& pass, const float* x, hipStream_t stream) {
  if (pass.rows > 0)
    LAUNCH_ON(stream, layernorm_wave_per_row, team_blocks<RowWave>(pass.rows),
              RowWave::kBlockThreads, 0, pass, x);
}

}  // namespace layernorm
