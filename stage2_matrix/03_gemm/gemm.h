// 2.3  gemm: C = alpha op(A) op(B) + beta C, with op(A) (M, K), op(B) (K, N), C (M, N), all float.
//
// M N K multiplications and additions on M K + K N + M N numbers: the only product so far that the
// arithmetic limits and not the memory, if each number that is loaded is used often enough. That is
// what the ladder is about: reuse in shared memory, then in registers, then nothing that is not a
// multiplication.
//
// Matrices are row-major; a leading dimension is the distance between the starts of two rows, in
// elements. An operand that is transposed is stored as (columns, rows) of what the formula says:
//
//   NN   a (M, K) lda >= K    b (K, N) ldb >= N    forward     y = x W
//   NT   a (M, K) lda >= K    b (N, K) ldb >= K    backward    grad_x = grad_y W^T
//   TN   a (K, M) lda >= M    b (K, N) ldb >= N    backward    grad_W = x^T grad_y
//
// Any sizes (0 too), any alignment of 4 bytes. beta = 0 does not read C, alpha = 0 does not read A
// and B, as in the BLAS; apart from that infinities and NaN go where IEEE arithmetic takes them.
// C must not overlap A or B.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "common/gpu.h"
#include "common/program.h"
#include "common/rounding.h"

namespace gemm {

enum class Layout { NN, NT, TN };

// One product, or `batch` products of the same sizes: number z begins z strides behind number 0.
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

// ---- Reference and bound ----------------------------------------------------------------------

// Chosen rows of C and what their bounds are made of, row behind row, in double.
struct Reference {
  std::vector<double> c;
  std::vector<double> absolute;  // sum over k of |op(A)[row, k] op(B)[k, column]|
  std::vector<double> before;    // C before, as far as beta lets it in
};

// The rows `rows` of product p (batch 1), whose arrays are a, b and c on the host.
inline Reference gemm_cpu(const Product& p, const std::vector<float>& a,
                          const std::vector<float>& b, const std::vector<float>& c,
                          const std::vector<size_t>& rows) {
  const size_t size = rows.size() * p.N, K = p.alpha == 0 ? 0 : p.K;
  Reference reference{std::vector<double>(size), std::vector<double>(size),
                      std::vector<double>(size)};
  for (size_t r = 0; r < rows.size(); ++r) {
    double* const sum = reference.c.data() + r * p.N;
    double* const absolute = reference.absolute.data() + r * p.N;
    const auto add = [&](size_t col, float x, float y) {
      const double product = static_cast<double>(x) * static_cast<double>(y);
      sum[col] += product, absolute[col] += std::fabs(product);
    };
    const size_t a_row = rows[r] * (p.layout == Layout::TN ? 1 : p.lda);
    const size_t a_step = p.layout == Layout::TN ? p.lda : 1;
    if (p.layout == Layout::NT) {  // in the order of b's memory, here and below
      for (size_t col = 0; col < p.N; ++col)
        for (size_t k = 0; k < K; ++k) add(col, a[a_row + k], b[col * p.ldb + k]);
    } else {
      for (size_t k = 0; k < K; ++k)
        for (size_t col = 0; col < p.N; ++col) add(col, a[a_row + k * a_step], b[k * p.ldb + col]);
    }
    for (size_t col = 0; col < p.N; ++col) {
      double& before = reference.before[r * p.N + col];
      if (p.beta != 0)
        before = static_cast<double>(p.beta) * static_cast<double>(c[rows[r] * p.ldc + col]);
      sum[col] = (K == 0 ? 0 : static_cast<double>(p.alpha) * sum[col]) + before;
    }
  }
  return reference;
}

// What element i of a float result may be off. The sum of K products is off by at most d = gamma(K)
// sum|a b|, in any order, fused or not, with any number of zeros added (rounding::worst_case has
// the source). It is multiplied by alpha and added to beta C, itself one product: two roundings for
// each term, gamma(2) = 2 u / (1 - 2 u), the first of which also apply to what the sum is off.
inline double bound(const Product& p, const Reference& reference, size_t i) {
  const double K = static_cast<double>(p.K), alpha = std::fabs(static_cast<double>(p.alpha));
  const double gamma_2 = 2 * kFloatRoundoff / (1 - 2 * kFloatRoundoff);
  const double absolute = reference.absolute[i], d = rounding::worst_case(K, K, absolute);
  return alpha * d + gamma_2 * (alpha * (absolute + d) + std::fabs(reference.before[i]));
}

// ---- What all versions share ------------------------------------------------------------------

// Seen from the product, both operands are the same thing: for each k a line of numbers, namely
// column k of op(A) or row k of op(B).
//
//                k = 0 1 2 ...              i = 0 1 2 ...          C[row, col] = the sum over k of
//        i = 0   . . . . .          k = 0   . . . . . . .             A's line k at i = row
//            1   . . . . .              1   . . . . . . .           * B's line k at i = col
//            2   . . . . .              2   . . . . . . .
//                  op(A)                        op(B)
//
// The layout only says which of the two strides is 1: neighbours in memory lie along k (A in NN and
// NT, B in NT) or along the line (A in TN, B in NN and TN).
struct Operand {
  const float* data;
  size_t stride_k, stride_i;
  size_t depth;   // K
  size_t length;  // of a line: M or N

