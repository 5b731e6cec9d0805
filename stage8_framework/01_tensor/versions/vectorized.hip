// vectorized: 16 bytes per access where the layouts allow it.
//
//   a, out run along the last axis       | 0 1 2 3 | 4 5 6 7 |   ->   | 0 1 2 3 | 4 5 6 7 |    wide
//   out alone does: a steps or repeats   | 0 . 2 . 4 . 6 . |     ->   | 0 2 4 6 | gathered
#include "common/gpu.h"
#include "stage8_framework/01_tensor/detail/packs.h"
#include "stage8_framework/01_tensor/detail/walk.h"

namespace tensor {

// out[i] = a[i]    Pack: as many elements as both sides can be read in, 16 bytes at best.
// Fixes : a thread of collapsed moves one element, with an address of its own, and has one load in
//         flight.
// Idea  : if all strides, the last extent and both addresses are even, two elements are one, and so
//         on up to 16 bytes. A thread has kPacks loads in flight before it stores the first.
// Thread: t of block b moves the packs b kBlock kPacks + t, + kBlock, ...
// Costs : 2 bytes moved per byte; the way to a pack is walked once for all of its elements.
template <class Pack>
static __global__ void __launch_bounds__(vector_add::kBlock)
    copy_wide(Pack* out, const Pack* a, Walk walk, unsigned packs) {
  const unsigned first = blockIdx.x * (vector_add::kBlock * kPacks) + threadIdx.x;
  Pack held[kPacks];
  std::int64_t to[kPacks];
  GPU_UNROLL
  for (unsigned k = 0; k < kPacks; ++k) {
    const unsigned i = first + k * vector_add::kBlock;
    if (i >= packs) continue;
    const Walk::Place place = walk(i);
    held[k] = a[place.a], to[k] = place.out;
  }
  GPU_UNROLL
  for (unsigned k = 0; k < kPacks; ++k)
    if (first + k * vector_add::kBlock < packs) out[to[k]] = held[k];
}

// As many elements as have 16 bytes.
template <class Word>
struct alignas(kPackBytes) Packed {
  Word element[kPackBytes / sizeof(Word)];
};

// out[i] = a[i]    out: packs of neighbours; a: any stride along the last axis, 0 too.
// Fixes : where a steps over elements or repeats one, copy_wide has single elements to move.
// Idea  : the loads stay single ones, but one store writes what they have brought.
// Thread: pack number blockIdx.x * kBlock + threadIdx.x.
// Costs : out's bytes, and of a whatever lines the elements lie in.
template <class Word>
static __global__ void __launch_bounds__(vector_add::kBlock)
    copy_gathered(Packed<Word>* out, const Word* a, Walk walk, std::int64_t step, unsigned packs) {
  const unsigned i = blockIdx.x * vector_add::kBlock + threadIdx.x;
  if (i >= packs) return;
  const Walk::Place place = walk(i);
  Packed<Word> pack;
  GPU_UNROLL
  for (unsigned k = 0; k < kPackBytes / sizeof(Word); ++k) pack.element[k] = a[place.a + k * step];
  out[place.out] = pack;
}

static void launch_wide(void* out, const void* a, size_t bytes, const Problem& p,
                        hipStream_t stream) {
  with_pack(bytes, [&](auto pack) {
    using Pack = decltype(pack);
    const unsigned packs = static_cast<unsigned>(p.elements());
    LAUNCH_ON(stream, copy_wide<Pack>,
              static_cast<unsigned>(gpu::ceil_div(packs, size_t{vector_add::kBlock} * kPacks)),
              vector_add::kBlock, 0, static_cast<Pack*>(out), static_cast<const Pack*>(a), Walk(p),
              packs);
  });
}

template <class Word>
static void launch_gathered(void* out, const void* a, const Problem& p, hipStream_t stream) {
  constexpr std::int64_t kElements = kPackBytes / sizeof(Word);
  const unsigned last = p.rank - 1;
  Problem packed = p;
  for (unsigned axis = 0; axis < last; ++axis) packed.out_stride[axis] /= kElements;
  packed.extent[last] /= kElements, packed.a_stride[last] *= kElements;
  const unsigned packs = static_cast<unsigned>(packed.elements());
  LAUNCH_ON(stream, copy_gathered<Word>,
            static_cast<unsigned>(gpu::ceil_div(packs, vector_add::kBlock)), vector_add::kBlock, 0,
            static_cast<Packed<Word>*>(out), static_cast<const Word*>(a), Walk(packed),
            p.a_stride[last], packs);
}

// A collapsed piece of at most part_limit elements, in the best way for it.
template <class Word>
static void launch_piece(Word* out, const Word* a, Problem p, hipStream_t stream) {
  if (p.rank == 0) return launch_collapsed(out, a, sizeof(Word), p, stream);
  const unsigned last = p.rank - 1;
  constexpr std::int64_t kElements = kPackBytes / sizeof(Word);
  if (p.rank == 1 && p.out_stride[0] == 1 && p.extent[0] > kElements) {
    // One row: what is left over behind its packs is a copy of its own.
    const std::int64_t rest = p.extent[0] % kElements, whole = p.extent[0] - rest;
    Problem tail = p;
    tail.extent[0] = rest, p.extent[0] = whole;
    launch_collapsed(out + whole, a + whole * p.a_stride[0], sizeof(Word), tail, stream);
  }
  if (is_packed(p, p.out_stride, kElements) && is_multiple(out, kPackBytes) &&
      p.a_stride[last] != 1)
    return launch_gathered<Word>(out, a, p, stream);
  const std::int64_t n = elements_of_pack(out, a, sizeof(Word), p);
  if (n == 1) return launch_collapsed(out, a, sizeof(Word), p, stream);
  launch_wide(out, a, n * sizeof(Word), in_packs(p, n), stream);
}

void launch_vectorized(void* out, const void* a, size_t bytes, const Problem& p,
                       hipStream_t stream) {
  const Problem all = collapse(p);
  if (turned_axis(all) < all.rank) return launch_tiled(out, a, bytes, p, stream);
  with_word(bytes, [&](auto word) {
    using Word = decltype(word);
    for_each_part(all, [&](const Problem& piece, std::int64_t to, std::int64_t from) {
      launch_piece(static_cast<Word*>(out) + to, static_cast<const Word*>(a) + from, piece, stream);
    });
  });
}

}  // namespace tensor
