// 2.4  C = A B on matrix units: A (M, K) and B (K, N) in fp16, bf16 or tf32, C (M, N) in float, all
// row-major without gaps, any sizes. Sums are kept in float.
//
//                sign exponent fraction   stored in            largest    roundoff
//   fp16           1      5       10      gpu::half            65504      2^-11
//   bf16           1      8        7      gpu::bfloat16        3.4e38     2^-8
//   tf32           1      8       10      float, last 13       3.4e38     2^-11
//                                         bits 0
//
// The element type T chooses among the three; float stands for tf32 throughout this step.
// launch_round<T>() makes any of them from floats, to nearest, ties to even. A float whose last 13
// bits are not 0 is no tf32: what a matrix unit makes of them differs from device to device.
//
// Every launcher takes device arrays aligned to sizeof(T), any M, N, K (K = 0 gives zeros); c does
// not overlap a or b. Rows whose starts are aligned to 16 bytes are the fast case.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "common/gpu.h"
#include "common/half.h"
#include "common/program.h"

namespace gemm_mixed {

// ---- The types --------------------------------------------------------------------------------

template <class T>
inline constexpr const char* kTypeName = "tf32";
template <>
inline constexpr const char* kTypeName<gpu::half> = "fp16";
template <>
inline constexpr const char* kTypeName<gpu::bfloat16> = "bf16";

// The nearest T, of two equally near the one whose last bit is 0.
template <class T>
__host__ __device__ inline T round_to(float value) {
  return gpu::from_float<T>(value);
}
template <>
__host__ __device__ inline float round_to<float>(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  constexpr std::uint32_t kDropped = (1u << 13) - 1, kInfinity = 0x7F800000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > kInfinity)
    bits |= 0x00400000u;  // quiet, by a bit that is kept
  else if (magnitude < kInfinity)
    bits += kDropped / 2 + (bits >> 13 & 1);  // a carry into the exponent is right, too
  bits &= ~kDropped;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// out[i] = the T nearest to in[i]    in, out (n), any n.
// Fixes : -
// Idea  : each element is rounded once, not each time a multiplication reads it.
// Thread: t owns the elements t, t + all threads, ...
// Costs : 4 + sizeof(T) bytes of global memory per element.
template <class T>
static __global__ void round_inputs(T* out, const float* in, size_t n) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    out[i] = round_to<T>(in[i]);
}

template <class T>
inline void launch_round(T* out, const float* in, size_t n, hipStream_t stream = nullptr) {
  constexpr size_t kBlock = 256, kMaxBlocks = size_t{1} << 16;
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>(std::min(gpu::ceil_div(n, kBlock), kMaxBlocks));
  LAUNCH_ON(stream, (round_inputs<T>), blocks, static_cast<unsigned>(kBlock), 0, out, in, n);
}

// ---- Reference and bound ----------------------------------------------------------------------

// `rows` rows of a product, in double, and the same product of the absolute values.
struct Reference {
  std::vector<double> product, absolute;  // (rows, N)
};

// a: the chosen rows of A (rows, K); b: B (K, N).
template <class T>
Reference gemm_mixed_cpu(const std::vector<T>& a, const std::vector<T>& b, size_t rows, size_t N,
                         size_t K) {
  Reference result{std::vector<double>(rows * N), std::vector<double>(rows * N)};
  constexpr size_t kColumns = 1024;  // few enough for the sums to stay in the processor's cache
  double b_row[kColumns];
  for (size_t begin = 0; begin < N; begin += kColumns) {
    const size_t columns = std::min(kColumns, N - begin);
    for (size_t k = 0; k < K; ++k) {
      for (size_t j = 0; j < columns; ++j)
        b_row[j] = static_cast<double>(gpu::to_float(b[k * N + begin + j]));
      for (size_t row = 0; row < rows; ++row) {
        const double a_value = static_cast<double>(gpu::to_float(a[row * K + k]));
        double* product = result.product.data() + row * N + begin;
        double* absolute = result.absolute.data() + row * N + begin;
        for (size_t j = 0; j < columns; ++j) {
          product[j] += a_value * b_row[j];
          absolute[j] += std::fabs(a_value * b_row[j]);
        }
      }
    }
  }
  return result;
}

