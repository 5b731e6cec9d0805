// rows: a tile of rows stays in shared memory from one attention to the next, forwards.
#include "common/gpu.h"
#include "stage1_vector/04_activations/detail/formulas.h"
#include "stage2_matrix/02_gemv/detail/plan.h"
#include "stage7_transformer/06_transformer_block/detail/row_norms.h"
#include "stage7_transformer/06_transformer_block/parts.h"
#include "stage7_transformer/06_transformer_block/rows.h"

namespace transformer_block {

using activations::GeluTanh;  // GPT-2's

struct Tail {
  const float *attended, *x;
  float *h, *sums, *hidden, *y;  // y == nullptr: no block ends here
  dense::Layer proj, fc, out;
  Norm norm2;
};
struct Head {
  const float* x;
  float* qkv;
  dense::Layer layer;  // of q, k and v; of 0 rows where no block begins here
  Norm norm1;
};

// y from attention's result, and the q, k and v of the block that begins with y    kTileRows rows
//                                                                                  per block.
// Fixes : at few channels the products are so small that a block's seven launches wait for one
//         another much longer than they work.
// Idea  : attention alone looks at other rows. Between two of them a tile of rows goes through six
//         layers in shared memory, and the weights pass by in pieces of 64 x 64. Of fc's result
//         there is only one piece at a time: out multiplies it at once.
// Thread: as RowPlace says in products; in normalizations kParts threads share a row.
// Costs : every block reads all weights, 48 C^2 bytes, from the L2 cache; a barrier per piece.
template <bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(kRowThreads, 2)
    rows_forward(Tail tail, Head head, size_t rows, size_t C) {
  DYNAMIC_SHARED(RowTiles, tiles);
  const size_t first = size_t{blockIdx.x} * kTileRows, wide = kExpansion * C;
  const bool ends = tail.y != nullptr;
  const RowPlace<kAligned> place(first, rows);
  Conveyor<true, kAligned> weights(*tiles, piece_of(ends ? tail.proj : head.layer, 0, 0));
  float sums[4][4] = {}, results[2][4], bias[4], beside[2][4];
  if (ends) {
    load_tile<kAligned>(tiles->a, tail.attended, first, rows, C);
    place.load(beside, tail.x, C), place.load_vector(bias, tail.proj.bias, C);
    weights.multiply(sums, tiles->a, place, piece_of(tail.fc, 0, 0));
    place.take(results, sums);
    add(results, bias), add(results, beside);
    place.put(tiles->b, results), place.store(tail.h, results, C);
    normalize<kAligned>(*tiles, tail.norm2, first, rows, C);

    float of_out[4][4] = {};
    for (size_t from = 0; from < wide; from += kRowWidth) {
      const bool more = from + kRowWidth < wide;
      const WeightPiece next =
          more ? piece_of(tail.fc, from + kRowWidth, 0) : piece_of(head.layer, 0, 0);
      // exercise: a piece of fc's sums and of GELU's results, and out's sums of it (about 10 lines)
      place.load_vector(bias, tail.fc.bias, wide, from);
      weights.multiply(sums, tiles->a, place, piece_of(tail.out, 0, from));
      place.take(results, sums);
      add(results, bias);
      place.store(tail.sums, results, wide, from);
      GPU_UNROLL
      for (int i = 0; i < 8; ++i) results[i / 4][i % 4] = GeluTanh{}(results[i / 4][i % 4]);
      place.put(tiles->c, results), place.store(tail.hidden, results, wide, from);
      weights.multiply(of_out, tiles->c, place, next);
      // end exercise
    }
    place.get(beside, tiles->b), place.load_vector(bias, tail.out.bias, C);
    place.take(results, of_out);
    add(results, bias), add(results, beside);
    place.put(tiles->b, results), place.store(tail.y, results, C);
  } else {
    load_tile<kAligned>(tiles->b, head.x, first, rows, C);
  }
  if (head.layer.out == 0) return;
  normalize<kAligned>(*tiles, head.norm1, first, rows, C);
  for (size_t from = 0; from < 3 * C; from += kRowWidth) {
    place.load_vector(bias, head.layer.bias, 3 * C, from);
    weights.multiply(sums, tiles->a, place, piece_of(head.layer, from + kRowWidth, 0));
    place.take(results, sums);
    add(results, bias);
    place.store(head.qkv, results, 3 * C, from);
  }
}

bool is_in_rows(const Shape& shape) {
  return shape.C <= size_t{kRowWidth} && is_grouped(shape) &&
         sizeof(RowTiles) <= gpu::max_shared_bytes();
}

void launch_rows(const BlockPass* ends, const BlockPass* begins, const Shape& shape,
                 hipStream_t stream) {
  const size_t rows = shape.rows(), C = shape.C;
  Tail tail{};
  Head head{};
  bool aligned = true;
  if (ends != nullptr) {
    const Parameters& p = ends->p;
    SavedActivations& kept = ends->kept;
    const Layers to = layers(shape, p);
    float* const mean2 = kept.statistics.data() + 2 * rows;
    tail = {kept.attended.data(),
            ends->x,
            kept.h.data(),
            kept.sums.data(),
            kept.hidden.data(),
            ends->y,
            to.proj,
            to.fc,
            to.out,
            {}};
    tail.norm2 = {p.norm2_gain, p.norm2_bias, kept.norm2.data(), mean2, mean2 + rows};
    aligned = gemv::rows_are_aligned(C, {ends->x, ends->y, p.proj_w, p.proj_bias, p.norm2_gain,
                                         p.norm2_bias, p.fc_w, p.fc_bias, p.out_w, p.out_bias});
  }
  if (begins != nullptr) {
    const Parameters& p = begins->p;
    SavedActivations& kept = begins->kept;
    float* const mean1 = kept.statistics.data();
    head = {begins->x, kept.qkv.data(), layers(shape, p).qkv, {}};
    head.norm1 = {p.norm1_gain, p.norm1_bias, kept.norm1.data(), mean1, mean1 + rows};
    aligned = aligned && gemv::rows_are_aligned(
                             C, {begins->x, p.qkv_w, p.qkv_bias, p.norm1_gain, p.norm1_bias});
  }
  const auto launch = [&](auto kernel) {
    gpu::allow_shared_bytes(kernel, sizeof(RowTiles));
    LAUNCH_ON(stream, kernel, row_tiles(rows), kRowThreads, sizeof(RowTiles), tail, head, rows, C);
  };
  launch(aligned ? rows_forward<true> : rows_forward<false>);
}

void forward_in_rows(float* y, const float* x, const Parameters& p, const Shape& shape,
                     SavedActivations& kept, hipStream_t stream) {
  const BlockPass block{p, kept, x, y};
  launch_rows(nullptr, &block, shape, stream);
  attend_flash(kept, shape, stream);
  launch_rows(&block, nullptr, shape, stream);
}

}  // namespace transformer_block