  __device__ const float* at(size_t k, size_t i) const {
    return data + (k * stride_k + i * stride_i);
  }
  // Zero outside the matrix: it adds nothing to a sum, or to sums that are not stored.
  __device__ float operator()(size_t k, size_t i) const {
    return k < depth && i < length ? *at(k, i) : 0.0f;
  }
};

// blockIdx.z counts the batch.
__device__ inline Operand operand_a(const Product& p) {
  const bool transposed = p.layout == Layout::TN;
  return {p.a + blockIdx.z * p.stride_a, transposed ? p.lda : 1, transposed ? 1 : p.lda, p.K, p.M};
}
__device__ inline Operand operand_b(const Product& p) {
  const bool transposed = p.layout == Layout::NT;
  return {p.b + blockIdx.z * p.stride_b, transposed ? 1 : p.ldb, transposed ? p.ldb : 1, p.K, p.N};
}
__device__ inline float* element_of_c(const Product& p, size_t row, size_t col) {
  return p.c + (blockIdx.z * p.stride_c + row * p.ldc + col);
}

// An epilogue says what becomes of a sum: the value to store at [row, col], where `before` points
// to what is there now. This one is the BLAS's; a later stage's adds a bias and an activation.
struct Combine {
  float alpha, beta;
  __device__ float operator()(float sum, size_t, size_t, const float* before) const {
    return beta == 0 ? alpha * sum : alpha * sum + beta * *before;  // 0 * NaN would be NaN
  }
};

// Of an empty sum nothing is left, whatever alpha is.
__host__ __device__ inline Combine combine(const Product& p) {
  return {p.K == 0 ? 0 : p.alpha, p.beta};
}

__device__ inline void store(const Product& p, size_t row, size_t col, float sum) {
  float* c = element_of_c(p, row, col);
  *c = combine(p)(sum, row, col, c);
}

inline constexpr unsigned kStrip = 16;  // rows of tiles that blocks go down together

// The first row and column of this block's tile of C. Blocks are numbered down strips of kStrip
// tiles, so that those that run at the same time want the same few lines of A and B, which then
// come from the L2 cache:
//
//   0 2 4 6 ..      here with strips of 2 and a last one of 1
//   1 3 5 7 ..
//   n n+1 n+2 ..
struct Corner {
  size_t row, col;
};
__device__ inline Corner tile_corner(const Product& p, unsigned tile_m, unsigned tile_n) {
  const unsigned rows = static_cast<unsigned>(gpu::ceil_div(p.M, tile_m));
  const unsigned cols = static_cast<unsigned>(gpu::ceil_div(p.N, tile_n));
  const unsigned strip_blocks = min(kStrip, rows) * cols;
  const unsigned first_row = blockIdx.x / strip_blocks * kStrip, place = blockIdx.x % strip_blocks;
  const unsigned height = min(kStrip, rows - first_row);
  return {size_t{first_row + place % height} * tile_m, size_t{place / height} * tile_n};
}

// Throws std::invalid_argument where the arrays can't be what the sizes say.
inline void check(const Product& p) {
  const auto refuse = [](const std::string& why) { throw std::invalid_argument("gemm: " + why); };
  const auto check_operand = [&](const char* name, const float* data, size_t rows, size_t cols,
                                 size_t ld) {
    if (rows == 0 || cols == 0 || p.batch == 0) return;
    if (ld < cols)
      refuse("ld" + std::string(name) + " = " + std::to_string(ld) + " is less than the " +
             std::to_string(cols) + " elements of a row of " + name);
    if (data == nullptr) refuse(std::string(name) + " is null");
    if (reinterpret_cast<std::uintptr_t>(data) % sizeof(float) != 0)
      refuse(std::string(name) + " is not aligned to 4 bytes");
  };
  const bool a_transposed = p.layout == Layout::TN, b_transposed = p.layout == Layout::NT;
  check_operand("c", p.c, p.M, p.N, p.ldc);
  if (p.M == 0 || p.N == 0 || p.alpha == 0) return;
  check_operand("a", p.a, a_transposed ? p.K : p.M, a_transposed ? p.M : p.K, p.lda);
  check_operand("b", p.b, b_transposed ? p.N : p.K, b_transposed ? p.K : p.N, p.ldb);
}

// Calls run(grid, product) for tiles of tile_m x tile_n, unless there is no element of C; once, or
// as often as a batch needs whose length no grid can have. Throws what check() throws.
template <class Run>
void with_grid(Product p, size_t tile_m, size_t tile_n, Run&& run) {
  check(p);
  if (p.alpha == 0) p.K = 0;
  const size_t rows = gpu::ceil_div(p.M, tile_m), cols = gpu::ceil_div(p.N, tile_n);
  constexpr size_t kMostBlocks = std::numeric_limits<std::int32_t>::max(), kMostProducts = 65535;
  if (rows == 0 || cols == 0) return;
  if (rows > kMostBlocks / cols) throw std::invalid_argument("gemm: C has too many tiles");
  for (; p.batch > 0; p.batch -= std::min(p.batch, kMostProducts)) {
    const size_t products = std::min(p.batch, kMostProducts);
    run(dim3(static_cast<unsigned>(rows * cols), 1, static_cast<unsigned>(products)), p);
    p.a += products * p.stride_a, p.b += products * p.stride_b, p.c += products * p.stride_c;
  }
}

// ---- One thread per element -------------------------------------------------------------------

inline constexpr unsigned kSide = 16;  // of the square blocks of the first versions

// C = alpha op(A) op(B) + beta C    any sizes, any layout.
// Fixes : a CPU core computes the elements of C one after the other.
// Idea  : every element is a dot product of its own; one thread for each.
// Thread: (x, y) owns C[first row + x, first column + y].
// Costs : 2 loads per multiplication, and threads next to each other are rows apart in A and C.
static __global__ void gemm_naive(Product p) {
  const Corner corner = tile_corner(p, kSide, kSide);
  const size_t row = corner.row + threadIdx.x, col = corner.col + threadIdx.y;
  if (row >= p.M || col >= p.N) return;
  const Operand a = operand_a(p), b = operand_b(p);
  float sum = 0;
  for (size_t k = 0; k < p.K; ++k) sum += *a.at(k, row) * *b.at(k, col);
  store(p, row, col, sum);
}

inline void launch_naive(const Product& product, hipStream_t stream = nullptr) {
  with_grid(product, kSide, kSide, [&](dim3 grid, const Product& p) {
    LAUNCH_ON(stream, gemm_naive, grid, dim3(kSide, kSide), 0, p);
  });
}

// ---- Neighbours in memory for neighbouring threads --------------------------------------------

// C = alpha op(A) op(B) + beta C    any sizes, any layout.
// Fixes : the threads of a wave read and write addresses that are whole rows apart in naive.
// Idea  : x runs along a row of C and of B, so that a wave's loads are one piece of memory.
// Thread: (x, y) owns C[first row + y, first column + x].
// Costs : 2 loads per multiplication.
static __global__ void gemm_coalesced(Product p) {
  const Corner corner = tile_corner(p, kSide, kSide);
  const size_t row = corner.row + threadIdx.y, col = corner.col + threadIdx.x;
  if (row >= p.M || col >= p.N) return;
  const Operand a = operand_a(p), b = operand_b(p);
  float sum = 0;
  for (size_t k = 0; k < p.K; ++k) sum += *a.at(k, row) * *b.at(k, col);
  store(p, row, col, sum);
}

inline void launch_coalesced(const Product& product, hipStream_t stream = nullptr) {
  with_grid(product, kSide, kSide, [&](dim3 grid, const Product& p) {
    LAUNCH_ON(stream, gemm_coalesced, grid, dim3(kSide, kSide), 0, p);
  });
}

// ---- Tiles in shared memory -------------------------------------------------------------------

// tile[k][i] = x's line k0 + k at i0 + i, zero outside. All threads of the block take part, and go
// through the tile in the order of x's memory.
template <int kThreads, int kTileK, int kLength, int kPadded>
__device__ inline void load_tile(float (&tile)[kTileK][kPadded], const Operand& x, size_t k0,
                                 size_t i0) {
  static_assert(kTileK * kLength % kThreads == 0, "every thread loads as much");
  const bool along_k = x.stride_k == 1;
  for (int first = 0; first < kTileK * kLength; first += kThreads) {
    const int e = first + gpu::thread_rank();
    const int k = along_k ? e % kTileK : e / kLength, i = along_k ? e / kTileK : e % kLength;
    tile[k][i] = x(k0 + k, i0 + i);
  }
}

// C = alpha op(A) op(B) + beta C    any sizes, any layout.
// Fixes : coalesced reads each row of A and each column of B once per thread.
// Idea  : a block stages kTile lines of A and of B and reads every number of them kTile times.
// Thread: (x, y) owns C[first row + y, first column + x].
// Costs : 2 loads from shared memory per multiplication, 2 / kTile from global memory; 2 barriers
//         per kTile lines. 32 asks for half of what 16 does, but for blocks of 1024 threads.
template <int kTile>
static __global__ void __launch_bounds__(kTile* kTile) gemm_tiled(Product p) {
  __shared__ float tile_a[kTile][kTile + 1], tile_b[kTile][kTile + 1];  // a column in all banks
  const Corner corner = tile_corner(p, kTile, kTile);
  const size_t row = corner.row + threadIdx.y, col = corner.col + threadIdx.x;
  const Operand a = operand_a(p), b = operand_b(p);
  float sum = 0;
  for (size_t k0 = 0; k0 < p.K; k0 += kTile) {
    // exercise: stage both tiles, then add the products of their lines (about 6 lines)
    load_tile<kTile * kTile, kTile, kTile>(tile_a, a, k0, corner.row);
    load_tile<kTile * kTile, kTile, kTile>(tile_b, b, k0, corner.col);
    __syncthreads();  // both tiles are in shared memory
    for (int k = 0; k < kTile; ++k) sum += tile_a[k][threadIdx.y] * tile_b[k][threadIdx.x];
    __syncthreads();  // all threads are done with both tiles
    // end exercise
  }
  if (row < p.M && col < p.N) store(p, row, col, sum);
}

template <unsigned kTile>
inline void launch_tiled(const Product& product, hipStream_t stream = nullptr) {
  with_grid(product, kTile, kTile, [&](dim3 grid, const Product& p) {
    LAUNCH_ON(stream, (gemm_tiled<kTile>), grid, dim3(kTile, kTile), 0, p);
  });
}

// ---- Tiles in registers -----------------------------------------------------------------------

// How a block of threads divides a tile of C: each owns kThreadM x kThreadN results, and kTileK
// lines at a time are in shared memory.
template <int tile_m, int tile_n, int tile_k, int thread_m, int thread_n, int resident_blocks = 1,
          int slices = 1>
struct Shape {
  static constexpr int kTileM = tile_m, kTileN = tile_n, kTileK = tile_k;
  static constexpr int kThreadM = thread_m, kThreadN = thread_n;
  static constexpr int kThreads = tile_m / thread_m * (tile_n / thread_n);
  static constexpr int kResidentBlocks = resident_blocks;  // so many shall fit a multiprocessor
  static constexpr int kSlices = slices;                   // groups of kThreads that share K
  static_assert(tile_m % thread_m == 0 && tile_n % thread_n == 0, "threads cover the tile");
  static_assert(kThreads * kSlices <= 1024, "a block has at most 1024 threads");
};

// C = alpha op(A) op(B) + beta C    any sizes, any layout.
// Fixes : tiled loads two numbers from shared memory for each multiplication.
// Idea  : a thread owns a piece of a column: it keeps a number of B and uses it kThreadM times.
// Thread: t owns C[first row + kThreadM (t / kTileN) + i, first column + t % kTileN], i < kThreadM.
// Costs : 1 + 1/kThreadM loads from shared memory per multiplication; kThreadM sums in registers.
template <class Shape>
static __global__ void __launch_bounds__(Shape::kThreads) gemm_register_tile_1d(Product p) {
  static_assert(Shape::kThreadN == 1, "a column per thread");
  __shared__ float tile_a[Shape::kTileK][Shape::kTileM + 1];
  __shared__ float tile_b[Shape::kTileK][Shape::kTileN + 1];
  const Corner corner = tile_corner(p, Shape::kTileM, Shape::kTileN);
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / Shape::kTileN * Shape::kThreadM, col = thread % Shape::kTileN;
  const Operand a = operand_a(p), b = operand_b(p);
  float sums[Shape::kThreadM] = {};
  for (size_t k0 = 0; k0 < p.K; k0 += Shape::kTileK) {
    load_tile<Shape::kThreads, Shape::kTileK, Shape::kTileM>(tile_a, a, k0, corner.row);
    load_tile<Shape::kThreads, Shape::kTileK, Shape::kTileN>(tile_b, b, k0, corner.col);
    __syncthreads();  // both tiles are in shared memory
    for (int k = 0; k < Shape::kTileK; ++k) {
      const float held_b = tile_b[k][col];
      for (int i = 0; i < Shape::kThreadM; ++i) sums[i] += tile_a[k][row + i] * held_b;
    }
    __syncthreads();  // all threads are done with both tiles
  }
  for (int i = 0; i < Shape::kThreadM; ++i)
    if (corner.row + row + i < p.M && corner.col + col < p.N)
      store(p, corner.row + row + i, corner.col + col, sums[i]);
}

using Column = Shape<64, 64, 8, 8, 1>;

inline void launch_register_tile_1d(const Product& product, hipStream_t stream = nullptr) {
  with_grid(product, Column::kTileM, Column::kTileN, [&](dim3 grid, const Product& p) {
    LAUNCH_ON(stream, (gemm_register_tile_1d<Column>), grid, Column::kThreads, 0, p);
  });
}

// sums[i][j] += a[i] * b[j], the outer product of two pieces of a line.
template <int kThreadM, int kThreadN>
__device__ inline void add_products(float (&sums)[kThreadM][kThreadN], const float (&a)[kThreadM],
                                    const float (&b)[kThreadN]) {
  GPU_UNROLL
  for (int i = 0; i < kThreadM; ++i) {
    GPU_UNROLL_INNER
    for (int j = 0; j < kThreadN; ++j) sums[i][j] += a[i] * b[j];
  }
}

// C = alpha op(A) op(B) + beta C    any sizes, any layout.
// Fixes : a column of results still needs a load from shared memory for each multiplication.
// Idea  : a rectangle of results: kThreadM + kThreadN loads make kThreadM kThreadN products.
// Thread: t owns kThreadM x kThreadN neighbouring elements of C, kTileN / kThreadN threads a row.
// Costs : 1/kThreadM + 1/kThreadN loads per multiplication; kThreadM kThreadN registers for sums.
template <class Shape>
static __global__ void __launch_bounds__(Shape::kThreads) gemm_register_tile_2d(Product p) {
  __shared__ float tile_a[Shape::kTileK][Shape::kTileM + 1];
  __shared__ float tile_b[Shape::kTileK][Shape::kTileN + 1];
  const Corner corner = tile_corner(p, Shape::kTileM, Shape::kTileN);
  constexpr int kAcross = Shape::kTileN / Shape::kThreadN;  // threads in a row of threads
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / kAcross * Shape::kThreadM, col = thread % kAcross * Shape::kThreadN;
  const Operand a = operand_a(p), b = operand_b(p);
  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  for (size_t k0 = 0; k0 < p.K; k0 += Shape::kTileK) {
    load_tile<Shape::kThreads, Shape::kTileK, Shape::kTileM>(tile_a, a, k0, corner.row);
    load_tile<Shape::kThreads, Shape::kTileK, Shape::kTileN>(tile_b, b, k0, corner.col);
    __syncthreads();  // both tiles are in shared memory
    for (int k = 0; k < Shape::kTileK; ++k) {
      // exercise: take this thread's pieces of line k into registers and multiply (about 4 lines)
      float held_a[Shape::kThreadM], held_b[Shape::kThreadN];
      for (int i = 0; i < Shape::kThreadM; ++i) held_a[i] = tile_a[k][row + i];
      for (int j = 0; j < Shape::kThreadN; ++j) held_b[j] = tile_b[k][col + j];
      add_products(sums, held_a, held_b);
      // end exercise
    }
    __syncthreads();  // all threads are done with both tiles
  }
  for (int i = 0; i < Shape::kThreadM; ++i)
    for (int j = 0; j < Shape::kThreadN; ++j)
      if (corner.row + row + i < p.M && corner.col + col + j < p.N)
        store(p, corner.row + row + i, corner.col + col + j, sums[i][j]);
}

using Square = Shape<128, 128, 8, 8, 8, 2>;

inline void launch_register_tile_2d(const Product& product, hipStream_t stream = nullptr) {
  with_grid(product, Square::kTileM, Square::kTileN, [&](dim3 grid, const Product& p) {
    LAUNCH_ON(stream, (gemm_register_tile_2d<Square>), grid, Square::kThreads, 0, p);
  });
}

// ---- 128 bits at a time -----------------------------------------------------------------------

// What a block keeps in shared memory: kTileK lines of each operand. kPad floats between two lines
// keep float4s aligned. Where an operand runs along k, 32 threads bring two times four k of 16
// places, and store them one k at a time: the padding lets all of them meet different banks.
inline constexpr int kPad = 4;

template <class Shape>
struct alignas(16) Tiles {
  float a[Shape::kTileK][Shape::kTileM + kPad];
  float b[Shape::kTileK][Shape::kTileN + kPad];
};

// Brings one operand's tiles of kTileK x kLength, one after the other along k, from global memory
// into registers, load(), and on to shared memory, store(). Each thread carries kPieces pieces of
// four floats that are neighbours in global memory; kAligned says that each of them is a float4 at
// a multiple of 16 bytes that lies in the matrix as a whole or not at all.
template <bool kAlongK, bool kAligned, int kTileK, int kLength, int kThreads>
class TileLoader {
  static constexpr int kPieces = kTileK * kLength / 4 / kThreads;
  static_assert(kPieces * kThreads * 4 == kTileK * kLength, "every thread carries as much");
  // A round of the threads covers kRows rows of memory with kAcross pieces of each.
  static constexpr int kAcross = kAlongK ? 2 : kLength / 4, kRows = kThreads / kAcross;
  static constexpr int kRounds = (kAlongK ? kLength : kTileK) / kRows;  // down the tile's rows
  static_assert(kRows * kAcross == kThreads && kRounds * kRows == (kAlongK ? kLength : kTileK),
                "a round covers whole rows");

