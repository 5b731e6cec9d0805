// softmax_sum_once: one sum per row is all there is in the Jacobian.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/reference.h"
#include "stage5_training/02_activation_backward/detail/team_sum.h"
#include "stage5_training/02_activation_backward/softmax_backward.h"

namespace activation_backward {

// grad_x[r,j] = p[r,j] (grad_p[r,j] - sum over k of p[r,k] grad_p[r,k])    all (rows, cols).
// Fixes : jacobian computes the same sum for every element of a row.
// Idea  : the sum once, by the team that shares the row.
// Thread: t of the team owns the columns t, t + team, ... of the row.
// Costs : 2 reads of both inputs, of which the cache may serve one, and 1 write.
template <class Team>
static __global__ void __launch_bounds__(Team::kBlockThreads)
    softmax_backward_sum_once(float* grad_x, const float* grad_p, const float* p, size_t rows,
                              size_t cols) {
  for (size_t row = Team::first_row(); row < rows; row += Team::rows_in_grid()) {
    const size_t begin = row * cols, end = begin + cols;
    // exercise: this thread's share of the sum, the team's sum, the gradients (about 5 lines)
    float sum = 0;
    for (size_t i = begin + Team::rank(); i < end; i += Team::size()) sum += p[i] * grad_p[i];
    sum = team_sum<Team>(sum);
    for (size_t i = begin + Team::rank(); i < end; i += Team::size())
      grad_x[i] = p[i] * (grad_p[i] - sum);
    // end exercise
  }
}

inline constexpr size_t kLongRow = 2048;  // columns beyond which a block shares a row
using LongRowTeam = softmax::BlockTeam<256>;

template <class Team>
static void launch_sum_once(float* grad_x, const float* grad_p, const float* p, size_t rows,
                            size_t cols, hipStream_t stream) {
  LAUNCH_ON(stream, (softmax_backward_sum_once<Team>),
            softmax::row_blocks(rows, Team::kBlockThreads / Team::host_size(), Team::kBlockThreads),
            Team::kBlockThreads, 0, grad_x, grad_p, p, rows, cols);
}

void launch_softmax_sum_once(float* grad_x, const float* grad_p, const float* p, size_t rows,
                             size_t cols, hipStream_t stream) {
  if (rows == 0 || cols == 0) return;
  const auto launch =
      cols > kLongRow ? launch_sum_once<LongRowTeam> : launch_sum_once<softmax::WaveTeam>;
  launch(grad_x, grad_p, p, rows, cols, stream);
}

double roundings_softmax_sum_once(size_t cols) {
  const unsigned team = cols > kLongRow ? LongRowTeam::host_size() : softmax::WaveTeam::host_size();
  return softmax::additions(cols, team);
}

}  // namespace activation_backward
