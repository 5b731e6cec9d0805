// collapsed: as few axes as possible, and no division.
#include "common/gpu.h"
#include "stage8_framework/01_tensor/detail/walk.h"

namespace tensor {

// out[i] = a[i]    out, a: any strides; walk: the axes that are left, in the order of out.
// Fixes : per_element divides for every axis, even where all of them lie as one, and writes in the
//         order of the indices, which need not be that of out's memory.
// Idea  : the host sorts the axes by out's strides and merges neighbours that lie alike on both
//         sides. What is left to divide by is known before the launch: a product and a shift (6.1).
// Thread: element number blockIdx.x * kBlock + threadIdx.x.
// Costs : 2 bytes moved per byte; some 10 instructions for each axis that is left.
template <class Word>
static __global__ void __launch_bounds__(vector_add::kBlock)
    copy_collapsed(Word* out, const Word* a, Walk walk, unsigned elements) {
  const unsigned i = blockIdx.x * vector_add::kBlock + threadIdx.x;
  if (i >= elements) return;
  const Walk::Place place = walk(i);
  out[place.out] = a[place.a];
}

void launch_collapsed(void* out, const void* a, size_t bytes, const Problem& p,
                      hipStream_t stream) {
  with_word(bytes, [&](auto word) {
    using Word = decltype(word);
    for_each_part(collapse(p), [&](const Problem& piece, std::int64_t to, std::int64_t from) {
      const unsigned elements = static_cast<unsigned>(piece.elements());
      LAUNCH_ON(stream, copy_collapsed<Word>,
                static_cast<unsigned>(gpu::ceil_div(elements, vector_add::kBlock)),
                vector_add::kBlock, 0, static_cast<Word*>(out) + to,
                static_cast<const Word*>(a) + from, Walk(piece), elements);
    });
  });
}

}  // namespace tensor
