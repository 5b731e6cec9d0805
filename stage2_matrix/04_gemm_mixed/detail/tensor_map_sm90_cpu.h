// Tensor maps on the CPU backend: what detail/tensor_map_sm90.h has for NVIDIA's.
#pragma once

#include "common/gpu_runtime.h"

#if defined(GPU_BACKEND_CPU)

#include <cstddef>
#include <cstdint>

#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"

namespace gemm_mixed {

template <class T>
CUtensorMap tensor_map(const T* matrix, size_t rows, size_t columns, unsigned box_rows,
                       Fetch = Fetch::bytes_256) {
  const std::uint64_t sizes[] = {columns, rows}, row_bytes[] = {columns * sizeof(T)};
  const unsigned box[] = {128 / sizeof(T), box_rows};
  return cpu::tensor_map(const_cast<T*>(matrix), sizeof(T), 2, sizes, row_bytes, box);
}

template <class T>
CUtensorMap tensor_map(const BatchOf<T>& m, unsigned box_rows, Chunks chunks = Chunks::swizzled) {
  const size_t row_bytes = m.ld * sizeof(T);
  const size_t matrix_bytes = m.are_one() ? row_bytes : m.stride * sizeof(T);
  const std::uint64_t sizes[] = {m.columns, m.rows, m.are_one() ? 1 : m.count, 1};
  const std::uint64_t strides[] = {row_bytes, matrix_bytes, matrix_bytes};
  const unsigned box[] = {128 / sizeof(T), box_rows, 1, 1};
  return cpu::tensor_map(const_cast<T*>(m.data), sizeof(T), 4, sizes, strides, box,
                         chunks == Chunks::swizzled);
}

}  // namespace gemm_mixed

#endif
