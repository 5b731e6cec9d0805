// 7.4  The rung `flash_bf16`: flash attention on the matrix instructions of sm_80, bf16 in and out.
//
//   out = softmax(scale Q Kᵀ) V    Q, out (B, H, Tq, D)    K, V (B, H, Tk, D)    D up to 256
//
// Sums, maxima and exponentials are float; only what the matrix unit multiplies is bf16: Q, K, V,
// the weights P of the softmax, and in the backward pass (D up to 128) their gradients dS. Each is
// rounded once. A pair of a query and a key that it does not see adds nothing, as attention.h says.
// Scores beyond 1e8 are too coarse for its exponentials: rows may become 0 or NaN.
// Rows whose starts are aligned to 16 bytes are the fast case. Launches are queued on
// `stream` and give the same bits on every run of one device. The instructions and what they are on
// the CPU backend stand in 2.4's detail/instructions_sm80.h; the method is FlashAttention-2's (Dao:
// FlashAttention-2: faster attention with better parallelism and work partitioning. ICLR 2024).
#pragma once

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "common/half.h"
#include "stage0_infra/04_device_matrix/device_matrix.h"
#include "stage2_matrix/04_gemm_mixed/detail/instructions_sm80.h"
#include "stage2_matrix/04_gemm_mixed/detail/tiles.h"
#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"
#include "stage7_transformer/04_attention/attention.h"

namespace attention {
namespace sm80 {

using gpu::bfloat16;

// Element d of row t of head h of batch b is data[b stride_batch + h stride_head + t stride_row +
// d].
struct ConstView {
  const bfloat16* data;
  size_t stride_batch, stride_head, stride_row;
};
struct View {
  bfloat16* data;
  size_t stride_batch, stride_head, stride_row;
  operator ConstView() const { return {data, stride_batch, stride_head, stride_row}; }
};

inline constexpr size_t kMostDepth = 256, kMostBackwardDepth = 128;

// What the backward pass wants to know of a query.
struct QueryData {
  float shift;  // lse / log 2; +infinity where the query sees no key: its weights are 0
  float delta;
};
// Each head's queries are padded with such as see no key to a multiple of this.
inline constexpr size_t kQueryPadding = 128;
inline size_t padded_queries(const Problem& problem) {
  return gpu::ceil_div(problem.Tq, kQueryPadding) * kQueryPadding;
}

// Device memory for backward(), made once for the largest problem.
struct Workspace {
  explicit Workspace(const Problem& problem)
      : queries(problem.B * problem.H * padded_queries(problem)) {}
  device_matrix::DeviceBuffer<QueryData> queries;
};

#if defined(GPU_BACKEND_HIP)

inline void forward(const View&, float*, const ConstView&, const ConstView&, const ConstView&,
                    const Problem&, hipStream_t = nullptr) {
  throw std::runtime_error("flash_bf16 needs sm_80");
}
inline void backward(const View&, const View&, const View&, const ConstView&, const ConstView&,
                     const float*, const ConstView&, const ConstView&, const ConstView&,
                     const Problem&, Workspace&, hipStream_t = nullptr) {
  throw std::runtime_error("flash_bf16 needs sm_80");
}

#else

using gemm_mixed::AsyncCopies;
using gemm_mixed::kHaveMma;
using gemm_mixed::kLanes;
using gemm_mixed::load_matrices;
using gemm_mixed::warp_lane;

// ---- One instruction more ---------------------------------------------------------------------

// Two floats rounded to bf16 as one word, `low` in its lower half.
__device__ inline unsigned pack(float low, float high) {
  unsigned word;
#if defined(GPU_BACKEND_CUDA)
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
#else
  const bfloat16 pair[2] = {gpu::from_float<bfloat16>(low), gpu::from_float<bfloat16>(high)};
#endif
  memcpy(&word, &pair, sizeof word);
  return word;
}

// ---- Tiles in shared memory -------------------------------------------------------------------

// A chunk is 16 bytes of a row, 8 elements.
inline constexpr int kPerChunk = gemm_mixed::kPerChunk<bfloat16>;

// Where chunk `chunk` of row `row` stands in a tile of rows of kChunks chunks: ldmatrix reads the
// same chunk of eight rows, and finds them in eight different groups of banks. Rows of 128 bytes
// and more are as 2.4's mma_sync has them; of shorter ones, several share 128 bytes, and swap
// together.
template <int kChunks>
__host__ __device__ constexpr int place(int row, int chunk) {
  if constexpr (kChunks >= 8)
    return row * kChunks + (chunk ^ row % 8);
  else
    return row * kChunks + (chunk ^ row / (8 / kChunks) % kChunks);
}

// Fills tiles of kRows rows of kDepth elements from the rows of one head. Rows behind the last and
// elements behind the D-th are zeros. With kAligned all rows begin at 16 bytes and D is a multiple
// of 8: the copies are asynchronous.
template <int kRows, int kDepth, int kThreads, bool kAligned>
class TileLoader {
  static constexpr int kChunks = kDepth / kPerChunk;
  static constexpr int kAtOnce = kThreads / kChunks;  // rows
  static_assert(kThreads % kChunks == 0 && kRows % kAtOnce == 0, "threads take whole rows");

 public:
  __device__ TileLoader(const bfloat16* head, size_t stride, int rows, int D)
      : row_(static_cast<int>(threadIdx.x) / kChunks),
        chunk_(static_cast<int>(threadIdx.x) % kChunks),
        rows_(rows - row_),
        inside_(D - chunk_ * kPerChunk),
        stride_(stride),
        from_(head + static_cast<size_t>(row_) * stride + static_cast<size_t>(chunk_ * kPerChunk)) {
  }

  // Begins to fill `tile` with the rows from `first` on.
  __device__ void begin(uint4* tile, int first, AsyncCopies& copies) const {
    const bfloat16* from = from_ + static_cast<size_t>(first) * stride_;
    GPU_UNROLL
    for (int i = 0; i < kRows / kAtOnce; ++i, from += kAtOnce * stride_) {
      // Rows swap their chunks as those eight rows further do.
      constexpr int kPeriod = 8;
      uint4* to = tile + i * kAtOnce / kPeriod * kPeriod * kChunks +
                  place<kChunks>(row_ + i * kAtOnce % kPeriod, chunk_);
      const int count = first + i * kAtOnce < rows_ ? inside_ : 0;
      if constexpr (kAligned)
        copies.begin(to, from, count > 0);  // all of it, or nothing
      else
        *to = gemm_mixed::load_chunk(from, count);
    }
  }

