// rows, backwards: the same tiles of rows, from one attention to the one before it.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage7_transformer/03_layernorm_backward/problem.h"
#include "stage7_transformer/06_transformer_block/detail/row_norms.h"
#include "stage7_transformer/06_transformer_block/parts.h"
#include "stage7_transformer/06_transformer_block/rows.h"

namespace transformer_block {

using activations::GeluTanh;  // GPT-2's

struct HeadGradient {
  const float* grad_qkv;
  dense::Layer qkv;
  NormGradient norm1;  // grad_x == nullptr: no block begins here
};
struct TailGradient {
  const float *grad_y, *sums, *attended;
  float *grad_hidden, *grad_attended, *delta;
  dense::Layer proj, fc, out;  // out of 0 rows: no block ends here
  NormGradient norm2;
};

static __device__ void store_delta(float*, const Activations&, size_t, const Shape&);

// grad_x of a block from the gradients of its q, k and v; from that, which is the grad_y of the
// block before, the gradient of this one's attention    kTileRows rows per block.
// Fixes : on the way back a block has ten launches that wait for one another.
// Idea  : as forwards, with the weights' columns in place of their rows. The gradients of the sums
//         of fc pass by in pieces too. delta of attention needs two rows that are here anyway.
// Thread: as in rows_forward; in the columns' sums a thread has a column.
// Costs : every block reads all weights from the L2 cache; it leaves sums of the gradients of gains
//         and biases, 16 C bytes, which another launch adds up.
template <bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(kRowThreads, 2)
    rows_backward(HeadGradient head, TailGradient tail, Shape shape) {
  DYNAMIC_SHARED(RowTiles, tiles);
  const size_t first = size_t{blockIdx.x} * kTileRows, rows = shape.rows(), C = shape.C;
  const size_t wide = kExpansion * C;
  const RowPlace<kAligned> place(first, rows);
  const bool begins = head.norm1.grad_x != nullptr;
  Conveyor<false, kAligned> weights(*tiles, piece_of(begins ? head.qkv : tail.out, 0, 0));
  float sums[4][4] = {}, results[2][4], beside[2][4];
  if (begins) {
    load_tile<kAligned>(tiles->a, head.grad_qkv, first, rows, 3 * C);
    load_tile<kAligned>(tiles->b, head.grad_qkv, first, rows, 3 * C, kRowWidth);
    load_tile<kAligned>(tiles->c, head.grad_qkv, first, rows, 3 * C, 2 * kRowWidth);
    const WeightPiece behind = piece_of(tail.out, 0, 0);
    const auto next = [&](size_t from) {
      return from < 3 * C ? piece_of(head.qkv, from, 0) : behind;
    };
    weights.multiply(sums, tiles->a, place, next(kRowWidth));
    if (3 * C > kRowWidth) weights.multiply(sums, tiles->b, place, next(2 * kRowWidth));
    if (3 * C > 2 * kRowWidth) weights.multiply(sums, tiles->c, place, behind);
    place.take(results, sums);
    __syncthreads();  // tiles.b was read
    place.put(tiles->b, results);
    normalize_backward<kAligned>(*tiles, head.norm1, first, rows, C);
  } else {
    load_tile<kAligned>(tiles->a, tail.grad_y, first, rows, C);
  }
  if (tail.out.out == 0) return;

  float of_norm[4][4] = {};
  for (size_t from = 0; from < wide; from += kRowWidth) {
    const bool more = from + kRowWidth < wide;
    const WeightPiece next =
        more ? piece_of(tail.out, 0, from + kRowWidth) : piece_of(tail.proj, 0, 0);
    // exercise: the gradients of a piece of fc's sums, and what norm2 gets of it (about 9 lines)
    place.load(beside, tail.sums, wide, from);
    weights.multiply(sums, tiles->a, place, piece_of(tail.fc, from, 0));
    place.take(results, sums);
    GPU_UNROLL
    for (int i = 0; i < 8; ++i)
      results[i / 4][i % 4] *= GeluTanh{}.derivative(beside[i / 4][i % 4]);
    place.put(tiles->c, results), place.store(tail.grad_hidden, results, wide, from);
    weights.multiply(of_norm, tiles->c, place, next);
    // end exercise
  }
  place.take(results, of_norm);
  place.put(tiles->b, results);
  normalize_backward<kAligned>(*tiles, tail.norm2, first, rows, C);

  place.load(beside, tail.attended, C);
  weights.multiply(sums, tiles->a, place, {});
  place.take(results, sums);
  place.store(tail.grad_attended, results, C);
  GPU_UNROLL
  for (int i = 0; i < 8; ++i) results[i / 4][i % 4] *= beside[i / 4][i % 4];
  place.put(tiles->b, results);
  __syncthreads();  // the products of attention's result and its gradient are in tiles.b
  store_delta(tail.delta, tiles->b, first, shape);
}

// delta (B, H, T) = the sums over each head's columns of the tile.
static __device__ inline void store_delta(float* delta, const Activations& tile, size_t first,
                                          const Shape& shape) {
  const int D = static_cast<int>(shape.D()), all = static_cast<int>(shape.H) * kTileRows;
  for (int i = static_cast<int>(threadIdx.x); i < all; i += kRowThreads) {
    const size_t row = first + static_cast<size_t>(i % kTileRows);
    const int head = i / kTileRows;
    if (row >= shape.rows()) continue;
    float sum = 0;
    for (int d = 0; d < D; ++d) sum += tile[head * D + d][i % kTileRows];
    delta[(row / shape.T * shape.H + static_cast<size_t>(head)) * shape.T + row % shape.T] = sum;
  }
}

void launch_rows_backward(const BlockGradient* begins, const BlockGradient* ends,
                          const Shape& shape, hipStream_t stream) {
  const size_t rows = shape.rows(), C = shape.C;
  HeadGradient head{};
  TailGradient tail{};
  bool aligned = true;
  if (begins != nullptr) {
    const float* const mean1 = begins->kept.statistics.data();
    head = {begins->w.grad_qkv.data(),
            layers(shape, begins->p).qkv,
            {begins->x, mean1, mean1 + rows, begins->p.norm1_gain, begins->w.grad_h.data(),
             begins->grad_x, begins->w.norm_parts.data()}};
    aligned = gemv::rows_are_aligned(
        C, {begins->x, begins->grad_x, begins->p.qkv_w, begins->p.norm1_gain});
  }
  if (ends != nullptr) {
    SavedActivations& kept = ends->kept;
    Workspace& w = ends->w;
    const float* const mean2 = kept.statistics.data() + 2 * rows;
    const Layers to = layers(shape, ends->p);
    tail = {ends->grad_y,
            kept.sums.data(),
            kept.attended.data(),
            w.grad_hidden.data(),
            w.grad_attended.data(),
            kept.attention.data(),
            to.proj,
            to.fc,
            to.out,
            {}};
    tail.norm2 = {kept.h.data(),
                  mean2,
                  mean2 + rows,
                  ends->p.norm2_gain,
                  ends->grad_y,
                  w.grad_h.data(),
                  w.norm_parts.data() + norm_parts_of_rows(shape)};
    aligned = aligned && gemv::rows_are_aligned(C, {ends->grad_y, ends->p.out_w, ends->p.fc_w,
                                                    ends->p.proj_w, ends->p.norm2_gain});
  }
  const auto launch = [&](auto kernel) {
    gpu::allow_shared_bytes(kernel, sizeof(RowTiles));
    LAUNCH_ON(stream, kernel, row_tiles(rows), kRowThreads, sizeof(RowTiles), head, tail, shape);
  };
  launch(aligned ? rows_backward<true> : rows_backward<false>);
}

size_t norm_parts_of_rows(const Shape& shape) { return row_tiles(shape.rows()) * 2 * shape.C; }

void add_norm_parts(float* grad_gain, float* grad_bias, const float* parts, const Shape& shape,
                    hipStream_t stream) {
  layernorm_backward::launch_add_parts(grad_gain, grad_bias, parts, row_tiles(shape.rows()),
                                       shape.C, stream);
}

void norm_gradients_of_rows(const Gradients& grad, const Shape& shape, Workspace& w,
                            hipStream_t stream) {
  const float* const parts = w.norm_parts.data();
  add_norm_parts(grad.norm1_gain, grad.norm1_bias, parts, shape, stream);
  add_norm_parts(grad.norm2_gain, grad.norm2_bias, parts + norm_parts_of_rows(shape), shape,
                 stream);
}

void attend_backward_in_rows(SavedActivations& kept, Workspace& w, const Shape& shape,
                             hipStream_t stream) {
  attend_backward(attention_backward::launch_flash_behind_delta, kept, w, shape, stream);
}

void backward_in_rows(const Gradients& grad, float* grad_x, const float* grad_y, const float* x,
                      const Parameters& p, const Shape& shape, SavedActivations& kept, Workspace& w,
                      hipStream_t stream) {
  const BlockGradient block{p, kept, w, x, grad_y, grad_x};
  launch_rows_backward(nullptr, &block, shape, stream);
  attend_backward_in_rows(kept, w, shape, stream);
  launch_rows_backward(&block, nullptr, shape, stream);
  norm_gradients_of_rows(grad, shape, w, stream);
}

}  // namespace transformer_block