// What an element of C may be off, where `absolute` is the sum of its |a b|.
//
// The products are exact: two fractions of at most 11 bits make one of 22. A matrix unit adds n of
// them to the sum at a time, n >= 4: it shifts all n + 1 numbers to the largest exponent among them
// and cuts off what falls below float's last bit there, then cuts the result once more. Each cut
// loses less than 2 u of a number that is at most the sum of the |a b| so far: n + 2 cuts for each
// n products, at most 3/2 K in all, 3 K u together. (Fasi, Higham, Mikaitis, Pranesh: Numerical
// behavior of NVIDIA tensor cores, PeerJ Computer Science 7:e330, 2021.) Rounding to nearest, one
// product at a time, stays below it: gamma(K) (Higham, Accuracy and Stability of Numerical
// Algorithms, 2nd ed., section 3.1).
inline double bound(double K, double absolute) {
  const double ku = 3 * K * kFloatRoundoff;
  return (ku < 0.5 ? ku / (1 - ku) : 1) * absolute;
}

// ---- Naive ------------------------------------------------------------------------------------

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, any sizes.
// Fixes : a CPU core computes the elements of C one after the other.
// Idea  : 16-bit inputs are widened to float and multiplied as in any matrix product.
// Thread: t owns the elements t, t + all threads, ... of C.
// Costs : 2 K sizeof(T) bytes of loads per element of C; no matrix unit is used.
template <class T>
static __global__ void gemm_naive(float* c, const T* a, const T* b, size_t M, size_t N, size_t K) {
  const size_t threads = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < M * N; i += threads) {
    const size_t row = i / N, column = i % N;
    float sum = 0;
    for (size_t k = 0; k < K; ++k)
      sum += gpu::to_float(a[row * K + k]) * gpu::to_float(b[k * N + column]);
    c[i] = sum;
  }
}

template <class T>
inline void launch_naive(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                         hipStream_t stream = nullptr) {
  constexpr size_t kBlock = 256, kMaxBlocks = size_t{1} << 20;
  if (M == 0 || N == 0) return;
  const auto blocks = static_cast<unsigned>(std::min(gpu::ceil_div(M * N, kBlock), kMaxBlocks));
  LAUNCH_ON(stream, (gemm_naive<T>), blocks, static_cast<unsigned>(kBlock), 0, c, a, b, M, N, K);
}

// ---- What a matrix unit does ------------------------------------------------------------------

// A whole wave multiplies two small tiles: C (16, 16) += A (16, kDepth) · B (kDepth, 16). Each lane
// holds its share of a tile in registers, a fragment; which elements those are is the unit's
// business. Every function takes all lanes of a wave.
//
// This is the interface in software: lane l owns row l % 16 of C, and there as many columns as come
// out for each lane. It reads whatever they need, so lanes never exchange anything. It serves where
// there is no unit: on the CPU backend, on RDNA, on NVIDIA before sm_70.
//
//              columns 0-7    8-15    of C, wave of 32
//   row  0       lane 0     lane 16
//   row  1       lane 1     lane 17
//   ...
//   row 15       lane 15    lane 31
template <class T>
struct SoftwareUnit {
  static constexpr int kTile = 16;
  static constexpr int kDepth = static_cast<int>(32 / sizeof(T));  // 16, of tf32 8
  static constexpr int kMaxColumns = 8;  // of a lane: 8 in a wave of 32, 4 in a wave of 64

  struct A {
    float row[kDepth];
  };
  struct B {
    float columns[kDepth][kMaxColumns];
  };
  struct C {
    float sums[kMaxColumns];
  };