 private:
  int row_, chunk_;  // this thread's first chunk of a tile
  int rows_;         // of the head, from row_ on
  int inside_;       // elements from that chunk's first one to the end of the row
  size_t stride_;
  const bfloat16* from_;  // the chunk of the head's first tile
};

// ---- Fragments --------------------------------------------------------------------------------
// What mma.sync wants of the lanes, from 16 rows of kChunks chunks each that begin at `rows`.

// A (16, 16): elements 16 step, ..., 16 step + 15 of the rows.
template <int kChunks>
__device__ inline void load_rows(unsigned (&a)[4], const uint4* rows, int step) {
  const int lane = warp_lane();
  load_matrices(a, rows + place<kChunks>(lane % 16, 2 * step + lane / 16));
}
// B (16, 16) is the same transposed: b[0], b[1] are its columns 0 to 7, b[2], b[3] the others.
template <int kChunks>
__device__ inline void load_columns(unsigned (&b)[4], const uint4* rows, int step) {
  const int lane = warp_lane();
  load_matrices(b, rows + place<kChunks>(lane / 16 * 8 + lane % 8, 2 * step + lane / 8 % 2));
}
// B (16, 16): elements 16 pair, ..., 16 pair + 15 of the rows, as they are.
template <int kChunks>
__device__ inline void load_transposed(unsigned (&b)[4], const uint4* rows, int pair) {
  const int lane = warp_lane();
  gemm_mixed::load_transposed(b, rows + place<kChunks>(lane % 16, 2 * pair + lane / 16));
}

// c (16 kTiles, 8 kColumns) += a (16 kTiles, 16) · b, where b is columns 16 pair, ...
template <int kTiles, int kColumns>
__device__ inline void multiply_pair(float (&c)[kTiles][kColumns][4],
                                     const unsigned (&a)[kTiles][4], const unsigned (&b)[4],
                                     int pair) {
  GPU_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    gemm_mixed::multiply_add<bfloat16>(c[i][2 * pair], a[i], b[0], b[1]);
    gemm_mixed::multiply_add<bfloat16>(c[i][2 * pair + 1], a[i], b[2], b[3]);
  }
}

// Columns 16 step, ..., 16 step + 15 of c (16, 8 kColumns) as a fragment of A: a lane holds the
// very elements that it must, and only rounds them.
//
//   c of columns 0-7:  lane l has row l/4, columns 2 (l%4), 2 (l%4) + 1  =  a[0]; row + 8 = a[1]
//   c of columns 8-15: the same                                          =  a[2];           a[3]
template <int kColumns>
__device__ inline void as_rows(unsigned (&a)[4], const float (&c)[kColumns][4], int step) {
  const float(&low)[4] = c[2 * step];
  const float(&high)[4] = c[2 * step + 1];
  a[0] = pack(low[0], low[1]);
  a[1] = pack(low[2], low[3]);
  a[2] = pack(high[0], high[1]);
  a[3] = pack(high[2], high[3]);
}

// c (16 kTiles, 8 kColumns) += so many rows times the transpose of so many other rows.
template <int kChunks, int kTiles, int kColumns>
__device__ inline void multiply_rows(float (&c)[kTiles][kColumns][4], const uint4* rows,
                                     const uint4* columns) {
  GPU_UNROLL
  for (int step = 0; step < kChunks / 2; ++step) {
    unsigned a[kTiles][4];
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) load_rows<kChunks>(a[i], rows + 16 * i * kChunks, step);
    GPU_UNROLL
    for (int pair = 0; pair < kColumns / 2; ++pair) {
      unsigned b[4];
      load_columns<kChunks>(b, columns + 16 * pair * kChunks, step);
      multiply_pair(c, a, b, pair);
    }
  }
}

// sums (16 kTiles, depth) += weights (16 kTiles, 8 kColumns), rounded, times a tile of as many
// rows.
template <int kChunks, int kTiles, int kColumns>
__device__ inline void add_weighted(float (&sums)[kTiles][kChunks][4],
                                    const float (&weights)[kTiles][kColumns][4],
                                    const uint4* tile) {
  GPU_UNROLL
  for (int step = 0; step < kColumns / 2; ++step) {
    unsigned a[kTiles][4];
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) as_rows(a[i], weights[i], step);
    GPU_UNROLL
    for (int pair = 0; pair < kChunks / 2; ++pair) {
      unsigned b[4];
      load_transposed<kChunks>(b, tile + 16 * step * kChunks, pair);
      multiply_pair(sums, a, b, pair);
    }
  }
}

// ---- Sizes ------------------------------------------------------------------------------------

// Sizes and scale, as the kernels want them.
struct Shape {
  int H, Tq, Tk, D;
  bool causal;
  float unit;      // scale / log 2: what a product of a query and a key counts in scores
  unsigned tiles;  // of one head, a block each
};

inline constexpr float kLogTwo = 0.693147180559945f;
inline constexpr float kNone = -std::numeric_limits<float>::infinity();  // the score of no key

inline Shape shape_of(const Problem& problem, size_t tiles) {
  return {static_cast<int>(problem.H),
          static_cast<int>(problem.Tq),
          static_cast<int>(problem.Tk),
          static_cast<int>(problem.D),
          problem.causal,
          problem.scale / kLogTwo,
          static_cast<unsigned>(tiles)};
}

// Throws what these kernels can't do, in one line.
inline void require_possible(const Problem& problem) {
  if (problem.D > kMostDepth)
    throw std::invalid_argument("attention: heads of " + std::to_string(problem.D) +
                                " elements, at most " + std::to_string(kMostDepth) + " fit");
  if (!(problem.scale > 0)) throw std::invalid_argument("attention: the scale must be positive");
  constexpr size_t kMost = size_t{1} << 30;
  if (problem.Tq > kMost || problem.Tk > kMost || problem.B * problem.H > kMost ||
      (problem.Tq / 64 + 1) * problem.H * problem.B > kMost)
    throw std::invalid_argument("attention: more than 2^30 tokens or tiles");
}

// How many keys the first `queries` queries see, or the last of them alone: query i sees the keys
// up to i + Tk - Tq.
__host__ __device__ inline int visible_keys(int queries, const Shape& shape) {
  if (!shape.causal) return shape.Tk;
  const int keys = queries + shape.Tk - shape.Tq;
  return keys < 0 ? 0 : keys < shape.Tk ? keys : shape.Tk;
}

// One block's head and tile, and where the head's rows begin in a view.
struct Block {
  size_t batch, head;
  int tile;

  __device__ explicit Block(const Shape& shape)
      : batch(blockIdx.x / shape.tiles / static_cast<unsigned>(shape.H)),
        head(blockIdx.x / shape.tiles % static_cast<unsigned>(shape.H)),
        tile(static_cast<int>(blockIdx.x % shape.tiles)) {}

  template <class AnyView>
  __device__ auto row(const AnyView& view, int number) const {
    return view.data + batch * view.stride_batch + head * view.stride_head +
           static_cast<size_t>(number) * view.stride_row;
  }
  // The number of this head's row `row` among all heads' rows.
  __device__ size_t flat(const Shape& shape, int rows_of_head, int number) const {
    return (batch * static_cast<size_t>(shape.H) + head) * static_cast<size_t>(rows_of_head) +
           static_cast<size_t>(number);
  }
};