 public:
  // The tiles of x from line k0 and place i0 on; `thread` counts the kThreads threads.
  __device__ TileLoader(const Operand& x, size_t k0, size_t i0, int thread)
      : ld_(kAlongK ? x.stride_i : x.stride_k),
        row_(thread / kAcross),
        side_(thread % kAcross * 4) {
    from_ = x.at(k0 + k(0), i0 + i(0));
    GPU_UNROLL
    for (int n = 0; n < kPieces; ++n) {
      const size_t place = i0 + i(n);
      inside_[n] = place >= x.length ? 0 : x.length - place < 4 ? x.length - place : 4;
    }
  }

  // Takes the next tile into registers; behind its first `lines` lines there are only zeros.
  __device__ void load(int lines) {
    GPU_UNROLL
    for (int n = 0; n < kPieces; ++n) {
      const float* from = from_ + offset(n);
      if constexpr (kAligned) {
        held_[n] = make_float4(0, 0, 0, 0);
        if (inside_[n] > 0 && k(n) < lines) held_[n] = *reinterpret_cast<const float4*>(from);
      } else {
        const int count =
            kAlongK ? (inside_[n] > 0 ? lines - k(n) : 0) : (k(n) < lines ? inside_[n] : 0);
        held_[n] = make_float4(count > 0 ? from[0] : 0, count > 1 ? from[1] : 0,
                               count > 2 ? from[2] : 0, count > 3 ? from[3] : 0);
      }
    }
    from_ += kAlongK ? kTileK : kTileK * ld_;
  }