  static __device__ void clear(C& c) {
    for (float& sum : c.sums) sum = 0;
  }
  // The tile's rows begin `stride` elements apart; the tile's first element is aligned to 32 bytes,
  // each row to 16.
  static __device__ void load(A& a, const T* tile, size_t stride) {
    const T* row_of_a = tile + row() * stride;
    for (int k = 0; k < kDepth; ++k) a.row[k] = gpu::to_float(row_of_a[k]);
  }
  static __device__ void load(B& b, const T* tile, size_t stride) {
    const int count = columns();
    const T* first = tile + first_column();
    for (int k = 0; k < kDepth; ++k)
      for (int j = 0; j < count; ++j) b.columns[k][j] = gpu::to_float(first[k * stride + j]);
  }
  static __device__ void multiply_add(C& c, const A& a, const B& b) {
    const int count = columns();
    for (int k = 0; k < kDepth; ++k)
      for (int j = 0; j < count; ++j) c.sums[j] += a.row[k] * b.columns[k][j];
  }
  static __device__ void store(float* tile, size_t stride, const C& c) {
    const int count = columns();
    float* to = tile + row() * stride + first_column();
    for (int j = 0; j < count; ++j) to[j] = c.sums[j];
  }

 private:
  static __device__ size_t row() { return static_cast<size_t>(gpu::lane_id() % kTile); }
  static __device__ int columns() { return kTile * kTile / gpu::wave_size(); }
  static __device__ size_t first_column() {
    return static_cast<size_t>(gpu::lane_id() / kTile * columns());
  }
};

// The device's own unit where gemm_mixed_sm70.h or gemm_mixed_cdna.h know one.
template <class T>
struct MatrixUnit : SoftwareUnit<T> {};

// ---- Tiles at the edge ------------------------------------------------------------------------

// Is the start of each row aligned to 16 bytes, and the first one to `first`?
inline bool rows_are_aligned(const void* matrix, size_t row_bytes, size_t first = 16) {
  return reinterpret_cast<std::uintptr_t>(matrix) % first == 0 && row_bytes % 16 == 0;
}

// A chunk is 16 bytes of a row: so many elements.
template <class T>
inline constexpr int kPerChunk = static_cast<int>(16 / sizeof(T));

// The chunk at `from`: the row's next `count` elements, which may be 0 or less, and zeros behind
// them.
template <class T>
__device__ inline uint4 load_chunk(const T* from, int count) {
  T elements[kPerChunk<T>];
  GPU_UNROLL
  for (int i = 0; i < kPerChunk<T>; ++i) elements[i] = i < count ? from[i] : gpu::from_float<T>(0);
  uint4 chunk;
  memcpy(&chunk, elements, sizeof chunk);
  return chunk;
}

// The smaller of what is `left` of a dimension and what a tile `holds` of it.
__device__ inline int clip(size_t left, int holds) {
  return left < static_cast<size_t>(holds) ? static_cast<int>(left) : holds;
}

// ---- One wave per tile ------------------------------------------------------------------------

inline constexpr int kWaveTiles = 4;  // of one block, beside each other
inline constexpr unsigned kWaveTilesBlock = 128;

template <class T>
struct View {
  const T* data;
  size_t stride;
};

// The tile (kRows, kColumns) at (row, column) of `matrix` (rows, columns), where a unit can load
// it: in the matrix itself, or, if it is not wholly inside or the matrix's rows are not aligned, as
// a copy with zeros behind the edge. The wave's lanes make it together in `copy`, their own.
template <int kRows, int kColumns, class T>
__device__ inline View<T> view_tile(const T* matrix, size_t rows, size_t columns, size_t row,
                                    size_t column, bool aligned, T* copy) {
  const T* tile = matrix + row * columns + column;
  const int inside_rows = clip(rows - row, kRows),
            inside_columns = clip(columns - column, kColumns);
  if (aligned && inside_rows == kRows && inside_columns == kColumns) return {tile, columns};
  gpu::wave_sync();  // no lane needs the last copy any more
  for (int i = gpu::lane_id(); i < kRows * kColumns; i += gpu::wave_size()) {
    const int r = i / kColumns, j = i % kColumns;
    const bool inside = r < inside_rows && j < inside_columns;
    copy[i] = inside ? tile[static_cast<size_t>(r) * columns + j] : gpu::from_float<T>(0);
  }
  gpu::wave_sync();  // the copy is complete
  return {copy, kColumns};
}