// Scores of keys that a query does not see become `unseen`. The scores are those of 16 kTiles rows
// from `row` on and of 8 kColumns columns from `column` on; rows are queries and columns keys, or
// with kKeysAreRows the other way round.
template <bool kKeysAreRows, int kTiles, int kColumns>
__device__ inline void mask(float (&scores)[kTiles][kColumns][4], int row, int column,
                            const Shape& shape, float unseen) {
  row += warp_lane() / 4, column += warp_lane() % 4 * 2;
  GPU_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      GPU_UNROLL
      for (int k = 0; k < 4; ++k) {
        const int of_row = row + 16 * i + k / 2 * 8, of_column = column + 8 * j + k % 2;
        const int query = kKeysAreRows ? of_column : of_row;
        const int key = kKeysAreRows ? of_row : of_column;
        if (key >= visible_keys(query + 1, shape)) scores[i][j][k] = unseen;
      }
    }
  }
}

// The elements of two that are not finite: ones in their bits.
__device__ inline unsigned special_bits(unsigned pair) {
  // Their exponents are all ones: one more, and each carries into its sign's place.
  const unsigned carries = ((pair & 0x7f807f80u) + 0x00800080u) & 0x80008000u;
  return (carries >> 15) * 0xffffu;
}
__device__ inline uint4 special_bits(const uint4& chunk) {
  return {special_bits(chunk.x), special_bits(chunk.y), special_bits(chunk.z),
          special_bits(chunk.w)};
}

// A matrix unit multiplies all of a tile by all weights, and 0 times NaN or an infinity is NaN: a
// tile that not all rows of a block see must have no such elements. This replaces them by 0 in
// `tile`, the rows of the columns from `column` on, and adds them to `sums`, the warp's rows from
// `row` on, where a row sees the column: there the weight is above 0. For all threads of a block:
// one barrier, and two more where there are such elements.
template <bool kKeysAreRows, int kColumns, int kThreads, int kTiles, int kChunks>
__device__ inline void take_out_special(float (&sums)[kTiles][kChunks][4], uint4* tile, int row,
                                        int column, const Shape& shape) {
  unsigned found = 0;
  for (int i = static_cast<int>(threadIdx.x); i < kColumns * kChunks; i += kThreads) {
    const uint4 special = special_bits(tile[i]);
    found |= special.x | special.y | special.z | special.w;
  }
  if (__syncthreads_or(found != 0) == 0) return;
  row += warp_lane() / 4;
  for (int k = 0; k < kColumns; ++k) {
    GPU_UNROLL
    for (int j = 0; j < kChunks; ++j) {
      const unsigned* chunk = reinterpret_cast<const unsigned*>(tile + place<kChunks>(k, j));
      const unsigned pair = chunk[warp_lane() % 4], special = pair & special_bits(pair);
      if (special == 0) continue;
      const unsigned words[2] = {special << 16, special & 0xffff0000u};
      float values[2];
      memcpy(values, words, sizeof values);
      GPU_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        GPU_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int of_row = row + 16 * i + 8 * half, of_column = column + k;
          const int query = kKeysAreRows ? of_column : of_row;
          const int key = kKeysAreRows ? of_row : of_column;
          if (key >= visible_keys(query + 1, shape)) continue;
          sums[i][j][2 * half] += values[0];
          sums[i][j][2 * half + 1] += values[1];
        }
      }
    }
  }
  __syncthreads();  // every warp has added what it sees
  for (int i = static_cast<int>(threadIdx.x); i < kColumns * kChunks; i += kThreads) {
    const uint4 chunk = tile[i], special = special_bits(chunk);
    tile[i] = {chunk.x & ~special.x, chunk.y & ~special.y, chunk.z & ~special.z,
               chunk.w & ~special.w};
  }
  __syncthreads();  // the tile is finite
}

// ---- Output -----------------------------------------------------------------------------------

// The chunk at `from`, of which `count` elements are inside the matrix.
template <bool kAligned>
__device__ inline uint4 load_chunk(const bfloat16* from, int count) {
  if constexpr (kAligned)
    return *reinterpret_cast<const uint4*>(from);
  else
    return gemm_mixed::load_chunk(from, count);
}

// Stores `chunk` at `to`, of which `count` elements are inside the matrix.
template <bool kAligned>
__device__ inline void store_chunk(bfloat16* to, const uint4& chunk, int count) {
  if constexpr (kAligned) {
    if (count > 0) *reinterpret_cast<uint4*>(to) = chunk;
  } else {
    bfloat16 elements[kPerChunk];
    memcpy(static_cast<void*>(elements), &chunk, sizeof chunk);
    GPU_UNROLL
    for (int i = 0; i < kPerChunk; ++i)
      if (i < count) to[i] = elements[i];
  }
}

// Stores a warp's sums, each row times its factor, in the rows from `row` on of a block's output,
// of which `rows` are inside. In `tile`, from the same row on, the warp turns its lanes' pairs into
// whole chunks: nobody may need what is there.
template <bool kAligned, int kTiles, int kChunks>
__device__ inline void store_rows(bfloat16* out, size_t stride, int D, int rows, uint4* tile,
                                  int row, const float (&sums)[kTiles][kChunks][4],
                                  const float (&factors)[kTiles][2]) {
  const int lane = warp_lane();
  GPU_UNROLL
  for (int i = 0; i < kTiles; ++i) {
    GPU_UNROLL
    for (int j = 0; j < kChunks; ++j) {
      GPU_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int to_row = row + 16 * i + 8 * half + lane / 4;
        unsigned* chunk = reinterpret_cast<unsigned*>(tile + place<kChunks>(to_row, j));
        chunk[lane % 4] = pack(sums[i][j][2 * half] * factors[i][half],
                               sums[i][j][2 * half + 1] * factors[i][half]);
      }
    }
  }
  gpu::wave_sync();  // the warp's rows are complete
  GPU_UNROLL
  for (int i = 0; i < kTiles * kChunks / 2; ++i) {
    const int index = i * kLanes + lane, chunk = index % kChunks;
    const int from_row = row + index / kChunks;
    if (from_row < rows)
      store_chunk<kAligned>(
          out + static_cast<size_t>(from_row) * stride + static_cast<size_t>(chunk * kPerChunk),
          tile[place<kChunks>(from_row, chunk)], D - chunk * kPerChunk);
  }
}

// ---- Forward ----------------------------------------------------------------------------------

// What a block does: kQueries queries of one head against tiles of kKeys keys; each warp
// kWarpQueries of them. In shared memory there is room for all its queries and for kStages tiles of
// K or V. kHoldQueries: the fragments of Q stay in registers. kBlocks shall fit a multiprocessor.
template <int kDepth_, int kQueries_, int kKeys_, int kWarpQueries_, int kStages_, int kBlocks_,
          bool kHoldQueries_>
struct ForwardTile {
  static constexpr int kDepth = kDepth_, kQueries = kQueries_, kKeys = kKeys_;
  static constexpr int kWarpQueries = kWarpQueries_, kStages = kStages_, kBlocks = kBlocks_;
  static constexpr bool kHoldQueries = kHoldQueries_;
  static constexpr int kThreads = kQueries / kWarpQueries * kLanes;
  static constexpr int kChunks = kDepth / kPerChunk;
  static constexpr size_t kSharedBytes =
      size_t{kQueries + kStages * kKeys} * kChunks * sizeof(uint4);
};

