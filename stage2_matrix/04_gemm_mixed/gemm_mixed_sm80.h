// 2.4  The rung `mma_sync`: the matrix instructions of sm_80 themselves, and what feeds them.
//
//   cp.async     global -> shared memory, 16 bytes, behind the thread's back
//   ldmatrix     shared memory -> fragments, four 8x8 matrices at a time, transposed on the way
//   mma.sync     C (16, 8) += A (16, 16) · B (16, 8) of 16-bit numbers; of tf32 half as deep
//
// PTX defines them on the 32 lanes of a warp and says which lane holds what (PTX ISA, sections
// "Warp-level matrix instructions" and "Asynchronous copy"). On the CPU backend the functions below
// do in software what each instruction does, for every 32 lanes of a wave of 32 or 64, so that the
// very kernel is tested there.
#pragma once

#include <stdexcept>
#include <vector>

#include "stage2_matrix/04_gemm_mixed/gemm_mixed.h"

namespace gemm_mixed {

#if defined(GPU_BACKEND_HIP)

template <class T>
inline void launch_mma_sync(float*, const T*, const T*, size_t, size_t, size_t, hipStream_t) {
  throw std::runtime_error("mma_sync needs sm_80");
}

#else

inline constexpr int kLanes = 32;

// Which of the 32 lanes is this thread? Blocks are one-dimensional.
__device__ inline int warp_lane() { return static_cast<int>(threadIdx.x % kLanes); }

// ---- The instructions -------------------------------------------------------------------------
// A register holds 4 bytes of a row of A or of a column of B, a word: two 16-bit numbers or one
// tf32. Counted in words, the fragments of all three types are the same:
//
//   A, 16 rows of 8 words   lane l: a[0] row l/4,     word l%4      a[2] row l/4,     word l%4 + 4
//                                   a[1] row l/4 + 8, word l%4      a[3] row l/4 + 8, word l%4 + 4
//   B, 8 columns of 8 words lane l: b[0] column l/4, word l%4       b[1] column l/4, word l%4 + 4
//   C, 16 rows, 8 columns   lane l: c[0], c[1] row l/4, columns 2 (l%4) and 2 (l%4) + 1
//                                   c[2], c[3] row l/4 + 8, the same columns

#if defined(GPU_BACKEND_CUDA)

__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Four 8x8 matrices of 16-bit numbers (8x4 of words) in shared memory: lane 8 m + r says where row
// r of matrix m begins, aligned to 16 bytes. Lane l gets word l%4 of row l/4 of each.
__device__ inline void load_matrices(unsigned (&words)[4], const uint4* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row)));
}
// The same of the transposed matrices: lane l gets the numbers 2 (l%4), 2 (l%4) + 1 of column l/4.
__device__ inline void load_transposed(unsigned (&words)[4], const uint4* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row)));
}

// c += a b.
template <class T>
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
  if constexpr (std::is_same_v<T, gpu::half>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else if constexpr (std::is_same_v<T, gpu::bfloat16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Copies from global to shared memory that a thread has asked for and does not wait for.
struct AsyncCopies {
  // Begins the copy of 16 bytes, aligned to 16; where not `inside`, of zeros: `from` is not read.
  __device__ void begin(uint4* to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(inside ? 16 : 0));
  }
  // What was begun since the last end_group() is one group.
  __device__ void end_group() { asm volatile("cp.async.commit_group;"); }
  // Waits until this thread's copies have arrived, but for those of its last kLate groups.
  template <int kLate>
  __device__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLate) : "memory");
  }
};

#else

inline constexpr int kMostThreads = 1024;

// The thread that is lane `lane` of the same 32.
__device__ inline int thread_of_lane(int lane) { return gpu::thread_rank() - warp_lane() + lane; }

// Every lane leaves in `of_thread` what the others may want of it.
template <class Value>
__device__ inline void exchange(Value (&of_thread)[kMostThreads], Value value) {
  gpu::wave_sync();  // no lane needs what the last exchange left
  of_thread[gpu::thread_rank()] = value;
  gpu::wave_sync();  // every lane's value is there
}

