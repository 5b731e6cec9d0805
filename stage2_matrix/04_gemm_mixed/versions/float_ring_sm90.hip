// float_ring: 2.3's product from registers, with tiles that the TMA copies four stages ahead.
#include <stdexcept>

#include "common/gpu.h"
#include "stage2_matrix/01_transpose/transpose.h"
#include "stage2_matrix/03_gemm/detail/epilogue.h"
#include "stage2_matrix/03_gemm/gemm.h"
#include "stage2_matrix/04_gemm_mixed/accurate.h"
#include "stage2_matrix/04_gemm_mixed/detail/float_parts_sm90.h"
#include "stage2_matrix/04_gemm_mixed/detail/tile_shares.h"

namespace gemm_mixed {

#if !defined(GPU_BACKEND_HIP)

// C = alpha op(A) B + beta C    op(A) (M, K), B (K, N), C (M, N)
// Fixes : in 2.3's loops 8 of 100 instructions move tiles: they load, store, count addresses, and
//         wait for all threads of the block.
// Idea  : the TMA moves tiles. The threads that multiply wait for a stage's bytes only, and tell
//         the producer when their warp has read a stage. 93 of 100 instructions multiply.
// Thread: warp group 0 is the producer, one thread of it works. The other 256 own 16 x 8 results of
//         a tile each, as in 2.3's wave_tiled.
// Costs : all of a multiprocessor: 193 KiB of shared memory, and all registers. Of the tiles that
//         remain for a last round all blocks take some steps along K: their sums go to `parts`.
template <bool kKMajorA>
static __global__ void GPU_LAUNCH_BOUNDS(FloatTile::kBlockThreads, 1)
    gemm_float_ring(const __grid_constant__ CUtensorMap map_a,
                    const __grid_constant__ CUtensorMap map_b, gemm::Product p, float* parts,
                    TileShares shares, unsigned tile_rows, unsigned tile_columns) {
  if constexpr (kHaveWgmma) {
    using Tile = FloatTile;
    DYNAMIC_SHARED(unsigned char, dynamic);
    auto& shared = aligned_shared<FloatRing>(dynamic);
    if (threadIdx.x == 0) shared.init();
    __syncthreads();  // every thread and the TMA know the barriers

    const unsigned pieces = shares.pieces(blockIdx.x);
    RingPlace place;
    if (threadIdx.x < kWarpGroup) {
      give_registers<Tile::kProducerRegisters>();
      if (threadIdx.x == 0) {
        for (unsigned i = 0; i < pieces; ++i) {
          const TilePiece piece = shares.piece(blockIdx.x, i);
          const gemm::TileOrigin at = float_tile(piece.tile, tile_rows, tile_columns);
          const int row = static_cast<int>(at.row), column = static_cast<int>(at.col);
          for (unsigned step = piece.first; step < piece.end; ++step, place.next(Tile::kStages)) {
            const int k = static_cast<int>(step) * Tile::kTileK;
            FloatStage& stage = shared.stages[place.stage];
            PhaseBarrier& full = shared.full[place.stage];
            shared.empty[place.stage].wait(place.parity ^ 1);
            full.expect(sizeof stage);
            if constexpr (kKMajorA)
              load_box(stage.a, map_a, BoxPlace{row, k, 0, 0}, full);
            else
              copy_boxes(stage.a, map_a, k, row, Tile::kTileM, full);
            copy_boxes(stage.b, map_b, k, column, Tile::kTileN, full);
          }
        }
      }
    } else {
      take_registers<Tile::kConsumerRegisters>();
      const int thread = static_cast<int>(threadIdx.x) - kWarpGroup;
      const gemm::ThreadTile own = gemm::WaveTiles<Tile>::of(thread);
      FloatFragments<kKMajorA> fragments(own);
      for (unsigned i = 0; i < pieces; ++i) {
        const TilePiece piece = shares.piece(blockIdx.x, i);
        FloatSums sums = {};
        shared.full[place.stage].wait(place.parity);  // the piece's first stage is complete
        fragments.begin(shared.stages[place.stage]);
        for (unsigned step = piece.first; step < piece.end; ++step) {
          // exercise: multiply the stage's chunks; the numbers behind its last one are the next
          // stage's, which must be complete; then the stage is empty (about 10 lines)
          const int current = place.stage;
          const FloatStage& stage = shared.stages[current];
          for (int chunk = 1; chunk < Tile::kChunks; ++chunk)
            fragments.multiply(sums, stage, chunk);
          place.next(Tile::kStages);
          const bool is_last = step + 1 == piece.end;  // there is no next stage: load what is here
          if (!is_last) shared.full[place.stage].wait(place.parity);
          fragments.multiply(sums, is_last ? stage : shared.stages[place.stage], 0);
          gpu::wave_sync();  // all lanes have read the stage
          if (warp_lane() == 0) shared.empty[current].arrive();
          // end exercise
        }
        if (i < shares.rounds)
          gemm::store_tile<Tile>(p, gemm::alpha_beta(p),
                                 float_tile(piece.tile, tile_rows, tile_columns), own, sums);
        else
          store_part(parts + shares.part(blockIdx.x, piece.tile) * kFloatsOfPart, sums, thread);
      }
    }
  }
}

// Fixes : the sums of a shared tile lie in the parts that several blocks have left.
// Idea  : a second launch adds a tile's parts in the order of their steps: each time the same bits.
// Thread: a block of 256 for each shared tile; a thread has the sums that one of each part's had.
// Costs : the parts are read once: of 8192^3 there are 199, 26 MB.
static __global__ void GPU_LAUNCH_BOUNDS(FloatTile::kThreads, 1)
    add_parts(gemm::Product p, const float* parts, TileShares shares, unsigned tile_rows,
              unsigned tile_columns) {
  const int thread = static_cast<int>(threadIdx.x);
  const unsigned tile = shares.whole() + blockIdx.x, first = blockIdx.x * shares.steps;
  FloatSums sums = {};
  for (unsigned block = shares.block_of(first); shares.begin(block) < first + shares.steps; ++block)
    add_part(sums, parts + shares.part(block, tile) * kFloatsOfPart, thread);
  gemm::store_tile<FloatTile>(p, gemm::alpha_beta(p), float_tile(tile, tile_rows, tile_columns),
                              gemm::WaveTiles<FloatTile>::of(thread), sums);
}

static unsigned tiles_below(const gemm::Product& p) {
  return static_cast<unsigned>(gpu::ceil_div(p.M, size_t{FloatTile::kTileM}));
}
static unsigned tiles_across(const gemm::Product& p) {
  return static_cast<unsigned>(gpu::ceil_div(p.N, size_t{FloatTile::kTileN}));
}
static TileShares shares_of(const gemm::Product& p) {
  return share_tiles(tiles_below(p) * tiles_across(p), gpu::multiprocessors(),
                     static_cast<unsigned>(gpu::ceil_div(p.K, size_t{FloatTile::kTileK})));
}

// The parts, and behind them the copy of B.
static size_t floats_of_parts(const gemm::Product& p) {
  return shares_of(p).parts() * kFloatsOfPart;
}
size_t float_ring_bytes(const gemm::Product& p) {
  const size_t copy = p.layout == gemm::Layout::NT ? p.K * p.N : 0;
  return (floats_of_parts(p) + copy) * sizeof(float);
}

// Of a product without a batch: A as it is stored, and B (K, N).
static BatchOf<float> matrix_a(const gemm::Product& p) {
  const bool transposed = p.layout == gemm::Layout::TN;
  return {p.a, transposed ? p.K : p.M, transposed ? p.M : p.K, p.lda, 1, 0};
}
static BatchOf<float> matrix_b(const gemm::Product& p) { return {p.b, p.K, p.N, p.ldb, 1, 0}; }

bool float_ring_takes(const gemm::Product& p, const void* workspace) {
  gemm::Product nn = p;
  if (p.layout == gemm::Layout::NT) {
    if (p.ldb != p.K) return false;  // the transpose takes rows without gaps
    nn.b = static_cast<const float*>(workspace) + floats_of_parts(p), nn.ldb = p.N;
  }
  return p.batch == 1 && p.alpha != 0 && matrix_a(nn).suit_tma() && matrix_b(nn).suit_tma();
}

template <bool kKMajorA>
static void launch_ring(const gemm::Product& p, float* parts, hipStream_t stream) {
  using Tile = FloatTile;
  const TileShares shares = shares_of(p);
  constexpr size_t kBytes = sizeof(FloatRing) + kBoxAlignment;
  const auto map_a = kKMajorA ? tensor_map(matrix_a(p), Tile::kTileM)
                              : tensor_map(matrix_a(p), Tile::kTileK, Chunks::in_order);
  gpu::allow_shared_bytes(gemm_float_ring<kKMajorA>, kBytes);
  LAUNCH_ON(stream, gemm_float_ring<kKMajorA>, shares.blocks, unsigned{Tile::kBlockThreads}, kBytes,
            map_a, tensor_map(matrix_b(p), Tile::kTileK, Chunks::in_order), p, parts, shares,
            tiles_below(p), tiles_across(p));
  if (shares.shared > 0)
    LAUNCH_ON(stream, add_parts, shares.shared, unsigned{Tile::kThreads}, 0, p, parts, shares,
              tiles_below(p), tiles_across(p));
}

void launch_float_ring(const gemm::Product& product, void* workspace, hipStream_t stream) {
  gemm::check(product);
  if (!float_ring_takes(product, workspace)) return gemm::best(product, stream);
  gemm::Product p = product;
  float* const parts = static_cast<float*>(workspace);
  if (p.layout == gemm::Layout::NT) {
    float* const b = parts + floats_of_parts(p);
    transpose::launch_vectorized(b, p.b, p.N, p.K, stream);
    p.layout = gemm::Layout::NN, p.b = b, p.ldb = p.N;
  }
  p.layout == gemm::Layout::TN ? launch_ring<false>(p, parts, stream)
                               : launch_ring<true>(p, parts, stream);
}

#else

size_t float_ring_bytes(const gemm::Product&) { return 0; }

bool float_ring_takes(const gemm::Product&, const void*) { return false; }

void launch_float_ring(const gemm::Product&, void*, hipStream_t) {
  throw std::runtime_error("float_ring needs sm_90");
}

#endif

}  // namespace gemm_mixed