// The running softmax of a warp's queries, 16 kTiles rows. A lane has two rows in every 16, and of
// each row's sum only what its own elements add to it. Scores are counted in units of log 2.
template <int kTiles>
struct RunningSoftmax {
  float shift[kTiles][2];  // the largest score so far, -infinity before the first key
  float sum[kTiles][2];    // of 2^(score - shift)

  __device__ RunningSoftmax() {
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      shift[i][0] = shift[i][1] = kNone;
      sum[i][0] = sum[i][1] = 0;
    }
  }

  // Turns the scores of a tile, unit * scores, into weights 2^(score - shift). Where they raise the
  // shift, what has been summed before becomes smaller, and out with it.
  template <int kColumns, int kOutColumns>
  __device__ void add(float (&scores)[kTiles][kColumns][4], float (&out)[kTiles][kOutColumns][4],
                      float unit) {
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      add_row<0>(scores[i], out[i], unit, shift[i][0], sum[i][0]);
      add_row<2>(scores[i], out[i], unit, shift[i][1], sum[i][1]);
    }
  }

  // Completes the sums.
  __device__ void finish() {
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      GPU_UNROLL
      for (float& row_sum : sum[i]) {
        row_sum += gpu::wave_shfl_xor(row_sum, 1);
        row_sum += gpu::wave_shfl_xor(row_sum, 2);
      }
    }
  }

 private:
  // The row that this lane's elements kFirst, kFirst + 1 of each 16 x 8 belong to.
  template <int kFirst, int kColumns, int kOutColumns>
  static __device__ void add_row(float (&scores)[kColumns][4], float (&out)[kOutColumns][4],
                                 float unit, float& shift, float& sum) {
    float highest = fmaxf(scores[0][kFirst], scores[0][kFirst + 1]);
    GPU_UNROLL
    for (int j = 1; j < kColumns; ++j)
      highest = fmaxf(highest, fmaxf(scores[j][kFirst], scores[j][kFirst + 1]));
    highest = fmaxf(highest, gpu::wave_shfl_xor(highest, 1));
    highest = fmaxf(highest, gpu::wave_shfl_xor(highest, 2));  // a row is spread over four lanes
    // The difference of two shifts is taken of what the weights were made with, rounded as it is:
    // an error common to all of a row's weights goes out with the division by their sum.
    const float before = shift;
    shift = fmaxf(before, unit * highest);
    const float subtract = shift == kNone ? 0 : shift;
    const float smaller = gpu::exp2_flushed(before - subtract);
    float added = 0;
    GPU_UNROLL
    for (int j = 0; j < kColumns; ++j) {
      GPU_UNROLL
      for (int k = kFirst; k < kFirst + 2; ++k) {
        scores[j][k] = gpu::exp2_flushed(fmaf(scores[j][k], unit, -subtract));
        added += scores[j][k];
      }
    }
    sum = sum * smaller + added;
    GPU_UNROLL
    for (int j = 0; j < kOutColumns; ++j) {
      out[j][kFirst] *= smaller;
      out[j][kFirst + 1] *= smaller;
    }
  }
};

// out = softmax(scale Q Kᵀ) V, lse = log Σ exp(scale Q Kᵀ)    Q, out (B,H,Tq,D)  K, V (B,H,Tk,D)
//                                                            lse (B,H,Tq), may be null
// Fixes : the fp32 kernels leave the matrix units idle.
// Idea  : scores leave a multiplication in the very registers from which the next one takes its
//         weights; K and V come through a ring of tiles, and one is under way while one is used.
// Thread: warp w owns kWarpQueries of the block's kQueries queries, its lanes as mma.sync says.
// Costs : 2 barriers per tile of keys, 1 more on the diagonal; one tile of Q, kStages of K or V in
// shared memory; out and
//         a tile's scores in registers.
template <class Tile, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, Tile::kBlocks)
    flash_forward(View out, float* lse, ConstView q, ConstView k, ConstView v, Shape shape) {
  if constexpr (kHaveMma) {
    constexpr int kDepth = Tile::kDepth, kKeys = Tile::kKeys, kStages = Tile::kStages;
    constexpr int kChunks = Tile::kChunks, kThreads = Tile::kThreads;
    constexpr int kTiles = Tile::kWarpQueries / 16;  // of a warp
    constexpr int kSteps = kDepth / 16;              // of a product along the depth
    DYNAMIC_SHARED(uint4, queries);
    uint4* ring = queries + Tile::kQueries * kChunks;

    const Block block(shape);
    // The last queries see the most keys: their blocks come first.
    const int first = (static_cast<int>(shape.tiles) - 1 - block.tile) * Tile::kQueries;
    const int rows = min(shape.Tq - first, Tile::kQueries);
    const int keys = visible_keys(first + rows, shape);
    const TileLoader<Tile::kQueries, kDepth, kThreads, kAligned> q_loader(
        block.row(q, first), q.stride_row, rows, shape.D);
    const TileLoader<kKeys, kDepth, kThreads, kAligned> k_loader(block.row(k, 0), k.stride_row,
                                                                 keys, shape.D);
    const TileLoader<kKeys, kDepth, kThreads, kAligned> v_loader(block.row(v, 0), v.stride_row,
                                                                 keys, shape.D);
    // The ring is filled with K's first tile, V's first, K's second, V's second, ...
    AsyncCopies copies;
    int filling = 0, reading = 0;
    const auto fill_next = [&](bool values, int key) {
      uint4* slot = ring + filling * kKeys * kChunks;
      if (values)
        v_loader.begin(slot, key, copies);
      else
        k_loader.begin(slot, key, copies);
      copies.end_group();
      filling = filling + 1 == kStages ? 0 : filling + 1;
    };
    const auto read_next = [&] {
      uint4* slot = ring + reading * kKeys * kChunks;
      reading = reading + 1 == kStages ? 0 : reading + 1;
      return slot;
    };

    const int warp_row = static_cast<int>(threadIdx.x) / kLanes * Tile::kWarpQueries;
    uint4* own = queries + warp_row * kChunks;  // the warp's
    // All of the warp's queries see that many keys, as far as there is a mask to spare.
    const int unmasked = visible_keys(first + warp_row + 1, shape);
    const int seen_by_all = visible_keys(first + 1, shape);
    float sums[kTiles][kDepth / 8][4] = {};
    RunningSoftmax<kTiles> softmax;
    unsigned held[Tile::kHoldQueries ? kSteps : 1][kTiles][4];

    q_loader.begin(queries, 0, copies);
    GPU_UNROLL
    for (int stage = 0; stage < kStages - 1; ++stage) fill_next(stage % 2 == 1, stage / 2 * kKeys);
    if constexpr (Tile::kHoldQueries) {
      copies.wait<kStages - 2>();
      __syncthreads();  // the queries are complete
      GPU_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        GPU_UNROLL
        for (int i = 0; i < kTiles; ++i)
          load_rows<kChunks>(held[step][i], own + 16 * i * kChunks, step);
      }
    }
    for (int key = 0; key < keys; key += kKeys) {
      // exercise: scores, softmax, and the sums of weighted values (about 26 lines)
      copies.wait<kStages - 2>();
      __syncthreads();  // the tile of K is complete, and no warp reads the one before it
      fill_next(kStages % 2 == 0, key + (kStages - 1) / 2 * kKeys);
      const uint4* key_tile = read_next();
      float scores[kTiles][kKeys / 8][4] = {};
      if constexpr (Tile::kHoldQueries) {
        GPU_UNROLL
        for (int step = 0; step < kSteps; ++step) {
          GPU_UNROLL
          for (int pair = 0; pair < kKeys / 16; ++pair) {
            unsigned b[4];
            load_columns<kChunks>(b, key_tile + 16 * pair * kChunks, step);
            multiply_pair(scores, held[step], b, pair);
          }
        }
      } else {
        multiply_rows<kChunks>(scores, own, key_tile);
      }
      if (key + kKeys > unmasked) mask<false>(scores, first + warp_row, key, shape, kNone);
      softmax.add(scores, sums, shape.unit);

      copies.wait<kStages - 2>();
      __syncthreads();  // the tile of V is complete, and no warp reads that of K any more
      fill_next(kStages % 2 == 1, key + kStages / 2 * kKeys);
      uint4* value_tile = read_next();
      if (key + kKeys > seen_by_all)
        take_out_special<false, kKeys, kThreads>(sums, value_tile, first + warp_row, key, shape);
      add_weighted(sums, scores, value_tile);
      // end exercise
    }

    copies.wait<0>();
    __syncthreads();  // no copy is under way: the queries' tile takes the output
    softmax.finish();
    float factors[kTiles][2];
    GPU_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      GPU_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float sum = softmax.sum[i][half];
        factors[i][half] = sum == 0 ? 0 : 1 / sum;  // 0: no key is visible
        const int row = warp_row + 16 * i + 8 * half + warp_lane() / 4;
        if (lse != nullptr && warp_lane() % 4 == 0 && row < rows)
          lse[block.flat(shape, shape.Tq, first + row)] =
              (softmax.shift[i][half] + log2f(sum)) * kLogTwo;
      }
    }
    store_rows<kAligned>(block.row(out, first), out.stride_row, shape.D, rows, queries, warp_row,
                         sums, factors);
  }
}

