// vectorized: 2x2 windows every 2 cells, 16 bytes of two rows at a time.
#include "common/gpu.h"
#include "stage6_cnn/03_maxpool/detail/packs.h"
#include "stage6_cnn/03_maxpool/detail/window.h"
#include "stage6_cnn/03_maxpool/wide.h"

namespace maxpool {

constexpr unsigned kForwardItems = 2;  // of two loads of 16 bytes, on their way per thread

// Two rows of x make one row of y, and kWidth neighbours of both make kWidth / 2 neighbours of y:
//
//   x  row 2p    | a b c d | e f g h | ...        item i: the kWidth = 4 cells of both rows
//      row 2p+1  | A B C D | E F G H | ...
//   y  row p     | max(a,b,A,B) max(c,d,C,D) | ...
//
// Rows of W / kWidth such items follow one another without gaps, in y as well: item i of all is y's
// values i kWidth / 2, ..., and its cells begin i kWidth behind as many rows as there are above it.

// y, argmax = the largest of each window    x (planes,H,W), y, argmax (planes,H/2,W/2); W % kWidth
//         is 0, R = S = 2, both strides 2, no padding; every row begins aligned.
// Fixes : each load of unrolled takes 4 bytes and leaves out the next 4, and where a row does not
//         fill its waves some lanes have nothing to do.
// Idea  : kWidth cells of two rows at a time; kItems of such pairs are on their way per thread. All
//         rows of all planes are one flat array of items: no lane is left over at a row's end.
// Thread: t of block b owns the items b kBlock kItems + t, + kBlock, ...
// Costs : 22 bytes per output; 2 kWidth kItems registers; a short division per item.
template <unsigned kWidth, unsigned kItems, class Place>
static __global__ void __launch_bounds__(vector_add::kBlock)
    forward_vectorized(float* y, Place* argmax, const float* x, RowPairs pairs) {
  const unsigned first = blockIdx.x * (vector_add::kBlock * kItems) + threadIdx.x;
  Pack<float, kWidth> upper[kItems] = {}, lower[kItems] = {};
  GPU_UNROLL
  for (unsigned k = 0; k < kItems; ++k) {
    const unsigned item = first + k * vector_add::kBlock;
    if (item >= pairs.items) continue;
    const Pack<float, kWidth>* from = packs<kWidth>(x) + pairs.upper(item);
    upper[k] = from[0], lower[k] = from[pairs.row];
  }
  // exercise: of every item the largest of each window, and the stores (about 17 lines)
  GPU_UNROLL
  for (unsigned k = 0; k < kItems; ++k) {
    const unsigned item = first + k * vector_add::kBlock;
    if (item >= pairs.items) continue;
    Pack<float, kWidth / 2> values;
    Pack<Place, kWidth / 2> places;
    GPU_UNROLL
    for (unsigned j = 0; j < kWidth / 2; ++j) {
      Largest best = {upper[k].element[2 * j], 0};
      take(best, upper[k].element[2 * j + 1], 1);
      take(best, lower[k].element[2 * j], 2);
      take(best, lower[k].element[2 * j + 1], 3);
      values.element[j] = best.value, places.element[j] = static_cast<Place>(best.place);
    }
    packs<kWidth / 2>(y)[item] = values;
    packs<kWidth / 2>(argmax)[item] = places;
  }
  // end exercise
}

// Calls launch(pairs, blocks, cells, outputs) for all planes, or for so many at a time as 32 bits
// can count: `cells` and `outputs` of the planes before are to be left out.
template <unsigned kWidth, unsigned kItems, class Launch>
void for_row_pairs(const Problem& p, Launch&& launch) {
  const Extent out = output_of(p);
  const size_t row = p.W / kWidth;
  for_planes(p, out.height * row, [&](size_t first, unsigned planes) {
    const size_t items = planes * out.height * row;
    launch(RowPairs{static_cast<unsigned>(items), static_cast<unsigned>(row),
                    static_cast<unsigned>(p.H % 2), Divisor(row), Divisor(out.height)},
           static_cast<unsigned>(gpu::ceil_div(items, size_t{vector_add::kBlock} * kItems)),
           first * p.H * p.W, first * out.height * out.width);
  });
}

template <unsigned kWidth, unsigned kItems, class Place>
void launch_items(float* y, Place* argmax, const float* x, const Problem& p, hipStream_t stream) {
  for_row_pairs<kWidth, kItems>(
      p, [&](const RowPairs& pairs, unsigned blocks, size_t cells, size_t outputs) {
        LAUNCH_ON(stream, (forward_vectorized<kWidth, kItems, Place>), blocks, vector_add::kBlock,
                  0, y + outputs, argmax + outputs, x + cells, pairs);
      });
}

template <unsigned kWidth, class Place>
void launch_row_pairs(float* y, Place* argmax, const float* x, const Problem& p,
                      hipStream_t stream) {
  const bool few = are_few(p.N * p.C * (p.H / 2) * (p.W / kWidth), kForwardItems);
  const auto launch =
      few ? launch_items<kWidth, 1, Place> : launch_items<kWidth, kForwardItems, Place>;
  launch(y, argmax, x, p, stream);
}

// Returns false, and launches nothing, for other windows and for rows of an odd number of columns.
template <class Place>
bool launch_pairs(float* y, Place* argmax, const float* x, const Problem& p, hipStream_t stream) {
  output_of(p);  // throws
  if (has_row_pairs<4>(p, x, argmax) && is_packed<2>(y))
    launch_row_pairs<4>(y, argmax, x, p, stream);
  else if (has_row_pairs<2>(p, x, argmax))
    launch_row_pairs<2>(y, argmax, x, p, stream);
  else
    return false;
  return true;
}

// What is in no pairs is left to `unrolled`.
void launch_vectorized(float* y, Index* argmax, const float* x, const Problem& p,
                       hipStream_t stream) {
  if (!launch_pairs(y, argmax, x, p, stream)) launch_unrolled(y, argmax, x, p, stream);
}

bool forward_wide(float* y, WideIndex* argmax, const float* x, const Problem& p,
                  hipStream_t stream) {
  return launch_pairs(y, argmax, x, p, stream);
}

}  // namespace maxpool
