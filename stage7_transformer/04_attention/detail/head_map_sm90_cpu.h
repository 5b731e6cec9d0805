// The tensor map of a View on the CPU backend: what detail/head_map_sm90.h has for NVIDIA's.
#pragma once

#include "common/gpu_runtime.h"

#if defined(GPU_BACKEND_CPU)

#include <cstddef>
#include <cstdint>

#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage7_transformer/04_attention/views.h"

namespace attention {

inline CUtensorMap head_map(const ConstBf16View& view, const Problem& p, size_t T,
                            unsigned box_rows) {
  constexpr size_t kElement = sizeof(gpu::bfloat16);
  const std::uint64_t sizes[] = {p.D, T, p.H, p.B};
  const std::uint64_t strides[] = {view.stride_row * kElement, view.stride_head * kElement,
                                   view.stride_batch * kElement};
  const unsigned box[] = {64, box_rows, 1, 1};
  return cpu::tensor_map(const_cast<gpu::bfloat16*>(view.data), kElement, 4, sizes, strides, box);
}

}  // namespace attention

#endif
