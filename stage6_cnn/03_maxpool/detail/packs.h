// Neighbours that are loaded and stored together, and where rows can be read so.
#pragma once

#include <cstdint>

#include "stage1_vector/01_vector_add/detail/grid.h"
#include "stage6_cnn/03_maxpool/detail/shape.h"
#include "stage6_cnn/03_maxpool/problem.h"

namespace maxpool {

// n neighbours that are loaded and stored by one instruction.
template <class T, unsigned n>
struct alignas(sizeof(T) * n) Pack {
  T element[n];
};
template <unsigned n, class T>
__host__ __device__ inline Pack<T, n>* packs(T* values) {
  return reinterpret_cast<Pack<T, n>*>(values);
}
template <unsigned n, class T>
__host__ __device__ inline const Pack<T, n>* packs(const T* values) {
  return reinterpret_cast<const Pack<T, n>*>(values);
}

template <unsigned n, class T>
inline bool is_packed(const T* values) {
  return reinterpret_cast<std::uintptr_t>(values) % sizeof(Pack<T, n>) == 0;
}

// Where an item's cells are, in packs of kWidth.
struct RowPairs {
  unsigned items;     // of all planes
  unsigned row;       // packs in a row: W / kWidth
  unsigned left_out;  // 1 where a plane has a last row that is in no pair, else 0
  Divisor by_row, by_P;

  __device__ size_t upper(unsigned item) const {
    const unsigned pair = by_row.quotient(item);
    return item + (size_t{pair} + left_out * by_P.quotient(pair)) * row;
  }
};

// Whether two rows can be read kWidth cells at a time, of which each row begins aligned, and their
// places kWidth / 2 at a time.
template <unsigned kWidth, class Place>
inline bool has_row_pairs(const Problem& p, const float* cells, const Place* argmax) {
  return is_row_pairs(p) && p.W % kWidth == 0 && p.H * (p.W / kWidth) < size_t{1} << 31 &&
         is_packed<kWidth>(cells) && is_packed<kWidth / 2>(argmax);
}

// Whether threads of `each` items would leave multiprocessors without a block.
inline bool are_few(size_t items, unsigned each) {
  return items < size_t{vector_add::kBlock} * each * gpu::multiprocessors();
}

}  // namespace maxpool