// Stores a tile of C whose upper left element is `tile`, as far as it is inside; through `copy`
// where the unit can't store it itself. N is the distance of C's rows.
template <class Unit>
__device__ inline void store_tile(float* tile, size_t N, int inside_rows, int inside_columns,
                                  bool aligned, float* copy, const typename Unit::C& sums) {
  constexpr int kTile = Unit::kTile;
  if (aligned && inside_rows >= kTile && inside_columns >= kTile) {
    Unit::store(tile, N, sums);
    return;
  }
  gpu::wave_sync();  // no lane needs the last copy any more
  Unit::store(copy, kTile, sums);
  gpu::wave_sync();  // the copy is complete
  for (int i = gpu::lane_id(); i < kTile * kTile; i += gpu::wave_size()) {
    const int r = i / kTile, j = i % kTile;
    if (r < inside_rows && j < inside_columns) tile[static_cast<size_t>(r) * N + j] = copy[i];
  }
}

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, any sizes.
// Fixes : naive leaves the matrix units idle, and most of the device's arithmetic is in them.
// Idea  : a wave loads two tiles into its lanes' registers and multiplies them in one instruction.
// Thread: wave w of a block owns the tiles w, w + waves, ... of its kWaveTiles tiles of C, 16 x 16.
// Costs : each tile of A and B comes from global memory for every tile of C: 1/4 byte per
//         multiplication of 16-bit numbers.
template <class T>
static __global__ void gemm_wmma(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                                 bool aligned_inputs, bool aligned_c) {
  using Unit = MatrixUnit<T>;
  constexpr int kTile = Unit::kTile, kDepth = Unit::kDepth;
  constexpr int kChunks = kTile * kDepth / kPerChunk<T>;
  __shared__ __align__(32) uint4 edge_a[kWaveTiles][kChunks];
  __shared__ __align__(32) uint4 edge_b[kWaveTiles][kChunks];
  __shared__ __align__(32) float edge_c[kWaveTiles][kTile * kTile];

  const size_t tiles_in_row = gpu::ceil_div(N, kTile);
  const int waves = static_cast<int>(blockDim.x) / gpu::wave_size();
  for (int t = gpu::wave_id(); t < kWaveTiles; t += waves) {
    const size_t tile = size_t{blockIdx.x} * kWaveTiles + static_cast<size_t>(t);
    const size_t row = tile / tiles_in_row * kTile, column = tile % tiles_in_row * kTile;
    if (row >= M) return;  // there is no barrier for the whole block
    typename Unit::C sums;
    Unit::clear(sums);
    // exercise: sum the products of the tiles along K, in fragments (about 9 lines)
    for (size_t k = 0; k < K; k += kDepth) {
      const View<T> tile_a = view_tile<kTile, kDepth>(a, M, K, row, k, aligned_inputs,
                                                      reinterpret_cast<T*>(edge_a[t]));
      const View<T> tile_b = view_tile<kDepth, kTile>(b, K, N, k, column, aligned_inputs,
                                                      reinterpret_cast<T*>(edge_b[t]));
      typename Unit::A fragment_a;
      typename Unit::B fragment_b;
      Unit::load(fragment_a, tile_a.data, tile_a.stride);
      Unit::load(fragment_b, tile_b.data, tile_b.stride);
      Unit::multiply_add(sums, fragment_a, fragment_b);
    }
    // end exercise
    store_tile<Unit>(c + row * N + column, N, clip(M - row, kTile), clip(N - column, kTile),
                     aligned_c, edge_c[t], sums);
  }
}

template <class T>
inline void launch_wmma(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                        hipStream_t stream = nullptr) {
  constexpr size_t kTile = MatrixUnit<T>::kTile, kFirst = 32;
  if (M == 0 || N == 0) return;
  const size_t tiles = gpu::ceil_div(M, kTile) * gpu::ceil_div(N, kTile);
  LAUNCH_ON(
      stream, (gemm_wmma<T>), static_cast<unsigned>(gpu::ceil_div(tiles, kWaveTiles)),
      kWaveTilesBlock, 0, c, a, b, M, N, K,
      rows_are_aligned(a, K * sizeof(T), kFirst) && rows_are_aligned(b, N * sizeof(T), kFirst),
      rows_are_aligned(c, N * sizeof(float), kFirst));
}

