// 2.3  gemm: the product of two matrices, C = A B, with A (M, K), B (K, N) and C (M, N), all float.
//
// M N K multiplications and additions on M K + K N + M N numbers. The arithmetic sets the time, if
// each number that is loaded is used often enough: from shared memory, then from registers.
//
// Every version multiplies contiguous row-major matrices. `vectorized` and all after it also take a
// Product: C = alpha op(A) op(B) + beta C with a batch. op transposes or does nothing. Any sizes,
// also 0 (the versions before have at most 65535 tiles in a column of C, naive in a row); any
// alignment to 4 bytes. C must not overlap A or B. Every launcher throws what check() throws.
#pragma once

#include <cstddef>

#include "common/version.h"

namespace gemm {

// How A and B are stored. The leading dimension ld is counted in elements.
//
//   NN   a (M, K), lda >= K    b (K, N), ldb >= N    forward     y = x W
//   NT   a (M, K), lda >= K    b (N, K), ldb >= K    backward    grad_x = grad_y W^T
//   TN   a (K, M), lda >= M    b (K, N), ldb >= N    backward    grad_W = x^T grad_y
enum class Layout { NN, NT, TN };

// C = alpha op(A) op(B) + beta C, or `batch` such products of the same sizes: product z begins
// z strides behind product 0. With beta = 0 C is not read, with alpha = 0 neither are A and B, and
// with K = 0 the sum is 0 for any alpha, as in the BLAS. Otherwise infinities and NaN follow IEEE.
struct Product {
  Layout layout = Layout::NN;
  size_t M = 0, N = 0, K = 0;
  float alpha = 1;
  const float* a = nullptr;
  size_t lda = 0;
  const float* b = nullptr;
  size_t ldb = 0;
  float beta = 0;
  float* c = nullptr;
  size_t ldc = 0;
  size_t batch = 1;
  size_t stride_a = 0, stride_b = 0, stride_c = 0;
};

// C = A B on contiguous matrices as a Product.
Product contiguous(float* c, const float* a, const float* b, size_t M, size_t N, size_t K);

// Throws std::invalid_argument, in one line, where an array that is needed is null or not aligned
// to 4 bytes, or where a leading dimension is less than a row.
void check(const Product& p);

// The grid of a version on contiguous matrices: blocks for `x` elements along x, `tile_x` for each
// block, and the same along y. Throws std::invalid_argument beyond 2^31 - 1 blocks along x or 65535
// along y, the most that a grid can have.
dim3 tile_grid(size_t x, size_t tile_x, size_t y, size_t tile_y);

// ---- The versions -----------------------------------------------------------------------------

void launch_naive(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                  hipStream_t stream = nullptr);
void launch_coalesced(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                      hipStream_t stream = nullptr);
void launch_tiled_16(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                     hipStream_t stream = nullptr);
void launch_tiled_32(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                     hipStream_t stream = nullptr);
void launch_register_tile_1d(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                             hipStream_t stream = nullptr);
void launch_register_tile_2d(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                             hipStream_t stream = nullptr);

void launch_vectorized(const Product& p, hipStream_t stream = nullptr);
void launch_wave_tiled(const Product& p, hipStream_t stream = nullptr);
void launch_double_buffered(const Product& p, hipStream_t stream = nullptr);
void launch_large_thread_tile(const Product& p, hipStream_t stream = nullptr);

// The last version with the tile that suits the shape: what later steps call. detail/choose_tile.h
// has best(p, epilogue) for those that do more to each sum before it is stored.
void best(const Product& p, hipStream_t stream = nullptr);
void best(Layout layout, size_t M, size_t N, size_t K, float alpha, const float* a, size_t lda,
          const float* b, size_t ldb, float beta, float* c, size_t ldc,
          hipStream_t stream = nullptr);

// How a version is launched: on contiguous matrices, or on every Product.
struct Launch {
  using Contiguous = void (*)(float* c, const float* a, const float* b, size_t M, size_t N,
                              size_t K, hipStream_t stream);
  using General = void (*)(const Product& p, hipStream_t stream);

  constexpr Launch(Contiguous launch) : contiguous(launch) {}
  constexpr Launch(General launch) : general(launch) {}

  Contiguous contiguous = nullptr;  // one of the two, the other is null
  General general = nullptr;

  // C = A B on contiguous matrices, whichever it has.
  void operator()(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                  hipStream_t stream = nullptr) const;
};

inline constexpr Version<Launch> kVersions[] = {
    {"naive", launch_naive, "one thread per element of C"},
    {"coalesced", launch_coalesced, "neighbouring threads, neighbouring addresses"},
    {"tiled_16", launch_tiled_16, "a block reuses tiles in shared memory 16 times"},
    {"tiled_32", launch_tiled_32, "larger tiles, larger blocks: half the global loads"},
    {"register_tile_1d", launch_register_tile_1d, "a column of 8 results per thread"},
    {"register_tile_2d", launch_register_tile_2d,
     "8 x 8 results per thread: 16 loads, 64 products"},
    {"vectorized", launch_vectorized, "16 bytes per load and store; any layout"},
    {"wave_tiled", launch_wave_tiled, "compact tiles per wave, no bank conflicts"},
    {"double_buffered", launch_double_buffered, "load the next tile while this one is multiplied"},
    {"large_thread_tile", launch_large_thread_tile, "16 x 8 results per thread, no comparisons"},
    {"best", static_cast<Launch::General>(best), "the last two, with a tile for the shape"},
};

// For the test that counts bank conflicts: where wave_tiled's tile has result (i, j) of a thread.
struct Place {
  int row, col;
};
Place place_in_wave_tiled(int thread, int i, int j);

}  // namespace gemm
