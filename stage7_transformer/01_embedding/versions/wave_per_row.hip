// A wave copies a row: one token, no division.
#include "common/gpu.h"
#include "stage3_ml_ops/02_softmax/detail/team.h"
#include "stage7_transformer/01_embedding/detail/rows.h"
#include "stage7_transformer/01_embedding/embedding.h"

namespace embedding {

// y[b,t] = token_table[tokens[b,t]] + position_table[t]    y (B, T, C).
// Fixes : element_per_thread asks C times for the same token, and divides for every element.
// Idea  : a wave per position: one token, one division, then the row's columns in order.
// Thread: lane l of a wave owns the columns l, l + wave size, ... of the wave's position.
// Costs : 4 bytes of each table and of y per element; the lanes beyond a short row are idle.
static __global__ void embedding_wave_per_row(float* y, Lookup in) {
  const size_t C = in.shape.C, waves = softmax::WaveTeam::rows_in_grid();
  for (size_t i = softmax::WaveTeam::first_row(); i < in.shape.positions(); i += waves) {
    const std::int32_t token = in.tokens[i];
    const bool good = is_token(token, in.shape.V);
    if (!good && gpu::lane_id() == 0) report(in.bad_token, i, token);
    const size_t of_token = good ? static_cast<size_t>(token) * C : 0;
    const size_t of_position = i % in.shape.T * C;
    for (size_t c = softmax::WaveTeam::rank(); c < C; c += softmax::WaveTeam::size())
      y[i * C + c] = good ? in.token_table[of_token + c] + in.position_table[of_position + c] : NAN;
  }
}

void launch_wave_per_row(float* y, const Lookup& in, hipStream_t stream) {
  constexpr unsigned kThreads = softmax::WaveTeam::kBlockThreads;
  const size_t rows = in.shape.positions();
  if (rows > 0 && in.shape.C > 0)
    LAUNCH_ON(stream, embedding_wave_per_row,
              softmax::row_blocks(rows, kThreads / softmax::WaveTeam::host_size(), kThreads),
              kThreads, 0, y, in);
}

}  // namespace embedding
