// two_pass: a block shares a row.
#include "common/gpu.h"
#include "stage7_transformer/02_layernorm/detail/pass.h"
#include "stage7_transformer/02_layernorm/detail/team.h"
#include "stage7_transformer/02_layernorm/layernorm.h"

namespace layernorm {

// Y = (X - mean) rstd gain + bias    X, Y (rows, cols), any sizes.
// Fixes : the lanes of thread_per_row read addresses a whole row apart.
// Idea  : a block shares the row, so that neighbours read neighbours.
// Thread: t of the block owns the columns t, t + block, ... of the row.
// Costs : 3 reads and 1 write; 2 barriers per row.
static __global__ void layernorm_two_pass(Pass pass, const float* x) {
  using Team = RowBlock<kBlock>;
  const size_t cols = pass.cols;
  for (size_t row = Team::first_row(); row < pass.rows; row += Team::rows_in_grid()) {
    const float* row_x = x + row * cols;
    const float first = row_x[0], n = static_cast<float>(cols);
    // exercise: the mean of x - first, then the mean of the squares of what differs from it (about
    // 9 lines)
    float sum = 0, squares = 0;
    for (size_t c = Team::rank(); c < cols; c += Team::size()) sum += row_x[c] - first;
    const float mean = Team::sum<0>(sum) / n;
    for (size_t c = Team::rank(); c < cols; c += Team::size()) {
      const float e = row_x[c] - first - mean;
      squares += e * e;
    }
    const float variance = Team::sum<1>(squares) / n;
    // end exercise
    const float rstd = finish<Team>(pass, row, first + mean, variance);
    for (size_t c = Team::rank(); c < cols; c += Team::size())
      pass.y[row * cols + c] = (row_x[c] - first - mean) * rstd * pass.gain[c] + pass.bias[c];
  }
}

void launch_two_pass(const Pass& pass, const float* x, hipStream_t stream) {
  if (pass.rows > 0)
    LAUNCH_ON(stream, layernorm_two_pass, team_blocks<RowBlock<kBlock>>(pass.rows),
              RowBlock<kBlock>::kBlockThreads, 0, pass, x);
}

}  // namespace layernorm