  // Puts what load() took where the block shares it.
  __device__ void store(float (&tile)[kTileK][kLength + kPad]) const {
    GPU_UNROLL
    for (int n = 0; n < kPieces; ++n) {
      if constexpr (kAlongK) {
        tile[k(n)][i(n)] = held_[n].x, tile[k(n) + 1][i(n)] = held_[n].y;
        tile[k(n) + 2][i(n)] = held_[n].z, tile[k(n) + 3][i(n)] = held_[n].w;
      } else {
        *reinterpret_cast<float4*>(&tile[k(n)][i(n)]) = held_[n];
      }
    }
  }

 private:
  // Where in the tile piece n of this thread begins, and how far that is from piece 0 in memory.
  __device__ int k(int n) const {
    return kAlongK ? side_ + n / kRounds * 4 * kAcross : row_ + n * kRows;
  }
  __device__ int i(int n) const { return kAlongK ? row_ + n % kRounds * kRows : side_; }
  __device__ size_t offset(int n) const {
    return kAlongK ? n % kRounds * kRows * ld_ + n / kRounds * 4 * kAcross : n * kRows * ld_;
  }

  const float* from_;  // piece 0 of the next tile
  size_t ld_;
  int row_, side_;
  int inside_[kPieces];  // how much of the piece lies within its line's length
  float4 held_[kPieces];
};

// How many lines of the next tile there are, of `left` lines.
template <class Shape>
__device__ inline int lines_of_tile(size_t left) {
  return left < Shape::kTileK ? static_cast<int>(left) : Shape::kTileK;
}

// Where in the block's tile a thread's results lie: groups of 4 x 4, row_step and col_step apart.
struct Place {
  int row, col;            // of the first group's first result
  int row_step, col_step;  // between the groups' first results
};

// All groups side by side: one rectangle of kThreadM x kThreadN.
template <class Shape>
struct Rectangles {
  __device__ static Place of(int thread) {
    constexpr int kAcross = Shape::kTileN / Shape::kThreadN;
    return {thread / kAcross * Shape::kThreadM, thread % kAcross * Shape::kThreadN, 4, 4};
  }
};

// held = this thread's pieces of a line in shared memory, from `first` on and every `step`.
template <int kCount>
__device__ inline void read_line(float (&held)[kCount], const float* first, int step) {
  GPU_UNROLL
  for (int group = 0; group < kCount / 4; ++group) {
    const float4 four = *reinterpret_cast<const float4*>(first + group * step);
    held[4 * group] = four.x, held[4 * group + 1] = four.y;
    held[4 * group + 2] = four.z, held[4 * group + 3] = four.w;
  }
}

// Do all rows of all matrices of a batch begin at multiples of 16 bytes?
__host__ __device__ inline bool rows_are_aligned(const float* data, size_t ld, size_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % sizeof(float4) == 0 && (ld | stride) % 4 == 0;
}

// Stores what the epilogue makes of the sums, as far as they lie in C; 16 bytes at a time where
// four neighbours do.
template <class Shape, class Epilogue>
__device__ inline void store_sums(const Product& p, const Epilogue& epilogue, const Corner& corner,
                                  const Place& place,
                                  const float (&sums)[Shape::kThreadM][Shape::kThreadN]) {
  const bool aligned = rows_are_aligned(p.c, p.ldc, p.stride_c);
  GPU_UNROLL
  for (int j = 0; j < Shape::kThreadN; j += 4) {
    const size_t col = corner.col + place.col + j / 4 * place.col_step;
    GPU_UNROLL
    for (int i = 0; i < Shape::kThreadM; ++i) {
      const size_t row = corner.row + place.row + i / 4 * place.row_step + i % 4;
      if (row >= p.M) continue;
      float* c = element_of_c(p, row, col);
      if (aligned && col + 4 <= p.N) {
        *reinterpret_cast<float4*>(c) = make_float4(epilogue(sums[i][j], row, col, c),
                                                    epilogue(sums[i][j + 1], row, col + 1, c + 1),
                                                    epilogue(sums[i][j + 2], row, col + 2, c + 2),
                                                    epilogue(sums[i][j + 3], row, col + 3, c + 3));
      } else {
        for (int e = 0; e < 4; ++e)
          if (col + e < p.N) c[e] = epilogue(sums[i][j + e], row, col + e, c + e);
      }
    }
  }
}

// C = alpha op(A) op(B) + beta C    any sizes, this layout, any alignment.
// Fixes : register_tile_2d moves 4 bytes per instruction, on every way that its numbers take.
// Idea  : float4s from global to shared memory, from there to registers, and to C.
// Thread: Places::of(t) owns kThreadM x kThreadN elements of C: with Rectangles neighbouring ones,
//         kTileN / kThreadN threads a row.
// Costs : a quarter of the loads; those from shared memory meet in the same banks two by two.
template <class Shape, class Places, bool kAlongA, bool kAlongB, bool kAligned, class Epilogue>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads, Shape::kResidentBlocks)
    gemm_vectorized(Product p, Epilogue epilogue) {
  __shared__ Tiles<Shape> tiles;
  const Corner corner = tile_corner(p, Shape::kTileM, Shape::kTileN);
  const int thread = static_cast<int>(threadIdx.x);
  const Place place = Places::of(thread);
  TileLoader<kAlongA, kAligned, Shape::kTileK, Shape::kTileM, Shape::kThreads> a(
      operand_a(p), 0, corner.row, thread);
  TileLoader<kAlongB, kAligned, Shape::kTileK, Shape::kTileN, Shape::kThreads> b(
      operand_b(p), 0, corner.col, thread);
  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  for (size_t k0 = 0; k0 < p.K; k0 += Shape::kTileK) {
    const int lines = lines_of_tile<Shape>(p.K - k0);
    a.load(lines), b.load(lines);
    a.store(tiles.a), b.store(tiles.b);
    __syncthreads();  // both tiles are in shared memory
    for (int k = 0; k < Shape::kTileK; ++k) {
      float held_a[Shape::kThreadM], held_b[Shape::kThreadN];
      read_line(held_a, &tiles.a[k][place.row], place.row_step);
      read_line(held_b, &tiles.b[k][place.col], place.col_step);
      add_products(sums, held_a, held_b);
    }
    __syncthreads();  // all threads are done with both tiles
  }
  store_sums<Shape>(p, epilogue, corner, place, sums);
}

