// per_element: one thread per element.
#include "common/gpu.h"
#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage8_framework/01_tensor/tensor.h"

namespace tensor {

// out[i] = a[i]    out, a: any strides; i: up to 8 indices, below p.extent.
// Fixes : the host would go through the indices in as many loops as there are axes.
// Idea  : the elements are numbered row by row. Divided by the extents, from the last one to the
//         first, a number falls apart into indices: the remainders.
// Thread: elements t, t + T, ... of all, where T threads run.
// Costs : 2 bytes moved per byte; a division of 64 bits, some 70 instructions, for each axis.
template <class Word>
static __global__ void copy_per_element(Word* out, const Word* a, Problem p) {
  const std::int64_t elements = p.elements(), threads = std::int64_t{gridDim.x} * blockDim.x;
  std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i < elements; i += threads) {
    // exercise: the place of element i on both sides, axis by axis; the copy (about 7 lines)
    std::int64_t left = i, to = 0, from = 0;
    for (unsigned axis = p.rank; axis-- > 0;) {
      const std::int64_t index = left % p.extent[axis];
      left /= p.extent[axis];
      to += index * p.out_stride[axis], from += index * p.a_stride[axis];
    }
    out[to] = a[from];
    // end exercise
  }
}

template <class Word>
static void launch_words(void* out, const void* a, const Problem& p, hipStream_t stream) {
  const size_t elements = static_cast<size_t>(p.elements());
  if (elements == 0) return;
  LAUNCH_ON(stream, copy_per_element<Word>, vector_add::full_grid(elements), vector_add::kBlock, 0,
            static_cast<Word*>(out), static_cast<const Word*>(a), p);
}

void launch_per_element(void* out, const void* a, size_t bytes, const Problem& p,
                        hipStream_t stream) {
  const auto launch = bytes == 1   ? launch_words<std::uint8_t>
                      : bytes == 2 ? launch_words<std::uint16_t>
                      : bytes == 4 ? launch_words<std::uint32_t>
                                   : launch_words<std::uint64_t>;
  launch(out, a, p, stream);
}

}  // namespace tensor