template <class Tile, bool kAligned>
inline void launch_forward(const View& out, float* lse, const ConstView& q, const ConstView& k,
                           const ConstView& v, const Problem& problem, hipStream_t stream) {
  const size_t tiles = gpu::ceil_div(problem.Tq, Tile::kQueries);
  const Shape shape = shape_of(problem, tiles);
  gpu::allow_shared_bytes(flash_forward<Tile, kAligned>, Tile::kSharedBytes);
  LAUNCH_ON(stream, (flash_forward<Tile, kAligned>),
            static_cast<unsigned>(tiles * problem.H * problem.B),
            static_cast<unsigned>(Tile::kThreads), Tile::kSharedBytes, out, lse, q, k, v, shape);
}

// ---- Backward ---------------------------------------------------------------------------------
// With the weights P = exp(scale Q Kᵀ - lse) and delta_i = Σ_d grad_out_id out_id,
//
//   grad_v = Pᵀ grad_out      dS = P ∘ (grad_out Vᵀ - delta)      grad_q = scale dS K
//                                                                 grad_k = scale dSᵀ Q
//
// P and dS are computed twice, by tiles of keys for grad_k and grad_v and by tiles of queries for
// grad_q: so nothing is added up by atomics, and every run gives the same bits.

inline constexpr int kLanesPerQuery = 8;

// data[b,h,i] = {lse / log 2, Σ_d grad_out out}    data (B,H,padded)  lse (B,H,Tq)
//                                                 grad_out, out (B,H,Tq,D)
// Fixes : both passes need a query's delta in every tile.
// Idea  : a quarter of a wave, or less, takes a query, each lane chunks of its rows.
// Thread: kLanesPerQuery neighbours own data[t / kLanesPerQuery].
// Costs : 4 D bytes of global memory per query.
template <bool kAligned>
static __global__ void flash_prepare(QueryData* data, const float* lse, ConstView grad_out,
                                     ConstView out, Shape shape, unsigned padded, size_t n) {
  const size_t thread = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const size_t number = thread / kLanesPerQuery, query = number % padded;
  const size_t head = number / padded % static_cast<unsigned>(shape.H);
  const size_t batch = number / padded / static_cast<unsigned>(shape.H);
  const bool inside = number < n && query < static_cast<size_t>(shape.Tq);
  float delta = 0;
  if (inside) {
    const auto row = [&](const ConstView& view) {
      return view.data + batch * view.stride_batch + head * view.stride_head +
             query * view.stride_row;
    };
    const int step = kLanesPerQuery * kPerChunk;
    for (int d = static_cast<int>(thread % kLanesPerQuery) * kPerChunk; d < shape.D; d += step) {
      bfloat16 a[kPerChunk], b[kPerChunk];
      const uint4 chunk_a = load_chunk<kAligned>(row(grad_out) + d, shape.D - d);
      const uint4 chunk_b = load_chunk<kAligned>(row(out) + d, shape.D - d);
      memcpy(static_cast<void*>(a), &chunk_a, sizeof chunk_a);
      memcpy(static_cast<void*>(b), &chunk_b, sizeof chunk_b);
      GPU_UNROLL
      for (int i = 0; i < kPerChunk; ++i) delta += gpu::to_float(a[i]) * gpu::to_float(b[i]);
    }
  }
  for (int distance = kLanesPerQuery / 2; distance > 0; distance /= 2)
    delta += gpu::wave_shfl_xor(delta, distance);
  if (number < n && thread % kLanesPerQuery == 0) {
    const float sum =
        inside ? lse[(batch * static_cast<size_t>(shape.H) + head) * static_cast<size_t>(shape.Tq) +
                     query]
               : kNone;
    data[number] = {sum == kNone ? -kNone : sum / kLogTwo, delta};
  }
}

// What a block of the backward pass does: kRows rows, keys or queries, of one head against tiles of
// kColumns of the other; each warp kWarpRows of them. There is room for kStages such tiles.
template <int kDepth_, int kRows_, int kColumns_, int kWarpRows_, int kStages_, int kBlocks_>
struct BackwardTile {
  static constexpr int kDepth = kDepth_, kRows = kRows_, kColumns = kColumns_;
  static constexpr int kWarpRows = kWarpRows_, kStages = kStages_, kBlocks = kBlocks_;
  static constexpr int kThreads = kRows / kWarpRows * kLanes;
  static constexpr int kChunks = kDepth / kPerChunk;
  static constexpr int kDataChunks = kColumns * static_cast<int>(sizeof(QueryData)) / 16;
  static constexpr int kStageChunks = 2 * kColumns * kChunks + kDataChunks;
  static constexpr size_t kSharedBytes =
      size_t{2 * kRows * kChunks + kStages * kStageChunks} * sizeof(uint4);
  static_assert(kQueryPadding % kColumns == 0 && kDataChunks <= kThreads);
};

