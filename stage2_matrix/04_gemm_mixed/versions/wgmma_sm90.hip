// wgmma: the matrix units of sm_90 read their operands from shared memory, where the TMA puts them.
#include <stdexcept>

#include "common/gpu.h"
#include "stage2_matrix/04_gemm_mixed/detail/tensor_map_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tile_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/wgmma_sm90.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

#if !defined(GPU_BACKEND_HIP)

// A tile of A and one of B, 128 x 128 each, in boxes of 128 rows of 64 elements.
inline constexpr int kWgmmaSide = 128, kWgmmaSteps = kWgmmaSide / 16;
template <class T>
struct WgmmaTiles {
  T a[2][kWgmmaSide * kBoxColumns<T>];  // a[i]: k from 64 i on
  T b[2][kWgmmaSide * kBoxColumns<T>];  // b[i]: columns from 64 i on
  PhaseBarrier full;
};

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, as tma_takes() wants them.
// Fixes : mma_sync's warps spend most instructions on copies, addresses and fragments.
// Idea  : one thread has the TMA copy whole tiles; wgmma reads them where they are.
// Thread: a block is one warp group and owns 128 x 128 of C; thread 0 starts the copies.
// Costs : a block waits for each of its copies; meanwhile the two other blocks of its
//         multiprocessor multiply. 65 KiB of shared memory; 1/64 of an element read per product.
template <class T>
static __global__ void GPU_LAUNCH_BOUNDS(kWarpGroup, 3)
    gemm_wgmma(float* c, const __grid_constant__ CUtensorMap map_a,
               const __grid_constant__ CUtensorMap map_b, size_t M, size_t N, int K,
               unsigned tile_rows, unsigned tile_columns) {
  if constexpr (kHaveWgmma) {
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& tiles = aligned_shared<WgmmaTiles<T>>(dynamic);
    const TilePlace place = tile_place(blockIdx.x, tile_rows, tile_columns);
    const int row = static_cast<int>(place.row) * kWgmmaSide;
    const int column = static_cast<int>(place.column) * kWgmmaSide;

    if (threadIdx.x == 0) {
      tiles.full.init(1);
      publish_barriers();
    }
    __syncthreads();  // every thread and the TMA know the barrier

    float sums[2][64];  // of the upper and of the lower 64 rows
    unsigned phase = 0;
    for (int k = 0; k < K; k += kWgmmaSide, phase ^= 1) {
      if (threadIdx.x == 0) {
        tiles.full.expect(sizeof tiles.a + sizeof tiles.b);
        for (int i = 0; i < 2; ++i) {
          load_box(tiles.a[i], map_a, row, k + i * kBoxColumns<T>, tiles.full);
          load_box(tiles.b[i], map_b, k, column + i * kBoxColumns<T>, tiles.full);
        }
      }
      // exercise: when both tiles are complete, multiply them, kWgmmaSteps steps along K, for the
      // upper and the lower 64 rows; behind it they may be overwritten (about 14 lines)
      tiles.full.wait(phase);  // both tiles are complete
      begin_wgmma();
      GPU_UNROLL
      for (int step = 0; step < kWgmmaSteps; ++step) {
        const T* a = tiles.a[step / 4];
        const Descriptor b = describe_b(tiles.b, sizeof tiles.b[0], step);
        GPU_UNROLL
        for (int half = 0; half < 2; ++half)
          multiply_64x128<T>(sums[half], describe_a(a + half * 64 * kBoxColumns<T>, step % 4), b,
                             k > 0 || step > 0);
      }
      end_wgmma();
      wait_for_wgmma<0>();
      __syncthreads();  // every warp has multiplied: the next copies may overwrite the tiles
      // end exercise
    }

    // Two neighbouring sums of a row are stored together: N is even.
    const int lane = warp_lane(), warp = static_cast<int>(threadIdx.x) / kLanes;
    GPU_UNROLL
    for (int i = 0; i < 4; ++i) {
      const size_t to_row =
          static_cast<size_t>(row + i / 2 * 64 + warp * 16 + i % 2 * 8 + lane / 4);
      if (to_row >= M) continue;
      GPU_UNROLL
      for (int j = 0; j < kWgmmaSide / 8; ++j) {
        const size_t to_column = static_cast<size_t>(column + j * 8 + lane % 4 * 2);
        const float* sum = sums[i / 2] + j * 4 + i % 2 * 2;
        if (to_column < N)
          *reinterpret_cast<float2*>(c + to_row * N + to_column) = make_float2(sum[0], sum[1]);
      }
    }
  }
}

template <class T>
void launch_wgmma(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                  hipStream_t stream) {
  if constexpr (sizeof(T) != 2) {
    throw std::runtime_error("wgmma takes B (K, N) of 16-bit numbers only");
  } else {
    if (!tma_takes(c, a, b, M, N, K)) return launch_mma_sync(c, a, b, M, N, K, stream);
    const auto tile_rows = static_cast<unsigned>(gpu::ceil_div(M, kWgmmaSide));
    const auto tile_columns = static_cast<unsigned>(gpu::ceil_div(N, kWgmmaSide));
    constexpr size_t kBytes = sizeof(WgmmaTiles<T>) + kBoxAlignment;
    gpu::allow_shared_bytes(gemm_wgmma<T>, kBytes);
    LAUNCH_ON(stream, (gemm_wgmma<T>), tile_rows * tile_columns, unsigned{kWarpGroup}, kBytes, c,
              tensor_map(a, M, K, kWgmmaSide), tensor_map(b, K, N, kWgmmaSide), M, N,
              static_cast<int>(K), tile_rows, tile_columns);
  }
}

#else

template <class T>
void launch_wgmma(float*, const T*, const T*, size_t, size_t, size_t, hipStream_t) {
  throw std::runtime_error("wgmma needs sm_90");
}

#endif

template void launch_wgmma(float*, const gpu::half*, const gpu::half*, size_t, size_t, size_t,
                           hipStream_t);
template void launch_wgmma(float*, const gpu::bfloat16*, const gpu::bfloat16*, size_t, size_t,
                           size_t, hipStream_t);
template void launch_wgmma(float*, const float*, const float*, size_t, size_t, size_t, hipStream_t);

}  // namespace gemm_mixed
