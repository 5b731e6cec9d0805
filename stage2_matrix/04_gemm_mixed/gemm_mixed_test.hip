// Wrong kernels that gemm_mixed_test.cpp must see fail. On a GPU they may go well by chance, so
// they are there on the CPU backend only.
#include "common/gpu.h"

#if defined(GPU_BACKEND_CPU)

#include "common/half.h"
#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/matrix_unit.h"
#include "stage2_matrix/04_gemm_mixed/detail/tiles.h"

namespace gemm_mixed_test {

using gpu::half;

void launch_without_barrier(float* c, const half* a, const half* b, size_t M, size_t N, size_t K,
                            hipStream_t stream);
void launch_load_fragment(unsigned* out, const uint4* in, bool swizzled, int late);

// wmma_tiled for a single tile, without the barrier between staging and loading.
static __global__ void gemm_without_barrier(float* c, const half* a, const half* b) {
  using Unit = gemm_mixed::MatrixUnit<half>;
  constexpr int kTile = Unit::kTile;
  DYNAMIC_SHARED(half, shared);
  half* shared_b = shared + kTile * kTile;
  gemm_mixed::stage_tile<kTile, kTile, kTile>(shared, a, kTile, kTile, 0, 0, true);
  gemm_mixed::stage_tile<kTile, kTile, kTile>(shared_b, b, kTile, kTile, 0, 0, true);
  Unit::A fragment_a;
  Unit::B fragment_b;
  Unit::C sums;
  Unit::clear(sums);
  Unit::load(fragment_a, shared, kTile);
  Unit::load(fragment_b, shared_b, kTile);
  Unit::multiply_add(sums, fragment_a, fragment_b);
  if (gpu::wave_id() == 0) Unit::store(c, kTile, sums);
}

void launch_without_barrier(float* c, const half* a, const half* b, size_t, size_t, size_t,
                            hipStream_t stream) {
  LAUNCH_ON(stream, gemm_without_barrier, 1, 64, 4 * 16 * 16, c, a, b);
}

// Copies a tile of A to shared memory, swizzled, and loads its first fragment.
template <bool kSwizzledToo, int kLate>
static __global__ void load_fragment(unsigned* out, const uint4* in) {
  DYNAMIC_SHARED(uint4, tile);
  const auto place = [](int row, int chunk) { return row * 8 + (chunk ^ row % 8); };
  gemm_mixed::AsyncCopies copies;
  for (int i = static_cast<int>(threadIdx.x); i < 16 * 8; i += static_cast<int>(blockDim.x))
    copies.begin(tile + place(i / 8, i % 8), in + i, true);
  copies.end_group();
  copies.wait<kLate>();
  __syncthreads();  // the tile is complete, if kLate is 0
  const int lane = gemm_mixed::warp_lane(), row = lane % 16, chunk = lane / 16;
  unsigned words[4];
  gemm_mixed::load_matrices(words, tile + (kSwizzledToo ? place(row, chunk) : row * 8 + chunk));
  for (int i = 0; i < 4; ++i) out[4 * lane + i] = words[i];
}

void launch_load_fragment(unsigned* out, const uint4* in, bool swizzled, int late) {
  const size_t bytes = 16 * 8 * sizeof(uint4);
  if (!swizzled)
    LAUNCH((load_fragment<false, 0>), 1, 64, bytes, out, in);
  else if (late == 0)
    LAUNCH((load_fragment<true, 0>), 1, 64, bytes, out, in);
  else
    LAUNCH((load_fragment<true, 1>), 1, 64, bytes, out, in);
}

}  // namespace gemm_mixed_test

#endif