// grad_k = scale dSᵀ Q, grad_v = Pᵀ grad_out    a = K, pair_a = V         b = Q, pair_b = grad_out
// grad_q = scale dS K                           a = Q, pair_a = grad_out  b = K, pair_b = V
//                             Q, grad_out (B,H,Tq,D)  K, V (B,H,Tk,D)  data (B,H,padded)
// Fixes : the fp32 kernels leave the matrix units idle.
// Idea  : the two passes are one: the scores a bᵀ and pair_a pair_bᵀ make dS, or its transpose, in
//         the registers from which it multiplies b; with kOfKeys Pᵀ multiplies pair_b there, too.
// Thread: warp w owns kWarpRows of the block's kRows rows of a, its lanes as mma.sync says.
// Costs : 1 barrier per tile of b, 1 or 2 more on the diagonal; in shared memory 2 tiles of a, 2
// kStages of b; the gradients and
//         a tile's P and dS in registers.
template <class Tile, bool kOfKeys, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, Tile::kBlocks)
    flash_backward(View grad_a, View grad_pair_a, const QueryData* data, ConstView a,
                   ConstView pair_a, ConstView b, ConstView pair_b, float scale, unsigned padded,
                   Shape shape) {
  if constexpr (kHaveMma) {
    constexpr int kDepth = Tile::kDepth, kColumns = Tile::kColumns, kStages = Tile::kStages;
    constexpr int kChunks = Tile::kChunks, kThreads = Tile::kThreads, kRows = Tile::kRows;
    constexpr int kTiles = Tile::kWarpRows / 16;  // of a warp
    DYNAMIC_SHARED(uint4, tile_a);
    uint4* tile_pair_a = tile_a + kRows * kChunks;
    uint4* ring = tile_pair_a + kRows * kChunks;

    // The first keys are seen by the most queries, the last queries see the most keys.
    const Block block(shape);
    const int tile = kOfKeys ? block.tile : static_cast<int>(shape.tiles) - 1 - block.tile;
    const int first = tile * kRows;
    const int rows = min((kOfKeys ? shape.Tk : shape.Tq) - first, kRows);
    // The columns that have anything to do with these rows.
    const int end = kOfKeys ? shape.Tq : visible_keys(first + rows, shape);
    const int unseen = kOfKeys && shape.causal ? max(first + shape.Tq - shape.Tk, 0) : 0;
    const int begin = unseen / kColumns * kColumns;

    using LoaderA = TileLoader<kRows, kDepth, kThreads, kAligned>;
    using LoaderB = TileLoader<kColumns, kDepth, kThreads, kAligned>;
    const LoaderB b_loader(block.row(b, 0), b.stride_row, end, shape.D);
    const LoaderB pair_b_loader(block.row(pair_b, 0), pair_b.stride_row, end, shape.D);
    data += block.flat(shape, static_cast<int>(padded), 0);
    AsyncCopies copies;
    const auto fill = [&](int stage, int column) {
      uint4* to = ring + stage * Tile::kStageChunks;
      b_loader.begin(to, column, copies);
      pair_b_loader.begin(to + kColumns * kChunks, column, copies);
      if constexpr (kOfKeys) {
        const int chunk = static_cast<int>(threadIdx.x);
        if (chunk < Tile::kDataChunks)
          copies.begin(to + 2 * kColumns * kChunks + chunk, data + column + 2 * chunk,
                       column < end);
      }
      copies.end_group();
    };

    const int warp_row = static_cast<int>(threadIdx.x) / kLanes * Tile::kWarpRows;
    const int lane = warp_lane();
    float grad[kTiles][kChunks][4] = {}, grad_pair[kOfKeys ? kTiles : 1][kChunks][4] = {};
    QueryData of_row[kOfKeys ? 1 : kTiles][2];
    if constexpr (!kOfKeys) {
      GPU_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        GPU_UNROLL
        for (int half = 0; half < 2; ++half)
          of_row[i][half] = data[first + warp_row + 16 * i + 8 * half + lane / 4];
      }
    }

    LoaderA(block.row(a, first), a.stride_row, rows, shape.D).begin(tile_a, 0, copies);
    LoaderA(block.row(pair_a, first), pair_a.stride_row, rows, shape.D)
        .begin(tile_pair_a, 0, copies);
    GPU_UNROLL
    for (int stage = 0; stage < kStages - 1; ++stage) fill(stage, begin + stage * kColumns);
    int filling = kStages - 1, reading = 0;
    for (int column = begin; column < end; column += kColumns) {
      copies.wait<kStages - 2>();
      __syncthreads();  // this tile of b is complete, and no warp reads the one before it
      fill(filling, column + (kStages - 1) * kColumns);
      filling = filling + 1 == kStages ? 0 : filling + 1;
      uint4* tile_b = ring + reading * Tile::kStageChunks;
      uint4* tile_pair_b = tile_b + kColumns * kChunks;
      const uint4* column_data = tile_pair_b + kColumns * kChunks + lane % 4;  // of two each
      reading = reading + 1 == kStages ? 0 : reading + 1;

      // Is there something to mask in this tile, for the warp and for the block?
      const bool masked = kOfKeys ? visible_keys(column + 1, shape) <
                                        min(first + warp_row + Tile::kWarpRows, shape.Tk)
                                  : visible_keys(first + warp_row + 1, shape) < column + kColumns;
      const bool block_masked = kOfKeys
                                    ? visible_keys(column + 1, shape) < min(first + kRows, shape.Tk)
                                    : visible_keys(first + 1, shape) < column + kColumns;

      // exercise: the weights, their gradients, and what these add (about 39 lines)
      float weights[kTiles][kColumns / 8][4] = {};
      multiply_rows<kChunks>(weights, tile_a + warp_row * kChunks, tile_b);
      GPU_UNROLL
      for (int j = 0; j < kColumns / 8; ++j) {
        QueryData of_column[2];
        if constexpr (kOfKeys) memcpy(of_column, column_data + 4 * j, sizeof of_column);
        GPU_UNROLL
        for (int i = 0; i < kTiles; ++i) {
          GPU_UNROLL
          for (int k = 0; k < 4; ++k) {
            const QueryData& query = kOfKeys ? of_column[k % 2] : of_row[i][k / 2];
            weights[i][j][k] = gpu::exp2_flushed(fmaf(weights[i][j][k], shape.unit, -query.shift));
          }
        }
      }
      if (masked) mask<kOfKeys>(weights, first + warp_row, column, shape, 0);
      if constexpr (kOfKeys) {
        // Without its special elements pair_b is good enough for the products below, too: the
        // query's delta is not finite then.
        if (block_masked)
          take_out_special<true, kColumns, kThreads>(grad_pair, tile_pair_b, first + warp_row,
                                                     column, shape);
        add_weighted<kChunks>(grad_pair, weights, tile_pair_b);
      }

      float products[kTiles][kColumns / 8][4] = {};
      multiply_rows<kChunks>(products, tile_pair_a + warp_row * kChunks, tile_pair_b);
      GPU_UNROLL
      for (int j = 0; j < kColumns / 8; ++j) {
        QueryData of_column[2];
        if constexpr (kOfKeys) memcpy(of_column, column_data + 4 * j, sizeof of_column);
        GPU_UNROLL
        for (int i = 0; i < kTiles; ++i) {
          GPU_UNROLL
          for (int k = 0; k < 4; ++k) {
            const QueryData& query = kOfKeys ? of_column[k % 2] : of_row[i][k / 2];
            weights[i][j][k] *= products[i][j][k] - query.delta;
          }
        }
      }
      if (masked) mask<kOfKeys>(weights, first + warp_row, column, shape, 0);  // 0 times NaN
      if (block_masked)
        take_out_special<kOfKeys, kColumns, kThreads>(grad, tile_b, first + warp_row, column,
                                                      shape);
      add_weighted<kChunks>(grad, weights, tile_b);
      // end exercise
    }

    copies.wait<0>();
    __syncthreads();  // no copy is under way: the tiles of a take the output
    float factors[kTiles][2];
    const auto store = [&](const View& to, uint4* staged, const auto& sums, float factor) {
      GPU_UNROLL
      for (int i = 0; i < kTiles; ++i) factors[i][0] = factors[i][1] = factor;
      store_rows<kAligned>(block.row(to, first), to.stride_row, shape.D, rows, staged, warp_row,
                           sums, factors);
    };
    store(grad_a, tile_a, grad, scale);
    if constexpr (kOfKeys) store(grad_pair_a, tile_pair_a, grad_pair, 1);
  }
}