// May each piece of four neighbours in A and B be read as one float4, or left out as one?
inline bool is_aligned(const Product& p) {
  const size_t along_a = p.layout == Layout::TN ? p.M : p.K;
  const size_t along_b = p.layout == Layout::NT ? p.K : p.N;
  return (along_a | along_b) % 4 == 0 && rows_are_aligned(p.a, p.lda, p.stride_a) &&
         rows_are_aligned(p.b, p.ldb, p.stride_b);
}

// The layouts that a kernel is compiled for. A later stage that has an epilogue of its own names
// the layout that it needs and spares its reader the compilation of the others.
template <Layout... kLayouts>
struct Layouts {};
using AllLayouts = Layouts<Layout::NN, Layout::NT, Layout::TN>;

// Calls run(along_a, along_b, aligned) with three constants: do A and B run along k, is_aligned(p)?
// Throws std::invalid_argument for a layout that is not among kLayouts.
template <class Run, Layout... kLayouts>
void with_constants(const Product& p, Layouts<kLayouts...>, Run&& run) {
  const bool aligned = is_aligned(p);
  const auto with_layout = [&](auto layout) {
    if (p.layout != layout()) return false;
    using AlongA = std::bool_constant<layout() != Layout::TN>;
    using AlongB = std::bool_constant<layout() == Layout::NT>;
    aligned ? run(AlongA{}, AlongB{}, std::true_type{})
            : run(AlongA{}, AlongB{}, std::false_type{});
    return true;
  };
  if (!(with_layout(std::integral_constant<Layout, kLayouts>{}) || ...))
    throw std::invalid_argument("gemm: this epilogue was not compiled for the product's layout");
}

