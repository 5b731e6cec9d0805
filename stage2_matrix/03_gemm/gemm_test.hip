// Kernels and launches that only the tests need: best() with its parts exposed, an epilogue of a
// later step's kind, and wrong kernels that a test must see fail.
#include "common/gpu.h"
#include "stage2_matrix/03_gemm/detail/choose_tile.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/detail/product_loop.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage2_matrix/03_gemm/kernels_for_tests.h"

namespace gemm_test {

// What best() takes on a GPU, wherever this runs.
void launch_large(const Product& p, hipStream_t stream) {
  gemm::launch_product<gemm::Large, gemm::AllLayouts>(p, gemm::alpha_beta(p), stream);
}
void launch_medium(const Product& p, hipStream_t stream) {
  gemm::launch_product<gemm::Medium, gemm::AllLayouts>(p, gemm::alpha_beta(p), stream);
}
void launch_half(const Product& p, hipStream_t stream) {
  gemm::launch_product<gemm::Half, gemm::AllLayouts>(p, gemm::alpha_beta(p), stream);
}
void launch_small(const Product& p, hipStream_t stream) {
  gemm::launch_product<gemm::Small, gemm::AllLayouts>(p, gemm::alpha_beta(p), stream);
}
void launch_short_sums(const Product& p, hipStream_t stream) {
  gemm::launch_short_sums(p, gemm::alpha_beta(p), stream);
}
void launch_long_sums(const Product& p, hipStream_t stream) {
  gemm::launch_long_sums(p, gemm::alpha_beta(p), stream);
}

// Each tile that best() chooses from.
size_t count_candidates() {
  return std::size(gemm::kCandidates<gemm::AllLayouts, gemm::AlphaBeta>);
}
void launch_candidate(size_t index, const Product& p, hipStream_t stream) {
  gemm::kCandidates<gemm::AllLayouts, gemm::AlphaBeta>[index].launch(p, gemm::alpha_beta(p),
                                                                     stream);
}

struct WithRowSums {
  gemm::AlphaBeta stored;
  float* sums;
  __device__ float operator()(float sum, size_t row, size_t col, const float* c) const {
    return stored(sum, row, col, c);
  }
  __device__ void row_sum(size_t row, float sum) const { sums[row] += sum; }
};
void launch_row_sums(size_t index, const Product& p, float* sums, hipStream_t stream) {
  gemm::kCandidates<gemm::Layouts<gemm::Layout::NN, gemm::Layout::TN>, WithRowSums>[index].launch(
      p, {gemm::alpha_beta(p), sums}, stream);
}

// What a layer does to its sums: adds a bias and lets nothing negative pass.
struct BiasRelu {
  const float* bias;
  __device__ float operator()(float sum, size_t, size_t col, const float*) const {
    const float value = sum + bias[col];
    return value < 0 ? 0.0f : value;
  }
};

void launch_bias_relu(const Product& p, const float* bias, hipStream_t stream) {
  gemm::best(p, BiasRelu{bias}, stream);
}
void launch_long_sums_bias_relu(const Product& p, const float* bias, hipStream_t stream) {
  gemm::launch_long_sums(p, BiasRelu{bias}, stream);
}
void launch_short_sums_bias_relu(const Product& p, const float* bias, hipStream_t stream) {
  gemm::launch_short_sums(p, BiasRelu{bias}, stream);
}
void launch_nt_only(const Product& p, hipStream_t stream) {
  gemm::best<gemm::Layouts<gemm::Layout::NT>>(p, BiasRelu{nullptr}, stream);
}

constexpr int kSide = 16;  // of the blocks below

// gemm_coalesced without its check of the column.
static __global__ void unchecked_column(float* c, const float* a, const float* b, size_t M,
                                        size_t N, size_t K) {
  const size_t row = size_t{blockIdx.y} * kSide + threadIdx.y;
  const size_t col = size_t{blockIdx.x} * kSide + threadIdx.x;
  if (row >= M) return;
  float sum = 0;
  for (size_t k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + col];
  c[row * N + col] = sum;
}

void launch_unchecked_column(float* c, const float* a, const float* b, size_t M, size_t N, size_t K,
                             hipStream_t stream) {
  LAUNCH_ON(stream, unchecked_column, gemm::tile_grid(N, kSide, M, kSide), dim3(kSide, kSide), 0, c,
            a, b, M, N, K);
}

// gemm_tiled with its first or its second barrier, or neither.
static __global__ void without_barrier(bool first, bool second, float* c, const float* a,
                                       const float* b, size_t M, size_t N, size_t K) {
  __shared__ float tile_a[kSide][kSide], tile_b[kSide][kSide];
  const unsigned x = threadIdx.x, y = threadIdx.y;
  const size_t row = size_t{blockIdx.y} * kSide + y, col = size_t{blockIdx.x} * kSide + x;
  float sum = 0;
  for (size_t k0 = 0; k0 < K; k0 += kSide) {
    tile_a[y][x] = row < M && k0 + x < K ? a[row * K + (k0 + x)] : 0.0f;
    tile_b[y][x] = k0 + y < K && col < N ? b[(k0 + y) * N + col] : 0.0f;
    if (first) __syncthreads();  // both tiles are in shared memory
    for (int k = 0; k < kSide; ++k) sum += tile_a[y][k] * tile_b[k][x];
    if (second) __syncthreads();  // every thread has read both tiles
  }
  if (row < M && col < N) c[row * N + col] = sum;
}

void launch_without_barrier(bool first, bool second, float* c, const float* a, const float* b,
                            size_t M, size_t N, size_t K, hipStream_t stream) {
  LAUNCH_ON(stream, without_barrier, gemm::tile_grid(N, kSide, M, kSide), dim3(kSide, kSide), 0,
            first, second, c, a, b, M, N, K);
}

}  // namespace gemm_test
