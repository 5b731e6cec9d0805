// rows: at few channels rows stay in shared memory, behind the last block too. rows.cpp has the
// step.
#include "common/gpu.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage3_ml_ops/03_losses/detail/gradient.h"
#include "stage7_transformer/06_transformer_block/detail/row_norms.h"
#include "stage7_transformer/07_train_shakespeare/rows.h"

namespace train_shakespeare {

using namespace transformer_block;  // its tiles of rows

template <bool kAligned>
static __device__ void loss_of_tile(RowTiles&, const losses::Gradient&, const losses::Workspace&,
                                    float*, size_t);

// The normalization, the logits, each row's loss, and the gradients of all of it, from x to x    x
// (rows, C), grad_logits (rows, V).
// Fixes : six launches behind the last block wait for one another, and their rows for memory.
// Idea  : none of them looks at other rows. Logits and their gradients never leave shared memory
//         but for the head's weights, which wait beside the chain.
// Thread: as in step 7.6's rows_forward; in the loss kParts threads share a row.
// Costs : every block reads the head's weights twice, from the L2 cache; V is 128 at most.
template <bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(kRowThreads, 2)
    rows_end(Norm norm, NormGradient back, losses::Gradient loss, losses::Workspace of_losses,
             float* grad_logits, dense::Layer layer) {
  DYNAMIC_SHARED(RowTiles, tiles);
  const size_t first = size_t{blockIdx.x} * kTileRows, rows = loss.targets.rows;
  const size_t C = layer.in;
  const bool wide = layer.out > size_t{kRowWidth};
  const RowPlace<kAligned> place(first, rows);
  float sums[4][4] = {}, results[2][4];
  load_tile<kAligned>(tiles->b, back.x, first, rows, C);
  Conveyor<true, kAligned> head(*tiles, piece_of(layer, 0, 0));
  normalize<kAligned>(*tiles, norm, first, rows, C);
  head.multiply(sums, tiles->a, place, piece_of(layer, kRowWidth, 0));
  place.take(results, sums);
  place.put(tiles->b, results);
  if (wide) {
    head.multiply(sums, tiles->a, place, {});
    place.take(results, sums);
    place.put(tiles->c, results);
  }
  loss_of_tile<kAligned>(*tiles, loss, of_losses, grad_logits, first);

  Conveyor<false, kAligned> of_head(*tiles, piece_of(layer, 0, 0));
  of_head.multiply(sums, tiles->b, place, piece_of(layer, kRowWidth, 0));
  if (wide) of_head.multiply(sums, tiles->c, place, {});
  place.take(results, sums);
  __syncthreads();  // tiles.b was read
  place.put(tiles->b, results);
  normalize_backward<kAligned>(*tiles, back, first, rows, C);
}

// The logits in tiles.b and tiles.c become their gradients, which also go to grad_logits.
template <bool kAligned>
static __device__ inline void loss_of_tile(RowTiles& tiles, const losses::Gradient& loss,
                                           const losses::Workspace& of_losses, float* grad_logits,
                                           size_t first) {
  constexpr int kOwn = 2 * kPartColumns;
  const size_t V = loss.targets.classes;
  const int own_row = static_cast<int>(threadIdx.x) % kTileRows;
  const int own_part = static_cast<int>(threadIdx.x) / kTileRows;
  const size_t row = first + static_cast<size_t>(own_row);
  const bool is_row = row < loss.targets.rows;
  const auto element = [&](int column) -> float& {
    return column < kRowWidth ? tiles.b[column][own_row] : tiles.c[column - kRowWidth][own_row];
  };
  float held[kOwn];
  softmax::MaxSum part = softmax::nothing();
  __syncthreads();  // the logits are in shared memory
  GPU_UNROLL
  for (int i = 0; i < kOwn; ++i) {
    const int column = own_part * kOwn + i;
    held[i] = static_cast<size_t>(column) < V ? element(column) : -INFINITY;
    part.max = fmaxf(part.max, held[i]);
  }
  GPU_UNROLL
  for (int i = 0; i < kOwn; ++i) part.sum += held[i] = softmax::exponential(held[i] - part.max);
  losses::Gradient::Row of_row{losses::kIgnored, 0};
  if (is_row) of_row = loss.row(row);
  const float of_label = of_row.label < 0 ? 0 : element(of_row.label);
  tiles.sums[0][own_part][own_row] = part.max;
  tiles.sums[1][own_part][own_row] = part.sum;
  __syncthreads();  // every part's maximum and sum are in shared memory; logits were read
  softmax::MaxSum whole = softmax::nothing();
  for (int p = 0; p < kParts; ++p)
    whole = softmax::merge(whole, {tiles.sums[0][p][own_row], tiles.sums[1][p][own_row]});
  const float scale = softmax::probability_scale(part.max, whole);
  GPU_UNROLL
  for (int i = 0; i < kOwn; ++i) {
    const int column = own_part * kOwn + i;
    const bool is_class = static_cast<size_t>(column) < V;
    const float grad = is_class ? of_row(column, held[i] * scale) : 0;
    element(column) = grad;
    if (is_class && is_row) grad_logits[row * V + static_cast<size_t>(column)] = grad;
  }
  if (own_part == 0 && is_row)
    losses::leave_row_loss(of_losses, loss.targets, row, of_row.label,
                           logf(whole.sum) + (whole.max - of_label));
}

void launch_rows_end(Training& t, hipStream_t stream) {
  Pass& pass = t.fused;
  const size_t rows = pass.rows(), C = pass.sizes.width, V = t.model.vocabulary();
  const Tensors<const float*>& p = t.model.parameters();
  float *const mean = pass.statistics.data(), *const rstd = mean + rows;
  const float* const x = pass.x.back().data();
  const dense::Layer head{C, V, p.head, nullptr};
  const auto launch = [&](auto kernel) {
    gpu::allow_shared_bytes(kernel, sizeof(RowTiles));
    LAUNCH_ON(stream, kernel, row_tiles(rows), kRowThreads, sizeof(RowTiles),
              Norm{p.norm_gain, p.norm_bias, pass.norm.data(), mean, rstd},
              NormGradient{x, mean, rstd, p.norm_gain, nullptr, pass.grad_x.back().data(),
                           pass.norm_parts.data()},
              losses::Gradient{{pass.labels.data(), rows, V}, {rows}}, pass.losses.workspace(),
              pass.grad_logits.data(), head);
  };
  launch(gemv::rows_are_aligned(C, {x, p.head, p.norm_gain, p.norm_bias}) ? rows_end<true>
                                                                          : rows_end<false>);
}

}  // namespace train_shakespeare
