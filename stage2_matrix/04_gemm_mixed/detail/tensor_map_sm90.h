// Tensor maps: what the TMA must know of a matrix. Made on the host, passed to the kernel as a
// __grid_constant__ parameter.
#pragma once

#include "common/gpu_runtime.h"

#if !defined(GPU_BACKEND_HIP)

#if defined(GPU_BACKEND_CUDA)
#include <cudaTypedefs.h>
#endif

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "common/half.h"
#include "stage2_matrix/04_gemm_mixed/detail/chunk.h"

namespace gemm_mixed {

// Whether the TMA can copy all three matrices of C = A B, none of which is empty: they and their
// rows begin at multiples of 16 bytes, and the coordinates of a box are ints.
template <class T>
bool tma_takes(const float* c, const T* a, const T* b, size_t M, size_t N, size_t K) {
  constexpr size_t kLargest = size_t{1} << 30;
  return std::min({M, N, K}) > 0 && std::max({M, N, K}) <= kLargest &&
         chunks_are_aligned(c, N * sizeof(float)) && chunks_are_aligned(a, K * sizeof(T)) &&
         chunks_are_aligned(b, N * sizeof(T));
}

// Where the 16-byte chunks of a box's row stand in shared memory: as detail/wgmma_sm90.h draws it,
// or in their order.
enum class Chunks { swizzled, in_order };

// What the L2 cache reads from memory where it lacks a part of a box, whose rows are 128 bytes. To
// read the next box's 128 bytes too saves time, but not where another block copies that box now.
enum class Fetch { bytes_128, bytes_256 };

// Matrices (rows, columns), one behind the other. A row begins `ld` elements behind the one before,
// a matrix `stride`.
template <class T>
struct BatchOf {
  const T* data;
  size_t rows, columns, ld, count, stride;

  // Whether the TMA can copy them: as tma_takes(), and the distances fit a map. It knows no
  // distance of 0: where `stride` is 0 there is one matrix in the map.
  bool suit_tma() const {
    constexpr size_t kLargest = size_t{1} << 30, kFarthest = (size_t{1} << 40) / sizeof(T);
    return std::min({rows, columns, count}) > 0 && std::max({rows, columns, count}) <= kLargest &&
           std::max(ld, stride) < kFarthest && chunks_are_aligned(data, ld * sizeof(T)) &&
           (count == 1 || stride * sizeof(T) % 16 == 0);
  }
  bool are_one() const { return count == 1 || stride == 0; }
};

}  // namespace gemm_mixed

#if defined(GPU_BACKEND_CPU)

#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90_cpu.h"

#else

namespace gemm_mixed {

template <class T>
inline constexpr CUtensorMapDataType kTensorType = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
template <>
inline constexpr CUtensorMapDataType kTensorType<gpu::half> = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
template <>
inline constexpr CUtensorMapDataType kTensorType<gpu::bfloat16> = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;

// The driver's function that makes maps. It is asked for by name, so that no program must link the
// driver's library. Throws std::runtime_error where the driver has none.
inline PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  HIP_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                             cudaEnableDefault, &found));
#else
  HIP_CHECK(
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found));
#endif
  if (found != cudaDriverEntryPointSuccess || function == nullptr)
    throw std::runtime_error("this driver has no cuTensorMapEncodeTiled: CUDA 12 has");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// Throws std::runtime_error where the driver refuses the matrix.
template <class T>
CUtensorMap encode_tensor_map(const T* data, unsigned dimensions, const cuuint64_t* sizes,
                              const cuuint64_t* strides, const cuuint32_t* box, Chunks chunks,
                              Fetch fetch) {
  static const auto encode = tensor_map_encoder();
  const cuuint32_t every_element[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, kTensorType<T>, dimensions, const_cast<T*>(data), sizes, strides, box,
             every_element, CU_TENSOR_MAP_INTERLEAVE_NONE,
             chunks == Chunks::swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
             fetch == Fetch::bytes_256 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
                                       : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw std::runtime_error("cuTensorMapEncodeTiled: error " + std::to_string(result));
  return map;
}

// The map of matrix (rows, columns), row-major, for boxes of box_rows rows of 128 bytes, swizzled
// as detail/wgmma_sm90.h draws it. Neither dimension is 0; box_rows is at most 256. Throws
// std::runtime_error where the driver refuses the matrix.
template <class T>
CUtensorMap tensor_map(const T* matrix, size_t rows, size_t columns, unsigned box_rows,
                       Fetch fetch = Fetch::bytes_256) {
  // From the innermost dimension outwards, as all of the TMA's arguments.
  const cuuint64_t sizes[] = {columns, rows};
  const cuuint64_t row_bytes[] = {columns * sizeof(T)};
  const cuuint32_t box[] = {128 / sizeof(T), box_rows};
  return encode_tensor_map(matrix, 2, sizes, row_bytes, box, Chunks::swizzled, fetch);
}

// The same of many matrices, for boxes of one of them: a map with four dimensions, which places of
// boxes have. suit_tma() is true of them.
template <class T>
CUtensorMap tensor_map(const BatchOf<T>& m, unsigned box_rows, Chunks chunks = Chunks::swizzled) {
  const size_t row_bytes = m.ld * sizeof(T);
  const size_t matrix_bytes = m.are_one() ? row_bytes : m.stride * sizeof(T);
  const cuuint64_t sizes[] = {m.columns, m.rows, m.are_one() ? 1 : m.count, 1};
  const cuuint64_t strides[] = {row_bytes, matrix_bytes, matrix_bytes};
  const cuuint32_t box[] = {128 / sizeof(T), box_rows, 1, 1};
  return encode_tensor_map(m.data, 4, sizes, strides, box, chunks, Fetch::bytes_256);
}

}  // namespace gemm_mixed

#endif

#endif
