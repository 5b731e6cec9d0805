// 2.4  NVIDIA's matrix units through nvcuda::wmma: fp16 from sm_70 on, bf16 and tf32 from sm_80 on.
//
// A fragment is opaque: which lane holds which element is not documented. The instructions of
// instructions_sm80.h are.
#pragma once

#include "stage2_matrix/04_gemm_mixed/detail/software_unit.h"

#if defined(GPU_BACKEND_CUDA)
#include <mma.h>

namespace gemm_mixed {

// Element: what nvcuda::wmma calls T.
template <class T, class Element>
struct WmmaUnit {
  static constexpr int kTile = SoftwareUnit<T>::kTile, kDepth = SoftwareUnit<T>::kDepth;

  using A = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, kTile, kTile, kDepth, Element,
                                   nvcuda::wmma::row_major>;
  using B = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, kTile, kTile, kDepth, Element,
                                   nvcuda::wmma::row_major>;
  using C = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, kTile, kTile, kDepth, float>;

  static __device__ void clear(C& c) { nvcuda::wmma::fill_fragment(c, 0.0f); }
  template <class Fragment>
  static __device__ void load(Fragment& fragment, const T* tile, size_t stride) {
    nvcuda::wmma::load_matrix_sync(fragment, tile, static_cast<unsigned>(stride));
  }
  static __device__ void multiply_add(C& c, const A& a, const B& b) {
    nvcuda::wmma::mma_sync(c, a, b, c);
  }
  static __device__ void store(float* tile, size_t stride, const C& c) {
    nvcuda::wmma::store_matrix_sync(tile, c, static_cast<unsigned>(stride),
                                    nvcuda::wmma::mem_row_major);
  }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 700
template <>
struct MatrixUnit<gpu::half> : WmmaUnit<gpu::half, gpu::half> {};
#endif
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
template <>
struct MatrixUnit<gpu::bfloat16> : WmmaUnit<gpu::bfloat16, gpu::bfloat16> {};
template <>
struct MatrixUnit<float> : WmmaUnit<float, nvcuda::wmma::precision::tf32> {};
#endif

}  // namespace gemm_mixed
#endif