__device__ inline const uint4* matrix_row(int matrix, int row, const uint4* (&rows)[kMostThreads]) {
  return rows[thread_of_lane(8 * matrix + row)];
}
__device__ inline void load_matrices(unsigned (&words)[4], const uint4* row) {
  __shared__ const uint4* rows[kMostThreads];
  exchange(rows, row);
  const int lane = warp_lane();
  for (int matrix = 0; matrix < 4; ++matrix) {
    const uint4* from = matrix_row(matrix, lane / 4, rows);
    memcpy(&words[matrix], reinterpret_cast<const unsigned*>(from) + lane % 4, sizeof(unsigned));
  }
}
__device__ inline void load_transposed(unsigned (&words)[4], const uint4* row) {
  __shared__ const uint4* rows[kMostThreads];
  exchange(rows, row);
  const int lane = warp_lane();
  for (int matrix = 0; matrix < 4; ++matrix) {
    unsigned short numbers[2];
    for (int i = 0; i < 2; ++i) {
      const uint4* from = matrix_row(matrix, 2 * (lane % 4) + i, rows);
      memcpy(&numbers[i], reinterpret_cast<const unsigned short*>(from) + lane / 4, 2);
    }
    memcpy(&words[matrix], numbers, sizeof numbers);
  }
}

// sum + the product of two words.
template <class T>
__device__ inline float multiply_words(unsigned a, unsigned b, float sum) {
  T numbers_a[4 / sizeof(T)], numbers_b[4 / sizeof(T)];
  memcpy(numbers_a, &a, sizeof a);
  memcpy(numbers_b, &b, sizeof b);
  for (size_t i = 0; i < 4 / sizeof(T); ++i)
    sum += gpu::to_float(numbers_a[i]) * gpu::to_float(numbers_b[i]);
  return sum;
}