template <bool kAligned>
inline void launch_prepare(QueryData* data, const float* lse, const ConstView& grad_out,
                           const ConstView& out, const Problem& problem, hipStream_t stream) {
  constexpr size_t kBlock = 256;
  const size_t padded = padded_queries(problem), n = problem.B * problem.H * padded;
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>(gpu::ceil_div(n * kLanesPerQuery, kBlock));
  LAUNCH_ON(stream, (flash_prepare<kAligned>), blocks, static_cast<unsigned>(kBlock), 0, data, lse,
            grad_out, out, shape_of(problem, 1), static_cast<unsigned>(padded), n);
}

template <class Tile, bool kOfKeys, bool kAligned>
inline void launch_backward(const View& grad_a, const View& grad_pair_a, const QueryData* data,
                            const ConstView& a, const ConstView& pair_a, const ConstView& b,
                            const ConstView& pair_b, const Problem& problem, hipStream_t stream) {
  const size_t tiles = gpu::ceil_div(kOfKeys ? problem.Tk : problem.Tq, Tile::kRows);
  if (tiles == 0) return;
  gpu::allow_shared_bytes(flash_backward<Tile, kOfKeys, kAligned>, Tile::kSharedBytes);
  LAUNCH_ON(stream, (flash_backward<Tile, kOfKeys, kAligned>),
            static_cast<unsigned>(tiles * problem.H * problem.B),
            static_cast<unsigned>(Tile::kThreads), Tile::kSharedBytes, grad_a, grad_pair_a, data, a,
            pair_a, b, pair_b, problem.scale, static_cast<unsigned>(padded_queries(problem)),
            shape_of(problem, tiles));
}

// The three launches of the backward pass.
template <class TileOfKeys, class TileOfQueries, bool kAligned>
inline void launch_gradients(const View& grad_q, const View& grad_k, const View& grad_v,
                             const ConstView& grad_out, const ConstView& out, const float* lse,
                             const ConstView& q, const ConstView& k, const ConstView& v,
                             const Problem& problem, Workspace& workspace, hipStream_t stream) {
  QueryData* data = workspace.queries.data();
  launch_prepare<kAligned>(data, lse, grad_out, out, problem, stream);
  launch_backward<TileOfKeys, true, kAligned>(grad_k, grad_v, data, k, v, q, grad_out, problem,
                                              stream);
  launch_backward<TileOfQueries, false, kAligned>(grad_q, grad_q, data, q, grad_out, k, v, problem,
                                                  stream);
}

// ---- The best tile of each ----------------------------------------------------------------------

// The tiles of each depth: where every row is aligned, there is a block for each multiprocessor and
// shared memory enough, and otherwise.
template <int kDepth>
struct ForwardTiles {
  using Large = ForwardTile<kDepth, 128, 64, 32, 2, 2, true>;
  using Small = ForwardTile<kDepth, 64, 64, 16, 2, 2, true>;
};
template <>
struct ForwardTiles<128> {
  using Large = ForwardTile<128, 128, 64, 32, 2, 2, false>;
  using Small = ForwardTile<128, 64, 64, 16, 2, 2, true>;
};
template <>
struct ForwardTiles<256> {
  using Large = ForwardTile<256, 64, 64, 16, 2, 2, false>;
  using Small = ForwardTile<256, 64, 32, 16, 2, 2, false>;
};

template <int kDepth>
struct BackwardTiles {
  using Small = BackwardTile<kDepth, 64, 64, 16, 2, 2>;
  using LargeOfKeys = Small;
  using LargeOfQueries = Small;
};
template <>
struct BackwardTiles<64> {
  using Small = BackwardTile<64, 64, 64, 16, 2, 2>;
  using LargeOfKeys = BackwardTile<64, 128, 32, 32, 3, 2>;
  using LargeOfQueries = BackwardTile<64, 128, 32, 32, 2, 2>;
};
template <>
struct BackwardTiles<128> {
  using Small = BackwardTile<128, 64, 16, 16, 2, 2>;
  using LargeOfKeys = BackwardTile<128, 64, 64, 16, 2, 2>;
  using LargeOfQueries = LargeOfKeys;
};

// Is the start of every row aligned to 16 bytes?
inline bool is_aligned(const ConstView& view, size_t D) {
  return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && D % kPerChunk == 0 &&
         view.stride_batch % kPerChunk == 0 && view.stride_head % kPerChunk == 0 &&
         view.stride_row % kPerChunk == 0;
}

// Calls launch(depth) with the smallest depth of a tile, a compile-time constant, that holds D.
template <size_t kMost, class Launch>
inline void with_depth(size_t D, Launch&& launch) {
  if (D <= 16)
    launch(std::integral_constant<int, 16>{});
  else if (D <= 32)
    launch(std::integral_constant<int, 32>{});
  else if (D <= 64)
    launch(std::integral_constant<int, 64>{});
  else if (D <= 128)
    launch(std::integral_constant<int, 128>{});
  else if constexpr (kMost > 128)
    launch(std::integral_constant<int, 256>{});
}

