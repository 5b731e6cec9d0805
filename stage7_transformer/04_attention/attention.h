// 7.4  attention: every query looks at all keys and takes their values, by how well they fit:
//
//   out = softmax(scale Q K^T + mask) V      for each of B sequences and H heads on its own
//
//   q, out (B, H, Tq, D)     k, v (B, H, Tk, D)     lse (B, H, Tq)
//
// The scores, Tq x Tk for each head, are the largest array by far: with T = 4096 they are 64 times
// as large as Q. The ladder gets rid of them: first they are stored, then kept in shared memory,
// then there is never more than a tile of them. Four rungs multiply on matrix units, in bf16; two
// are for few queries and many keys, as where text is generated. Step 7.5 has the gradients.
//
// A View says how far apart batches, heads and rows lie; the D numbers of a row are neighbours. Q,
// K and V of one matrix product, (B, T, 3, H, D), are three such views. Any Tq and Tk (0 too), D
// from 1 to 256, aligned to 4 bytes; outputs overlap no input. A causal query i sees the keys j <=
// i + Tk - Tq: the last query sees all, so that one new query, Tq = 1, can look back at a cache of
// Tk keys. lse is the logarithm of a row's sum of exponentials, and may be null. A row that sees no
// key gets 0 and lse = -infinity. Every version gives the same bits on every run of one device.
// Errors: gpu::Error, and std::invalid_argument for sizes and arrays that can't be.
//
// A pair of a query and a key that it does not see adds nothing, whatever their rows hold, though 0
// times NaN is NaN. So NaN or an infinity reaches a row of out only from its own query or from a
// key that it sees, and no other row changes by a bit (with composed: by more than its error). A
// key that a query sees with a weight that has become 0 may add nothing either.
#pragma once

#include <cstddef>

#include "common/version.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"
#include "stage7_transformer/04_attention/problem.h"

namespace attention {

// Throws std::invalid_argument, one line, where sizes or arrays can't be.
void check(const Problem& p);
void check_forward(const View& out, const ConstView& q, const ConstView& k, const ConstView& v,
                   const Problem& p);

// Some versions work in `memory`: so many floats on the device. T: float or bfloat16.
size_t memory_of_composed(const Problem& p);
template <class T>
size_t memory_of_split_keys(const Problem& p);

void launch_composed(const View& out, float* lse, const ConstView& q, const ConstView& k,
                     const ConstView& v, const Problem& p, float* memory,
                     hipStream_t stream = nullptr);
void launch_fused(const View& out, float* lse, const ConstView& q, const ConstView& k,
                  const ConstView& v, const Problem& p, float* memory = nullptr,
                  hipStream_t stream = nullptr);
void launch_flash(const View& out, float* lse, const ConstView& q, const ConstView& k,
                  const ConstView& v, const Problem& p, float* memory = nullptr,
                  hipStream_t stream = nullptr);
// For a few queries and many keys. Query heads that share a key head (grouped queries) are rows of
// one head: Tq of them, not causal. T: float, or bfloat16 with sums and weights in float.
template <class T>
void launch_split_keys(const ViewOf<T>& out, float* lse, const ConstViewOf<T>& q,
                       const ConstViewOf<T>& k, const ConstViewOf<T>& v, const Problem& p,
                       float* memory, hipStream_t stream = nullptr);

// What later steps call: flash, but fused for one or two queries, as text is generated with a cache
// of keys. A tile of flash's would be empty but for them; split_keys would need memory.
void forward(const View& out, float* lse, const ConstView& q, const ConstView& k,
             const ConstView& v, const Problem& p, hipStream_t stream = nullptr);

template <class T>
struct LaunchOf {
  void (*run)(const ViewOf<T>& out, float* lse, const ConstViewOf<T>& q, const ConstViewOf<T>& k,
              const ConstViewOf<T>& v, const Problem& p, float* memory, hipStream_t stream);
  size_t (*memory)(const Problem& p) = [](const Problem&) { return size_t{0}; };  // floats
  size_t most_queries = ~size_t{0};  // it takes more, but the program has no row of them
};

inline constexpr Version<LaunchOf<float>> kVersions[] = {
    {"composed",
     {launch_composed, memory_of_composed},
     "products, mask and softmax of earlier steps, through memory"},
    {"fused", {launch_fused}, "rows of scores stay in shared memory; K and V once per 8 queries"},
    {"flash", {launch_flash}, "tiles of scores in registers: online softmax, no row anywhere"},
    {"split_keys",
     {launch_split_keys<float>, memory_of_split_keys<float>, kFewQueries},
     "the keys in slices, a block each: few queries, many keys"},
};

// bf16 in and out, with the matrix instructions of sm_80, or sm_90: flash_wgmma, flash_persistent.
// Sums, maxima and exponentials are float; only what is multiplied is bf16: Q, K, V and the weights
// of the softmax, each rounded once. Rows that begin at multiples of 16 bytes are the fast case:
// split_keys_mma is split_keys without them, and where it is causal with several queries. Scores
// beyond 1e8 are too coarse for its exponentials: rows may become 0 or NaN. Throws
// std::runtime_error on AMD.
using LaunchBf16 = void(const Bf16View& out, float* lse, const ConstBf16View& q,
                        const ConstBf16View& k, const ConstBf16View& v, const Problem& p,
                        float* memory, hipStream_t stream);
LaunchBf16 launch_flash_bf16, launch_flash_wgmma, launch_flash_persistent, launch_split_keys_mma;
size_t memory_of_flash_persistent(const Problem& p);
size_t memory_of_split_keys_mma(const Problem& p);

inline constexpr Version<LaunchOf<gpu::bfloat16>> kBf16Versions[] = {
    {"flash_bf16",
     {launch_flash_bf16},
     "the products of a tile on matrix units, in bf16",
     gemm_mixed::kNeedsOfMmaSync},
    {"flash_wgmma",
     {launch_flash_wgmma},
     "a warp group copies, others multiply; softmax beside the products",
     gemm_mixed::kNeedsOfWgmma<gpu::bfloat16>},
    {"flash_persistent",
     {launch_flash_persistent, memory_of_flash_persistent},
     "blocks stay, and take tile after tile of queries, the longest first",
     gemm_mixed::kNeedsOfWgmma<gpu::bfloat16>},
    {"split_keys",
     {launch_split_keys<gpu::bfloat16>, memory_of_split_keys<gpu::bfloat16>, kFewQueries},
     "the keys in slices, a block each: few queries, many keys"},
    {"split_keys_mma",
     {launch_split_keys_mma, memory_of_split_keys_mma, kFewQueries},
     "the products of a slice on matrix units, from registers to registers",
     gemm_mixed::kNeedsOfMmaSync},
};

}  // namespace attention
