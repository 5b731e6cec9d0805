// softmax_in_registers: both rows are read once, 16 bytes at a time.
#include <cmath>

#include "common/gpu.h"
#include "stage2_matrix/02_gemv/detail/sums.h"
#include "stage3_ml_ops/01_matrix_activations/detail/grid.h"
#include "stage3_ml_ops/02_softmax/detail/row.h"
#include "stage5_training/02_activation_backward/detail/team_sum.h"
#include "stage5_training/02_activation_backward/softmax_backward.h"

namespace activation_backward {

__device__ inline float gradient(float p, float grad_p, float sum) { return p * (grad_p - sum); }
__device__ inline float4 gradient(float4 p, float4 grad_p, float sum) {
  return make_float4(gradient(p.x, grad_p.x, sum), gradient(p.y, grad_p.y, sum),
                     gradient(p.z, grad_p.z, sum), gradient(p.w, grad_p.w, sum));
}

// grad_x[r,j] = p[r,j] (grad_p[r,j] - sum over k of p[r,k] grad_p[r,k])    all (rows, cols);
//               cols / 4 <= kVectors * the team's threads.
// Fixes : sum_once reads both rows twice, 4 bytes at a time.
// Idea  : the team holds both rows in its registers, as step 3.2 does with one.
// Thread: t of the team owns the float4s t, t + team, ... of the row, and at most one single one.
// Costs : 1 read of both inputs and 1 write; 8 kVectors registers; 2 barriers per row, none in a
//         wave.
template <class Team, unsigned kVectors, unsigned kResident>
static __global__ void GPU_LAUNCH_BOUNDS(Team::kBlockThreads, kResident)
    softmax_backward_in_registers(float* grad_x, const float* grad_p, const float* p, size_t rows,
                                  size_t cols) {
  for (size_t r = Team::first_row(); r < rows; r += Team::rows_in_grid()) {
    const softmax::Row<true> of_p(grad_x + r * cols, p + r * cols, cols);
    const softmax::Row<true> of_grad(grad_x + r * cols, grad_p + r * cols, cols);
    const unsigned rank = Team::rank(), within = softmax::reach<Team, kVectors>(rank, of_p.vectors);
    float4 held_p[kVectors], held_grad[kVectors];
    GPU_UNROLL
    for (unsigned k = 0; k < kVectors; ++k) {
      const bool inside = k * Team::size() < within;
      held_p[k] = inside ? of_p.load(rank + k * Team::size()) : make_float4(0, 0, 0, 0);
      held_grad[k] = inside ? of_grad.load(rank + k * Team::size()) : make_float4(0, 0, 0, 0);
    }
    const bool has_single = of_p.has_single(rank);
    const size_t column = has_single ? of_p.column_of_single(rank) : 0;
    const float single_p = has_single ? of_p.x[column] : 0.0f;
    const float single_grad = has_single ? of_grad.x[column] : 0.0f;

    float sum = single_p * single_grad;
    GPU_UNROLL
    for (unsigned k = 0; k < kVectors; ++k) gemv::add_dot(sum, held_p[k], held_grad[k]);
    sum = team_sum<Team>(sum);
    GPU_UNROLL
    for (unsigned k = 0; k < kVectors; ++k)
      if (k * Team::size() < within)
        of_p.store(rank + k * Team::size(), gradient(held_p[k], held_grad[k], sum));
    if (has_single) of_p.y[column] = gradient(single_p, single_grad, sum);
  }
}

// Returns false, and launches nothing, where the team can't hold a row.
template <class Team, unsigned kVectors, unsigned kResident>
static bool launch_team(float* grad_x, const float* grad_p, const float* p, size_t rows,
                        size_t cols, hipStream_t stream) {
  const unsigned threads = Team::host_size();
  if (cols / 4 > size_t{kVectors} * threads) return false;
  LAUNCH_ON(stream, (softmax_backward_in_registers<Team, kVectors, kResident>),
            softmax::row_blocks(rows, Team::kBlockThreads / threads, Team::kBlockThreads),
            Team::kBlockThreads, 0, grad_x, grad_p, p, rows, cols);
  return true;
}

void softmax_backward(float* grad_x, const float* grad_p, const float* p, size_t rows, size_t cols,
                      hipStream_t stream) {
  using softmax::BlockTeam;
  using softmax::WaveTeam;
  if (rows == 0 || cols == 0) return;
  if (!matrix_activations::aligned_alike({grad_x, grad_p, p}) ||
      !(launch_team<WaveTeam, 1, 4>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<WaveTeam, 2, 4>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<WaveTeam, 4, 4>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<WaveTeam, 8, 2>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<BlockTeam<256>, 4, 4>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<BlockTeam<512>, 4, 2>(grad_x, grad_p, p, rows, cols, stream) ||
        launch_team<BlockTeam<512>, 8, 1>(grad_x, grad_p, p, rows, cols, stream)))
    launch_softmax_sum_once(grad_x, grad_p, p, rows, cols, stream);
}

// A thread adds at most 8 float4s and a single element, or what sum_once does.
double roundings_softmax_backward(size_t cols) {
  const double in_registers = std::fmin(4 * 8.0, static_cast<double>(cols)) + 1 + std::log2(512);
  return std::fmax(in_registers, roundings_softmax_sum_once(cols));
}

}  // namespace activation_backward
