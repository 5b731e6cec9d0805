// 2.4  C = A B on matrix units: A (M, K) and B (K, N) in fp16, bf16 or tf32, C (M, N) in float.
// All matrices are row-major without gaps between rows. Sums are kept in float.
//
// The element type T chooses one of the three: gpu::half, gpu::bfloat16, or float, which stands for
// tf32 in this step. launch_round makes any of them from floats. A float whose last 13 bits are not
// 0 is no tf32: what a matrix unit makes of it differs from device to device.
//
// Every launcher takes device arrays aligned to sizeof(T), and any M, N, K. If K is 0 the result is
// 0. c must not overlap a or b. Rows that begin at multiples of 16 bytes are the fast case. The
// work is queued on `stream`. Errors: gpu::Error where the launch is refused.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "common/half.h"
#include "common/version.h"

namespace gemm_mixed {

template <class T>
inline constexpr const char* kTypeName = "tf32";
template <>
inline constexpr const char* kTypeName<gpu::half> = "fp16";
template <>
inline constexpr const char* kTypeName<gpu::bfloat16> = "bf16";

// versions/round_inputs.hip: out[i] = the T nearest to in[i], n elements. Of two equally near ones
// it is the one whose last bit is 0. out may be in.
template <class T>
void launch_round(T* out, const float* in, size_t n, hipStream_t stream = nullptr);

// versions/naive.hip: one thread per element of C.
template <class T>
void launch_naive(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                  hipStream_t stream = nullptr);

// versions/wmma.hip: one wave per tile of C, fed from global memory.
template <class T>
void launch_wmma(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                 hipStream_t stream = nullptr);

// versions/wmma_tiled.hip: tiles in shared memory.
template <class T>
void launch_wmma_tiled(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                       hipStream_t stream = nullptr);

// versions/mma_sync_sm80.hip: the instructions of sm_80. Throws std::runtime_error on AMD.
template <class T>
void launch_mma_sync(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                     hipStream_t stream = nullptr);

// The next five want rows that begin at multiples of 16 bytes (M, N, K <= 2^30), else they launch
// mma_sync. register_operand takes tf32 only, the others 16-bit numbers. They throw on AMD.
// versions/wgmma_sm90.hip: wgmma, fed by the TMA.
template <class T>
void launch_wgmma(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                  hipStream_t stream = nullptr);
// versions/warp_specialized_sm90.hip: a warp group that copies and two that multiply.
template <class T>
void launch_warp_specialized(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                             hipStream_t stream = nullptr);
// versions/clusters_sm90.hip: warp_specialized in pairs of blocks that share tiles of B.
template <class T>
void launch_clusters(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                     hipStream_t stream = nullptr);
// versions/register_operand_sm90.hip: clusters for tf32, with B in registers.
template <class T>
void launch_register_operand(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                             hipStream_t stream = nullptr);
// versions/skinny_sm90.hip: narrow tiles, for at most kFewRows rows of C; with more it is clusters.
inline constexpr int kFewRows = 128;
template <class T>
void launch_skinny(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                   hipStream_t stream = nullptr);

// nvcuda::wmma has bf16 and tf32 from sm_80 on. AMD's units and the software have no such limit.
inline constexpr bool kOnCuda = std::string_view(gpu::kBackend) == "cuda";
template <class T>
inline constexpr Needs kNeedsOfWmma =
    kOnCuda && !std::is_same_v<T, gpu::half> ? Needs::Sm80 : Needs::Any;

// The CPU backend runs the instructions of sm_80 and sm_90 as functions.
inline constexpr bool kOnCpu = std::string_view(gpu::kBackend) == "cpu";
inline constexpr Needs kNeedsOfMmaSync = kOnCpu ? Needs::Any : Needs::Sm80;

// B (K, N) has N along its rows. From shared memory wgmma takes that of 16-bit numbers only.
inline constexpr Needs kNeedsOfSm90 = kOnCpu ? Needs::Any : Needs::Sm90;
template <class T>
inline constexpr Needs kNeedsOfWgmma = sizeof(T) == 2 ? kNeedsOfSm90 : Needs::Bits16;
template <class T>
inline constexpr Needs kNeedsOfRegisterOperand = sizeof(T) == 2 ? Needs::Tf32 : kNeedsOfSm90;

template <class T>
using Launch = void (*)(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                        hipStream_t stream);

// The same versions for every type: kVersions<gpu::half>, kVersions<gpu::bfloat16>, and
// kVersions<float> for tf32.
template <class T>
inline constexpr Version<Launch<T>> kVersions[] = {
    {"naive", launch_naive<T>, "one thread per element of C, no matrix unit"},
    {"wmma", launch_wmma<T>, "one wave per tile: a matrix product is one instruction",
     kNeedsOfWmma<T>},
    {"wmma_tiled", launch_wmma_tiled<T>, "tiles in shared memory, several fragments per wave",
     kNeedsOfWmma<T>},
    {"mma_sync", launch_mma_sync<T>, "mma.sync fed by ldmatrix and a pipeline of cp.async",
     kNeedsOfMmaSync},
    {"wgmma", launch_wgmma<T>, "wgmma on tiles that the TMA copies to shared memory",
     kNeedsOfWgmma<T>},
    {"warp_specialized", launch_warp_specialized<T>,
     "one warp group copies, two multiply, blocks take tile after tile", kNeedsOfWgmma<T>},
    {"clusters", launch_clusters<T>, "two blocks share a tile of B", kNeedsOfWgmma<T>},
    {"register_operand", launch_register_operand<T>, "C^T = B^T A^T: B^T comes from registers",
     kNeedsOfRegisterOperand<T>},
    {"skinny", launch_skinny<T>, "few rows: B and A change places", kNeedsOfWgmma<T>},
};

}  // namespace gemm_mixed