template <class Shape, class Places, class Layouts, class Epilogue>
void launch_vectorized(const Product& product, const Epilogue& epilogue, hipStream_t stream) {
  with_grid(product, Shape::kTileM, Shape::kTileN, [&](dim3 grid, const Product& p) {
    with_constants(p, Layouts{}, [&](auto along_a, auto along_b, auto aligned) {
      LAUNCH_ON(stream, (gemm_vectorized<Shape, Places, along_a(), along_b(), aligned(), Epilogue>),
                grid, Shape::kThreads, 0, p, epilogue);
    });
  });
}

// Every `extern template` is compiled once, in gemm_instances.hip, and not in every program that
// includes this file.
extern template void launch_vectorized<Square, Rectangles<Square>, AllLayouts>(const Product&,
                                                                               const Combine&,
                                                                               hipStream_t);
inline void launch_vectorized(const Product& product, hipStream_t stream = nullptr) {
  launch_vectorized<Square, Rectangles<Square>, AllLayouts>(product, combine(product), stream);
}

// ---- Waves have tiles too ---------------------------------------------------------------------

// 32 threads in a row of the block's numbering make kLanesM x kLanesN groups of 4 x 4 results, then
// the same again kLanesM groups down or kLanesN groups across. That is one wave on most devices,
// half a wave where waves have 64 lanes; nothing but speed depends on it.
inline constexpr int kLanesM = 4, kLanesN = 8, kLanes = kLanesM * kLanesN;

//   lane   0  1  4  5  8  9 12 13     Lanes 0 and 1 read the same float4 of A's line, lanes 0 and 2
//          2  3  6  7 10 11 14 15     the same of B's, and so on: shared memory serves such pairs
//         16 17 20 21 24 25 28 29     together. What a wave reads of a line lies side by side, so
//         18 19 22 23 26 27 30 31     in different banks.
template <class Shape>
struct Waves {
  __device__ static Place of(int thread) {
    constexpr int kWaveM = kLanesM * Shape::kThreadM, kWaveN = kLanesN * Shape::kThreadN;
    static_assert(Shape::kTileM % kWaveM == 0 && Shape::kTileN % kWaveN == 0,
                  "wave tiles cover the block's tile");
    constexpr int kAcross = Shape::kTileN / kWaveN;
    const int wave = thread / kLanes, lane = thread % kLanes;
    const int lane_row = lane / 2 % 2 + lane / (2 * kLanesN) * 2;
    const int lane_col = lane % 2 + lane / 4 % (kLanesN / 2) * 2;
    return {wave / kAcross * kWaveM + 4 * lane_row, wave % kAcross * kWaveN + 4 * lane_col,
            4 * kLanesM, 4 * kLanesN};
  }
};

extern template void launch_vectorized<Square, Waves<Square>, AllLayouts>(const Product&,
                                                                          const Combine&,
                                                                          hipStream_t);

