// Tensor maps on the CPU backend: what detail/tensor_map_sm90.h has for NVIDIA's.
#pragma once

#include "common/gpu_runtime.h"

#if defined(GPU_BACKEND_CPU)

#include <cstddef>
#include <cstdint>

#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm90.h"

namespace gemm_mixed {

template <class T>
CUtensorMap tensor_map(const T* matrix, size_t rows, size_t columns, unsigned box_rows) {
  const std::uint64_t sizes[] = {columns, rows}, row_bytes[] = {columns * sizeof(T)};
  const unsigned box[] = {128 / sizeof(T), box_rows};
  return cpu::tensor_map(const_cast<T*>(matrix), sizeof(T), 2, sizes, row_bytes, box);
}

}  // namespace gemm_mixed

#endif