// The best tile for heads of up to kDepth numbers.
template <int kDepth>
void launch_forward_depth(const View& out, float* lse, const ConstView& q, const ConstView& k,
                          const ConstView& v, const Problem& problem, hipStream_t stream) {
  const bool aligned = is_aligned(out, problem.D) && is_aligned(q, problem.D) &&
                       is_aligned(k, problem.D) && is_aligned(v, problem.D);
  using Large = typename ForwardTiles<kDepth>::Large;
  using Small = typename ForwardTiles<kDepth>::Small;
  const size_t blocks = gpu::ceil_div(problem.Tq, Large::kQueries) * problem.H * problem.B;
  if (!aligned)
    launch_forward<Small, false>(out, lse, q, k, v, problem, stream);
  else if (blocks < gpu::multiprocessors() || Large::kSharedBytes > gpu::max_shared_bytes())
    launch_forward<Small, true>(out, lse, q, k, v, problem, stream);
  else
    launch_forward<Large, true>(out, lse, q, k, v, problem, stream);
}
extern template void launch_forward_depth<16>(const View&, float*, const ConstView&,
                                              const ConstView&, const ConstView&, const Problem&,
                                              hipStream_t);
extern template void launch_forward_depth<32>(const View&, float*, const ConstView&,
                                              const ConstView&, const ConstView&, const Problem&,
                                              hipStream_t);
extern template void launch_forward_depth<64>(const View&, float*, const ConstView&,
                                              const ConstView&, const ConstView&, const Problem&,
                                              hipStream_t);
extern template void launch_forward_depth<128>(const View&, float*, const ConstView&,
                                               const ConstView&, const ConstView&, const Problem&,
                                               hipStream_t);
extern template void launch_forward_depth<256>(const View&, float*, const ConstView&,
                                               const ConstView&, const ConstView&, const Problem&,
                                               hipStream_t);

// out = softmax(scale Q Kᵀ) V, and lse, which may be null.
inline void forward(const View& out, float* lse, const ConstView& q, const ConstView& k,
                    const ConstView& v, const Problem& problem, hipStream_t stream = nullptr) {
  require_possible(problem);
  if (problem.B == 0 || problem.H == 0 || problem.Tq == 0 || problem.D == 0) return;
  with_depth<kMostDepth>(problem.D, [&](auto depth) {
    launch_forward_depth<depth()>(out, lse, q, k, v, problem, stream);
  });
}

template <int kDepth>
void launch_gradients_depth(const View& grad_q, const View& grad_k, const View& grad_v,
                            const ConstView& grad_out, const ConstView& out, const float* lse,
                            const ConstView& q, const ConstView& k, const ConstView& v,
                            const Problem& problem, Workspace& workspace, hipStream_t stream) {
  bool aligned = true;
  for (const ConstView& view :
       {ConstView(grad_q), ConstView(grad_k), ConstView(grad_v), grad_out, out, q, k, v})
    aligned = aligned && is_aligned(view, problem.D);
  using Tiles = BackwardTiles<kDepth>;
  constexpr size_t kSharedBytes =
      std::max(Tiles::LargeOfKeys::kSharedBytes, Tiles::LargeOfQueries::kSharedBytes);
  if (aligned && kSharedBytes <= gpu::max_shared_bytes())
    launch_gradients<typename Tiles::LargeOfKeys, typename Tiles::LargeOfQueries, true>(
        grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, problem, workspace, stream);
  else
    launch_gradients<typename Tiles::Small, typename Tiles::Small, false>(
        grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, problem, workspace, stream);
}
extern template void launch_gradients_depth<16>(const View&, const View&, const View&,
                                                const ConstView&, const ConstView&, const float*,
                                                const ConstView&, const ConstView&,
                                                const ConstView&, const Problem&, Workspace&,
                                                hipStream_t);
extern template void launch_gradients_depth<32>(const View&, const View&, const View&,
                                                const ConstView&, const ConstView&, const float*,
                                                const ConstView&, const ConstView&,
                                                const ConstView&, const Problem&, Workspace&,
                                                hipStream_t);
extern template void launch_gradients_depth<64>(const View&, const View&, const View&,
                                                const ConstView&, const ConstView&, const float*,
                                                const ConstView&, const ConstView&,
                                                const ConstView&, const Problem&, Workspace&,
                                                hipStream_t);
extern template void launch_gradients_depth<128>(const View&, const View&, const View&,
                                                 const ConstView&, const ConstView&, const float*,
                                                 const ConstView&, const ConstView&,
                                                 const ConstView&, const Problem&, Workspace&,
                                                 hipStream_t);

// The gradients of forward(), whose out and lse these are.
inline void backward(const View& grad_q, const View& grad_k, const View& grad_v,
                     const ConstView& grad_out, const ConstView& out, const float* lse,
                     const ConstView& q, const ConstView& k, const ConstView& v,
                     const Problem& problem, Workspace& workspace, hipStream_t stream = nullptr) {
  require_possible(problem);
  const size_t D = problem.D, heads = problem.B * problem.H;
  if (D > kMostBackwardDepth)
    throw std::invalid_argument("attention: heads of " + std::to_string(D) + " elements, at most " +
                                std::to_string(kMostBackwardDepth) + " fit backward in bf16");
  if (heads == 0 || D == 0) return;
  if (heads * padded_queries(problem) > workspace.queries.size())
    throw std::invalid_argument("attention: the workspace was made for a smaller problem");
  with_depth<kMostBackwardDepth>(D, [&](auto depth) {
    launch_gradients_depth<depth()>(grad_q, grad_k, grad_v, grad_out, out, lse, q, k, v, problem,
                                    workspace, stream);
  });
}

#endif

// ---- The versions -----------------------------------------------------------------------------

// A tile of 32 keys or more may rescale what was there; exp2 is off by 2^-22, or 4 u.
inline Roundings roundings_flash(const Problem& p) {
  const double Tk = static_cast<double>(p.Tk), tiles = std::ceil(Tk / 32);
  return {2 * (tiles + 1), Tk + tiles + 16, 3, gpu::kBfloat16Roundoff};
}

struct Launch {
  void (*forward)(const View& out, float* lse, const ConstView& q, const ConstView& k,
                  const ConstView& v, const Problem& p, hipStream_t stream);
  void (*backward)(const View& grad_q, const View& grad_k, const View& grad_v,
                   const ConstView& grad_out, const ConstView& out, const float* lse,
                   const ConstView& q, const ConstView& k, const ConstView& v, const Problem& p,
                   Workspace& workspace, hipStream_t stream);
  Roundings (*roundings)(const Problem& p);
};

// Of attention::kVersions, those for bf16.
inline constexpr Version<Launch> kVersions[] = {
    {"flash_bf16",
     {forward, backward, roundings_flash},
     "the products of a tile on matrix units, in bf16",
     gemm_mixed::kNeedsOfMmaSync},
};

}  // namespace sm80
}  // namespace attention