// ---- Tiles in shared memory, several fragments per wave ---------------------------------------

// What a block of wmma_tiled computes of C, and what a wave of it.
inline constexpr int kBlockRows = 128, kBlockColumns = 128;
inline constexpr int kWaveRows = 64, kWaveColumns = 32;
inline constexpr int kWaves = kBlockRows / kWaveRows * (kBlockColumns / kWaveColumns);
inline constexpr int kUnitsDeep = 2;  // multiplications along K per tile in shared memory

// Copies the tile (kRows, kColumns) at (row, column) of `matrix` (rows, columns) to shared memory,
// where its rows begin kStride elements apart; zeros stand for what is beyond the edge.
template <int kRows, int kColumns, int kStride, class T>
__device__ inline void stage_tile(T* shared, const T* matrix, size_t rows, size_t columns,
                                  size_t row, size_t column, bool aligned) {
  constexpr int kElements = kPerChunk<T>, kChunks = kColumns / kElements;
  const T* tile = matrix + row * columns + column;
  const int inside_rows = clip(rows - row, kRows),
            inside_columns = clip(columns - column, kColumns);
  for (int i = gpu::thread_rank(); i < kRows * kChunks; i += static_cast<int>(blockDim.x)) {
    const int r = i / kChunks, j = i % kChunks * kElements;
    const T* from = tile + static_cast<size_t>(r) * columns + j;
    const int count = r < inside_rows ? inside_columns - j : 0;
    *reinterpret_cast<uint4*>(shared + r * kStride + j) =
        aligned && count >= kElements ? *reinterpret_cast<const uint4*>(from)
                                      : load_chunk(from, count);
  }
}

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, any sizes.
// Fixes : wmma fetches every tile from global memory and uses it for one multiplication.
// Idea  : the block stages a tile of A and one of B; a wave holds kWaveRows x kWaveColumns sums, so
//         that each fragment it loads is multiplied with several others.
// Thread: wave w owns kWaveRows x kWaveColumns of the block's kBlockRows x kBlockColumns of C.
// Costs : 2 barriers per tile, during which the units wait; rows are 16 bytes longer than needed in
//         shared memory, so that eight of them begin in different banks.
template <class T>
static __global__ void GPU_LAUNCH_BOUNDS(kWaves* gpu::kMaxWaveSize, 1)
    gemm_wmma_tiled(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                    bool aligned_inputs, bool aligned_c) {
  using Unit = MatrixUnit<T>;
  constexpr int kTile = Unit::kTile, kDepth = kUnitsDeep * Unit::kDepth;
  constexpr int kStrideA = kDepth + kPerChunk<T>, kStrideB = kBlockColumns + kPerChunk<T>;
  constexpr int kUnitRows = kWaveRows / kTile, kUnitColumns = kWaveColumns / kTile;
  __shared__ __align__(32) uint4 chunks_a[kBlockRows * kStrideA / kPerChunk<T>];
  __shared__ __align__(32) uint4 chunks_b[kDepth * kStrideB / kPerChunk<T>];
  __shared__ __align__(32) float edge_c[kWaves][kTile * kTile];

  T* shared_a = reinterpret_cast<T*>(chunks_a);
  T* shared_b = reinterpret_cast<T*>(chunks_b);

  const size_t blocks_in_row = gpu::ceil_div(N, kBlockColumns);
  const size_t row = blockIdx.x / blocks_in_row * kBlockRows;
  const size_t column = blockIdx.x % blocks_in_row * kBlockColumns;
  constexpr int kWavesInRow = kBlockColumns / kWaveColumns;
  const int wave = gpu::wave_id();
  const int wave_row = wave / kWavesInRow * kWaveRows;
  const int wave_column = wave % kWavesInRow * kWaveColumns;

  typename Unit::C sums[kUnitRows][kUnitColumns];
  for (auto& row_of_sums : sums)
    for (auto& sum : row_of_sums) Unit::clear(sum);

  for (size_t k = 0; k < K; k += kDepth) {
    stage_tile<kBlockRows, kDepth, kStrideA>(shared_a, a, M, K, row, k, aligned_inputs);
    stage_tile<kDepth, kBlockColumns, kStrideB>(shared_b, b, K, N, k, column, aligned_inputs);
    __syncthreads();  // both tiles are complete
    // exercise: load the wave's fragments, multiply each of A with each of B (about 15 lines)
    for (int unit = 0; unit < kUnitsDeep; ++unit) {
      const int depth = unit * Unit::kDepth;
      typename Unit::A fragments_a[kUnitRows];
      typename Unit::B fragments_b[kUnitColumns];
      GPU_UNROLL
      for (int i = 0; i < kUnitRows; ++i)
        Unit::load(fragments_a[i], shared_a + (wave_row + i * kTile) * kStrideA + depth, kStrideA);
      GPU_UNROLL
      for (int j = 0; j < kUnitColumns; ++j)
        Unit::load(fragments_b[j], shared_b + depth * kStrideB + wave_column + j * kTile, kStrideB);
      GPU_UNROLL
      for (int i = 0; i < kUnitRows; ++i) {
        GPU_UNROLL
        for (int j = 0; j < kUnitColumns; ++j)
          Unit::multiply_add(sums[i][j], fragments_a[i], fragments_b[j]);
      }
    }
    // end exercise
    __syncthreads();  // no wave needs the tiles any more: the next ones may overwrite them
  }

  GPU_UNROLL
  for (int i = 0; i < kUnitRows; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kUnitColumns; ++j) {
      const size_t tile_row = row + static_cast<size_t>(wave_row + i * kTile);
      const size_t tile_column = column + static_cast<size_t>(wave_column + j * kTile);
      if (tile_row >= M || tile_column >= N) continue;  // the same for all lanes of the wave
      store_tile<Unit>(c + tile_row * N + tile_column, N, clip(M - tile_row, kTile),
                       clip(N - tile_column, kTile), aligned_c, edge_c[wave], sums[i][j]);
    }
  }
}

