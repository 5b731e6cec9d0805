// row_cached: the row stays in registers.
#include "common/gpu.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage7_transformer/02_layernorm/detail/input.h"
#include "stage7_transformer/02_layernorm/detail/pass.h"
#include "stage7_transformer/02_layernorm/detail/stored.h"
#include "stage7_transformer/02_layernorm/detail/team.h"
#include "stage7_transformer/02_layernorm/detail/values.h"
#include "stage7_transformer/02_layernorm/layernorm.h"
#include "stage7_transformer/02_layernorm/problem.h"

namespace layernorm {

// Y = (X - mean) rstd gain + bias    X, Y (rows, cols), any rows; a row of at most kValues Values
//                                    for each thread of the team.
// Fixes : wave_per_row reads the row twice, 4 bytes at a time, and divides for every element.
// Idea  : the team holds the row in its registers: one read, with all loads in flight at the same
//         time. Then the two passes of two_pass read no memory, and they are the more accurate way.
// Thread: t of the team owns the Values t, t + team, ... of the row.
// Costs : 1 read and 1 write; kValues Values of registers; 2 barriers per row, none in a wave.
//         gain and bias come from the cache for every row: kTogether Values at a time, or all of
//         them while the row is on its way, where they are few.
template <class Team, class Value, unsigned kValues, unsigned kResident, class Input, class Y>
static __global__ void GPU_LAUNCH_BOUNDS(Team::kBlockThreads, kResident)
    layernorm_row_cached(PassOf<Y> pass, Input input) {
  constexpr unsigned kTogether = kValues > 16 ? 1 : kValues < 4 ? kValues : 4;
  constexpr bool kAtOnce = kValues * sizeof(Value) < 4 * sizeof(float4);
  const unsigned rank = Team::rank(), values = static_cast<unsigned>(pass.cols / kWidth<Value>);
  for (size_t row = Team::first_row(); row < pass.rows; row += Team::rows_in_grid()) {
    const size_t begin = row * values + rank;
    Value held[kValues] = {}, gain[kTogether] = {}, bias[kTogether] = {};
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) input.load(held[k], begin + k * Team::size());
    const float first = first_of_row<Team>(input, row * pass.cols);
    if constexpr (kAtOnce) {
      load_columns<Team>(gain, pass.gain, 0, values);
      load_columns<Team>(bias, pass.bias, 0, values);
    }

    // exercise: keep what was loaded; mean and variance as in two_pass, from `held` (about 17
    // lines)
    float sum = 0, squares = 0;
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) {
        input.keep(held[k], begin + k * Team::size());
        held[k] = minus(held[k], first);
        sum += total(held[k]);
      }
    const float mean = Team::template sum<0>(sum) / static_cast<float>(pass.cols);
    GPU_UNROLL
    for (unsigned k = 0; k < kValues; ++k)
      if (rank + k * Team::size() < values) {
        held[k] = minus(held[k], mean);
        squares += sum_of_squares(held[k]);
      }
    const float variance = Team::template sum<1>(squares) / static_cast<float>(pass.cols);
    // end exercise
    const float rstd = finish<Team>(pass, row, first + mean, variance);

    GPU_UNROLL
    for (unsigned at = 0; at < kValues; at += kTogether) {
      if constexpr (!kAtOnce) {
        load_columns<Team>(gain, pass.gain, at, values);
        load_columns<Team>(bias, pass.bias, at, values);
      }
      GPU_UNROLL
      for (unsigned k = 0; k < kTogether; ++k)
        if (at + k < kValues && rank + (at + k) * Team::size() < values)
          store_value(pass.y, begin + (at + k) * Team::size(),
                      normalized(held[at + k], rstd, gain[k], bias[k]));
    }
  }
}

// Returns false, and launches nothing, where the team can't hold a row.
template <class Team, class Value, unsigned kValues, unsigned kResident, class Y, class Input>
inline bool launch_team(const PassOf<Y>& pass, Input input, hipStream_t stream) {
  if (pass.cols / kWidth < Value >> size_t{kValues} * Team::host_size()) return false;
  LAUNCH_ON(stream, (layernorm_row_cached<Team, Value, kValues, kResident, Input, Y>),
            team_blocks<Team>(pass.rows), Team::kBlockThreads, 0, pass, input);
  return true;
}

// The teams, the smallest first: Values per thread, and blocks that shall fit a multiprocessor, of
// together at most 1024 threads, which is all that some have.
template <class Y, class Input>
inline bool launch_float4(const PassOf<Y>& pass, Input input, hipStream_t stream) {
  return launch_team<RowWave, float4, 1, 4>(pass, input, stream) ||
         launch_team<RowWave, float4, 2, 4>(pass, input, stream) ||
         launch_team<RowWave, float4, 3, 4>(pass, input, stream) ||
         launch_team<RowWave, float4, 4, 4>(pass, input, stream) ||
         launch_team<RowBlock<64>, float4, 4, 16>(pass, input, stream) ||
         launch_team<RowBlock<128>, float4, 4, 8>(pass, input, stream) ||
         launch_team<RowBlock<256>, float4, 4, 4>(pass, input, stream) ||
         launch_team<RowBlock<512>, float4, 4, 2>(pass, input, stream) ||
         launch_team<RowBlock<512>, float4, 8, 1>(pass, input, stream) ||
         launch_team<RowBlock<512>, float4, 25, 1>(pass, input, stream);
}
template <class Y, class Input>
inline bool launch_floats(const PassOf<Y>& pass, Input input, hipStream_t stream) {
  return launch_team<RowWave, float, 4, 4>(pass, input, stream) ||
         launch_team<RowWave, float, 16, 3>(pass, input, stream) ||
         launch_team<RowBlock<128>, float, 16, 8>(pass, input, stream) ||
         launch_team<RowBlock<512>, float, 16, 2>(pass, input, stream) ||
         launch_team<RowBlock<512>, float, 64, 1>(pass, input, stream);
}

template <class Y, class Input>
bool launch_held(const PassOf<Y>& pass, const Input& input, bool aligned, hipStream_t stream) {
  return aligned ? launch_float4(pass, input, stream) : launch_floats(pass, input, stream);
}
template bool launch_held(const Pass&, const Plain&, bool, hipStream_t);
template bool launch_held(const Pass&, const Residual&, bool, hipStream_t);

// Rows that no team can hold are left to Welford's method.
void launch_row_cached(const Pass& pass, const float* x, hipStream_t stream) {
  if (pass.rows == 0) return;
  const bool aligned = gemv::rows_are_aligned(pass.cols, {pass.y, x, pass.gain, pass.bias});
  if (!launch_held(pass, Plain{x}, aligned, stream)) launch_welford(pass, x, stream);
}

void launch_row_cached_bf16(const PassOf<gpu::bfloat16>& pass, const float* x, hipStream_t stream) {
  if (pass.rows == 0) return;
  const bool aligned =
      gemv::rows_are_aligned(pass.cols, {x, pass.gain, pass.bias}) && is_aligned_for_four(pass.y);
  if (!launch_held(pass, Plain{x}, aligned, stream)) launch_welford_bf16(pass, x, stream);
}

}  // namespace layernorm