// C = alpha op(A) op(B) + beta C    any sizes, this layout, any alignment.
// Fixes : the float4s that a wave of vectorized reads from shared memory lie two per bank, and come
//         from a strip of the tile: two rows of threads by sixteen.
// Idea  : a wave's results are a compact tile, so it reads less of each line; a thread's are groups
//         of 4 x 4 so far apart that the groups of a wave are neighbours.
// Thread: Waves::of() shows which lane owns which group; the kernel is that of vectorized.
// Costs : the same loads, without conflicts.
inline void launch_wave_tiled(const Product& product, hipStream_t stream = nullptr) {
  launch_vectorized<Square, Waves<Square>, AllLayouts>(product, combine(product), stream);
}

// ---- The next tile while this one is multiplied -----------------------------------------------

// In slice 0: sums += the sums of the same elements in the block's other slices, in their order.
// They are exchanged a row at a time, where the slices' tiles were.
template <class Shape>
__device__ inline void add_slices(float (&sums)[Shape::kThreadM][Shape::kThreadN],
                                  Tiles<Shape> (&tiles)[Shape::kSlices][2], int slice, int thread) {
  static_assert(sizeof(tiles[0]) >= sizeof(float) * Shape::kThreads * Shape::kThreadN,
                "a row of sums of each thread fits where the tiles were");
  GPU_UNROLL
  for (int i = 0; i < Shape::kThreadM; ++i) {
    __syncthreads();  // the slices' memory is free: tiles are multiplied, the row before is added
    if (slice > 0) {
      float* row = &tiles[slice][0].a[0][0] + thread;
      GPU_UNROLL
      for (int j = 0; j < Shape::kThreadN; ++j) row[j * Shape::kThreads] = sums[i][j];
    }
    __syncthreads();  // row i of all slices but slice 0 is in shared memory
    for (int s = 1; slice == 0 && s < Shape::kSlices; ++s) {
      const float* row = &tiles[s][0].a[0][0] + thread;
      GPU_UNROLL
      for (int j = 0; j < Shape::kThreadN; ++j) sums[i][j] += row[j * Shape::kThreads];
    }
  }
}

// C = epilogue(op(A) op(B))    any sizes, this layout, any alignment.
// Fixes : wave_tiled waits for global memory, then at a barrier, then for shared memory, and does
//         not multiply meanwhile.
// Idea  : two of everything: while a line is multiplied the next one is on its way to the other
//         registers, and the next tile to registers and on to the other half of shared memory.
// Thread: Waves::of() shows which lane owns which group. Each kThreads threads are a slice that
//         takes its part of K: what little there is to do shall still be done by many threads.
// Costs : 1 barrier per tile; twice the shared memory; kThreadM + kThreadN registers more for the
//         next line, and those of a tile that is on its way.
template <class Shape, bool kAlongA, bool kAlongB, bool kAligned, class Epilogue>
static __global__ void GPU_LAUNCH_BOUNDS(Shape::kThreads* Shape::kSlices, Shape::kResidentBlocks)
    gemm_double_buffered(Product p, Epilogue epilogue) {
  static_assert(Shape::kTileK % 2 == 0, "line 0 of every tile goes to the same registers");
  __shared__ Tiles<Shape> all_tiles[Shape::kSlices][2];
  const int rank = static_cast<int>(threadIdx.x);
  const int slice = Shape::kSlices == 1 ? 0 : rank / Shape::kThreads;
  const int thread = Shape::kSlices == 1 ? rank : rank % Shape::kThreads;
  Tiles<Shape>(&tiles)[2] = all_tiles[slice];

  // All slices go through as many tiles, some of them maybe empty ones: they share the barriers.
  const size_t steps = gpu::ceil_div(p.K, size_t{Shape::kTileK} * Shape::kSlices);
  const size_t share = steps * Shape::kTileK, first = static_cast<size_t>(slice) * share;
  size_t left = first < p.K ? p.K - first : 0;  // lines that have not been loaded

  const Corner corner = tile_corner(p, Shape::kTileM, Shape::kTileN);
  const Place place = Waves<Shape>::of(thread);
  TileLoader<kAlongA, kAligned, Shape::kTileK, Shape::kTileM, Shape::kThreads> a(
      operand_a(p), first, corner.row, thread);
  TileLoader<kAlongB, kAligned, Shape::kTileK, Shape::kTileN, Shape::kThreads> b(
      operand_b(p), first, corner.col, thread);
  const auto load_next = [&] {
    const int lines = lines_of_tile<Shape>(left);
    a.load(lines), b.load(lines);
    left -= lines;
  };
  float sums[Shape::kThreadM][Shape::kThreadN] = {};
  float held_a[2][Shape::kThreadM], held_b[2][Shape::kThreadN];
  const auto read_lines = [&](int k, const Tiles<Shape>& from) {
    read_line(held_a[k % 2], &from.a[k][place.row], place.row_step);
    read_line(held_b[k % 2], &from.b[k][place.col], place.col_step);
  };

  load_next();
  a.store(tiles[0].a), b.store(tiles[0].b);
  __syncthreads();  // the first tiles are in shared memory
  read_lines(0, tiles[0]);
  int current = 0;
  for (size_t step = 0; step < steps; ++step) {
    // exercise: fetch the next tiles, multiply these ones' lines (about 12 lines)
    load_next();
    GPU_UNROLL
    for (int k = 0; k < Shape::kTileK; ++k) {
      if (k + 1 == Shape::kTileK) {
        current = 1 - current;
        a.store(tiles[current].a), b.store(tiles[current].b);
        __syncthreads();  // the next tiles are in shared memory, and all lines of these were read
      }
      read_lines((k + 1) % Shape::kTileK, tiles[current]);
      add_products(sums, held_a[k % 2], held_b[k % 2]);
    }
    // end exercise
  }
  if constexpr (Shape::kSlices > 1) add_slices<Shape>(sums, all_tiles, slice, thread);
  if (slice == 0) store_sums<Shape>(p, epilogue, corner, place, sums);
}