template <class T>
inline void launch_wmma_tiled(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                              hipStream_t stream = nullptr) {
  if (M == 0 || N == 0) return;
  const size_t blocks = gpu::ceil_div(M, kBlockRows) * gpu::ceil_div(N, kBlockColumns);
  LAUNCH_ON(stream, (gemm_wmma_tiled<T>), static_cast<unsigned>(blocks),
            kWaves * gpu::device_wave_size(), 0, c, a, b, M, N, K,
            rows_are_aligned(a, K * sizeof(T)) && rows_are_aligned(b, N * sizeof(T)),
            rows_are_aligned(c, N * sizeof(float), 32));
}

// ---- The versions -----------------------------------------------------------------------------

// Defined in gemm_mixed_sm80.h.
template <class T>
inline void launch_mma_sync(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                            hipStream_t stream = nullptr);

// nvcuda::wmma knows bf16 and tf32 from sm_80 on. AMD's units and the software have no such limit.
template <class T>
inline constexpr Needs kNeedsOfWmma =
#if defined(GPU_BACKEND_CUDA)
    std::is_same_v<T, gpu::half> ? Needs::Any : Needs::Sm80;
#else
    Needs::Any;
#endif

// The CPU backend runs the instructions of gemm_mixed_sm80.h in software.
inline constexpr Needs kNeedsOfMmaSync =
#if defined(GPU_BACKEND_CPU)
    Needs::Any;
#else
    Needs::Sm80;
#endif

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
};

}  // namespace gemm_mixed

#if defined(GPU_BACKEND_CUDA)
#include "stage2_matrix/04_gemm_mixed/gemm_mixed_sm70.h"
#elif defined(GPU_BACKEND_HIP)
#include "stage2_matrix/04_gemm_mixed/gemm_mixed_cdna.h"
#endif
#include "stage2_matrix/04_gemm_mixed/gemm_mixed_sm80.h"