// What one lane holds of A and B.
struct Operands {
  unsigned a[4], b[2];
};
template <class T>
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1) {
  __shared__ Operands operands[kMostThreads];
  exchange(operands, Operands{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  const int lane = warp_lane();
  for (int word = 0; word < 8; ++word) {
    const Operands& of_row = operands[thread_of_lane(lane / 4 * 4 + word % 4)];
    for (int column = 0; column < 2; ++column) {
      const Operands& of_column =
          operands[thread_of_lane((2 * (lane % 4) + column) * 4 + word % 4)];
      const unsigned b_word = of_column.b[word / 4];
      for (int row = 0; row < 2; ++row) {
        float& sum = c[2 * row + column];
        sum = multiply_words<T>(of_row.a[word / 4 * 2 + row], b_word, sum);
      }
    }
  }
}

// Copies arrive as late as they may, when they are waited for: a kernel that waits for too few of
// them finds what stood there before.
struct AsyncCopies {
  struct Copy {
    uint4* to;
    const void* from;
    bool inside;
    int group;
  };
  std::vector<Copy> begun;
  int groups = 0;

  void begin(uint4* to, const void* from, bool inside) {
    begun.push_back({to, from, inside, groups});
  }
  void end_group() { ++groups; }
  template <int kLate>
  void wait() {
    size_t arrived = 0;
    for (; arrived < begun.size() && begun[arrived].group < groups - kLate; ++arrived) {
      const Copy& copy = begun[arrived];
      *copy.to = uint4{0, 0, 0, 0};
      if (copy.inside) memcpy(copy.to, copy.from, sizeof(uint4));
    }
    begun.erase(begun.begin(), begun.begin() + static_cast<std::ptrdiff_t>(arrived));
  }
};

#endif

// ---- Tiles ------------------------------------------------------------------------------------

// What a block computes of C, what each of its warps does, for how many tiles along K there is room
// in shared memory, and how many blocks shall fit a multiprocessor.
template <int kRows_, int kColumns_, int kWarpRows_, int kWarpColumns_, int kStages_, int kBlocks_>
struct MmaTile {
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  static constexpr int kWarpRows = kWarpRows_, kWarpColumns = kWarpColumns_;
  static constexpr int kStages = kStages_, kBlocks = kBlocks_;
  static constexpr int kWarpsInRow = kColumns / kWarpColumns;
  static constexpr int kThreads = kRows / kWarpRows * kWarpsInRow * kLanes;
};

using LargeTile = MmaTile<128, 256, 64, 64, 4, 1>;   // 192 KiB: sm_90
using MediumTile = MmaTile<128, 128, 64, 64, 3, 2>;  // 96 KiB: every device from sm_80 on
using SmallTile = MmaTile<64, 64, 32, 32, 3, 2>;     // 48 KiB: small matrices, and the CPU backend

// A tile of A is 128 bytes deep along K, eight chunks of 16 bytes; the tile of B is as deep.
inline constexpr int kChunksDeep = 8;
template <class T>
inline constexpr int kStageDepth = kPerChunk<T>* kChunksDeep;
inline constexpr int kSteps = kChunksDeep / 2;  // one mma.sync takes two chunks of a row

// Blocks go down kRasterRows rows of tiles before they go one column on: those that run at the same
// time share their tiles of A and B in the L2 cache.
inline constexpr unsigned kRasterRows = 16;

struct TilePlace {
  unsigned row, column;
};
// The tile of C that block `block` computes, of rows x columns tiles.
__host__ __device__ inline TilePlace tile_place(unsigned block, unsigned rows, unsigned columns) {
  const unsigned band = block / (kRasterRows * columns), in_band = block % (kRasterRows * columns);
  const unsigned first = band * kRasterRows;
  const unsigned height = rows - first < kRasterRows ? rows - first : kRasterRows;
  return {first + in_band % height, in_band / height};
}

// ---- Shared memory without bank conflicts -----------------------------------------------------

// Where chunk `chunk` of row `row` stands in shared memory. Eight lanes of a load read the same
// chunk of eight rows; if rows were stored as they are, all eight would meet in the same banks. So
// each row swaps its chunks in another way, by an exclusive or with the row's number:
//
//   row 0    0 1 2 3 4 5 6 7     chunk 0 of rows 0 to 7 is a diagonal:
//   row 1    1 0 3 2 5 4 7 6     every row has it in other banks
//   row 2    2 3 0 1 6 7 4 5
//   row 3    3 2 1 0 7 6 5 4
//   ...
template <int kChunks>
__host__ __device__ constexpr int swizzled(int row, int chunk) {
  // exercise: swap the chunks of each of eight neighbouring rows in another way (about 3 lines)
  int place = chunk;
  place ^= row % 8;
  return row * kChunks + place;
  // end exercise
}
// B of tf32 is not read by ldmatrix, which can transpose 16-bit numbers only: the lanes read two
// neighbouring chunks of four rows, word by word. Rows swap pairs of chunks.
template <int kChunks>
__host__ __device__ constexpr int swizzled_pairs(int row, int chunk) {
  return row * kChunks + (chunk ^ row % 4 * 2);
}

// One tile of A and one of B.
template <class T, class Tile>
struct Stage {
  static constexpr int kChunksA = kChunksDeep, kChunksB = Tile::kColumns / kPerChunk<T>;

  static __host__ __device__ constexpr int place_a(int row, int chunk) {
    return swizzled<kChunksA>(row, chunk);
  }
  static __host__ __device__ constexpr int place_b(int row, int chunk) {
    return sizeof(T) == 2 ? swizzled<kChunksB>(row, chunk) : swizzled_pairs<kChunksB>(row, chunk);
  }

  uint4 a[Tile::kRows * kChunksA];     // (kRows, kStageDepth)
  uint4 b[kStageDepth<T> * kChunksB];  // (kStageDepth, kColumns)
};

// Fills one stage after the other with the tiles along K. With kAligned all rows of A and B are
// aligned to 16 bytes, and the copies are asynchronous.
template <class T, class Tile, bool kAligned>
class StageLoader {
  using Stage = gemm_mixed::Stage<T, Tile>;
  // The threads take whole rows of chunks: so many rows at once.
  static constexpr int kRowsA = Tile::kThreads / Stage::kChunksA;
  static constexpr int kRowsB = Tile::kThreads / Stage::kChunksB;
  static_assert(kRowsA % 8 == 0 && kRowsB % (sizeof(T) == 2 ? 8 : 4) == 0,
                "a thread's chunks all have the same place in their rows");

 public:
  __device__ StageLoader(const T* a, const T* b, size_t M, size_t N, size_t K, size_t row,
                         size_t column)
      : N_(N), K_(K), left_(K) {
    const int thread = static_cast<int>(threadIdx.x);
    const int row_a = thread / Stage::kChunksA, chunk_a = thread % Stage::kChunksA;
    const int row_b = thread / Stage::kChunksB, chunk_b = thread % Stage::kChunksB;
    place_a_ = Stage::place_a(row_a, chunk_a);
    place_b_ = Stage::place_b(row_b, chunk_b);
    k_a_ = chunk_a * kPerChunk<T>;
    k_b_ = row_b;
    a_ = a + (row + static_cast<size_t>(row_a)) * K + k_a_;
    b_ = b + static_cast<size_t>(row_b) * N + column + chunk_b * kPerChunk<T>;
    rows_left_ = clip(M - row, Tile::kRows) - row_a;
    columns_left_ = clip(N - column, Tile::kColumns) - chunk_b * kPerChunk<T>;
  }

  // Begins to fill `stage` with the next tile of A and of B, with zeros beyond their edges. Beyond
  // the end of K there is nothing left but zeros.
  __device__ void begin(Stage& stage, AsyncCopies& copies) {
    const int depth = clip(left_, kStageDepth<T>);
    GPU_UNROLL
    for (int i = 0; i < Tile::kRows / kRowsA; ++i)
      copy(stage.a + place_a_ + i * kRowsA * Stage::kChunksA, a_ + i * kRowsA * K_,
           i * kRowsA < rows_left_ ? depth - k_a_ : 0, copies);
    GPU_UNROLL
    for (int i = 0; i < kStageDepth<T> / kRowsB; ++i)
      copy(stage.b + place_b_ + i * kRowsB * Stage::kChunksB, b_ + i * kRowsB * N_,
           i * kRowsB + k_b_ < depth ? columns_left_ : 0, copies);
    a_ += kStageDepth<T>;
    b_ += kStageDepth<T> * N_;
    left_ -= static_cast<size_t>(depth);
  }

 private:
  // The chunk at `from`, of which `count` elements are inside the matrix.
  static __device__ void copy(uint4* to, const T* from, int count, AsyncCopies& copies) {
    if constexpr (kAligned)
      copies.begin(to, from, count > 0);  // all of it, or nothing
    else
      *to = load_chunk(from, count);
  }

  const T* a_;  // this thread's first chunk of the next tiles
  const T* b_;
  size_t N_, K_, left_;           // left_: what is left of K
  int place_a_, place_b_;         // where that chunk goes
  int k_a_, k_b_;                 // its place along K in the tile
  int rows_left_, columns_left_;  // from its row of A, or its column of B, to the edge
};

// ---- Fragments --------------------------------------------------------------------------------

// What a lane holds of its warp's kWarpRows x kWarpColumns product for one step along K: of A the
// words of 16 rows each, of B the words of 16 columns each, for two multiplications.
template <class Tile>
struct Fragments {
  unsigned a[Tile::kWarpRows / 16][4];
  unsigned b[Tile::kWarpColumns / 16][4];
};

template <class T, class Tile>
class FragmentLoader {
  using Stage = gemm_mixed::Stage<T, Tile>;
  static constexpr int kStepDepth = 2 * kPerChunk<T>;
  static constexpr int kTiles = Tile::kWarpColumns / 16;

 public:
  // warp_row, warp_column: where the warp's part of the block's tile begins.
  __device__ FragmentLoader(int warp_row, int warp_column) {
    const int lane = warp_lane();
    row_a_ = warp_row + lane % 16;
    chunk_a_ = lane / 16;
    GPU_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      const int column = warp_column + j * 16;
      if constexpr (sizeof(T) == 2)
        places_b_[j] = Stage::place_b(lane % 16, column / kPerChunk<T> + lane / 16);
      else
        places_b_[j] =
            4 * Stage::place_b(lane % 4, column / kPerChunk<T> + lane / 16) + lane / 4 % 4;
    }
  }

  __device__ void load(Fragments<Tile>& fragments, const Stage& stage, int step) const {
    const uint4* a = stage.a + Stage::place_a(row_a_, 2 * step + chunk_a_);
    GPU_UNROLL
    for (int i = 0; i < Tile::kWarpRows / 16; ++i)
      load_matrices(fragments.a[i], a + i * 16 * Stage::kChunksA);

    const uint4* b = stage.b + step * kStepDepth * Stage::kChunksB;
    GPU_UNROLL
    for (int j = 0; j < kTiles; ++j) {
      if constexpr (sizeof(T) == 2) {
        load_transposed(fragments.b[j], b + places_b_[j]);
      } else {
        // Two rows of B, four apart, and two columns, eight apart: two chunks further, which the
        // swizzle has put two chunks before or behind.
        const unsigned* word = reinterpret_cast<const unsigned*>(b);
        const int first = places_b_[j], second = first ^ 8;
        fragments.b[j][0] = word[first];
        fragments.b[j][1] = word[first + 16 * Stage::kChunksB];
        fragments.b[j][2] = word[second];
        fragments.b[j][3] = word[second + 16 * Stage::kChunksB];
      }
    }
  }

 private:
  int row_a_, chunk_a_;
  int places_b_[kTiles];  // of 16-bit numbers in chunks, of tf32 in words
};

// sums += the product of a step's fragments. Every second row of tiles is walked backwards: its
// first multiplication then has the fragment of B that the last one had.
template <class T, class Tile>
__device__ inline void multiply_fragments(
    float (&sums)[Tile::kWarpRows / 16][Tile::kWarpColumns / 8][4],
    const Fragments<Tile>& fragments) {
  constexpr int kTiles = Tile::kWarpColumns / 8;
  GPU_UNROLL
  for (int i = 0; i < Tile::kWarpRows / 16; ++i) {
    GPU_UNROLL
    for (int forward = 0; forward < kTiles; ++forward) {
      const int j = i % 2 == 0 ? forward : kTiles - 1 - forward;
      const unsigned* b = fragments.b[j / 2] + j % 2 * 2;
      multiply_add<T>(sums[i][j], fragments.a[i], b[0], b[1]);
    }
  }
}

// ---- The kernel -------------------------------------------------------------------------------

// Code for an older device has none of the instructions; its row says what it needs.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
inline constexpr bool kHaveMma = false;
#else
inline constexpr bool kHaveMma = true;
#endif

// C = A·B    A (M,K)  B (K,N)  C (M,N), row-major, any sizes.
// Fixes : wmma_tiled's units wait while a tile comes from global memory, and again while fragments
//         come from shared memory.
// Idea  : a ring of stages: while one is multiplied the next kStages - 1 are on their way, and
//         while a step is multiplied the fragments of the next come from shared memory.
// Thread: warp w owns kWarpRows x kWarpColumns of the block's kRows x kColumns of C; its lanes hold
//         them as mma.sync says.
// Costs : 1 barrier per tile; kStages tiles of shared memory; two sets of fragments in registers.
template <class T, class Tile, bool kAligned>
static __global__ void GPU_LAUNCH_BOUNDS(Tile::kThreads, Tile::kBlocks)
    gemm_mma_sync(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                  unsigned tile_rows, unsigned tile_columns) {
  if constexpr (kHaveMma) {
    using Stage = gemm_mixed::Stage<T, Tile>;
    DYNAMIC_SHARED(Stage, stages);
    const TilePlace place = tile_place(blockIdx.x, tile_rows, tile_columns);
    const size_t row = size_t{place.row} * Tile::kRows;
    const size_t column = size_t{place.column} * Tile::kColumns;
    const int warp = static_cast<int>(threadIdx.x) / kLanes;
    const int warp_row = warp / Tile::kWarpsInRow * Tile::kWarpRows;
    const int warp_column = warp % Tile::kWarpsInRow * Tile::kWarpColumns;

    StageLoader<T, Tile, kAligned> loader(a, b, M, N, K, row, column);
    const FragmentLoader<T, Tile> fragment_loader(warp_row, warp_column);
    AsyncCopies copies;
    float sums[Tile::kWarpRows / 16][Tile::kWarpColumns / 8][4] = {};
    Fragments<Tile> fragments[2];

    GPU_UNROLL
    for (int stage = 0; stage < Tile::kStages - 1; ++stage) {
      loader.begin(stages[stage], copies);
      copies.end_group();
    }
    copies.wait<Tile::kStages - 2>();
    __syncthreads();  // the first stage is complete
    fragment_loader.load(fragments[0], stages[0], 0);
    int reading = 0, filling = Tile::kStages - 1;
    const size_t tiles = gpu::ceil_div(K, kStageDepth<T>);
    for (size_t tile = 0; tile < tiles; ++tile) {
      // exercise: multiply step by step, begin a stage and go on to the next (about 16 lines)
      GPU_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        if (step == kSteps - 1) {
          copies.wait<Tile::kStages - 2>();
          __syncthreads();  // the next stage is complete, and every warp has read this one
          reading = reading + 1 == Tile::kStages ? 0 : reading + 1;
        }
        fragment_loader.load(fragments[(step + 1) % 2], stages[reading], (step + 1) % kSteps);
        if (step == 0) {
          loader.begin(stages[filling], copies);
          copies.end_group();  // an empty group counts too
          filling = filling + 1 == Tile::kStages ? 0 : filling + 1;
        }
        multiply_fragments<T>(sums, fragments[step % 2]);
      }
      // end exercise
    }

    // A lane's two neighbouring sums are stored together where every row begins at 8 bytes.
    const int lane = warp_lane();
    const bool pairs = N % 2 == 0 && reinterpret_cast<std::uintptr_t>(c) % sizeof(float2) == 0;
    GPU_UNROLL
    for (int r = 0; r < Tile::kWarpRows / 8; ++r) {
      const size_t to_row = row + static_cast<size_t>(warp_row + r * 8 + lane / 4);
      if (to_row >= M) break;
      GPU_UNROLL
      for (int j = 0; j < Tile::kWarpColumns / 8; ++j) {
        const size_t to_column = column + static_cast<size_t>(warp_column + j * 8 + lane % 4 * 2);
        const float* sum = sums[r / 2][j] + r % 2 * 2;
        float* to = c + to_row * N + to_column;
        if (pairs && to_column < N) *reinterpret_cast<float2*>(to) = make_float2(sum[0], sum[1]);
        if (!pairs && to_column < N) to[0] = sum[0];
        if (!pairs && to_column + 1 < N) to[1] = sum[1];
      }
    }
  }
}