template <class Shape, class Layouts, class Epilogue>
void launch_double_buffered(const Product& product, const Epilogue& epilogue, hipStream_t stream) {
  with_grid(product, Shape::kTileM, Shape::kTileN, [&](dim3 grid, const Product& p) {
    with_constants(p, Layouts{}, [&](auto along_a, auto along_b, auto aligned) {
      LAUNCH_ON(stream, (gemm_double_buffered<Shape, along_a(), along_b(), aligned(), Epilogue>),
                grid, Shape::kThreads * Shape::kSlices, 0, p, epilogue);
    });
  });
}

// Few loads per product for large matrices; tiles and slices of K for smaller ones.
using Large = Shape<128, 128, 8, 8, 8, 2>;
using Medium = Shape<64, 64, 8, 8, 8, 2, 4>;
using Small = Shape<32, 32, 8, 4, 4, 2, 8>;

extern template void launch_double_buffered<Large, AllLayouts>(const Product&, const Combine&,
                                                               hipStream_t);
inline void launch_double_buffered(const Product& product, hipStream_t stream = nullptr) {
  launch_double_buffered<Large, AllLayouts>(product, combine(product), stream);
}

// ---- The right tile for a shape ---------------------------------------------------------------

// Tiles to choose from. `speed` is how fast a multiprocessor gets through many of them, relative to
// the first.
template <class Epilogue>
struct Candidate {
  size_t tile_m, tile_n;
  double speed;
  void (*launch)(const Product& product, const Epilogue& epilogue, hipStream_t stream);
};
template <class Shape, class Layouts, class Epilogue>
constexpr Candidate<Epilogue> candidate(double speed) {
#if defined(GPU_BACKEND_CPU)
  // Nothing happens there while a thread waits, so there is nothing to gain from two of everything.
  return {Shape::kTileM, Shape::kTileN, speed,
          launch_vectorized<Shape, Rectangles<Shape>, Layouts, Epilogue>};
#else
  return {Shape::kTileM, Shape::kTileN, speed, launch_double_buffered<Shape, Layouts, Epilogue>};
#endif
}

template <class Layouts, class Epilogue>
inline constexpr Candidate<Epilogue> kCandidates[] = {
#if defined(GPU_BACKEND_CPU)
    candidate<Shape<64, 128, 32, 16, 16>, Layouts, Epilogue>(1.0),
    candidate<Shape<32, 64, 32, 8, 16>, Layouts, Epilogue>(0.35),
    candidate<Shape<32, 32, 32, 8, 8>, Layouts, Epilogue>(0.2),
#else
    candidate<Large, Layouts, Epilogue>(1.0),
    candidate<Medium, Layouts, Epilogue>(0.8),
    candidate<Small, Layouts, Epilogue>(0.4),
#endif
};

// The candidate that the multiprocessor with the most tiles is done with first.
template <class Layouts, class Epilogue>
inline const Candidate<Epilogue>& choose(const Product& p) {
  const unsigned multiprocessors = gpu::multiprocessors();
  const auto cost = [&](const Candidate<Epilogue>& c) {
    const double tiles = static_cast<double>(gpu::ceil_div(p.M, c.tile_m)) *
                         static_cast<double>(gpu::ceil_div(p.N, c.tile_n)) *
                         static_cast<double>(p.batch);
    return std::ceil(tiles / multiprocessors) * static_cast<double>(c.tile_m * c.tile_n) / c.speed;
  };
  return *std::min_element(std::begin(kCandidates<Layouts, Epilogue>),
                           std::end(kCandidates<Layouts, Epilogue>),
                           [&](const auto& x, const auto& y) { return cost(x) < cost(y); });
}

// C[row, col] = epilogue(sum over k of op(A)[row, k] op(B)[k, col], row, col, C + ...): the product
// with what a later stage does to each sum while it is still in a register. p.alpha and p.beta are
// the epilogue's business; p.alpha = 0 makes every sum 0 and leaves A and B alone. With
// best<Layouts<Layout::NT>>(p, epilogue) only the kernels of that layout are compiled.
template <class Layouts = AllLayouts, class Epilogue>
void best(const Product& p, const Epilogue& epilogue, hipStream_t stream = nullptr) {
  choose<Layouts, Epilogue>(p).launch(p, epilogue, stream);
}
extern template void best<AllLayouts>(const Product&, const Combine&, hipStream_t);

// C = alpha op(A) op(B) + beta C for one product, or for p.batch of them.
inline void best(const Product& p, hipStream_t stream = nullptr) { best(p, combine(p), stream); }

// The same for one product. Throws std::invalid_argument where a leading dimension is less than a
// row, or an array that is needed is null.
inline void best(Layout layout, size_t M, size_t N, size_t K, float alpha, const float* a,
                 size_t lda, const float* b, size_t ldb, float beta, float* c, size_t ldc,
                 hipStream_t stream = nullptr) {
  best(Product{layout, M, N, K, alpha, a, lda, b, ldb, beta, c, ldc}, stream);
}

// ---- The versions -----------------------------------------------------------------------------

using Launch = void (*)(const Product& product, hipStream_t stream);

inline constexpr Version<Launch> kVersions[] = {
    {"naive", launch_naive, "one thread per element of C"},
    {"coalesced", launch_coalesced, "neighbouring threads, neighbouring addresses"},
    {"tiled_16", launch_tiled<16>, "a block reuses tiles in shared memory 16 times"},
    {"tiled_32", launch_tiled<32>, "larger tiles, larger blocks: half the global loads"},
    {"register_tile_1d", launch_register_tile_1d, "a column of 8 results per thread"},
    {"register_tile_2d", launch_register_tile_2d,
     "8 x 8 results per thread: 16 loads, 64 products"},
    {"vectorized", launch_vectorized, "16 bytes per load and store"},
    {"wave_tiled", launch_wave_tiled, "compact tiles per wave, no bank conflicts"},
    {"double_buffered", launch_double_buffered, "load the next tile while this one is multiplied"},
    {"best", best, "the last version with the right tile for the shape"},
};

}  // namespace gemm
