// fused: both rows in registers, and the sums of the columns too.
#include <algorithm>

#include "common/gpu.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage7_transformer/02_layernorm/detail/pass.h"
#include "stage7_transformer/02_layernorm/detail/stored.h"
#include "stage7_transformer/02_layernorm/detail/team.h"
#include "stage7_transformer/03_layernorm_backward/detail/values.h"
#include "stage7_transformer/03_layernorm_backward/problem.h"

namespace layernorm_backward {

using layernorm::RowBlock, layernorm::kWidth, layernorm::total, layernorm::RowWave;

// grad_x = rstd (g - mean of g - n mean of g n) + grad_residual, and partials[b] = block b's sums
// of grad_y n and of grad_y    all (rows, cols); a row of at most kValues Values for each thread.
// Fixes : separate reads grad_y and x twice for grad_x, and a third time for the columns' sums.
// Idea  : the team holds both rows in registers. It walks down many rows and stays in its columns,
//         so that their sums stay in registers too: one store at the end.
// Thread: t of the team owns the Values t, t + team, ... of the rows team, team + teams, ...
// Costs : 12 rows cols bytes, 16 with a residual; 5 kValues Values of registers; 2 barriers per
//         row, none in a wave.
template <class Team, class Value, unsigned kValues, unsigned kResident, class G>
static __global__ void GPU_LAUNCH_BOUNDS(Team::kBlockThreads, kResident)
    layernorm_backward_fused(float* partials, PassOf<G> pass) {
  const unsigned rank = Team::rank(), values = static_cast<unsigned>(pass.cols / kWidth<Value>);
  const bool cached = layernorm::fits_cache(pass.rows, pass.cols);
  Value gain[kValues] = {}, sum_gain[kValues] = {}, sum_bias[kValues] = {};
  GPU_UNROLL
  for (unsigned k = 0; k < kValues; ++k)
    if (rank + k * Team::size() < values)
      gain[k] = reinterpret_cast<const Value*>(pass.gain)[rank + k * Team::size()];

  for (size_t row = Team::first_row(); row < pass.rows; row += Team::rows_in_grid()) {
    const size_t begin = row * values + rank;
    Value g[kValues] = {}, n[kValues] = {};
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) {
        g[k] = layernorm::load_value<Value>(pass.grad_y, begin + k * Team::size(), cached);
        n[k] = layernorm::load_value<Value>(pass.x, begin + k * Team::size(), cached);
      }
    const float mean = pass.mean[row], rstd = pass.rstd[row];

    // exercise: n, the sums of the columns, g, and the two sums of the row (about 10 lines)
    float sum = 0, sum_n = 0;
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) {
        n[k] = normal(n[k], mean, rstd);
        sum_gain[k] = plus(sum_gain[k], times(g[k], n[k]));
        sum_bias[k] = plus(sum_bias[k], g[k]);
        g[k] = times(g[k], gain[k]);
        sum += total(g[k]);
        sum_n += total(times(g[k], n[k]));
      }
    // end exercise
    const float mean_g = Team::template sum<0>(sum) / static_cast<float>(pass.cols);
    const float mean_gn = Team::template sum<1>(sum_n) / static_cast<float>(pass.cols);

    const Value* residual = reinterpret_cast<const Value*>(pass.grad_residual);
    Value* grad_x = reinterpret_cast<Value*>(pass.grad_x) + begin;
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) {
        Value grad = gradient(g[k], n[k], rstd, mean_g, mean_gn);
        if (pass.grad_residual != nullptr) grad = plus(grad, residual[begin + k * Team::size()]);
        grad_x[k * Team::size()] = grad;
        if (pass.rounded != nullptr)
          layernorm::store_value(pass.rounded, begin + k * Team::size(), grad);
      }
  }
  leave_sums<Team>(reinterpret_cast<Value*>(partials + size_t{blockIdx.x} * 2 * pass.cols),
                   sum_gain, sum_bias, values);
}

// Returns false, and launches nothing, where the team can't hold a row.
template <class Team, class Value, unsigned kValues, unsigned kResident, class G>
inline bool launch_team(float* grad_gain, float* grad_bias, const PassOf<G>& pass,
                        Workspace& workspace, hipStream_t stream) {
  if (pass.cols / kWidth < Value >> size_t{kValues} * Team::host_size()) return false;
  static_assert(kResident <= kMostResident, "a workspace has room for fewer blocks");
  const size_t teams = Team::kBlockThreads / Team::host_size();  // each has kLeastRows or more
  const size_t resident = size_t{gpu::multiprocessors()} * kResident;
  const size_t blocks = std::min({gpu::ceil_div(pass.rows, teams * kLeastRows), resident,
                                  workspace.parts(pass.rows, pass.cols)});
  if (blocks > 0)
    LAUNCH_ON(stream, (layernorm_backward_fused<Team, Value, kValues, kResident, G>),
              static_cast<unsigned>(blocks), Team::kBlockThreads, 0, workspace.partials.data(),
              pass);
  launch_add_parts(grad_gain, grad_bias, workspace.partials.data(), blocks, pass.cols, stream);
  return true;
}

// The smallest team that can hold a row: Values per thread, and blocks that shall fit a
// multiprocessor. Rows that no team can hold are left to `separate`, with a block for each row.
template <class G>
static void launch_smallest(float* grad_gain, float* grad_bias, const PassOf<G>& pass, bool aligned,
                            Workspace& workspace, hipStream_t stream) {
  const auto launch = [&](auto run) { return run(grad_gain, grad_bias, pass, workspace, stream); };
  const bool held = aligned ? launch(launch_team<RowWave, float4, 1, 4, G>) ||
                                  launch(launch_team<RowWave, float4, 2, 3, G>) ||
                                  launch(launch_team<RowWave, float4, 3, 2, G>) ||
                                  launch(launch_team<RowWave, float4, 4, 2, G>) ||
                                  launch(launch_team<RowWave, float4, 8, 1, G>) ||
                                  launch(launch_team<RowBlock<128>, float4, 4, 4, G>) ||
                                  launch(launch_team<RowBlock<256>, float4, 4, 2, G>) ||
                                  launch(launch_team<RowBlock<512>, float4, 4, 1, G>)
                            : launch(launch_team<RowWave, float, 4, 4, G>) ||
                                  launch(launch_team<RowWave, float, 16, 2, G>) ||
                                  launch(launch_team<RowBlock<256>, float, 16, 2, G>);
  if (!held) launch_separate_by_blocks(grad_gain, grad_bias, pass, workspace, stream);
}

void launch_fused(float* grad_gain, float* grad_bias, const Pass& pass, Workspace& workspace,
                  hipStream_t stream) {
  const bool aligned = gemv::rows_are_aligned(
      pass.cols, {pass.grad_x, pass.grad_y, pass.x, pass.gain, pass.grad_residual});
  launch_smallest(grad_gain, grad_bias, pass, aligned, workspace, stream);
}

void launch_fused_bf16(float* grad_gain, float* grad_bias, const PassOf<gpu::bfloat16>& pass,
                       Workspace& workspace, hipStream_t stream) {
  const bool aligned =
      gemv::rows_are_aligned(pass.cols, {pass.grad_x, pass.x, pass.gain, pass.grad_residual}) &&
      layernorm::is_aligned_for_four(pass.grad_y) && layernorm::is_aligned_for_four(pass.rounded);
  launch_smallest(grad_gain, grad_bias, pass, aligned, workspace, stream);
}

}  // namespace layernorm_backward
