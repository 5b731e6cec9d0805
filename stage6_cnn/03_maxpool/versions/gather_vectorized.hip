// gather_vectorized: 2x2 windows every 2 cells; grad_x is written in its order.
#include "common/gpu.h"
#include "stage6_cnn/03_maxpool/detail/arriving.h"
#include "stage6_cnn/03_maxpool/wide.h"

namespace maxpool {

constexpr unsigned kBackwardItems = 2;  // of loads of 8 and 4 bytes, likewise

// grad_x as one flat array of items: packs of kWidth cells, of all rows of all planes.
struct PackedRows {
  unsigned items;
  unsigned row;   // packs in a row: W / kWidth
  unsigned H, P;  // rows of a plane, and pairs of them
  Divisor by_row, by_H;
};

// grad_x = what arrives at a window, at the cell that it has taken    grad_x (planes,H,W), argmax
//         (planes,H/2,W/2); W % kWidth is 0, R = S = 2, both strides 2, no padding; rows aligned.
// Fixes : a thread of gather_unrolled has 6 bytes in flight, and stores 8 at a time, in two rows.
// Idea  : three quarters of the bytes are written. So they are written in their order, 16 bytes per
//         thread and wave after wave without a gap. Both rows of a window load its gradient; the
//         second time it comes out of a cache. kItems such packs per thread.
// Thread: t of block b owns the items b kBlock kItems + t, + kBlock, ... of grad_x.
// Costs : 22 bytes per output, of which 16 are written, and 6 more out of a cache; two short
//         divisions per item.
template <unsigned kWidth, unsigned kItems, class Gradient, class Place>
static __global__ void __launch_bounds__(vector_add::kBlock)
    backward_gather_vectorized(float* grad_x, Gradient arriving, const Place* argmax,
                               PackedRows rows) {
  const unsigned first = blockIdx.x * (vector_add::kBlock * kItems) + threadIdx.x;
  Pack<float, kWidth / 2> grads[kItems] = {};  // stay 0 for a last row that is in no pair
  Pack<Place, kWidth / 2> places[kItems] = {};
  unsigned place_of_first[kItems] = {};  // 0 in a window's upper row, 2 in its lower one
  GPU_UNROLL
  for (unsigned k = 0; k < kItems; ++k) {
    const unsigned item = first + k * vector_add::kBlock;
    if (item >= rows.items) continue;
    const unsigned row = rows.by_row.quotient(item), plane = rows.by_H.quotient(row);
    const unsigned h = row - plane * rows.H, column = item - row * rows.row;
    if (h >= 2 * rows.P) continue;
    const size_t window = size_t{plane * rows.P + h / 2} * rows.row + column;
    grads[k] = arriving.template pack<kWidth / 2>(window);
    places[k] = packs<kWidth / 2>(argmax)[window];
    place_of_first[k] = h % 2 * 2;
  }
  GPU_UNROLL
  for (unsigned k = 0; k < kItems; ++k) {
    const unsigned item = first + k * vector_add::kBlock;
    if (item >= rows.items) continue;
    Pack<float, kWidth> cells;
    GPU_UNROLL
    for (unsigned j = 0; j < kWidth / 2; ++j) {
      const auto place = static_cast<unsigned>(places[k].element[j]);
      cells.element[2 * j] = place == place_of_first[k] ? grads[k].element[j] : 0.0f;
      cells.element[2 * j + 1] = place == place_of_first[k] + 1 ? grads[k].element[j] : 0.0f;
    }
    packs<kWidth>(grad_x)[item] = cells;
  }
}

template <unsigned kWidth, unsigned kItems, class Place>
void launch_gather_items(float* grad_x, const Arriving& arriving, const Place* argmax,
                         const Problem& p, hipStream_t stream) {
  const Extent out = output_of(p);
  const size_t row = p.W / kWidth;
  for_planes(p, p.H * row, [&](size_t first, unsigned planes) {
    const size_t items = planes * p.H * row, output = first * out.height * out.width;
    const PackedRows rows{static_cast<unsigned>(items),
                          static_cast<unsigned>(row),
                          static_cast<unsigned>(p.H),
                          static_cast<unsigned>(out.height),
                          Divisor(row),
                          Divisor(p.H)};
    const size_t blocks = gpu::ceil_div(items, size_t{vector_add::kBlock} * kItems);
    with_gradient(arriving, [&](auto gradient) {
      LAUNCH_ON(stream, (backward_gather_vectorized<kWidth, kItems, decltype(gradient), Place>),
                static_cast<unsigned>(blocks), vector_add::kBlock, 0, grad_x + first * p.H * p.W,
                gradient.from(output), argmax + output, rows);
    });
  });
}

template <unsigned kWidth, class Place>
void launch_gather_packs(float* grad_x, const Arriving& arriving, const Place* argmax,
                         const Problem& p, hipStream_t stream) {
  const bool few = are_few(p.N * p.C * p.H * (p.W / kWidth), kBackwardItems);
  const auto launch = few ? launch_gather_items<kWidth, 1, Place>
                          : launch_gather_items<kWidth, kBackwardItems, Place>;
  launch(grad_x, arriving, argmax, p, stream);
}

// Returns false, and launches nothing, for other windows and for rows of an odd number of columns.
template <class Place>
bool launch_gather_pairs(float* grad_x, const Arriving& arriving, const Place* argmax,
                         const Problem& p, hipStream_t stream) {
  output_of(p);  // throws
  if (has_row_pairs<4>(p, grad_x, argmax) && is_packed_by_2(arriving))
    launch_gather_packs<4>(grad_x, arriving, argmax, p, stream);
  else if (has_row_pairs<2>(p, grad_x, argmax))
    launch_gather_packs<2>(grad_x, arriving, argmax, p, stream);
  else
    return false;
  return true;
}

// What is in no pairs is left to `gather_unrolled`.
void launch_gather_vectorized(float* grad_x, const Arriving& arriving, const Index* argmax,
                              const Problem& p, hipStream_t stream) {
  if (!launch_gather_pairs(grad_x, arriving, argmax, p, stream))
    launch_gather_unrolled(grad_x, arriving, argmax, p, stream);
}

bool backward_wide(float* grad_x, const float* grad_y, const WideIndex* argmax, const Problem& p,
                   hipStream_t stream) {
  return launch_gather_pairs(grad_x, {grad_y}, argmax, p, stream);
}

}  // namespace maxpool
