// 7.5  attention_backward: what queries, keys and values did to the output of attention (step 7.4).
//
// With P the probabilities and S the scores before they are scaled, for each head on its own:
//
//   grad_v = P^T grad_out      grad_P = grad_out V^T      grad_q = scale grad_S K
//   grad_S = P (grad_P - delta)       with delta = sum over the row of P grad_P
//                                                = sum over the row of out grad_out
//   grad_k = scale grad_S^T Q
//
//   q, out, grad_q, grad_out (B, H, Tq, D)    k, v, grad_k, grad_v (B, H, Tk, D)    lse (B, H, Tq)
//
// P and grad_S have Tq x Tk numbers for each head. `composed` stores both; the flash versions
// compute them again from lse, tile by tile. out and lse are those that the forward pass has left.
//
// Sizes, views and masks are those of step 7.4; gradients overlap no input. The gradients of a
// query that sees no key are 0. A pair of a query and a key that it does not see adds nothing,
// whatever their rows of q, k, v and grad_out hold. Every version gives the same bits on every run
// of one device. Errors: gpu::Error, and std::invalid_argument for sizes and arrays that can't be.
#pragma once

#include <cstddef>

#include "common/version.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"
#include "stage7_transformer/04_attention/views.h"

namespace attention_backward {

using attention::Bf16View;
using attention::ConstBf16View;
using attention::ConstView;
using attention::ConstViewOf;
using attention::Problem;
using attention::View;
using attention::ViewOf;

// `memory` is device memory at a multiple of 16 bytes: so many floats.
size_t memory_of_composed(const Problem& p);
size_t memory_of_flash(const Problem& p);
size_t memory_of_flash_bf16(const Problem& p);
size_t memory_of_flash_wgmma(const Problem& p);

void launch_composed(const View& grad_q, const View& grad_k, const View& grad_v,
                     const ConstView& grad_out, const ConstView& out, const float* lse,
                     const ConstView& q, const ConstView& k, const ConstView& v, const Problem& p,
                     float* memory, hipStream_t stream = nullptr);
// What later steps call.
void launch_flash(const View& grad_q, const View& grad_k, const View& grad_v,
                  const ConstView& grad_out, const ConstView& out, const float* lse,
                  const ConstView& q, const ConstView& k, const ConstView& v, const Problem& p,
                  float* memory, hipStream_t stream = nullptr);
// The same where an earlier kernel has left delta (B, H, Tq) in `memory`.
void launch_flash_behind_delta(const View& grad_q, const View& grad_k, const View& grad_v,
                               const ConstView& grad_out, const ConstView& out, const float* lse,
                               const ConstView& q, const ConstView& k, const ConstView& v,
                               const Problem& p, float* memory, hipStream_t stream = nullptr);

template <class T>
struct LaunchOf {
  void (*run)(const ViewOf<T>& grad_q, const ViewOf<T>& grad_k, const ViewOf<T>& grad_v,
              const ConstViewOf<T>& grad_out, const ConstViewOf<T>& out, const float* lse,
              const ConstViewOf<T>& q, const ConstViewOf<T>& k, const ConstViewOf<T>& v,
              const Problem& p, float* memory, hipStream_t stream);
  size_t (*memory)(const Problem& p);
};

inline constexpr Version<LaunchOf<float>> kVersions[] = {
    {"composed",
     {launch_composed, memory_of_composed},
     "five products and two passes over the scores, through memory"},
    {"flash", {launch_flash, memory_of_flash}, "probabilities again from lse, tile by tile"},
};

// bf16 in and out, with the matrix instructions of sm_80, or sm_90 (flash_wgmma), for D up to 128.
// The weights P and their gradients are rounded to bf16 once. Throws std::runtime_error on AMD.
inline constexpr size_t kMostBf16Depth = 128;
void launch_flash_bf16(const Bf16View& grad_q, const Bf16View& grad_k, const Bf16View& grad_v,
                       const ConstBf16View& grad_out, const ConstBf16View& out, const float* lse,
                       const ConstBf16View& q, const ConstBf16View& k, const ConstBf16View& v,
                       const Problem& p, float* memory, hipStream_t stream = nullptr);
void launch_flash_wgmma(const Bf16View& grad_q, const Bf16View& grad_k, const Bf16View& grad_v,
                        const ConstBf16View& grad_out, const ConstBf16View& out, const float* lse,
                        const ConstBf16View& q, const ConstBf16View& k, const ConstBf16View& v,
                        const Problem& p, float* memory, hipStream_t stream = nullptr);

inline constexpr Version<LaunchOf<gpu::bfloat16>> kBf16Versions[] = {
    {"flash_bf16",
     {launch_flash_bf16, memory_of_flash_bf16},
     "the products of a tile on matrix units, in bf16",
     gemm_mixed::kNeedsOfMmaSync},
    {"flash_wgmma",
     {launch_flash_wgmma, memory_of_flash_wgmma},
     "each product once on wgmma; blocks of keys add grad_q in turn",
     gemm_mixed::kNeedsOfWgmma<gpu::bfloat16>},
};

}  // namespace attention_backward