template <class T, class Tile, bool kAligned>
inline void launch_tile(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                        hipStream_t stream) {
  const auto tile_rows = static_cast<unsigned>(gpu::ceil_div(M, Tile::kRows));
  const auto tile_columns = static_cast<unsigned>(gpu::ceil_div(N, Tile::kColumns));
  constexpr size_t kSharedBytes = Tile::kStages * sizeof(Stage<T, Tile>);
  gpu::allow_shared_bytes(gemm_mma_sync<T, Tile, kAligned>, kSharedBytes);
  LAUNCH_ON(stream, (gemm_mma_sync<T, Tile, kAligned>), tile_rows * tile_columns,
            static_cast<unsigned>(Tile::kThreads), kSharedBytes, c, a, b, M, N, K, tile_rows,
            tile_columns);
}

// Has the device the shared memory for this tile, and does the product have a tile for each of its
// multiprocessors?
template <class T, class Tile>
inline bool suits(size_t M, size_t N) {
  return Tile::kStages * sizeof(Stage<T, Tile>) <= gpu::max_shared_bytes() &&
         gpu::ceil_div(M, Tile::kRows) * gpu::ceil_div(N, Tile::kColumns) >= gpu::multiprocessors();
}

template <class T>
inline void launch_mma_sync(float* c, const T* a, const T* b, size_t M, size_t N, size_t K,
                            hipStream_t stream) {
  if (M == 0 || N == 0) return;
  if (!rows_are_aligned(a, K * sizeof(T)) || !rows_are_aligned(b, N * sizeof(T)))
    launch_tile<T, SmallTile, false>(c, a, b, M, N, K, stream);
  else if (suits<T, LargeTile>(M, N))
    launch_tile<T, LargeTile, true>(c, a, b, M, N, K, stream);
  else if (suits<T, MediumTile>(M, N))
    launch_tile<T, MediumTile, true>(c, a, b, M, N, K, stream);
  else
    launch_tile<T, SmallTile, true>(c, a, b, M, N, K, stream);
}

#endif

}  // namespace gemm_mixed
