// Tensor maps of queries, keys and values: the TMA's view of a View.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage7_transformer/04_attention/views.h"

#if defined(GPU_BACKEND_CPU)

#include "stage7_transformer/04_attention/detail/head_map_sm90_cpu.h"

#elif defined(GPU_BACKEND_CUDA)

namespace attention {

// The map of the heads (B, H, T, D) of a view, for boxes of box_rows rows of one head and 64
// columns, with zeros beyond T and D. Rows begin at multiples of 16 bytes, and nothing is empty.
// Throws std::runtime_error where the driver refuses the view.
inline CUtensorMap head_map(const ConstBf16View& view, const Problem& p, size_t T,
                            unsigned box_rows) {
  static const auto encode = gemm_mixed::tensor_map_encoder();
  // From the innermost dimension outwards, as all of the TMA's arguments.
  const cuuint64_t sizes[] = {p.D, T, p.H, p.B};
  const cuuint64_t strides[] = {view.stride_row * sizeof(gpu::bfloat16),
                                view.stride_head * sizeof(gpu::bfloat16),
                                view.stride_batch * sizeof(gpu::bfloat16)};
  const cuuint32_t box[] = {64, box_rows, 1, 1};
  const cuuint32_t every_element[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<gpu::bfloat16*>(view.data), sizes,
      strides, box, every_element, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw std::runtime_error("cuTensorMapEncodeTiled: error " + std::to_string(result));
  return map;
}

}  // namespace attention

#endif
